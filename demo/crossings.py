"""Crossings, put together from the trace events of both ends. Plain values, no I/O.

All parts run on one machine, so their monotonic clocks are one clock.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import quantiles
from typing import Any

from traces import Stage

UNFINISHED = 500
"""Updates of which something is known and not yet everything."""
KEPT = 200
"""Crossings that percentiles are taken of."""
SETTLED = 1_000_000_000
"""Nanoseconds after its delivery that an update is done with, whatever else was heard of it."""
_ORDER = (
    Stage.PING_RECEIVED,
    Stage.FETCHED,
    Stage.PUBLISHED,
    Stage.FORWARDED,
    Stage.DELIVERED,
    Stage.BROWSER_SENT,
    Stage.PUSHED,
)
_LEAVES = (Stage.BROWSER_SENT, Stage.PUSHED)

Event = Mapping[str, Any]


@dataclass(slots=True)
class _Update:
    """What is known of one update."""

    events: list[Event] = field(default_factory=list)

    def first(self, *stages: Stage, node: str | None = None) -> Event | None:
        found = [
            event
            for event in self.events
            if event["stage"] in stages and node in (None, event["node"])
        ]
        return min(found, key=lambda event: event["mono_ns"], default=None)

    def arrived(self) -> Event | None:
        """Its first delivery elsewhere: what a PSPH hears of its own publications crosses nothing.

        Until it is known where it was published, any delivery may be that.
        """
        published = self.first(Stage.PUBLISHED)
        home = None if published is None else published["node"]
        others = [event for event in self.events if event["node"] != home]
        return _Update(others).first(Stage.DELIVERED)


class Crossings:
    """Takes events as they come, of all nodes, in any order."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, _Update] = OrderedDict()
        self._done: OrderedDict[str, None] = OrderedDict()
        self._pinged: OrderedDict[str, int] = OrderedDict()
        self._forwarded: deque[Event] = deque(maxlen=2_000)
        self._subscribed: deque[Event] = deque(maxlen=2_000)
        self.last: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self.count = 0

    def take(self, events: Iterable[Event]) -> None:
        """More of what happened."""
        for event in events:
            if event["stage"] == Stage.FORWARDED:
                self._forwarded.append(event)
            elif event["stage"] == Stage.SUBSCRIBED:
                self._subscribed.append(event)
            name = event.get("trace_id")
            if name is None or event["stage"] not in _ORDER or "reason" in event:
                continue
            if event["stage"] == Stage.PING_RECEIVED:
                self._pinged.setdefault(name, event["mono_ns"])
                if len(self._pinged) > 4 * UNFINISHED:
                    self._pinged.popitem(last=False)
            if name not in self._done:
                self._open.setdefault(name, _Update()).events.append(event)
                if len(self._open) > UNFINISHED:
                    self._open.popitem(last=False)

    def pinged(self, trace_id: str) -> int | None:
        """When the publisher said that there is an update: nanoseconds of the monotonic clock."""
        return self._pinged.get(trace_id)

    def finished(self, now: int) -> list[dict[str, Any]]:
        """The crossings that are complete and were not before."""
        found = []
        for name, update in list(self._open.items()):
            delivered = update.arrived()
            if delivered is None:
                continue
            leaves = update.first(*_LEAVES, node=delivered["node"])
            # What happened earlier, at another node, may be heard of later.
            complete = leaves and all(map(update.first, _ORDER[:3]))
            if not complete and now - delivered["mono_ns"] < SETTLED:
                continue
            del self._open[name]
            self._done[name] = None
            if len(self._done) > 4 * UNFINISHED:
                self._done.popitem(last=False)
            crossing = self._put_together(name, update, delivered, leaves)
            if crossing is not None:
                found.append(crossing)
        self.last.extend(found)
        self.count += len(found)
        return found

    def _put_together(
        self, name: str, update: _Update, delivered: Event, leaves: Event | None
    ) -> dict[str, Any] | None:
        published = update.first(Stage.PUBLISHED)
        if published is None or not published.get("topic"):
            return None  # before we looked, or what proxies say to each other
        if self._waited_for_a_reader(published, delivered):
            return None
        begun = [
            each
            for stage in (Stage.PING_RECEIVED, Stage.FETCHED)
            if (each := update.first(stage, node=published["node"])) is not None
        ]
        if not begun:
            return None  # an old version, which is published again to whoever comes later
        between = [
            event
            for event in self._forwarded
            if (event["sid"], event["rid"]) == (delivered["sid"], delivered["rid"])
            and published["mono_ns"] <= event["mono_ns"] <= delivered["mono_ns"]
        ]
        hops = {event["node"]: event for event in sorted(between, key=_when, reverse=True)}
        way = [*begun, published, *hops.values(), delivered, *([leaves] if leaves else [])]
        way.sort(key=lambda event: (_when(event), _ORDER.index(event["stage"])))
        start = _when(way[0])
        return {
            "trace_id": name,
            "topic": delivered.get("topic") or published.get("topic"),
            "from": published["domain"],
            "to": delivered["domain"],
            "stages": [
                {
                    "stage": str(event["stage"]),
                    "node": event["node"],
                    "at_ms": round((_when(event) - start) / 1e6, 3),
                }
                for event in way
            ],
            "total_ms": round((_when(way[-1]) - start) / 1e6, 3),
            "at": round(way[0]["wall_ns"] / 1e9, 3),
        }

    def _waited_for_a_reader(self, published: Event, delivered: Event) -> bool:
        """Whether it lay there, and crossed when somebody asked for it: no stage took that long."""
        return any(
            (event["node"], event["topic"]) == (delivered["node"], published["topic"])
            and published["mono_ns"] < event["mono_ns"] <= delivered["mono_ns"]
            for event in self._subscribed
        )

    def latency(self, report: str | None) -> dict[str, object]:
        """Percentiles of the last crossings, and where their time went."""
        totals = [crossing["total_ms"] for crossing in self.last]
        spent: dict[str, list[float]] = {}
        for crossing in self.last:
            for stage, took in _durations(crossing["stages"]).items():
                spent.setdefault(stage, []).append(took)
        whole = sum(map(sum, spent.values())) or 1.0
        return {
            "p50": percentile(totals, 50),
            "p90": percentile(totals, 90),
            "p99": percentile(totals, 99),
            "count": self.count,
            "of_last": len(totals),
            "by_stage": [
                {
                    "stage": stage,
                    "share": round(sum(spent[stage]) / whole, 4),
                    "p50": percentile(spent[stage], 50),
                }
                for stage in map(str, _ORDER)
                if stage in spent
            ],
            "report": report,
        }


def percentile(values: list[float], share: int) -> float | None:
    """None of nothing."""
    if len(values) < 2:
        return round(values[0], 3) if values else None
    return round(quantiles(values, n=100, method="inclusive")[share - 1], 3)


def _durations(stages: list[dict[str, Any]]) -> dict[str, float]:
    """Milliseconds that each stage took since the one before; all hops count as one."""
    took: dict[str, float] = {}
    before = 0.0
    for stage in stages:
        took[stage["stage"]] = took.get(stage["stage"], 0.0) + stage["at_ms"] - before
        before = stage["at_ms"]
    return took


def _when(event: Event) -> int:
    when: int = event["mono_ns"]
    return when
