"""What the experiment can be asked for, and the rows it makes of a run."""

from __future__ import annotations

from typing import Literal

import msgspec

from experiments.commuting.ledger import percentile
from experiments.commuting.scene import MODES, Case, Scene
from experiments.experiment import Row
from mobility.buffer import ITEM_BYTES
from psirp_sim.runtime.durations import MILLISECOND, SECOND

KEYS = ("sweep", "mode", "subscribers", "rate", "queue_kb")
CDF = (10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99)
"""Percents of hand-offs whose latency has a column."""
MOST_SUBSCRIBERS = 1_000
MOST_RATE = 1_000.0
_TOPIC_BYTES = 2


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Three sweeps, each with the other two at rest. What the source gives is in the first two
    lines; everything else is ours."""

    subscribers: tuple[int, ...] = (10, 50, 100, 150, 200)
    queues_kb: tuple[float, ...] = (10, 30, 60, 90)
    modes: tuple[str, ...] = MODES
    rates: tuple[float, ...] = (5, 10, 20, 40, 50, 70)
    """Publications a second."""
    crowd: int = 50
    """Subscribers where rates or queues are swept."""
    rate: float = 4
    """Where subscribers or queues are."""
    queue_kb: float = 90
    """Where subscribers or rates are."""
    queue_of: Literal["broker", "subscriber"] = "broker"
    """Whose a queue is in the baselines. In ours quotas are of a subscriber."""
    message_bytes: int = 100
    operation_ms: float = 2.0
    patience_s: float = 1.0
    valid_s: float = 120.0
    spread_ms: float = 100.0
    warm_s: float = 200.0
    duration_s: float = 240.0
    prepare: bool = True

    def __post_init__(self) -> None:
        if not self.modes or not set(self.modes) <= set(MODES):
            raise ValueError(f"modes lists some of {', '.join(MODES)}")
        if not all(2 <= each <= MOST_SUBSCRIBERS for each in (*self.subscribers, self.crowd)):
            raise ValueError(f"subscribers and crowd are numbers from 2 to {MOST_SUBSCRIBERS}")
        if not all(0.1 <= each <= MOST_RATE for each in (*self.rates, self.rate)):
            raise ValueError(f"rates and rate are publications a second, 0.1 to {MOST_RATE:g}")
        if not all(0.1 <= each <= 100_000 for each in (*self.queues_kb, self.queue_kb)):
            raise ValueError("queues_kb and queue_kb lie between 0.1 and 100000")
        if not 8 <= self.message_bytes <= 10_000:
            raise ValueError("message_bytes lies between 8 and 10000")
        if not 0.01 <= self.operation_ms <= 1_000 or not 0 <= self.spread_ms <= 10_000:
            raise ValueError("operation_ms lies between 0.01 and 1000, spread_ms up to 10000")
        if not 0.1 <= self.patience_s <= 60 or not 1 <= self.valid_s <= 86_400:
            raise ValueError("patience_s lies between 0.1 and 60, valid_s between 1 and 86400")
        if not 0 <= self.warm_s <= 86_400 or not 1 <= self.duration_s <= 86_400:
            raise ValueError("warm_s lies between 0 and 86400, duration_s between 1 and 86400")

    @property
    def cases(self) -> list[tuple[str, Case]]:
        """Each with the sweep that it belongs to."""
        points = [("subscribers", each, self.rate, self.queue_kb) for each in self.subscribers]
        points += [("rates", self.crowd, each, self.queue_kb) for each in self.rates]
        points += [("queues", self.crowd, self.rate, each) for each in self.queues_kb]
        return [
            (sweep, self._case(mode, subscribers, rate, queue))
            for sweep, subscribers, rate, queue in points
            for mode in self.modes
        ]

    def _case(self, mode: str, subscribers: int, rate: float, queue_kb: float) -> Case:
        return Case(
            mode,
            subscribers,
            rate,
            round(queue_kb * 1_000),
            shared=self.queue_of == "broker",
            message_bytes=self.message_bytes,
            warm=round(self.warm_s * SECOND),
            duration=round(self.duration_s * SECOND),
            operation=round(self.operation_ms * MILLISECOND),
            patience=round(self.patience_s * SECOND),
            valid=round(self.valid_s * SECOND),
            spread=round(self.spread_ms * MILLISECOND),
            prepare=self.prepare,
        )


def measure(case: Case, seed: int) -> Row:
    """One run, as figures. What a broker takes is for each message that it got to distribute."""
    scene = Scene(case, seed)
    scene.play()
    ledger, tally = scene.ledger, scene.tally
    seconds = case.duration / SECOND
    expected, unique, total = ledger.expected, ledger.unique, ledger.total
    messages = max(1, len(ledger.published)) * len(scene.brokers)
    moves = max(1, ledger.hand_offs)
    prepares = case.mode == "paper" or (case.mode == "ours" and case.prepare)
    known = tally.prepared + tally.unprepared
    lost, exceeded = None, None
    if case.mode == "ours":
        item = ITEM_BYTES + _TOPIC_BYTES + case.message_bytes
        lost, exceeded = ledger.lost_within_quota(item, case.queue)
    return {
        "mode": case.mode,
        "subscribers": case.subscribers,
        "rate": case.rate,
        "queue_kb": case.queue / 1_000,
        "published_per_s": len(ledger.published) / seconds,
        "loss_pct": 100 * (expected - unique) / max(1, expected),
        "dup_pct": 100 * (total - unique) / max(1, total),
        "throughput": unique / seconds,
        "received_per_s": total / seconds,
        "processing_us": tally.cpu / 1_000 / messages,
        "operations": tally.operations / messages,
        "hand_offs": ledger.hand_offs,
        **{f"p{percent}_ms": percentile(ledger.latencies, percent / 100) for percent in CDF},
        "new_p50_ms": percentile(ledger.fresh_latencies, 0.5),
        "new_p80_ms": percentile(ledger.fresh_latencies, 0.8),
        "unserved": ledger.unserved,
        "prepared_pct": 100 * tally.prepared / max(1, known) if prepares else None,
        "context_messages": tally.context_messages / moves if prepares else None,
        "context_bytes": tally.context_bytes / moves if prepares else None,
        "vain_bytes": tally.vain / moves if prepares else None,
        "peak_kb": scene.peak / 1_000,
        "out_of_order": ledger.out_of_order,
        "lost_within_quota": lost,
        "over_quota": exceeded,
    }
