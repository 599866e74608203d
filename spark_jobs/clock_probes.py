"""From clock probes to the few that say most: the exchange with the least delay of each window.

An exchange that was quick has waited nowhere, and waiting is what makes the two directions of an
exchange unequal. So of each pair of nodes and each window of time only the quickest is kept. The
windows are made as long as it takes for all of them to fit on the driver, where `clocks` solves.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.clocks import Exchange
from traces import Stage

MOST = 9_000
"""Exchanges that come to the driver."""
SHORTEST_WINDOW_NS = 10 * 10**9


def quickest_exchanges(events: DataFrame) -> list[Exchange]:
    """At most `MOST` exchanges, the quickest of each pair in each window."""
    probes = _probes(events)
    first, last, pairs = probes.agg(
        F.min("at"), F.max("at"), F.count_distinct("node", "peer")
    ).collect()[0]
    if not pairs:
        return []
    windows = max(1, MOST // pairs)
    window_ns = max(SHORTEST_WINDOW_NS, -(-(last - first + 1) // windows))
    quickest = (
        probes.groupBy("node", "peer", ((F.col("at") - first) / window_ns).cast("long"))
        .agg(F.min_by(F.struct("at", "offset", "round_trip"), "round_trip").alias("best"))
        .select("node", "peer", "best.*")
        .orderBy("round_trip")
        .limit(MOST)  # only where there are more pairs than that
    )
    return [Exchange(*row) for row in quickest.collect()]


def _probes(events: DataFrame) -> DataFrame:
    """Offset of the peer's clock and round trip, both in whole nanoseconds, by each exchange."""
    t1, t2, t3, t4 = (F.col(name) for name in ("t1", "t2", "t3", "t4"))
    round_trip = (t4 - t1) - (t3 - t2)
    return (
        events.where(F.col("stage") == str(Stage.CLOCK_PROBE))
        .where(F.col("peer") != F.col("node"))
        .select(
            "node",
            "peer",
            F.col("t4").alias("at"),
            F.expr("((t2 - t1) + (t3 - t4)) div 2").alias("offset"),
            round_trip.alias("round_trip"),
        )
        .where("round_trip >= 0")  # a clock was set in between, or null
    )
