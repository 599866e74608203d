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

For the sizes of the source, 287 to 1,442 bytes, Pearson's r of size and time, and by permutations
how probable one so far from 0 is where they have nothing to do with each other (p). With larger
feeds, up to 1 MiB, the slope of the line through all measurements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from statistics import fmean, linear_regression, median

import msgspec

from experiments.experiment import Claim, Context, Experiment, Plot, Row
from experiments.payload_trip import MOST, SMALLEST, Trip, subscribe_to_all
from experiments.statistics import CI, correlation_test

LARGEST = 1_442
"""Bytes of the largest feed of the source: what a frame has room for."""
RANGE, BEYOND = f"{SMALLEST} to {LARGEST}", "beyond"
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
    """A row for each size, one for the range of the source, and one for all."""
    rows: list[Row] = []
    for size in sorted({trip.size for trip in trips}):
        of_size = [trip for trip in trips if trip.size == size]
        part = RANGE if size <= LARGEST else BEYOND
        rows.append(
            {
                "part": part,
                "bytes": size,
                "feeds": len(of_size),
                "process_ms": _mean(of_size, _process),
                "process_p50_ms": _median(of_size, _process),
                "total_push_ms": _mean(of_size, _total_push),
                "total_push_p50_ms": _median(of_size, _total_push),
                "fabric_ms": _mean(of_size, lambda trip: trip.fabric),
            }
        )
    small = [trip for trip in trips if trip.size <= LARGEST]
    return [*rows, _range_row(small, random), _slope_row(trips)]


def _range_row(trips: Sequence[Trip], random: Random) -> Row:
    sizes = [trip.size for trip in trips]
    process = correlation_test(sizes, list(map(_process, trips)), random)
    total_push = correlation_test(sizes, list(map(_total_push, trips)), random)
    return {
        "part": RANGE,
        "bytes": ALL_SIZES,
        "feeds": len(trips),
        "mean_process_ms": _mean(trips, _process),
        "mean_total_push_ms": _mean(trips, _total_push),
        "process_r": round(process[0], 4),
        "process_p": round(process[1], 4),
        "total_push_r": round(total_push[0], 4),
        "total_push_p": round(total_push[1], 4),
    }


def _slope_row(trips: Sequence[Trip]) -> Row:
    sizes = [trip.size / MIB for trip in trips]
    process = linear_regression(sizes, list(map(_process, trips)))
    total_push = linear_regression(sizes, list(map(_total_push, trips)))
    fabric = linear_regression(sizes, [trip.fabric for trip in trips])
    return {
        "part": "slope",
        "bytes": ALL_SIZES,
        "feeds": len(trips),
        "process_ms_per_mib": round(process.slope, 3),
        "total_push_ms_per_mib": round(total_push.slope, 3),
        "fabric_ms_per_mib": round(fabric.slope, 3),
        "total_push_ms_of_nothing": round(total_push.intercept, 3),
    }


def _process(trip: Trip) -> float:
    return trip.process


def _total_push(trip: Trip) -> float:
    return trip.total_push


def _mean(trips: Sequence[Trip], column: Callable[[Trip], float]) -> float:
    return round(fmean(map(column, trips)), 3)


def _median(trips: Sequence[Trip], column: Callable[[Trip], float]) -> float:
    return round(median(map(column, trips)), 3)


def claims(rows: Sequence[Row]) -> list[Claim]:
    (range_row,) = (row for row in rows if "total_push_r" in row)
    (slope_row,) = (row for row in rows if "total_push_ms_per_mib" in row)
    mean = range_row["mean_total_push_ms"]
    slope = slope_row["total_push_ms_per_mib"]
    fabric = slope_row["fabric_ms_per_mib"]
    across = slope * (LARGEST - SMALLEST) / MIB
    return [
        _no_correlation(range_row, "total_push", "TotalPushD"),
        _no_correlation(range_row, "process", "ProcessD"),
        Claim(
            "mean-of-the-source",
            "paper",
            f"TotalPushD is {SOURCE_MS} ms on average, or less, from {SMALLEST} to {LARGEST} bytes",
            holds=mean <= SOURCE_MS,
            because=f"{mean:.3g} ms; ProcessD {range_row['mean_process_ms']:.3g} ms. Other "
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


def _no_correlation(row: Row, column: str, delay: str) -> Claim:
    r, p = row[f"{column}_r"], row[f"{column}_p"]
    interval = row.get(f"{column}_r{CI}")
    # Several runs: whether their interval has 0 in it says more than the mean of their p.
    holds = p > SIGNIFICANT if interval is None else abs(r) <= interval
    sure = f"p = {p:.2g}" if interval is None else f"± {interval:.2g} over the runs"
    return Claim(
        f"no-correlation-{column.replace('_', '-')}",
        "paper",
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
    plots=(
        Plot("total-push", x="bytes", y="total_push_ms", series="part", log_x=True),
        Plot("process", x="bytes", y="process_ms", series="part", log_x=True),
    ),
    paper=[
        {
            "part": RANGE,
            "bytes": ALL_SIZES,
            "mean_total_push_ms": SOURCE_MS,
            "total_push_p": SOURCE_P,
        }
    ],
)
