"""What a journey costs, by pair of domains and stage: percentiles, histograms, shares, series.

A stage is the time from the stage before it to this one, as the page of `psph up` has it; `total`
is from the first that is known to the end. Latencies are whole microseconds of four digits. So
equal ones can be counted first, wherever they are, and percentiles are taken of the counts, exactly
and all in one call, however many events there are and however unevenly they lie.
"""

from __future__ import annotations

from collections import defaultdict

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.collected import Collected

QUANTILES = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99, "p999_ms": 0.999}
EDGES_US = (*(m * 10**e for e in range(1, 8) for m in (1, 2, 5)), 100_000_000)
"""Upper edges of the histogram's classes, 10 us to 100 s; one more class is beyond the last."""
STAGES = ("fetched", "published", "delivered", "browser_sent", "pushed", "total")
PAIR = ("from_domain", "to_domain")
SHARES = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in (*PAIR, "stage")),
        pa.field("count", pa.int64()),
        pa.field("mean_ms", pa.float64()),
        pa.field("share", pa.float64()),
    ]
)


def stage_latencies(journeys: DataFrame) -> DataFrame:
    """A row for every journey and stage of which both ends are known: `stage`, `latency_us`."""
    each = F.array(
        *(F.struct(F.lit(stage).alias("stage"), ns.alias("ns")) for stage, ns in _took().items())
    )
    return _in_us(_ended(journeys).select("*", F.inline(each)))


def total_latencies(journeys: DataFrame) -> DataFrame:
    """The same of `total` alone: a row for every journey of which both ends are known."""
    return _in_us(_ended(journeys).withColumn("ns", _took()["total"]))


def _ended(journeys: DataFrame) -> DataFrame:
    return journeys.where("not passed_on and not repeated")


def _took() -> dict[str, Column]:
    """How long each stage of a journey took, in nanoseconds."""
    # Across domains only what two comparable clocks say; at the origin there is one clock.
    across = F.when(F.col("comparable"), F.col("delivered_ns") - F.col("published_ns"))
    began = F.coalesce("delivered_ns", "fetched_ns")
    # Delivered at its origin, too, an update was there before.
    left = F.col("at_ns") - F.when(F.col("from_node") == F.col("to_node"), F.col("fetched_ns"))
    passed_on = F.coalesce(left, F.col("at_ns") - began)
    first = F.coalesce("ping_ns", "fetched_ns", "published_ns")
    anew = ~F.coalesce("again", F.lit(False))
    return {
        "fetched": F.when(anew, F.col("fetched_ns") - F.col("ping_ns")),
        "published": F.when(anew, F.col("published_ns") - F.col("fetched_ns")),
        "delivered": across,
        "browser_sent": F.when(F.col("end") == "browser_sent", passed_on),
        "pushed": F.when(F.col("end") == "pushed", passed_on),
        "total": F.when(F.col("comparable") & anew, F.col("at_ns") - first),
    }


def _in_us(took: DataFrame) -> DataFrame:
    known = took.where("ns is not null")
    return known.withColumn("latency_us", whole_us(F.col("ns"))).drop("ns")


def whole_us(ns: Column) -> Column:
    """Whole microseconds of at most four digits: to 0.01 %, finer than any clock here."""
    us = F.floor(ns / 1_000)
    step = F.when(F.abs(us) < 10_000, 1)
    for digits in range(5, 12):
        step = step.when(F.abs(us) < 10**digits, 10 ** (digits - 4))
    step = step.otherwise(10**8)
    return (F.floor(us / step) * step).cast("long")


def latency_table(journeys: DataFrame) -> DataFrame:
    """By pair of domains and stage: count, percentiles, maximum, mean and histogram."""
    return summarised(stage_latencies(journeys), *PAIR, "stage")


def latency_series(journeys: DataFrame, window_ns: int) -> DataFrame:
    """The same of `total`, in every window of time in which an update arrived."""
    start = (F.col("at_ns") - F.pmod(F.col("at_ns"), F.lit(window_ns))).alias("window_ns")
    latencies = total_latencies(journeys).select("*", start, F.lit("total").alias("stage"))
    return summarised(latencies, "window_ns", *PAIR, "stage").drop("histogram")


def stage_shares(latency: Collected) -> Collected:
    """Of the time that the journeys of a pair took, the share of each stage: from their means."""
    spent: dict[tuple[str, str], float] = defaultdict(float)
    stages = [row for row in latency.rows if row["stage"] != "total"]
    for row in stages:
        spent[row["from_domain"], row["to_domain"]] += row["count"] * row["mean_ms"]
    rows = [
        {
            **{name: row[name] for name in SHARES.names if name != "share"},
            "share": row["count"] * row["mean_ms"] / whole
            if (whole := spent[row["from_domain"], row["to_domain"]])
            else None,
        }
        for row in stages
    ]
    return Collected("shares", pa.Table.from_pylist(rows, SHARES), latency.cut)


def summarised(latencies: DataFrame, *by: str) -> DataFrame:
    """Count, percentiles, maximum, mean and histogram of `latency_us` in each group."""
    counted = latencies.groupBy(*by, "latency_us").agg(F.count("*").alias("n"))
    value, n = F.col("latency_us"), F.col("n")
    quantiles = F.percentile(value, F.array(*map(F.lit, QUANTILES.values())), n)
    classes = zip((None, *EDGES_US), (*EDGES_US, None), strict=True)
    summary = counted.groupBy(*by).agg(
        F.sum(n).alias("count"),
        quantiles.alias("quantiles"),
        F.max(value).alias("max_us"),
        (F.sum(value * n) / F.sum(n)).alias("mean_us"),
        F.array(*(F.sum(F.when(_within(value, *c), n).otherwise(0)) for c in classes)).alias(
            "histogram"
        ),
    )
    return summary.select(
        *by, "count",
        *((F.col("quantiles")[i] / 1_000).alias(name) for i, name in enumerate(QUANTILES)),
        (F.col("max_us") / 1_000).alias("max_ms"),
        (F.col("mean_us") / 1_000).alias("mean_ms"),
        "histogram",
    )  # fmt: skip


def _within(value: Column, above: int | None, up_to: int | None) -> Column:
    within = F.lit(True)
    if above is not None:
        within &= value > above
    if up_to is not None:
        within &= value <= up_to
    return within
