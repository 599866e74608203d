"""Virtual time: what happens next, and nothing about who it happens to."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush


class Engine:
    """A queue of events in the order of time, and of arrival where times are equal."""

    __slots__ = ("_queue", "_sequence", "now", "steps")

    def __init__(self) -> None:
        self.now = 0
        self.steps = 0
        self._sequence = 0
        self._queue: list[tuple[int, int, Callable[..., None], tuple[object, ...]]] = []

    def at(self, time: int, callback: Callable[..., None], *args: object) -> None:
        """Run the callback at that time, after everything already asked for then."""
        self._sequence = sequence = self._sequence + 1
        heappush(self._queue, (time, sequence, callback, args))

    @property
    def next_time(self) -> int | None:
        """When the next event is due."""
        return self._queue[0][0] if self._queue else None

    def step(self) -> None:
        """Run the next event."""
        self.now, _, callback, args = heappop(self._queue)
        self.steps += 1
        callback(*args)

    def run_until(self, end: int) -> None:
        """Run every event due up to and including `end`, and leave the clock there."""
        queue = self._queue
        steps = 0
        try:
            while queue and queue[0][0] <= end:
                self.now, _, callback, args = heappop(queue)
                steps += 1
                callback(*args)
        finally:
            self.steps += steps
        self.now = end
