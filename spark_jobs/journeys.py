"""Journeys: an update on its way to one who wants it, in one row.

A journey ends where an update leaves the proxies: at a callback (`pushed`), at a browser
(`browser_sent`), or at a subscriber of the fabric (`delivered`, where the node passes it on to
nobody). Its row has the time of every stage before:

    ping_ns, fetched_ns, published_ns   where it entered, the first of each
    delivered_ns                        at the node where it ended, the first
    at_ns                               the end, the first for this subscriber
    times                               how often it came to this end: 2 is once too often
    passed_on                           no end after all: the node passed it on to others

What proxies tell each other has no topic and is no journey. An old version is published again to
whoever comes later; such a journey begins then, and `again` says so.

Where an update entered is one row for each trace id, so joining the two cannot multiply anything;
and a topic that is far busier than others is many trace ids like any other. Only the columns that
are needed go through the network, once.
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
_NEEDED = ("trace_id", "stage", "node", "domain", "subscriber", "wall_ns")
DETAILS = ("topic", "publisher", "epoch", "version", "bytes")


def journeys(events: DataFrame, clocks: Clocks, *, details: bool = True) -> DataFrame:
    """One row for every update and everyone it came to.

    The details are `topic`, `publisher`, `epoch`, `version` and `bytes`.
    """
    way = events.where(
        F.col("stage").isin(*_WAY)
        & F.col("trace_id").isNotNull()
        & F.col("topic").isNotNull()
        & F.col("reason").isNull()
    )
    more = DETAILS if details else ()
    placed = correct(way.select(*_NEEDED, *more), clocks).drop("wall_ns")
    entered = _entered(placed.where(F.col("stage").isin(*_ENTERS)))
    ended = _ended(placed.where(~F.col("stage").isin(*_ENTERS)), more)
    # The last time that it was published before it came here; once is the rule.
    times = F.col("published")
    before = F.array_max(F.filter(times, lambda at: at <= F.col("delivered_ns")))
    published = F.when(F.size(times) > 1, F.coalesce(before, F.col("published_ns"))).otherwise(
        F.col("published_ns")
    )
    joined = ended.join(entered, "trace_id", "left").withColumn("last_published", published)
    return joined.select(
        "trace_id",
        F.col("origin.domain").alias("from_domain"),
        F.col("origin.node").alias("from_node"),
        F.col("domain").alias("to_domain"),
        F.col("node").alias("to_node"),
        _subscriber().alias("subscriber"),
        F.col("stage").alias("end"),
        (F.col("origin.component") == F.col("component")).alias("comparable"),
        (F.col("last_published") > F.col("published_ns")).alias("again"),
        "ping_ns", "fetched_ns", F.col("last_published").alias("published_ns"),
        "delivered_ns", "at_ns", "times", "passed_on",
        *more,
    )  # fmt: skip


def _entered(events: DataFrame) -> DataFrame:
    """Where and when each update entered: one row for each."""
    published = F.collect_list(_when(Stage.PUBLISHED))
    return (
        events.repartition("trace_id")
        .groupBy("trace_id")
        .agg(
            F.min(_origin()).alias("origin"),
            F.min(_when(Stage.PING_RECEIVED)).alias("ping_ns"),
            F.min(_when(Stage.FETCHED)).alias("fetched_ns"),
            F.min(_when(Stage.PUBLISHED)).alias("published_ns"),
            published.alias("published"),
        )
    )


def _ended(events: DataFrame, more: tuple[str, ...]) -> DataFrame:
    """Where and when each update came to whom."""
    # Brought together by the trace id alone, they lie as the join and the window want them.
    ends = (
        events.repartition("trace_id")
        .groupBy("trace_id", "node", "domain", "component", "stage", "subscriber", *more)
        .agg(F.min("at_ns").alias("at_ns"), F.count("*").alias("times"))
    )
    at_node = Window.partitionBy("trace_id", "node")
    leaves = F.col("stage").isin(*LEAVES)
    return ends.select(
        "*",
        F.min(_when(Stage.DELIVERED)).over(at_node).alias("delivered_ns"),
        (~leaves & F.max(leaves).over(at_node)).alias("passed_on"),
    )


def _subscriber() -> Column:
    """One of the fabric is called after its node as well: every proxy is a `proxy`."""
    named = F.concat_ws(" at ", F.coalesce("subscriber", F.lit("itself")), "node")
    return F.when(F.col("stage") == str(Stage.DELIVERED), named).otherwise(F.col("subscriber"))


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
