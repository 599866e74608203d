"""The messages of one publisher of a topic, in order.

A broker keeps the order of what it got itself. But a publisher that moved may be faster than the
bridge behind it: what it sent before comes after what it sends now. So a message that comes too
early waits for the one before it; if that does not come, it was lost, and the numbers tell.
"""

from __future__ import annotations

from collections.abc import Callable

from identifiers import Position
from mobility.port import Message
from psirp_sim.runtime.durations import SECOND
from psirp_sim.runtime.environment import Environment, Timer

WAIT = 2 * SECOND
"""For a message that may be on its way."""
MOST = 1_000
"""Messages that wait."""


class Stream:
    """Of one publisher, at one broker."""

    def __init__(self, env: Environment, deliver: Callable[[Position, Message], None]) -> None:
        self.last: Position | None = None
        """The highest that passed, or that the broker retained."""
        self._env = env
        self._deliver = deliver
        self._early: dict[Position, Message] = {}
        self._timer: Timer | None = None

    def note(self, position: Position) -> None:
        """The stream is there, or further."""
        if self.last is None or position > self.last:
            self.last = position

    def offer(self, position: Position, message: Message) -> None:
        """Pass it on, now or after the one before it. What came before passes, too, as ever."""
        if self.last is None or position <= self.last or position.directly_follows(self.last):
            self._pass(position, message)
            while self.last is not None and (follows := self.last.next()) in self._early:
                self._pass(follows, self._early.pop(follows))
            return
        self._early[position] = message
        if len(self._early) > MOST:
            self._flush()
        elif self._timer is None:
            self._timer = self._env.call_later(WAIT, self._flush)

    def _pass(self, position: Position, message: Message) -> None:
        self.note(position)
        self._deliver(position, message)

    def _flush(self) -> None:
        self._timer = None
        early, self._early = self._early, {}
        for position in sorted(early):
            self._pass(position, early[position])
