"""Answers by their question: for how long they hold, and for how long in an emergency.

A value is fresh until its time to live is over, then stale for a while: to be used only when
nobody can be asked (RFC 8767). A failure is remembered, too, so that a name server in trouble is
not asked by everybody at once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class CacheBounds:
    """Seconds, and how many entries."""

    shortest: float = 1.0
    """A time to live of 0 would make every look-up a question."""
    longest: float = 86_400.0
    longest_negative: float = 900.0
    """Where nothing is today there may be a PSPH soon, whatever the SOA record says."""
    stale_for: float = 86_400.0
    retry_after: float = 5.0
    """After a failure."""
    entries: int = 10_000

    def __post_init__(self) -> None:
        if not 0 < self.shortest <= min(self.longest, self.longest_negative):
            raise ValueError("the shortest time to live must be above 0 and below the longest")
        if self.stale_for < 0 or self.retry_after < 0 or self.entries < 1:
            raise ValueError("stale_for and retry_after cannot be negative, nor entries below 1")

    def lifetime(self, ttl: float, *, negative: bool) -> float:
        """For how long an answer with this time to live is fresh."""
        return max(self.shortest, min(ttl, self.longest_negative if negative else self.longest))


class Kept(NamedTuple, Generic[Value]):
    """A value; `expires_in` is 0 when it is stale."""

    value: Value
    expires_in: float

    @property
    def stale(self) -> bool:
        return self.expires_in <= 0


@dataclass(slots=True)
class _Entry(Generic[Value]):
    kept: tuple[Value] | None = None
    expires: float = 0.0
    failure: str = ""
    ask_again: float = 0.0


class Cache(Generic[Key, Value]):
    """At most so many entries; the one least lately used makes room."""

    def __init__(self, clock: Callable[[], float], bounds: CacheBounds) -> None:
        self._clock = clock
        self._bounds = bounds
        self._entries: OrderedDict[Key, _Entry[Value]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Key) -> Kept[Value] | None:
        """What is known, fresh or stale."""
        entry = self._entries.get(key)
        if entry is None or entry.kept is None:
            return None
        left = entry.expires - self._clock()
        if left <= -self._bounds.stale_for:
            entry.kept = None
            return None
        self._entries.move_to_end(key)
        return Kept(entry.kept[0], max(left, 0.0))

    def put(self, key: Key, value: Value, seconds: float) -> None:
        """Keep a value that is fresh for so long; failures before it are forgotten."""
        self._keep(key, _Entry((value,), self._clock() + seconds))

    def fail(self, key: Key, why: str) -> None:
        """Nobody could be asked. What is known stays, and grows older."""
        entry = self._entries.get(key) or _Entry()
        entry.failure, entry.ask_again = why, self._clock() + self._bounds.retry_after
        self._keep(key, entry)

    def failure(self, key: Key) -> str | None:
        """Why not to ask now: it failed a moment ago."""
        entry = self._entries.get(key)
        if entry is None or self._clock() >= entry.ask_again:
            return None
        return entry.failure

    def _keep(self, key: Key, entry: _Entry[Value]) -> None:
        self._entries[key] = entry
        self._entries.move_to_end(key)
        if len(self._entries) > self._bounds.entries:
            self._entries.popitem(last=False)
