"""What the source says of pro-active mobility, and what we say of ours, checked on the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal

from experiments.experiment import Claim, Row

SUSTAINED = 0.95
"""A rate is sustained if at least this share of what was asked for was published."""
NEARLY = 0.6
"""Nearly 50 % less: at most this share is left."""
SAME_ORDER = 3.0
"""Two latencies are of the same order if neither is so many times the other; the source's differ
by a factor of 1.2."""

JITTER_MS = 2.0
"""By so much the delay of a packet varies on the air; a hand-off that waits for the next message
ends that much later or earlier by chance."""

_X = {"subscribers": "subscribers", "rates": "rate", "queues": "queue_kb"}
_UNIT = {"subscribers": "", "rates": "/s", "queues": " KB"}


def claims(rows: Sequence[Row]) -> list[Claim]:
    """Those for which there are rows."""
    return [
        *_less_loss(rows),
        *_no_duplicates(rows),
        *_throughput(rows),
        *_processing(rows),
        *_same_order(rows),
        *_ours(rows),
        *_ours_hand_off(rows),
    ]


Pair = tuple[str, Row, Row]


def _pairs(rows: Sequence[Row], sweep: str, one: str, other: str) -> list[Pair]:
    """Rows that differ in their mode only, and what to call them."""
    x = _X[sweep]
    others = {row[x]: row for row in rows if row["sweep"] == sweep and row["mode"] == other}
    return [
        (f"{row[x]:g}{_UNIT[sweep]}", row, others[row[x]])
        for row in rows
        if row["sweep"] == sweep and row["mode"] == one and row[x] in others
    ]


def _sustained(row: Row) -> bool:
    return bool(row["published_per_s"] >= SUSTAINED * row["rate"])


def _told(pairs: Sequence[Pair], column: str, form: str = ".2f") -> str:
    return ", ".join(
        f"{name} {one[column]:{form}} ({two[column]:{form}})" for name, one, two in pairs
    )


def _all(
    id: str,
    kind: Literal["paper", "ours"],
    claim: str,
    pairs: Sequence[Pair],
    good: Callable[[Row, Row], bool],
    because: str,
    why: Callable[[Row, Row], str] = lambda one, other: "",
) -> list[Claim]:
    """A claim about each of some pairs; none when there are no such pairs."""
    if not pairs:
        return []
    bad = [pair for pair in pairs if not good(pair[1], pair[2])]
    if bad:
        reasons = [why(one, other) for _, one, other in bad]
        where = ", ".join(name for name, _, _ in bad)
        because = "; ".join([f"not at {where}: {because}", *filter(None, dict.fromkeys(reasons))])
    return [Claim(id, kind, claim, not bad, because)]


def _why_lost(one: Row, other: Row) -> str:
    if not other["loss_pct"]:
        return "where durable subscriptions lose nothing there is nothing to save"
    return "where even the queue of those who are away is overwritten before they return, both lose"


def _less_loss(rows: Sequence[Row]) -> list[Claim]:
    swept = _pairs(rows, "rates", "paper", "durable")
    rates = [pair for pair in swept if _sustained(pair[1]) and _sustained(pair[2])]
    beyond = [pair for pair in swept if pair not in rates]
    told = f"% lost (durable): {_told(rates, 'loss_pct')}"
    if beyond:
        told += f"; beyond what both sustain: {_told(beyond, 'loss_pct')}"
    queues = _pairs(rows, "queues", "paper", "durable")
    return [
        *_all(
            "loss-halved-over-rates",
            "paper",
            "over publication rates, up to what both sustain, pro-active loses less than half of "
            "what durable subscriptions do",
            rates,
            lambda one, other: one["loss_pct"] < 0.5 * other["loss_pct"],
            told,
            _why_lost,
        ),
        *_all(
            "loss-nearly-halved-over-queues",
            "paper",
            "at every queue size it loses nearly 50 % less: at least 40 %",
            queues,
            lambda one, other: (
                other["loss_pct"] > 0 and one["loss_pct"] <= NEARLY * other["loss_pct"]
            ),
            f"% lost (durable): {_told(queues, 'loss_pct')}",
            _why_lost,
        ),
    ]


def _no_duplicates(rows: Sequence[Row]) -> list[Claim]:
    mine = [row for row in rows if row["mode"] == "paper"]
    queues = sorted(
        (row for row in rows if row["mode"] == "durable" and row["sweep"] == "queues"),
        key=lambda row: float(row["queue_kb"]),
    )
    if not mine or not queues:
        return []
    shares = [row["dup_pct"] for row in queues]
    grows = all(one < other for one, other in pairwise(shares))
    none = all(row["dup_pct"] == 0 for row in mine)
    return [
        Claim(
            "duplication-zero",
            "paper",
            "pro-active duplicates nothing, durable subscriptions the more the larger the queue is",
            none and grows,
            f"{max(row['dup_pct'] for row in mine):g} % at most in {len(mine)} rows; durable "
            + ", ".join(f"{row['dup_pct']:.1f} % at {row['queue_kb']:g} KB" for row in queues),
        )
    ]


def _throughput(rows: Sequence[Row]) -> list[Claim]:
    pairs = [pair for sweep in _X for pair in _pairs(rows, sweep, "paper", "durable")]
    twice = [pair for pair in pairs if pair[1]["received_per_s"] <= pair[2]["received_per_s"]]
    return _all(
        "throughput-higher",
        "paper",
        "pro-active has the higher throughput wherever durable subscriptions lose anything, each "
        "message counted once, and nowhere a lower one",
        pairs,
        lambda one, other: (
            one["throughput"] > other["throughput"]
            or (one["throughput"] == other["throughput"] and other["loss_pct"] == 0)
        ),
        f"messages a second (durable): {_told(pairs, 'throughput', '.1f')}; with duplicates "
        f"durable subscriptions have more in {len(twice)} of {len(pairs)} rows",
    )


def _processing(rows: Sequence[Row]) -> list[Claim]:
    pairs = _pairs(rows, "subscribers", "paper", "durable")
    if len(pairs) < 2:
        return []
    higher = all(one["processing_us"] > other["processing_us"] for _, one, other in pairs)
    grows = pairs[-1][1]["processing_us"] > pairs[0][1]["processing_us"]
    because = (
        f"µs of processor, by subscribers (durable): {_told(pairs, 'processing_us', '.0f')}"
        f"; operations: {_told(pairs, 'operations', '.1f')}"
    )
    if not higher:
        because += (
            "; here a dummy is a record in the broker itself and not a client with a connection, "
            "and for a durable subscription both brokers store all the time"
        )
    return [
        Claim(
            "processing-time-higher",
            "paper",
            "a broker takes longer for each message that it distributes with pro-active than with "
            "durable subscriptions, and the longer the more subscribers there are",
            higher and grows,
            because,
        )
    ]


def _same_order(rows: Sequence[Row]) -> list[Claim]:
    pairs = _pairs(rows, "subscribers", "paper", "durable")
    pairs = [pair for pair in pairs if pair[1]["p80_ms"] and pair[2]["p80_ms"]]
    return _all(
        "handoff-same-order",
        "paper",
        f"80 % of hand-offs take about as long in both: neither {SAME_ORDER:g} times the other "
        "(theirs: 48 ms, durable 40 ms)",
        pairs,
        lambda one, other: 1 / SAME_ORDER < one["p80_ms"] / other["p80_ms"] < SAME_ORDER,
        f"ms (durable), by subscribers: {_told(pairs, 'p80_ms', '.1f')}",
    )


def _ours(rows: Sequence[Row]) -> list[Claim]:
    mine = [row for row in rows if row["mode"] == "ours"]
    if not mine:
        return []
    lost = sum(row["lost_within_quota"] for row in mine)
    beyond = [row for row in mine if row["over_quota"]]
    told = f"{lost:g} lost in {len(mine)} rows"
    if beyond:
        most = max(row["loss_pct"] for row in beyond)
        told += (
            f"; in {len(beyond)} of them some quotas were exceeded, which cost up to {most:.2f} %"
        )
    twice = sum(row["dup_pct"] > 0 for row in mine)
    wrong = sum(row["out_of_order"] for row in mine)
    return [
        Claim(
            "ours-no-loss-within-quota",
            "ours",
            "nothing is lost for which a subscriber's quota had room",
            lost == 0,
            told,
        ),
        Claim(
            "ours-duplication-zero",
            "ours",
            "nothing comes twice, and everything in the order of its topic",
            not twice and not wrong,
            f"duplicates in {twice}, {wrong:g} messages out of order in {len(mine)} rows",
        ),
    ]


def _ours_hand_off(rows: Sequence[Row]) -> list[Claim]:
    pairs = _pairs(rows, "subscribers", "ours", "durable")
    pairs = [pair for pair in pairs if pair[1]["new_p80_ms"] and pair[2]["new_p80_ms"]]
    others = [
        pair for sweep in ("rates", "queues") for pair in _pairs(rows, sweep, "ours", "durable")
    ]
    others = [pair for pair in others if pair[1]["new_p80_ms"] and pair[2]["new_p80_ms"]]
    return _all(
        "ours-handoff-not-slower-than-durable",
        "ours",
        "over numbers of subscribers, 80 % of hand-offs take no longer than with durable "
        "subscriptions, from the reconnection "
        f"to the first message that the subscriber does not have yet ({JITTER_MS:g} ms are chance)",
        pairs,
        lambda one, other: one["new_p80_ms"] <= other["new_p80_ms"] + JITTER_MS,
        f"ms (durable), by subscribers: {_told(pairs, 'new_p80_ms', '.1f')}; to the first message "
        f"whatever it is, as in the source: {_told(pairs, 'p80_ms', '.1f')}; to the first new one "
        f"in the other sweeps, which the claim is not about: {_told(others, 'new_p80_ms', '.1f')}",
    )
