"""From a subscription to the first content, by the size of the feed (figure 40).

Two PSPHs with a fabric between them, all shipped code in processes of their own, over sockets. The
feeds were published beforehand; each is subscribed to once, one at a time, in an order that follows
from the seed. Times as the source defines them, in milliseconds:

    process_ms      ProcessD: the subscriber sends its subscription -> it has the feed
    total_push_ms   TotalPushD: PSPH A has the subscription -> it has the feed from the fabric, and
                    has sent it on. By its own traces, whose first stage is written when the
                    subscription has been stored; the source's begins when it is received, so it
                    lies between this and process_ms
    fabric_ms       of total_push_ms, until the fabric has delivered the feed

It is neither the time of a ping to its delivery (`psph bench crossing`) nor one that a PSPH needs
for a feed that it already has.

The last rows are of one of these times each. Over the sizes of the source, 287 to 1,442 bytes: its
mean, Pearson's r of size and time, and by permutations how probable one so far from 0 is where they
have nothing to do with each other (p), and its r with the order of the subscriptions (order_r): all
that a PSPH wants of a zone it asks for in one message, which grows with those before. Over all, up
to 1 MiB: the slope of the line through them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from statistics import correlation, fmean, linear_regression, median
from typing import Literal

import msgspec

from experiments.experiment import Claim, Context, Experiment, Plot, Row
from experiments.payload_trip import MOST, SMALLEST, Trip, subscribe_to_all
from experiments.statistics import CI, correlation_test

LARGEST = 1_442
"""Bytes of the largest feed of the source: what a frame has room for."""
RANGE, BEYOND = "source", "beyond"
"""What sizes are."""
PROCESS, TOTAL_PUSH, FABRIC = "process_ms", "total_push_ms", "fabric_ms"
ALL_SIZES = "all"
SOURCE_MS = 4.58
SOURCE_P = 0.41
SIGNIFICANT = 0.05
MIB = 1 << 20


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sizes: tuple[int, ...] = (SMALLEST, 392, 497, 602, 707, 812, 917, 1_022, 1_127, 1_232, 1_337,
                              LARGEST)  # fmt: skip
    """Bytes of the feeds, in the range of the source."""
    rounds: int = 50
    """Feeds of each of these sizes."""
    large_sizes: tuple[int, ...] = (4 << 10, 16 << 10, 64 << 10, 256 << 10, MIB)
    large_rounds: int = 12

    def __post_init__(self) -> None:
        if len(set(self.sizes)) < 2 or not all(SMALLEST <= n <= LARGEST for n in self.sizes):
            raise ValueError(f"sizes lists two or more numbers from {SMALLEST} to {LARGEST}")
        if not self.large_sizes or not all(LARGEST < size <= MIB for size in self.large_sizes):
            raise ValueError(f"large_sizes lists numbers from {LARGEST + 1} to {MIB}")
        if not (self.rounds >= 1 and self.large_rounds >= 1 and len(_plan(self)) <= MOST):
            raise ValueError(f"there are rounds of every size, and at most {MOST} feeds in all")


def _plan(parameters: Parameters) -> list[int]:
    small = list(parameters.sizes) * parameters.rounds
    return small + list(parameters.large_sizes) * parameters.large_rounds


def run(parameters: Parameters, seed: int, context: Context) -> list[Row]:
    random = Random(seed)
    plan = _plan(parameters)
    random.shuffle(plan)
    return summarise(subscribe_to_all(plan, context.progress), random)


def summarise(trips: Sequence[Trip], random: Random) -> list[Row]:
    """A row for each size, and one for each of the times; trips are in their order."""
    rows: list[Row] = []
    for size in sorted({trip.size for trip in trips}):
        of_size = [trip for trip in trips if trip.size == size]
        rows.append(
            {
                "part": RANGE if size <= LARGEST else BEYOND,
                "bytes": size,
                "feeds": len(of_size),
                PROCESS: _rounded(fmean(trip.process for trip in of_size)),
                "process_p50_ms": _rounded(median(trip.process for trip in of_size)),
                TOTAL_PUSH: _rounded(fmean(trip.total_push for trip in of_size)),
                "total_push_p50_ms": _rounded(median(trip.total_push for trip in of_size)),
                FABRIC: _rounded(fmean(trip.fabric for trip in of_size)),
            }
        )
    times: dict[str, Callable[[Trip], float]] = {
        PROCESS: lambda trip: trip.process,
        TOTAL_PUSH: lambda trip: trip.total_push,
        FABRIC: lambda trip: trip.fabric,
    }
    return rows + [_of_all(column, time, trips, random) for column, time in times.items()]


def _of_all(
    column: str, time: Callable[[Trip], float], trips: Sequence[Trip], random: Random
) -> Row:
    small = [trip for trip in trips if trip.size <= LARGEST]
    r, p = correlation_test([trip.size for trip in small], list(map(time, small)), random)
    line = linear_regression([trip.size / MIB for trip in trips], list(map(time, trips)))
    return {
        "part": column,
        "bytes": ALL_SIZES,
        "feeds": len(small),
        "mean_ms": _rounded(fmean(map(time, small))),
        "r": round(r, 4),
        "p": round(p, 4),
        "ms_per_mib": _rounded(line.slope),
        "order_r": round(correlation(range(len(small)), list(map(time, small))), 4),
    }


def _rounded(milliseconds: float) -> float:
    return round(milliseconds, 3)


def claims(rows: Sequence[Row]) -> list[Claim]:
    of = {row["part"]: row for row in rows if row["bytes"] == ALL_SIZES}
    mean = of[TOTAL_PUSH]["mean_ms"]
    slope, fabric = of[TOTAL_PUSH]["ms_per_mib"], of[FABRIC]["ms_per_mib"]
    across = slope * (LARGEST - SMALLEST) / MIB
    return [
        _no_correlation(of[TOTAL_PUSH], "paper", "total-push", "TotalPushD"),
        _no_correlation(of[PROCESS], "ours", "process", "ProcessD"),
        Claim(
            "mean-of-the-source",
            "paper",
            f"TotalPushD is {SOURCE_MS} ms on average, or less, from {SMALLEST} to {LARGEST} bytes",
            holds=mean <= SOURCE_MS,
            because=f"{mean:.3g} ms; ProcessD {of[PROCESS]['mean_ms']:.3g} ms. Other "
            "machines, another fabric, everything on one host; ours also stores the subscription "
            "and the feed, and checks its signature",
        ),
        Claim(
            "grows-with-size",
            "ours",
            "up to 1 MiB TotalPushD grows with the size, and that hides in the range of the "
            "source: less than a tenth of the mean from its smallest to its largest",
            holds=slope > 0 and across < mean / 10,
            because=f"{slope:.3g} ms for each MiB, {fabric:.3g} of them in the fabric; "
            f"{across:.2g} ms across the range",
        ),
    ]


def _no_correlation(row: Row, kind: Literal["paper", "ours"], name: str, delay: str) -> Claim:
    r, p, interval = row["r"], row["p"], row.get(f"r{CI}")
    # Several runs: whether their interval has 0 in it says more than the mean of their p.
    holds = p > SIGNIFICANT if interval is None else abs(r) <= interval
    sure = f"p = {p:.2g}" if interval is None else f"± {interval:.2g} over the runs"
    return Claim(
        f"no-correlation-{name}",
        kind,
        f"from {SMALLEST} to {LARGEST} bytes, size and {delay} are not correlated",
        holds=holds,
        because=f"r = {r:.3f}, {sure}, {row['feeds']:g} feeds (the source: p = {SOURCE_P})",
    )


EXPERIMENT = Experiment(
    name="psph-payload",
    summary="from a subscription to the first content, by the size of the feed",
    parameters=Parameters(),
    quick=Parameters(rounds=12, large_rounds=4),
    run=run,
    keys=("part", "bytes"),
    claims=claims,
    plots=tuple(
        Plot(name, x="bytes", y=y, series="part", log_x=True, labels={"bytes": "feed (bytes)"})
        for name, y in (("total-push", TOTAL_PUSH), ("process", PROCESS))
    ),
    paper=[{"part": TOTAL_PUSH, "bytes": ALL_SIZES, "mean_ms": SOURCE_MS, "p": SOURCE_P}],
)
