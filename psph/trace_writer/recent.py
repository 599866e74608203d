"""The last events of a node, in memory: for whoever wants to see them as they happen."""

from __future__ import annotations

from collections import deque
from itertools import islice

import msgspec

from traces import Stage, TraceEvent, TraceSink

AT_ONCE = 1_000
"""Events in one answer."""


class RecentEvents:
    """A `TraceSink` that numbers events from 1 and forgets the oldest.

    Clock probes are left out: they come all the time, and say nothing about an update.
    """

    def __init__(self, kept: int) -> None:
        self._events: deque[TraceEvent] = deque(maxlen=kept)
        self._last = 0

    def emit(self, event: TraceEvent) -> None:
        """Keep the event, in the place of the oldest."""
        if event.stage is not Stage.CLOCK_PROBE:
            self._last += 1
            self._events.append(event)

    def after(self, number: int) -> dict[str, object]:
        """Events after that number as JSON has them, how many were forgotten, and where to go on.

        A number that is not reached yet is one of an earlier life: everything is new.
        """
        if number > self._last:
            number = 0
        first = self._last - len(self._events)
        skipped = max(0, number - first)
        found = list(islice(self._events, skipped, skipped + AT_ONCE))
        return {
            "next": max(number, first) + len(found),
            "lost": max(0, first - number),
            "events": [_plain(event) for event in found],
        }


class BothSinks:
    """A `TraceSink` that passes every event to two."""

    def __init__(self, first: TraceSink, second: TraceSink) -> None:
        self._first = first
        self._second = second

    def emit(self, event: TraceEvent) -> None:
        """Pass the event to both."""
        self._first.emit(event)
        self._second.emit(event)


def _plain(event: TraceEvent) -> dict[str, object]:
    """The columns that have a value; ids in hexadecimal."""
    found = {name: getattr(event, name) for name in _COLUMNS}
    return {
        name: value.hex() if isinstance(value, bytes) else value
        for name, value in found.items()
        if value is not None
    }


_COLUMNS = tuple(field.name for field in msgspec.structs.fields(TraceEvent))
