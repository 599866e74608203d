"""What the proxy asks of its neighbours: a hub on the web's side, and a directory of zones.

Both may take their time, so answers come by callback, in the order of one environment: never from
inside the call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from identifiers import Position, PublisherId, Topic


@dataclass(frozen=True, slots=True)
class WebUpdate:
    """A version of a topic, as a hub has it."""

    topic: str
    """In canonical form."""
    position: Position
    content_type: str
    body: bytes
    trace_id: str
    """Empty where it came without a good one."""
    published: bool = False
    """Sent by its publisher rather than fetched: each one counts."""
    recorded_ms: int = field(default=0, compare=False)
    """When the hub that numbered it did, by its wall clock; 0 where that is not known."""

    @property
    def is_unique(self) -> bool:
        """Whether it can be had nowhere else: it was not fetched."""
        return self.published or not self.topic.startswith(("http:", "https:"))


class Web(Protocol):
    """The hub beside the proxy."""

    @property
    def publisher(self) -> PublisherId:
        """Who numbers updates there."""

    @property
    def epoch(self) -> int:
        """In which epoch."""

    def keep(self, topic: Topic, looked: Callable[[], None]) -> None:
        """Somebody outside wants the topic: follow it, whoever else wants it or not. `looked` when
        it has been looked at once, or that takes too long."""

    def let_go(self, topic: Topic) -> None:
        """Nobody outside wants it any more."""

    def ping(self, topic: Topic, done: Callable[[], None]) -> None:
        """Its website said, at another hub, that there is something new. `done` when that is
        durable."""

    def adopt(self, topic: Topic, numbered: Callable[[PublisherId], bool]) -> None:
        """Number its current version anew if it was fetched, and `numbered` by one of those:
        whoever comes later is to have it from us."""

    def backlog(
        self, topic: Topic, after: Position | None, reply: Callable[[Sequence[WebUpdate]], None]
    ) -> None:
        """The updates numbered there after a position, oldest first, or some of them; all that are
        kept when there is none. Empty when there are no more."""

    def positions(self, topic: Topic, reply: Callable[[Sequence[Position]], None]) -> None:
        """How far each stream of the topic is that the hub has recorded."""

    def deliver(self, topic: Topic, update: WebUpdate, done: Callable[[], None]) -> None:
        """Record an update that came over the fabric. `done` when that is durable, whether it was
        new or not; updates of a topic are recorded in the order they are given."""

    def deny(self, topic: Topic, reason: str) -> None:
        """The topic will not come: tell those who subscribed to it, and end that."""

    def carried(self, topic: Topic) -> None:
        """It has changed whether the fabric brings the topic."""


@dataclass(frozen=True, slots=True)
class Zone:
    """What is known of a zone. Without a fabric, its topics are plain WebSub."""

    has_fabric: bool
    keys: tuple[bytes, ...] = ()
    """Ed25519 public keys; none, where its publications are not signed."""
    note: str = ""
    """For the diagnostics: why it is not better."""


class Directory(Protocol):
    """Knows zones: DNS, seen from a core."""

    def look_up(self, zone: str) -> Zone | None:
        """What is known of it; None when nothing is yet: then `Proxy.zone_changed` is called later,
        and again whenever something about a zone that was asked for changes."""

    def forget(self, zone: str) -> None:
        """Nobody asks about it for now."""
