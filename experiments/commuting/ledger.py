"""What was published and received, and the figures that are read off it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from experiments.commuting.itinerary import RANGE, Itinerary
from psirp_sim.runtime.durations import MILLISECOND, SECOND

UNREPORTED = 10 * SECOND
"""Before and after an absence: what may still be buffered, or is already."""
SHORT_STAY = 30 * SECOND


@dataclass(slots=True)
class Ledger:
    """Times are nanoseconds of the world's clock."""

    now: Callable[[], int]
    itineraries: dict[str, Itinerary]
    published: list[tuple[int, int]] = field(default_factory=list)
    """When, and with which selector value; a message's id is its place here, from 1."""
    received: dict[str, dict[int, int]] = field(default_factory=dict)
    """By subscriber and message id: how often."""
    out_of_order: int = 0
    """Given for the first time after a later one of the same selector value."""
    hand_offs: int = 0
    latencies: list[float] = field(default_factory=list)
    """Milliseconds from each reconnection at another broker to the first message there."""
    fresh_latencies: list[float] = field(default_factory=list)
    """The same to the first message that the subscriber did not have."""
    unserved: int = 0
    """Hand-offs after which the subscriber left again before anything came."""
    _waiting: dict[str, int] = field(default_factory=dict)
    """Since when a subscriber waits for its first message after a hand-off."""
    _stale: dict[str, int] = field(default_factory=dict)
    """The same for a message that it does not have."""
    _highest: dict[tuple[str, int], int] = field(default_factory=dict)

    def publish(self, selector: int) -> int:
        self.published.append((self.now(), selector))
        return len(self.published)

    def reconnects(self, subscriber: str) -> None:
        """At another broker than it was at, while messages are published."""
        self.hand_offs += 1
        self._waiting[subscriber] = self._stale[subscriber] = self.now()

    def departs(self, subscriber: str) -> None:
        self.unserved += self._waiting.pop(subscriber, None) is not None
        self._stale.pop(subscriber, None)

    def receive(self, subscriber: str, id: int) -> None:
        since = self._waiting.pop(subscriber, None)
        if since is not None:
            self.latencies.append((self.now() - since) / MILLISECOND)
        times = self.received.setdefault(subscriber, {})
        times[id] = times.get(id, 0) + 1
        if times[id] == 1:
            since = self._stale.pop(subscriber, None)
            if since is not None:
                self.fresh_latencies.append((self.now() - since) / MILLISECOND)
            stream = subscriber, self.published[id - 1][1]
            highest = self._highest.get(stream, 0)
            self.out_of_order += id < highest
            self._highest[stream] = max(highest, id)

    # Read off it

    def wanted(self, subscriber: str) -> list[int]:
        """The ids that it should have."""
        first = self.itineraries[subscriber].first
        return [
            id
            for id, (_, selector) in enumerate(self.published, 1)
            if first <= selector < first + RANGE
        ]

    @property
    def expected(self) -> int:
        return sum(len(self.wanted(name)) for name in self.itineraries)

    @property
    def unique(self) -> int:
        return sum(map(len, self.received.values()))

    @property
    def total(self) -> int:
        """Duplicates included."""
        return sum(sum(times.values()) for times in self.received.values())

    def lost_within_quota(self, item_bytes: int, quota: int) -> tuple[int, int]:
        """Messages that were lost although no more waited for their subscriber than its quota, and
        how many times more did.

        By this account alone, not by what a proxy says. What a subscriber had not reported as
        consumed when it left, and what came while it returned, waits as well; and where it stayed
        too short to collect everything, the next absence adds to the one before.
        """
        lost = exceeded = 0
        for name, itinerary in self.itineraries.items():
            times = [(self.published[id - 1][0], id) for id in self.wanted(name)]
            excused = [
                (begins, ends)
                for begins, ends in _spells(itinerary)
                if sum(begins <= at <= ends for at, _ in times) * item_bytes > quota
            ]
            exceeded += len(excused)
            got = self.received.get(name, {})
            lost += sum(
                id not in got and not any(begins <= at <= ends for begins, ends in excused)
                for at, id in times
            )
        return lost, exceeded


def _spells(itinerary: Itinerary) -> list[tuple[int, int]]:
    """Absences with what belongs to them, those in one that follow each other closely."""
    spells: list[tuple[int, int]] = []
    for absence in itinerary.absences:
        if spells and absence.begins - spells[-1][1] < SHORT_STAY:
            spells[-1] = spells[-1][0], absence.ends + UNREPORTED
        else:
            spells.append((absence.begins - UNREPORTED, absence.ends + UNREPORTED))
    return spells


def percentile(values: list[float], share: float) -> float | None:
    """The smallest value that at least that share of all do not exceed."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]
