"""Who carries updates between this hub and others: what the hub asks of them, and tells them.

A carrier brings updates of other sites' topics by `Hub.accept`, and takes ours elsewhere: it
listens (`Hub.listen`), asks what it missed (`Hub.backlog`) and has topics followed (`Hub.keep`). A
proxy to a fabric is one. All methods are called in the hub's event loop; those that are not
coroutines must not block, and nothing that a carrier raises stops the hub.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from identifiers import Position, Topic


@dataclass(frozen=True, slots=True)
class Recalled:
    """A version of a topic that is had from elsewhere once more, and not recorded."""

    position: Position
    content_type: str
    body: bytes
    trace_id: str
    """Empty where it came without one."""


class Carrier(Protocol):
    """Somebody who brings updates of topics from elsewhere."""

    async def admit(self, topic: Topic, subscriber: str) -> None:
        """Before the hub asks a callback whether it meant to subscribe, or waits for the first
        version for a reader of /t/.

        Returns once updates of the topic are sure to come, or at once when they need not; raises
        `errors.Refused` with the reason when they never will. So whoever is confirmed misses
        nothing. One call at a time for a topic answers all who wait for it; the hub waits for
        `admit_patience` seconds and then goes on. The topic should be kept for a while: `joined`
        follows when the callback has confirmed, `left` when it has not.
        """

    def joined(self, topic: Topic, subscriber: str, until: float | None) -> None:
        """Somebody reads the topic here: a callback until its lease ends, a stream (None), readers
        of /t/. Again, with a later `until`, when a lease is renewed.

        `subscriber` is a name that only one subscription to the topic has: the callback, and how
        it spells the topic where that is not the canonical form.
        """

    def left(self, topic: Topic, subscriber: str) -> None:
        """It does not any more, for whatever reason. May be said of somebody who never joined."""

    def told(self) -> None:
        """All that the store holds has been told since the start: whoever joined in an earlier
        life of the hub and was not named has left."""

    def brings(self, topic: Topic) -> str | None:
        """How updates of the topic come here, in words for the diagnostics ("the fabric, from
        site-b.test"); None when the hub has to see for itself. Cheap: it is asked often.

        What is brought is neither fetched nor polled nor followed at its own hub. Where the answer
        changes, `Hub.carrier_changed` makes the hub ask at once; otherwise it does so in time.
        """

    def pinged(self, topic: Topic) -> None:
        """Its publisher said here that a topic which the carrier brings has changed: whoever
        numbers it should know."""

    async def recall(
        self, topic: Topic, after: Position, before: Position | None
    ) -> Sequence[Recalled]:
        """The versions between two Positions of one stream, oldest first, as far as they can still
        be had from elsewhere; empty when not. Without `before`, all that come after.

        Asked when a reader goes on here with a Position that this hub cannot go on from, and again
        after the last one that was answered: it need not answer with all at once. The hub waits
        for `recall_patience` seconds.
        """
