"""The departure/arrival trace of one subscriber: when it received what was published when.

A gap is a loss, a second point on the same height a repetition; clients that move have two lines,
for leaving and for asking to be let in again.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.collected import Collected, collect
from traces import Stage

_MOVES = (str(Stage.MOVE_OUT), str(Stage.MOVE_IN_BEGIN))


@dataclass(frozen=True)
class Departures:
    """Of one subscriber; times in nanoseconds by the reference clock."""

    subscriber: str
    points: Collected
    """`published_ns`, `received_ns`, `topic`"""
    moves: Collected
    """`stage`, `at_ns`"""


def departures(corrected: DataFrame, subscriber: str) -> Departures:
    """All that came to the subscriber, repetitions as well."""
    got = corrected.where(
        (F.col("subscriber") == subscriber)
        & F.col("reason").isNull()
        & F.col("stage").isin("pushed", "browser_sent", "delivered")
    ).select("trace_id", "topic", F.col("at_ns").alias("received_ns"))
    entered = (
        corrected.where(F.col("stage").isin("fetched", "published") & F.col("reason").isNull())
        .groupBy("trace_id")
        .agg(F.min("at_ns").alias("published_ns"))
    )
    points = got.join(entered, "trace_id").orderBy("received_ns")
    moves = corrected.where(
        (F.col("subscriber") == subscriber) & F.col("stage").isin(*_MOVES)
    ).select("stage", "at_ns")
    return Departures(
        subscriber,
        collect("departures", points.select("published_ns", "received_ns", "topic")),
        collect("moves", moves.orderBy("at_ns")),
    )
