"""What can be asked of the generator."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

SECOND = 1_000_000_000
RATE = 2_000
"""Events a second when no length of time is given."""
SHORTEST = 60.0
EVENTS_PER_TOPIC = 500
MOST_TOPICS = 200
LEAST_EVENTS = 500
MOST_DOMAINS = 26


class InvalidSettings(ValueError):
    """The world that was asked for cannot be; the message says why."""


@dataclass(frozen=True, slots=True)
class Settings:
    """A world to be made up. Shares are of 1, times in the unit they are named by."""

    events: int = 100_000
    domains: int = 3
    topics: int | None = None
    zipf: float = 1.1
    """How much more often the first topic changes than the others: 0 is all alike."""
    skew_ms: float = 500.0
    drift_ppm: float = 50.0
    jitter_ms: float = 0.5
    asymmetry_ms: float = 0.0
    """How much longer than back a link may take forth, always: what probes cannot see."""
    loss: float = 0.001
    duplicates: float = 0.001
    reorder: float = 0.001
    failures: float = 0.01
    """POSTs that fail before one succeeds."""
    handoffs: int | None = None
    seconds: float | None = None
    start: datetime = datetime(2027, 1, 15, 9, tzinfo=UTC)
    seed: int = 1

    def __post_init__(self) -> None:
        if self.events < LEAST_EVENTS:
            raise InvalidSettings(f"a world has at least {LEAST_EVENTS} events: ask for more")
        if not 2 <= self.domains <= MOST_DOMAINS:
            raise InvalidSettings(f"there are from 2 to {MOST_DOMAINS} domains")
        if self.topics is not None and not 1 <= self.topics <= self.events // 50:
            raise InvalidSettings("there are from 1 to a fiftieth of the events many topics")
        for name in ("loss", "duplicates", "reorder", "failures"):
            if not 0 <= getattr(self, name) <= 0.5:
                raise InvalidSettings(f"{name} is a share from 0 to 0.5")

        if self.topic_count * self.domains * self.span_ns > 2**60:
            raise InvalidSettings("so many topics do not live so long: take fewer, or less time")

    @property
    def topic_count(self) -> int:
        """As many as make sense for so many events, unless it was said."""
        if self.topics is not None:
            return self.topics
        return max(2, min(MOST_TOPICS, self.events // EVENTS_PER_TOPIC))

    @property
    def handoff_count(self) -> int:
        """A few for each domain, unless it was said or there are hardly any events."""
        if self.handoffs is not None:
            return self.handoffs
        return min(4 * self.domains, self.events // 1_000)

    @property
    def span_ns(self) -> int:
        """How long the world lives, roughly: updates come until there are events enough."""
        seconds = self.seconds or max(SHORTEST, self.events / RATE)
        return int(seconds * SECOND)

    @property
    def start_ns(self) -> int:
        """When it begins, by the only clock that is right."""
        return int(self.start.timestamp()) * SECOND
