"""What an application of the client library is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from identifiers import Position, PublisherId
from mobility.port import Message
from psirp_sim.runtime.environment import Changes


@dataclass(frozen=True, slots=True)
class Update:
    """A message of a topic."""

    topic: str
    position: Position | None
    """None from a system that has none."""
    message: Message


@dataclass(frozen=True, slots=True)
class Gap:
    """Messages that are missing for good."""

    topic: str
    publisher: PublisherId | None
    """None from a system without Positions, as are the bounds; only the number is known."""
    epoch: int
    first: int
    last: int
    reason: str

    @property
    def missed(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class Reset:
    """A publisher began anew: versions after `previous` may be missing."""

    topic: str
    publisher: PublisherId
    epoch: int
    previous: Position


@dataclass(frozen=True, slots=True)
class MovedOut:
    """The proxy has taken over; the client is detached."""

    proxy: str


@dataclass(frozen=True, slots=True)
class MovedIn:
    """Everything that waited has come; messages are live."""

    proxy: str
    collected: int
    """Bytes that came from buffers."""
    missing: str
    """Why something is missing; empty when nothing is."""


@dataclass(frozen=True, slots=True)
class Superseded:
    """Somebody with the same secret moved in later. This client is detached and stays so until it
    moves in again."""

    epoch: int


Consumed = Update | Gap | Reset
"""What moves a cursor."""
Notice = MovedOut | MovedIn | Superseded

Consume = Callable[[Consumed], Changes]
"""Called with each; returns what is to become durable together with the cursor.

A crash before that moment undoes both, and the same comes again, so an application keeps the effect
nowhere else. Who has no storage to share returns nothing and keeps what it likes.
"""
Notify = Callable[[Notice], None]
