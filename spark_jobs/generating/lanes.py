"""Things that happen one after the other, for many lanes at once.

A lane is whatever keeps an order: a topic at its hub, a topic on its way to one domain, one
subscriber's deliveries. Rows of all lanes lie in the same arrays, `lane` says whose each is.
"""

from __future__ import annotations

import numpy as np

from spark_jobs.generating.rows import NONE, Flags, Numbers

GAP = 1_000
"""Nanoseconds that two events of a lane are apart at least."""


def in_turn(lane: Numbers, order: Numbers, at: Numbers, floor: Numbers) -> Numbers:
    """The times, moved back where a lane's order wants it, and behind the lane's floor."""
    if not len(at):
        return at
    sorting = np.lexsort((order, lane))
    number, within = _places(lane[sorting])
    times = np.maximum(at[sorting], floor[lane[sorting]] + GAP) - within * GAP
    turned = np.empty_like(at)
    turned[sorting] = _running_most(number, times) + within * GAP
    return turned


def overtaken(lane: Numbers, at: Numbers, version: Numbers) -> Flags:
    """Where a higher version of the lane had come before; what has no time never came."""
    late = np.zeros(len(at), dtype=bool)
    came = np.flatnonzero(at != NONE)
    if len(came):
        sorting = came[np.lexsort((at[came], lane[came]))]
        number, _ = _places(lane[sorting])
        late[sorting] = _running_most(number, version[sorting]) > version[sorting]
    return late


def following(lane: Numbers, order: Numbers) -> Numbers:
    """For each row the one that comes next in its lane; -1 for the last."""
    sorting = np.lexsort((order, lane))
    behind = np.full(len(lane), -1)
    same = lane[sorting][1:] == lane[sorting][:-1]
    behind[sorting[:-1][same]] = sorting[1:][same]
    return behind


def count_up(lane: Numbers) -> Numbers:
    """For each row how many of its lane came before, in the order they lie in."""
    sorting = np.argsort(lane, kind="stable")
    counted = np.empty_like(lane)
    counted[sorting] = _places(lane[sorting])[1]
    return counted


def _places(lane: Numbers) -> tuple[Numbers, Numbers]:
    """Of sorted lanes: a number from 0 for each lane, and the place of each row in its own."""
    begins = np.concatenate(([True], lane[1:] != lane[:-1])) if len(lane) else np.zeros(0, bool)
    number = np.cumsum(begins) - 1
    firsts = np.flatnonzero(begins)
    return number, np.arange(len(lane)) - firsts[number]


def _running_most(number: Numbers, values: Numbers) -> Numbers:
    """The greatest value of a lane so far: one pass, each lane on a storey of its own."""
    least = values.min()
    storey = (values.max() - least + 1) * number
    return np.asarray(np.maximum.accumulate(values - least + storey) - storey + least)
