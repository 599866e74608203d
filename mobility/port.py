"""The port to a pub/sub system: all that mobility knows of one.

An adapter implements `PubSub` for the proxy, and `AccessPoint` (the same, plus coming and going)
for the client. What it calls back is a `Listener`. Three kinds of systems fit:

* **replaying**: messages have Positions and a new subscription may begin after one of them, as far
  back as `history` says (the fabric, a hub, its browser stream);
* **identified**: messages have Positions, and what nobody was subscribed to is gone (MQTT with the
  Position in a user property);
* **plain**: messages are bytes (plain MQTT, Siena): `position` is None everywhere.

Nothing is called back from inside a call: `subscribe` returns before `subscribed` is called.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from identifiers import Position

After = tuple[Position, ...] | None
"""Where a subscription begins: None is from now on. Otherwise after these, one for each publisher
that is known; streams of other publishers come from their beginning, as far as that is kept."""


@dataclass(frozen=True, slots=True)
class Message:
    """What was published."""

    body: bytes
    kind: str = ""
    """A word of the application's by which messages can be excluded from the service."""


class Subscription(Protocol):
    """One subscription of one listener."""

    def cancel(self) -> None:
        """Nothing of it is called back from now on; may be called twice."""


class Listener(Protocol):
    """What a subscription calls back. The messages of one publisher come in order."""

    def subscribed(self, topic: str, base: After) -> None:
        """The subscription is in effect: everything published from now on will come.

        `base`: the last Position of each stream at that moment; what is newer comes for certain.
        From a replaying system, what lies between `after` and `base` comes as well. None where
        the system cannot tell (identified and plain systems may not be able to).
        """

    def deliver(self, topic: str, position: Position | None, message: Message) -> None:
        """A message. A higher epoch of the same publisher is a reset and needs no other word."""

    def gap(self, topic: str, first: Position, last: Position) -> None:
        """These, of one stream, come no more: its history was exceeded."""


class PubSub(Protocol):
    """A pub/sub system at one place."""

    def history(self, topic: str) -> int:
        """How many of the latest messages a subscription with `after` brings for certain.

        0: none, the system does not replay.
        """

    def subscribe(self, topic: str, after: After, listener: Listener) -> Subscription:
        """Begin a subscription; a system that does not replay ignores `after`."""

    def publish(
        self, topic: str, position: Position | None, message: Message, done: Callable[[], None]
    ) -> None:
        """Publish; `done` when the system has taken it.

        Publications of one client are taken in the order given. One whose `done` was not called
        before a move is published again after it, with the same Position: a system with
        Positions takes it once.
        """


class AccessPoint(PubSub, Protocol):
    """A pub/sub system as a client sees it, that is at one place after the other."""

    def attach(self, place: str) -> None:
        """From now on, what is asked for is asked at that place."""

    def detach(self) -> None:
        """Leave: every subscription is cancelled, no `done` comes any more."""
