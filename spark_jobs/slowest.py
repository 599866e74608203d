"""The topics whose updates took longest, and of each the story of its slowest update."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.latency import stage_latencies, summarised

TOPICS = 10
LONGEST_STORY = 60


def slowest_topics(journeys: DataFrame) -> DataFrame:
    """The slowest by their 99th percentile, with the trace id of the slowest update."""
    totals = stage_latencies(journeys).where("stage = 'total'")
    table = summarised(totals, "topic").drop("histogram").orderBy(F.desc("p99_ms"), "topic")
    examples = totals.groupBy("topic").agg(
        F.max_by("trace_id", F.struct("latency_us", "trace_id")).alias("example")
    )
    # What is kept is ten rows: the examples of all topics go to them, not they through the network.
    return examples.join(F.broadcast(table.limit(TOPICS)), "topic").orderBy(
        F.desc("p99_ms"), "topic"
    )


def stories(corrected: DataFrame, trace_ids: list[str]) -> DataFrame:
    """All that is known of these updates, from the first event to the last."""
    return (
        corrected.where(F.col("trace_id").isin(trace_ids))
        .select("trace_id", "at_ns", "stage", "node", "domain", "subscriber", "reason")
        .orderBy("trace_id", "at_ns", "node", "stage", "subscriber")
        .limit(TOPICS * LONGEST_STORY)
    )
