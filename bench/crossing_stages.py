"""Where the time of a crossing goes, as its traces have it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pyarrow.dataset as ds

from identifiers import Position, PublisherId
from traces import Stage

STAGES = (Stage.PING_RECEIVED, Stage.FETCHED, Stage.PUBLISHED, Stage.DELIVERED, Stage.PUSHED)
"""In their order."""


@dataclass(frozen=True, slots=True)
class Crossed:
    """One measurement."""

    begun: int
    """Nanoseconds of the clock that all processes of the machine share."""
    took: float
    """Milliseconds."""
    version: tuple[str, str]
    """Its topic and its Position."""


def stages(crossings: Iterable[Crossed], directories: Iterable[Path]) -> dict[str, float]:
    """Median milliseconds of each stage since the one before; of the first, since it was begun."""
    times: dict[str, dict[str, int]] = defaultdict(dict)
    traces: dict[tuple[str, str], str] = {}
    for directory in directories:
        for event in ds.dataset(directory, ignore_prefixes=["_"]).to_table().to_pylist():
            if event["trace_id"] is None or event["stage"] not in STAGES:
                continue
            times[event["trace_id"]].setdefault(event["stage"], event["mono_ns"])
            if event["stage"] == Stage.PUSHED:
                publisher = PublisherId(event["publisher"])
                position = Position(publisher, event["epoch"], event["version"])
                traces[event["topic"], str(position)] = event["trace_id"]
    found: dict[str, list[float]] = defaultdict(list)
    for each in crossings:
        before, reached = each.begun, times[traces[each.version]]
        for stage in STAGES:
            found[stage].append((reached[stage] - before) / 1e6)
            before = reached[stage]
    return {stage: median(found[stage]) for stage in STAGES}
