r"""Who is where and when: the mobility model of the source, drawn beforehand from the seed.

    connected exp(60 s) --evenly--> disconnected exp(10 s) --evenly--> connected, where it was
                        \                                  \
                         `--------> hand-off exp(10 s) <-----'  --> connected, at the other broker

Drawn beforehand, so that the same subscribers move at the same moments in every mode.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from psirp_sim.runtime.durations import SECOND

CONNECTED = 60 * SECOND
"""Means."""
DISCONNECTED = 10 * SECOND
HAND_OFF = 10 * SECOND
SELECTORS = 100
RANGE = SELECTORS // 5
"""Each subscriber takes so many selector values that follow each other."""
_LEAST = SECOND // 1_000


class Absence(NamedTuple):
    """From a departure without a word to the next reconnection."""

    begins: int
    ends: int
    place: int
    """The number of the broker that it ends at."""
    hand_off: bool


class Itinerary(NamedTuple):
    """Of one subscriber."""

    first: int
    """The lowest of its selector values."""
    place: int
    """Where it begins."""
    absences: tuple[Absence, ...]


def draw(random: Random, number: int, places: int, since: int, until: int) -> Itinerary:
    """That of subscriber `number`, who is connected at `since`; after `until` nobody departs."""
    first = random.randrange(SELECTORS - RANGE + 1)
    begins = place = number % places
    absences: list[Absence] = []
    at = since + _exponential(random, CONNECTED)
    while at < until:
        left = at
        hand_off = random.random() < 0.5
        if not hand_off:
            at += _exponential(random, DISCONNECTED)
            hand_off = random.random() < 0.5
        if hand_off:
            at += _exponential(random, HAND_OFF)
            place = (place + random.randrange(1, places)) % places
        absences.append(Absence(left, at, place, hand_off))
        at += _exponential(random, CONNECTED)
    return Itinerary(first, begins, tuple(absences))


def _exponential(random: Random, mean: int) -> int:
    return max(_LEAST, round(random.expovariate(1 / mean)))
