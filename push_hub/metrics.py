"""The hub's numbers in Prometheus' format."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from push_hub.hub import Hub
from push_hub.store.records import Statistics


async def exposition(hub: Hub) -> bytes:
    """All metrics, as text."""
    registry = CollectorRegistry()
    registry.register(
        _Collector(dict(hub.counters), await hub.store.statistics(), len(hub.streams))
    )
    return generate_latest(registry)


@dataclass(eq=False, slots=True)
class _Collector:
    counters: dict[str, int]
    stored: Statistics
    streams: int

    def collect(self) -> Iterable[Metric]:
        events = CounterMetricFamily(
            "psph_hub", "What happened since the start of the hub", labels=["what"]
        )
        for what, count in sorted(self.counters.items()):
            events.add_metric([what], count)
        yield events
        states = GaugeMetricFamily(
            "psph_hub_subscriptions", "Subscriptions by state", labels=["state"]
        )
        for state, count in sorted(self.stored.subscriptions.items()):
            states.add_metric([state], count)
        yield states
        ways = GaugeMetricFamily(
            "psph_hub_following", "Topics that nobody pings here, by how they are followed",
            labels=["way"],
        )  # fmt: skip
        for way, count in sorted(self.stored.following.items()):
            ways.add_metric([way], count)
        yield ways
        for name, meaning, value in (
            ("topics", "Topics known", self.stored.topics),
            ("updates_kept", "Updates in the history", self.stored.updates),
            ("verifications_pending", "Requests not confirmed yet", self.stored.verifications),
            ("deliveries_waiting", "Deliveries owed", self.stored.deliveries),
            ("fetches_due", "Topics waiting to be fetched", self.stored.fetches_due),
            ("streams", "Browser streams open", self.streams),
        ):
            yield GaugeMetricFamily(f"psph_hub_{name}", meaning, value=value)
