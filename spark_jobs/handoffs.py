"""Clients that moved: how long each hand-off took, and what it kept, lost and doubled.

A hand-off is from `move_out` (if the client said that it leaves) over `move_in_begin` to
`move_in_end`. What the client's topics brought forth between leaving and being live again is looked
for among what came to it. Updates and hand-offs meet by topic and minute, not by topic alone: a
busy topic and many moves would make every pair of them otherwise.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from traces import Stage

_SLOT_NS = 60 * 10**9


def handoffs(corrected: DataFrame, journeys: DataFrame, numbered: DataFrame) -> DataFrame:
    """A row for every hand-off."""
    moves = _moves(corrected)
    missed = _during(moves, journeys, numbered)
    zero = F.lit(0)
    return moves.join(missed, "trace_id", "left").select(
        "trace_id", "subscriber", "from_node", "to_node", "out_ns", "begin_ns", "end_ns",
        ((F.col("end_ns") - F.col("begin_ns")) / 1e6).alias("duration_ms"),
        ((F.col("begin_ns") - F.col("out_ns")) / 1e6).alias("away_ms"),
        F.coalesce("bytes", zero).alias("bytes"),
        *(F.coalesce(name, zero).alias(name) for name in ("buffered", "lost", "doubled")),
        "reason",
    )  # fmt: skip


def _moves(corrected: DataFrame) -> DataFrame:
    """Each hand-off with its times and places."""
    stage = F.col("stage")
    begins, ends = (stage == str(s) for s in (Stage.MOVE_IN_BEGIN, Stage.MOVE_IN_END))
    came = (
        corrected.where((begins | ends) & F.col("trace_id").isNotNull())
        .groupBy("trace_id", "subscriber")
        .agg(
            F.min(F.when(begins, F.col("at_ns"))).alias("begin_ns"),
            F.max(F.when(ends, F.col("at_ns"))).alias("end_ns"),
            F.max("node").alias("to_node"),
            F.max(F.when(ends, F.col("peer"))).alias("peer"),
            F.max(F.when(ends, F.col("bytes"))).alias("bytes"),
            F.max(F.when(ends, F.col("reason"))).alias("reason"),
        )
    )
    left = corrected.where(stage == str(Stage.MOVE_OUT)).select(
        "subscriber", F.col("at_ns").alias("left_ns"), F.col("node").alias("left_node")
    )
    before = F.col("left_ns") <= F.col("begin_ns")
    return (
        came.join(left, "subscriber", "left")
        .groupBy(*came.columns)
        .agg(
            F.max(F.when(before, F.col("left_ns"))).alias("out_ns"),
            F.max_by(F.when(before, F.col("left_node")), F.when(before, F.col("left_ns"))).alias(
                "left_node"
            ),
        )
        .withColumn("from_node", F.coalesce("left_node", "peer"))
    )


def _during(moves: DataFrame, journeys: DataFrame, numbered: DataFrame) -> DataFrame:
    """Of what was owed to the client while it was away: kept for it, lost, doubled."""
    away = moves.where("out_ns is not null and end_ns is not null").select(
        "trace_id", "subscriber", "out_ns", "begin_ns", "end_ns"
    )
    movers = F.broadcast(away.select("subscriber").distinct())
    follows = (
        journeys.where("entered_ns is not null")
        .join(movers, "subscriber")
        .groupBy("trace_id", "topic", "subscriber")
        .agg(
            F.min("entered_ns").alias("entered_ns"),
            F.min("at_ns").alias("came_ns"),
            F.count("*").alias("times"),
        )
    )
    topics = follows.groupBy("subscriber", "topic").agg(F.min("entered_ns").alias("first_ns"))
    slots = F.sequence(_slot("out_ns"), _slot("end_ns"))
    windows = away.join(topics, "subscriber").select("*", F.explode(slots).alias("slot"))
    updates = numbered.where("mark is null").select(
        F.col("trace_id").alias("update"), "topic", "at_ns", _slot("at_ns").alias("slot")
    )
    owed = updates.join(windows, ["topic", "slot"]).where(
        "at_ns between out_ns and end_ns and at_ns >= first_ns"
    )
    came = follows.select(F.col("trace_id").alias("update"), "subscriber", "came_ns", "times")
    kept = (F.col("at_ns") <= F.col("begin_ns")) & (F.col("came_ns") >= F.col("begin_ns"))
    return (
        owed.join(came, ["update", "subscriber"], "left")
        .groupBy("trace_id")
        .agg(
            F.sum(F.when(kept, 1).otherwise(0)).alias("buffered"),
            F.sum(F.when(F.col("came_ns").isNull(), 1).otherwise(0)).alias("lost"),
            F.sum(F.when(F.col("times") > 1, F.col("times") - 1).otherwise(0)).alias("doubled"),
        )
    )


def _slot(name: str) -> Column:
    return F.expr(f"{name} div {_SLOT_NS}")
