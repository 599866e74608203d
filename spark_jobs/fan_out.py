"""How many an update comes to, by topic.

To count three kinds of things in one go, Spark would make three rows of each. Whom an update came
to and where are counted apart instead, each by counting what is the same first.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

_UPDATE = ("trace_id", "topic")
_WHERE = ("subscribers", "nodes", "domains")


def fan_out(journeys: DataFrame) -> DataFrame:
    """By topic: updates that came to somebody; to how many each, in the mean and at most."""
    ended = journeys.where("not passed_on and not repeated")
    to = ended.groupBy(*_UPDATE, "subscriber").agg(F.lit(1).alias("once"))
    to_whom = to.groupBy(*_UPDATE).agg(F.count("*").alias("subscribers"))
    at = journeys.where("first_at_node").groupBy(*_UPDATE, "to_domain")
    nodes = at.agg(F.count("*").alias("nodes"))
    to_where = nodes.groupBy(*_UPDATE).agg(
        F.sum("nodes").alias("nodes"), F.count("*").alias("domains")
    )
    whom = to_whom.groupBy("topic").agg(F.count("*").alias("updates"), *_told("subscribers"))
    where = to_where.groupBy("topic").agg(*_told("nodes"), *_told("domains"))
    return whom.join(where, "topic").select(
        "topic",
        "updates",
        *(f"{of}_{name}" for of in ("mean", "most") for name in _WHERE),
    )


def _told(name: str) -> tuple[Column, Column]:
    return F.avg(name).alias(f"mean_{name}"), F.max(name).alias(f"most_{name}")
