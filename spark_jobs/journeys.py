"""Journeys: an update on its way to one who wants it, in one row.

A journey ends where an update leaves the proxies: at a callback (`pushed`), at a browser
(`browser_sent`), or at a subscriber of the fabric (`delivered`, where the node passes it on to
nobody). Its row has the time of every stage before:

    ping_ns, fetched_ns, published_ns   where it entered, the first of each
    entered_ns                          the first of fetched and published
    delivered_ns                        at the node where it ended, the first
    at_ns                               the end
    repeated                            it had come to this end before: once too often
    passed_on                           no end after all: the node passed it on to others
    first_at_node                       one for each update and node that it ended at

What proxies tell each other has no topic and is no journey. An old version is published again to
whoever comes later; such a journey begins then, and `again` says so.

Events are brought together by trace id, once, with only the columns that are needed, and sorted
once; all that an end has to know of the other events of its update it sees from there. Nothing is
joined, so nothing can multiply; and a topic that is far busier than others is many trace ids like
any other.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_jobs.clocks import Clocks
from spark_jobs.correcting import correct
from traces import Stage

LEAVES = (str(Stage.PUSHED), str(Stage.BROWSER_SENT))
_ENTERS = (str(Stage.PING_RECEIVED), str(Stage.FETCHED), str(Stage.PUBLISHED))
_ENDS = (str(Stage.DELIVERED), *LEAVES)
_NEEDED = ("trace_id", "stage", "node", "domain", "subscriber", "wall_ns")
DETAILS = ("topic", "publisher", "epoch", "version", "bytes")

_UPDATE = ("trace_id",)
_AT_NODE = ("trace_id", "node")
_TO_ONE = ("stage", "subscriber", "at_ns")


def journeys(events: DataFrame, clocks: Clocks, *, details: bool = True) -> DataFrame:
    """A row for every time that an update came to someone.

    The details are `topic`, `publisher`, `epoch`, `version` and `bytes`.
    """
    way = events.where(
        F.col("stage").isin(*_ENTERS, *_ENDS)
        & F.col("trace_id").isNotNull()
        & F.col("topic").isNotNull()
        & F.col("reason").isNull()
    )
    more = DETAILS if details else ()
    placed = correct(way.select(*_NEEDED, *more), clocks).drop("wall_ns")
    # In this order they lie as both windows want them.
    together = placed.repartition(*_UPDATE).sortWithinPartitions(*_AT_NODE, *_TO_ONE)
    return _ended(_entered(together).where(F.col("stage").isin(*_ENDS))).select(
        "trace_id",
        F.col("origin.domain").alias("from_domain"),
        F.col("origin.node").alias("from_node"),
        F.col("domain").alias("to_domain"),
        F.col("node").alias("to_node"),
        _subscriber().alias("subscriber"),
        F.col("stage").alias("end"),
        (F.col("origin.component") == F.col("component")).alias("comparable"),
        (_last_published() > F.col("first_published_ns")).alias("again"),
        "ping_ns", "fetched_ns", _last_published().alias("published_ns"),
        F.least("fetched_ns", "first_published_ns").alias("entered_ns"),
        "delivered_ns", "at_ns", "repeated", "passed_on", "first_at_node",
        *more,
    )  # fmt: skip


def _entered(events: DataFrame) -> DataFrame:
    """Every event with where and when its update entered."""
    of_update = Window.partitionBy(*_UPDATE)
    return events.select(
        "*",
        F.min(_origin()).over(of_update).alias("origin"),
        F.min(_when(Stage.PING_RECEIVED)).over(of_update).alias("ping_ns"),
        F.min(_when(Stage.FETCHED)).over(of_update).alias("fetched_ns"),
        F.min(_when(Stage.PUBLISHED)).over(of_update).alias("first_published_ns"),
        F.collect_list(_when(Stage.PUBLISHED)).over(of_update).alias("published"),
    )


def _ended(events: DataFrame) -> DataFrame:
    """Every end with what it has to know of the others at its node."""
    in_order = Window.partitionBy(*_AT_NODE).orderBy(*_TO_ONE)
    all_there = in_order.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    before = F.lag("stage").over(in_order)
    same = F.lag("subscriber").over(in_order).eqNullSafe(F.col("subscriber"))
    leaves = F.col("stage").isin(*LEAVES)
    return events.select(
        "*",
        F.min(_when(Stage.DELIVERED)).over(all_there).alias("delivered_ns"),
        (~leaves & F.max(leaves).over(all_there)).alias("passed_on"),
        before.isNull().alias("first_at_node"),
        (before.eqNullSafe(F.col("stage")) & same).alias("repeated"),
    )


def _last_published() -> Column:
    """The last time that it was published before it came here; once is the rule."""
    times = F.col("published")
    before = F.array_max(F.filter(times, lambda at: at <= F.col("delivered_ns")))
    return F.when(F.size(times) > 1, F.coalesce(before, "first_published_ns")).otherwise(
        F.col("first_published_ns")
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
