"""The streaming query: from trace files, as they appear, to windows of time that are over.

Two kinds of rows come out, in one stream, so that one checkpoint holds for both:

* of **crossings**: for two nodes, how many updates the second was delivered in the window that the
  first published, and quantiles of how long that took, by two clocks that may be wrong;
* of **probes**: for a node and its peer, the quickest exchange of the window.

A window is over when the watermark has passed it: the latest time that any event had, less what
events may be late. Both are aggregates of a size that does not grow with traffic.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.errors import NoTraces
from spark_jobs.layout import FILES, LAYOUT
from spark_jobs.reading import SCHEMA
from traces import Stage

SHARES = (*(n / 100 for n in range(100)), 0.999, 1.0)
"""The quantiles that are taken of each window, so that windows of several nodes can be joined."""
FILES_AT_A_TIME = 500
_KEY = ("window_ns", "kind", "from_node", "from_domain", "to_node", "to_domain")


def stream_windows(
    spark: SparkSession, path: str, window_seconds: int, late_seconds: int
) -> DataFrame:
    """Windows of all files below the path, those included that will come."""
    events = (
        _files(spark, path)
        .withColumn("at", F.timestamp_micros(F.expr("wall_ns div 1000")))
        .withWatermark("at", f"{late_seconds} seconds")
    )
    length = f"{window_seconds} seconds"
    return _crossings(events, length, late_seconds).unionByName(_probes(events, length))


def _files(spark: SparkSession, path: str) -> DataFrame:
    reader = spark.readStream.schema(SCHEMA).option("basePath", path)
    reader = reader.option("pathGlobFilter", FILES).option("maxFilesPerTrigger", FILES_AT_A_TIME)
    try:
        return reader.parquet(f"{path.rstrip('/')}/{LAYOUT}")
    except Exception as error:  # of several kinds, by file system
        raise NoTraces(f"no traces can be followed in {path}: {error}") from error


def _crossings(events: DataFrame, length: str, late_seconds: int) -> DataFrame:
    """Published here, delivered there: joined by the id of the update, each of them once."""
    published = _first(events, Stage.PUBLISHED, "trace_id").select(
        F.col("trace_id"),
        F.col("at").alias("published_at"),
        F.col("wall_ns").alias("published_ns"),
        F.col("node").alias("from_node"),
        F.col("domain").alias("from_domain"),
    )
    delivered = _first(events, Stage.DELIVERED, "trace_id", "node").select(
        F.col("trace_id").alias("of"),
        F.col("at"),
        F.col("wall_ns"),
        F.col("node").alias("to_node"),
        F.col("domain").alias("to_domain"),
    )
    # Clocks that are wrong put a delivery before its publication; the bound lets go of old state.
    reach = F.expr(f"interval {late_seconds} seconds")
    met = published.join(
        delivered,
        (F.col("of") == F.col("trace_id"))
        & (F.col("at") >= F.col("published_at") - reach)
        & (F.col("at") <= F.col("published_at") + reach),
    )
    took = F.col("wall_ns") - F.col("published_ns")
    quantiles = F.percentile(took, F.array(*map(F.lit, SHARES)))
    return _windows(
        met.withColumn("kind", F.lit("crossing")), length,
        F.count("*").alias("count"),
        F.transform(quantiles, lambda ns: F.round(ns).cast("long")).alias("quantiles_ns"),
        F.lit(None).cast("long").alias("offset_ns"),
        F.lit(None).cast("long").alias("round_trip_ns"),
        F.min("wall_ns").alias("wall_ns"),
    )  # fmt: skip


def _first(events: DataFrame, stage: Stage, *key: str) -> DataFrame:
    """Of what a person asked for, not of what proxies tell each other; copies count once."""
    wanted = (F.col("stage") == str(stage)) & F.col("topic").isNotNull()
    return events.where(wanted & F.col("trace_id").isNotNull()).dropDuplicatesWithinWatermark(
        list(key)
    )


def _probes(events: DataFrame, length: str) -> DataFrame:
    probes = events.where((F.col("stage") == str(Stage.CLOCK_PROBE)) & F.col("t4").isNotNull())
    offset = F.expr("((t2 - t1) + (t3 - t4)) div 2")
    trip = F.expr("(t4 - t1) - (t3 - t2)")
    return _windows(
        probes.select(
            "at",
            F.lit("probe").alias("kind"),
            F.col("node").alias("from_node"),
            F.col("domain").alias("from_domain"),
            F.col("peer").alias("to_node"),
            F.lit(None).cast("string").alias("to_domain"),
            F.struct(trip.alias("trip"), offset.alias("offset"), "wall_ns").alias("exchange"),
        ).where("exchange.trip >= 0"),
        length,
        F.count("*").alias("count"),
        F.lit(None).cast("array<long>").alias("quantiles_ns"),
        F.min("exchange.trip").alias("round_trip_ns"),
        F.min("exchange").alias("quickest"),
    ).select(
        *_KEY, "count", "quantiles_ns",
        F.col("quickest.offset").alias("offset_ns"),
        "round_trip_ns",
        F.col("quickest.wall_ns").alias("wall_ns"),
    )  # fmt: skip


def _windows(rows: DataFrame, length: str, *aggregates: Column) -> DataFrame:
    start = (F.unix_micros(F.col("window.start")) * 1_000).alias("window_ns")
    grouped = rows.groupBy(F.window("at", length), *_KEY[1:]).agg(*aggregates)
    return grouped.select(start, *(c for c in grouped.columns if c != "window"))
