"""The Control Function: who wants which topic, on which side, and until when.

It knows neither HTTP nor the fabric: a facade turns requests of its protocol into wishes. A wish is
one subscriber's for one topic. On the side of the web it is that of a callback, a browser or a
reader; on the side of the fabric that of another proxy. A wish with a lease is durable and ends
with its lease; one without lives as long as the process, like the connection it stands for.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from heapq import heapify, heappop, heappush

import msgspec

from psirp_sim.runtime.environment import Environment, Timer

PREFIX = b"wish "
FEWEST = 1_024
"""Ends of leases that are noted before those that were renewed are thrown out."""


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
        self._topics: dict[tuple[Side, str], dict[str, None]] = {}
        """Of each subscriber."""
        self._unconfirmed: set[Key] = set()
        """Loaded, and not said again in this life."""
        self._ends: list[tuple[int, Key]] = []
        self._most_ends = FEWEST
        self._timer: Timer | None = None

    def load(self) -> None:
        """Take up the wishes of an earlier life whose leases last."""
        now = self._env.wall()
        over: dict[bytes, bytes | None] = {}
        for stored, value in self._env.storage.scan(PREFIX):
            side, topic, subscriber, until = msgspec.msgpack.decode(
                value, type=tuple[Side, str, str, int]
            )
            said = self._wishes[side].get(topic, {})
            if subscriber in said:  # in this life already
                if said[subscriber] is None:
                    over[stored] = None
            elif until <= now:
                over[stored] = None
            else:
                self._note(side, topic, subscriber, until)
                self._unconfirmed.add((side, topic, subscriber))
                heappush(self._ends, (until, (side, topic, subscriber)))
        if over:
            self._env.storage.write(over)
        self._arm()

    def want(self, side: Side, topic: str, subscriber: str, until: int | None) -> None:
        """A wish, or a longer lease for one there is; `until` is by the wall clock."""
        key = (side, topic, subscriber)
        self._unconfirmed.discard(key)
        first = topic not in self._wishes[side]
        known = self._wishes[side].get(topic, {}).get(subscriber)
        self._note(*key, until)
        if until is not None and until != known:
            value = msgspec.msgpack.encode((*key, until))
            self._env.storage.write({_stored(key): value})
            self._end_at(until, key)
        elif until is None and known is not None:
            self._env.storage.write({_stored(key): None})
        if first:
            self._changed(side, topic, True)

    def leave(self, side: Side, topic: str, subscriber: str) -> None:
        """A wish ends; one that is not there is no error."""
        wishes = self._wishes[side].get(topic, {})
        if subscriber not in wishes:
            return
        if wishes.pop(subscriber) is not None:
            self._env.storage.write({_stored((side, topic, subscriber)): None})
        topics = self._topics[side, subscriber]
        del topics[topic]
        if not topics:
            del self._topics[side, subscriber]
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

    def count(self, side: Side) -> int:
        """How many are wanted there."""
        return len(self._wishes[side])

    def wishes_of(self, side: Side, subscriber: str) -> list[str]:
        """The topics that one subscriber wants."""
        return list(self._topics.get((side, subscriber), ()))

    def __len__(self) -> int:
        return sum(len(wishes) for side in self._wishes.values() for wishes in side.values())

    def _note(self, side: Side, topic: str, subscriber: str, until: int | None) -> None:
        self._wishes[side].setdefault(topic, {})[subscriber] = until
        self._topics.setdefault((side, subscriber), {})[topic] = None

    def _end_at(self, until: int, key: Key) -> None:
        heappush(self._ends, (until, key))
        if len(self._ends) > self._most_ends:
            # Who renews often, or is gone, must not fill the memory until the lease is over.
            self._ends = [each for each in set(self._ends) if self._is_due(*each)]
            heapify(self._ends)
            self._most_ends = max(FEWEST, 2 * len(self._ends))
        self._arm()

    def _is_due(self, until: int, key: Key) -> bool:
        side, topic, subscriber = key
        return self._wishes[side].get(topic, {}).get(subscriber) == until

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
            until, key = heappop(self._ends)
            # One that was renewed has another entry.
            if self._is_due(until, key):
                self.leave(*key)
        self._arm()


def _stored(key: Key) -> bytes:
    return PREFIX + "\0".join(key).encode()
