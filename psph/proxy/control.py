"""The Control Function: who wants which topic, on which side, and until when.

It knows neither HTTP nor the fabric: a facade turns requests of its protocol into wishes. A wish is
one subscriber's for one topic. On the side of the web it is that of a callback, a browser or a
reader; on the side of the fabric that of another proxy. A wish with a lease is durable and ends
with its lease; one without lives as long as the process, like the connection it stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from heapq import heappop, heappush

import msgspec

from psirp_sim.runtime.environment import Environment, Timer

PREFIX = b"wish "


class Side(StrEnum):
    """Where a wish comes from."""

    WEB = "web"
    FABRIC = "fabric"


Key = tuple[Side, str, str]
"""Side, topic and subscriber."""


class Control:
    """All wishes of a proxy. Topics are in canonical form."""

    def __init__(self, env: Environment, changed: Callable[[Side, str, bool], None]) -> None:
        """`changed` is called with a topic that is wanted on a side for the first time, or by
        nobody any more; not for what `load` finds."""
        self._env = env
        self._changed = changed
        self._wishes: dict[Side, dict[str, dict[str, int | None]]] = {side: {} for side in Side}
        self._unconfirmed: set[Key] = set()
        """Loaded, and not said again in this life."""
        self._ends: list[tuple[int, Key]] = []
        self._timer: Timer | None = None

    def load(self) -> None:
        """Take up the wishes of an earlier life whose leases last."""
        now = self._env.wall()
        over: dict[bytes, bytes | None] = {}
        for stored, value in self._env.storage.scan(PREFIX):
            side, topic, subscriber, until = msgspec.msgpack.decode(
                value, type=tuple[Side, str, str, int]
            )
            if until <= now:
                over[stored] = None
            else:
                self._wishes[side].setdefault(topic, {})[subscriber] = until
                self._unconfirmed.add((side, topic, subscriber))
                heappush(self._ends, (until, (side, topic, subscriber)))
        if over:
            self._env.storage.write(over)
        self._arm()

    def want(self, side: Side, topic: str, subscriber: str, until: int | None) -> None:
        """A wish, or a longer lease for one there is; `until` is by the wall clock."""
        wishes = self._wishes[side].setdefault(topic, {})
        self._unconfirmed.discard((side, topic, subscriber))
        first = not wishes
        known = wishes.get(subscriber, 0)
        wishes[subscriber] = until
        if until is not None and until != known:
            key = (side, topic, subscriber)
            value = msgspec.msgpack.encode((*key, until))
            self._env.storage.write({_stored(key): value})
            heappush(self._ends, (until, key))
            self._arm()
        if first:
            self._changed(side, topic, True)

    def leave(self, side: Side, topic: str, subscriber: str) -> None:
        """A wish ends; one that is not there is no error."""
        wishes = self._wishes[side].get(topic, {})
        if subscriber not in wishes:
            return
        if wishes.pop(subscriber) is not None:
            self._env.storage.write({_stored((side, topic, subscriber)): None})
        if not wishes:
            del self._wishes[side][topic]
            self._changed(side, topic, False)

    def confirmed(self, side: Side) -> None:
        """A facade has said all its wishes again: those of an earlier life that it did not say
        ended while nobody wrote it down."""
        for key in [key for key in self._unconfirmed if key[0] is side]:
            self._unconfirmed.discard(key)
            self.leave(*key)

    def wanted(self, side: Side, topic: str) -> bool:
        """Whether anybody there wants it."""
        return topic in self._wishes[side]

    def subscribers(self, side: Side, topic: str) -> list[str]:
        return list(self._wishes[side].get(topic, ()))

    def topics(self, side: Side) -> list[str]:
        """All that are wanted there."""
        return list(self._wishes[side])

    def wishes_of(self, side: Side, subscriber: str) -> Iterator[str]:
        """The topics that one subscriber wants."""
        return (topic for topic, wishes in self._wishes[side].items() if subscriber in wishes)

    def __len__(self) -> int:
        return sum(len(wishes) for side in self._wishes.values() for wishes in side.values())

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._ends:
            delay = max(0, self._ends[0][0] - self._env.wall())
            self._timer = self._env.call_later(delay, self._end_leases)

    def _end_leases(self) -> None:
        self._timer = None
        now = self._env.wall()
        while self._ends and self._ends[0][0] <= now:
            until, (side, topic, subscriber) = heappop(self._ends)
            # One that was renewed has another entry.
            if self._wishes[side].get(topic, {}).get(subscriber) == until:
                self.leave(side, topic, subscriber)
        self._arm()


def _stored(key: Key) -> bytes:
    return PREFIX + "\0".join(key).encode()
