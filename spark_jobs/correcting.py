"""Events in the time of a reference: one broadcast join with the clocks of all nodes.

Adds two columns. `at_ns` is the time by the reference of the node's component, which `component`
names; only times of one component can be compared. A node that no probe tells of is a component of
its own.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from spark_jobs.clock_probes import quickest_exchanges
from spark_jobs.clocks import Clocks, solve
from spark_jobs.local_tables import local_table

_TABLE = StructType(
    [
        StructField("node", StringType()),
        StructField("reference", StringType()),
        StructField("origin_ns", LongType()),
        StructField("offsets_ns", ArrayType(LongType())),
    ]
)


def estimate_clocks(events: DataFrame) -> Clocks:
    """The clocks of all nodes, from the probes among the events."""
    return solve(quickest_exchanges(events))


def correct(events: DataFrame, clocks: Clocks) -> DataFrame:
    """The events with `at_ns` and `component`."""
    rows = [
        {
            "node": clock.node,
            "reference": clock.reference,
            "origin_ns": clock.origin_ns,
            "offsets_ns": list(clock.offsets_ns),
        }
        for clock in clocks.clocks
    ]
    table = F.broadcast(local_table(events.sparkSession, rows, _TABLE))
    known = events.join(table, "node", "left")
    at = F.col("wall_ns") - F.coalesce(_offset(clocks.step_ns), F.lit(0))
    return known.select(
        *events.columns,
        at.alias("at_ns"),
        F.coalesce("reference", "node").alias("component"),
    )


def _offset(step_ns: int) -> Column:
    """By the straight line between the two knots around the event; the outer ones go on."""
    since = F.col("wall_ns") - F.col("origin_ns")
    last = F.size("offsets_ns") - 2
    index = F.least(F.greatest(F.floor(since / step_ns), F.lit(0)), last).cast("int")
    before, after = (F.get("offsets_ns", index + more) for more in (0, 1))
    share = (since - index * F.lit(step_ns)) / step_ns
    return before + F.round((after - before) * share).cast("long")
