"""The hub's numbers, kept by prometheus_client: counters from 0, gauges of the store, histograms.

They live in a registry that the process may share with others (`psph serve` has one for all its
roles), never in the global one: several hubs can run in one process.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from push_hub.errors import StoreError
from push_hub.following import Way
from push_hub.lifecycle import State
from push_hub.store.interface import Store
from push_hub.store.records import Outcome

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

COUNTED: Final[Mapping[str, str]] = {
    "requests": "Subscription requests taken",
    "requests_limited": "Requests over the limit of their client",
    "admin_refused": "Requests with a wrong admin token",
    "verifications_confirmed": "Verifications that callbacks confirmed",
    "verifications_failed": "Verifications that callbacks did not confirm",
    "denials": "Denials sent to callbacks",
    "denials_limited": "Denials left out because their host gets many",
    "pings": "Topics pinged",
    "pings_carried": "Topics pinged that a carrier brings, and that are not fetched",
    "fetches": "Fetches answered",
    "fetches_without_news": "Fetches answered that found nothing new",
    "fetch_failures": "Fetches that failed",
    "rechecks": "Fetches planned because a cache may have hidden what a ping promised",
    "rechecks_left_out": "Such fetches not planned because their host has many",
    "updates": "Updates recorded",
    "superseded": "Waiting deliveries replaced by newer content",
    "overflowed": "Waiting deliveries dropped because too many waited",
    **{
        f"deliveries_{outcome}": f"Deliveries that ended as: {outcome}"
        for outcome in Outcome
        if outcome is not Outcome.RELEASED
    },
    "deliveries_released": "Deliveries claimed and given back without an attempt",
    "deliveries_repeated": "Deliveries in flight when the process before died",
    "replayed": "Deliveries that the operator asked for once more",
    "browser_events": "Updates sent to streams",
    "streams_dropped": "Streams ended because their reader was too slow",
    "recalled": "Versions that streams had missed and that the carrier brought once more",
    "reads": "Answers below /t/ with a version",
    "reads_unchanged": "Answers below /t/ to readers who had the version",
    "upstream_requests": "Subscriptions asked for at other hubs",
    "upstream_confirmed": "Subscriptions confirmed by other hubs",
    "upstream_failures": "Subscriptions given up at other hubs",
    "upstream_pushes": "Pushes of other hubs",
    "upstream_forged": "Pushes with a wrong signature",
    "upstream_broken": "Streams from PSPHs of our domain that broke, and were opened again",
}
"""Name and meaning of every counter; `psph_hub_NAME_total` in the metrics."""

FETCH_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0)
JOURNEY_BUCKETS: Final = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0,
    7_200.0, 43_200.0,
)  # fmt: skip
"""Seconds. Up to the twelve hours for which a delivery is tried again."""

READERS: Final = ("callback", "stream")
_JOURNEYS_MAX: Final = 10_000


class Counters:
    """Counters of one part, by name, at 0 from the beginning; a name that is not declared is a
    KeyError."""

    def __init__(
        self, registry: CollectorRegistry, prefix: str, declared: Mapping[str, str]
    ) -> None:
        self._registry = registry
        self._prefix = prefix
        self._counters: dict[str, Counter] = {}
        self.declare(declared)

    def declare(self, declared: Mapping[str, str]) -> None:
        """Count these as well, by name and meaning."""
        for name, meaning in declared.items():
            self._counters[name] = Counter(
                f"{self._prefix}_{name}", meaning, registry=self._registry
            )

    def add(self, name: str, amount: int = 1) -> None:
        self._counters[name].inc(amount)

    def __getitem__(self, name: str) -> int:
        (family,) = self._counters[name].collect()
        return int(family.samples[0].value)


class Journeys:
    """When updates set out, by trace id, until they are delivered.

    In memory, and bounded: an update that set out before the process began, or more than
    `_JOURNEYS_MAX` updates ago, is delivered without being measured.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._pinged = Histogram(
            "psph_hub_ping_to_delivery_seconds",
            "From a ping to an answer of 2xx by a callback, or to the event of a stream",
            ["to"], registry=registry, buckets=JOURNEY_BUCKETS,
        )  # fmt: skip
        self._crossed = Histogram(
            "psph_hub_crossing_seconds",
            "From the record at the hub of another domain to a delivery here, by both wall clocks",
            ["to"], registry=registry, buckets=JOURNEY_BUCKETS,
        )  # fmt: skip
        for each in READERS:
            self._pinged.labels(each)
            self._crossed.labels(each)
        self._begun: OrderedDict[str, tuple[Histogram, float]] = OrderedDict()

    def pinged(self, trace_id: str, at: float) -> None:
        """A topic was pinged; the update that its fetch finds has this trace id."""
        self._begin(trace_id, self._pinged, at)

    def crossed(self, trace_id: str, at: float) -> None:
        """An update came that another hub recorded at that time."""
        self._begin(trace_id, self._crossed, at)

    def delivered(self, trace_id: str, to: str, at: float) -> None:
        """A reader has it. The clocks of two machines may differ: no journey is shorter than 0."""
        if (begun := self._begun.get(trace_id)) is not None:
            histogram, since = begun
            histogram.labels(to).observe(max(0.0, at - since))

    def forget(self, trace_id: str) -> None:
        """It is delivered once more by the operator's wish, which is no journey."""
        self._begun.pop(trace_id, None)

    def _begin(self, trace_id: str, histogram: Histogram, at: float) -> None:
        self._begun.setdefault(trace_id, (histogram, at))
        if len(self._begun) > _JOURNEYS_MAX:
            self._begun.popitem(last=False)


class HubMetrics:
    """All of one hub, in a registry of its own or its process's."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = CollectorRegistry() if registry is None else registry
        self.counters = Counters(self.registry, "psph_hub", COUNTED)
        self.journeys = Journeys(self.registry)
        self.fetch_seconds = Histogram(
            "psph_hub_fetch_seconds", "Duration of a fetch, with its redirects, failed or not",
            registry=self.registry, buckets=FETCH_BUCKETS,
        )  # fmt: skip
        self._subscriptions = self._gauge("subscriptions", "Subscriptions by state", "state")
        self._following = self._gauge(
            "following", "Topics without pings here, by how they are followed", "way"
        )
        self._stored = {
            field: self._gauge(name, meaning) for field, (name, meaning) in _STORED.items()
        }
        self._streams = self._gauge("streams", "Browser streams open")

    def _gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        return Gauge(f"psph_hub_{name}", meaning, labels, registry=self.registry)

    def count_streams(self, count: Callable[[], int]) -> None:
        """Where to ask how many streams are open."""
        self._streams.set_function(count)

    async def refresh(self, store: Store) -> None:
        """Read the gauges from the store; NaN, which no alert takes for a number, when it fails."""
        try:
            stored = await store.statistics()
        except StoreError:
            stored = None
        for field, gauge in self._stored.items():
            gauge.set(math.nan if stored is None else getattr(stored, field))
        _set_all(self._subscriptions, _STATES, None if stored is None else stored.subscriptions)
        _set_all(self._following, Way, None if stored is None else stored.following)

    async def exposition(self, store: Store) -> bytes:
        """The whole registry in Prometheus' text format."""
        await self.refresh(store)
        return generate_latest(self.registry)


_STORED: Final = {
    "topics": ("topics", "Topics known"),
    "updates": ("updates_kept", "Updates in the history"),
    "verifications": ("verifications_pending", "Requests not confirmed yet"),
    "deliveries": ("deliveries_waiting", "Deliveries owed"),
    "fetches_due": ("fetches_due", "Topics waiting to be fetched"),
}
"""Of the fields of `Statistics`: gauge and meaning."""

_STATES: Final = tuple(state for state in State if state is not State.NONE)


def _set_all(gauge: Gauge, labels: Iterable[str], values: Mapping[str, int] | None) -> None:
    for label in labels:
        gauge.labels(label).set(math.nan if values is None else values.get(label, 0))
