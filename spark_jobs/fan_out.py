"""How many an update comes to, by topic."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

_WHERE = ("subscribers", "nodes", "domains")


def fan_out(journeys: DataFrame) -> DataFrame:
    """By topic: updates that came to somebody; to how many each, in the mean and at most."""
    each = (
        journeys.where("not passed_on")
        .groupBy("trace_id", "topic")
        .agg(
            F.count_distinct("subscriber").alias("subscribers"),
            F.count_distinct("to_node").alias("nodes"),
            F.count_distinct("to_domain").alias("domains"),
        )
    )
    return each.groupBy("topic").agg(
        F.count("*").alias("updates"),
        *(F.avg(name).alias(f"mean_{name}") for name in _WHERE),
        *(F.max(name).alias(f"most_{name}") for name in _WHERE),
    )
