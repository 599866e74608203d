"""The topics whose updates took longest, and of each the story of its slowest update."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.latency import summarised, total_latencies

TOPICS = 10
LONGEST_STORY = 60


def slowest_topics(journeys: DataFrame) -> DataFrame:
    """The slowest by their 99th percentile, with the trace id of the slowest update."""
    totals = total_latencies(journeys)
    order = (F.desc("p99_ms"), "topic")
    table = summarised(totals, "topic").drop("histogram").orderBy(*order).limit(TOPICS)
    # What is kept is ten rows: they go to the journeys, not the journeys through the network.
    took = totals.select("topic", (F.col("latency_us") / 1_000).alias("max_ms"), "trace_id")
    examples = took.join(F.broadcast(table), ["topic", "max_ms"])
    return examples.groupBy(*table.columns).agg(F.max("trace_id").alias("example")).orderBy(*order)


def stories(corrected: DataFrame, trace_ids: list[str]) -> DataFrame:
    """All that is known of these updates, from the first event to the last."""
    return (
        corrected.where(F.col("trace_id").isin(trace_ids))
        .select("trace_id", "at_ns", "stage", "node", "domain", "subscriber", "reason")
        .orderBy("trace_id", "at_ns", "node", "stage", "subscriber")
        .limit(TOPICS * LONGEST_STORY)
    )
