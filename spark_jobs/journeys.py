"""Journeys: an update on its way to one who wants it, in one row.

A journey ends where an update leaves the proxies: at a callback (`pushed`), at a browser
(`browser_sent`), or at a subscriber of the fabric (`delivered`, where the node passes it on to
nobody). Its row has the time of every stage before:

    ping_ns, fetched_ns, published_ns   where it entered, the first of each
    delivered_ns                        at the node where it ended, the first
    at_ns                               the end, the first for this subscriber
    times                               how often it came to this end: 2 is once too often

All events of an update are brought together once, by their trace id, and only the columns that are
needed. What would be joins of published with delivered are windows over them, so nothing can
multiply, and a topic that is far busier than others is many trace ids like any other.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_jobs.clocks import Clocks
from spark_jobs.correcting import correct
from traces import Stage

LEAVES = (str(Stage.PUSHED), str(Stage.BROWSER_SENT))
_ENTERS = (str(Stage.PING_RECEIVED), str(Stage.FETCHED), str(Stage.PUBLISHED))
_WAY = (*_ENTERS, str(Stage.DELIVERED), *LEAVES)


def journeys(events: DataFrame, clocks: Clocks) -> DataFrame:
    """One row for every update and everyone it came to."""
    way = events.where(
        F.col("stage").isin(*_WAY) & F.col("trace_id").isNotNull() & F.col("reason").isNull()
    ).select(
        "trace_id", "stage", "node", "domain", "subscriber", "wall_ns",
        "topic", "rid", "publisher", "epoch", "version", "bytes",
    )  # fmt: skip
    # Without a topic it is what a program publishes natively; its name is that of the item.
    named = correct(way, clocks).withColumn("topic", F.coalesce("topic", F.lower(F.hex("rid"))))
    # Once through the network, and once sorted: the finest window first, its order serves all.
    together = named.repartition("trace_id")
    same_end = Window.partitionBy("trace_id", "node", "stage", "subscriber")
    at_node = Window.partitionBy("trace_id", "node")
    of_update = Window.partitionBy("trace_id")
    placed = (
        together.select(
            "*",
            F.row_number().over(same_end.orderBy("at_ns")).alias("turn"),
            F.count("*").over(same_end).alias("times"),
        )
        .select(
            "*",
            F.min(_when(Stage.DELIVERED)).over(at_node).alias("delivered_ns"),
            F.max(F.col("stage").isin(*LEAVES)).over(at_node).alias("leaves"),
        )
        .select(
            "*",
            F.min(_origin()).over(of_update).alias("origin"),
            F.min(_when(Stage.PING_RECEIVED)).over(of_update).alias("ping_ns"),
            F.min(_when(Stage.FETCHED)).over(of_update).alias("fetched_ns"),
            F.min(_when(Stage.PUBLISHED)).over(of_update).alias("published_ns"),
        )
    )
    ends = F.col("stage").isin(*LEAVES) | ((F.col("stage") == "delivered") & ~F.col("leaves"))
    return placed.where(ends & (F.col("turn") == 1)).select(
        "trace_id", "topic", "publisher", "epoch", "version", "bytes",
        F.col("origin.domain").alias("from_domain"),
        F.col("origin.node").alias("from_node"),
        F.col("domain").alias("to_domain"),
        F.col("node").alias("to_node"),
        F.coalesce("subscriber", "node").alias("subscriber"),
        F.col("stage").alias("end"),
        (F.col("origin.component") == F.col("component")).alias("comparable"),
        "ping_ns", "fetched_ns", "published_ns", "delivered_ns", "at_ns", "times",
    )  # fmt: skip


def _when(stage: Stage) -> Column:
    return F.when(F.col("stage") == str(stage), F.col("at_ns"))


def _origin() -> Column:
    """Where it entered: the node that fetched it or, natively, published it, the first to."""
    order = F.when(F.col("stage") == str(Stage.FETCHED), 0).when(
        F.col("stage") == str(Stage.PUBLISHED), 1
    )
    return F.when(
        order.isNotNull(), F.struct(order.alias("order"), "at_ns", "node", "domain", "component")
    )
