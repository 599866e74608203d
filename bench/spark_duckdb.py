"""The latency table of the traces in SQL, for duckdb: the reference of the benchmark `spark`.

Journeys are put together as `spark_jobs.journeys` does it; clocks are corrected by a straight line
for each node, which costs as much as a bent one.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from spark_jobs.clocks import Clocks

Key = tuple[str, str, str]

_TABLE = """
WITH way AS (
    SELECT trace_id, stage, e.node, domain, coalesce(subscriber, '') AS subscriber,
           wall_ns - first_ns - CAST((wall_ns - origin_ns) * pace AS BIGINT) AS at_ns
    FROM read_parquet(?, hive_partitioning = true,
                      hive_types = {'domain': VARCHAR, 'date': DATE, 'node': VARCHAR}) e
    JOIN clocks c ON c.node = e.node
    WHERE stage IN ('ping_received', 'fetched', 'published', 'delivered', 'pushed', 'browser_sent')
      AND trace_id IS NOT NULL AND reason IS NULL
), entered AS (
    SELECT trace_id,
           min(at_ns) FILTER (stage = 'ping_received') AS ping_ns,
           min(at_ns) FILTER (stage = 'fetched') AS fetched_ns,
           min(at_ns) FILTER (stage = 'published') AS published_ns,
           min_by(node, at_ns) FILTER (stage IN ('fetched', 'published')) AS from_node,
           min_by(domain, at_ns) FILTER (stage IN ('fetched', 'published')) AS from_domain
    FROM way WHERE stage IN ('ping_received', 'fetched', 'published') GROUP BY trace_id
), arrived AS (
    SELECT trace_id, node, min(at_ns) AS delivered_ns FROM way WHERE stage = 'delivered'
    GROUP BY trace_id, node
), ended AS (
    SELECT trace_id, node, domain, stage AS "end", subscriber, min(at_ns) AS at_ns
    FROM way WHERE stage IN ('pushed', 'browser_sent') GROUP BY ALL
), passed AS (SELECT DISTINCT trace_id, node FROM ended
), ends AS (
    SELECT * FROM ended
    UNION ALL
    SELECT trace_id, node, domain, stage, subscriber, min(at_ns) FROM way
    WHERE stage = 'delivered' AND (trace_id, node) NOT IN (SELECT (trace_id, node) FROM passed)
    GROUP BY ALL
), journeys AS (
    SELECT * FROM ends LEFT JOIN entered USING (trace_id) LEFT JOIN arrived USING (trace_id, node)
), stages AS (
    SELECT from_domain, domain AS to_domain, unnest([
        {'stage': 'fetched', 'ns': fetched_ns - ping_ns},
        {'stage': 'published', 'ns': published_ns - fetched_ns},
        {'stage': 'delivered', 'ns': delivered_ns - published_ns},
        {'stage': "end", 'ns': CASE
            WHEN "end" = 'delivered' THEN NULL
            WHEN from_node = node THEN coalesce(at_ns - fetched_ns, at_ns - delivered_ns)
            ELSE at_ns - coalesce(delivered_ns, fetched_ns) END},
        {'stage': 'total', 'ns': at_ns - coalesce(ping_ns, fetched_ns, published_ns)}
    ]) AS s FROM journeys
)
SELECT from_domain, to_domain, s.stage AS stage, count(*) AS count,
       quantile_cont(s.ns // 1000, [0.5, 0.9, 0.99, 0.999]) AS quantiles, max(s.ns) AS most
FROM stages WHERE s.ns IS NOT NULL GROUP BY ALL
"""


def duckdb_version() -> str | None:
    """None when it is not installed."""
    if find_spec("duckdb") is None:
        return None
    import duckdb

    return str(duckdb.__version__)


class LatencyInDuckdb:
    """The table, made when it is asked for."""

    def __init__(self, traces: Path, clocks: Clocks) -> None:
        import duckdb

        self._files = f"{traces}/domain=*/date=*/node=*/*.parquet"
        self._database = duckdb.connect()
        self._database.execute(
            "CREATE TABLE clocks (node VARCHAR, origin_ns BIGINT, first_ns BIGINT, pace DOUBLE)"
        )
        self._database.executemany(
            "INSERT INTO clocks VALUES (?, ?, ?, ?)",
            [
                (c.node, c.origin_ns, c.offsets_ns[0], c.drift_ppm(clocks.step_ns) / 1e6)
                for c in clocks.clocks
            ],
        )

    def counts(self) -> dict[Key, int]:
        """By domains and stage; percentiles are taken as well, and thrown away."""
        rows = self._database.execute(_TABLE, [self._files]).fetchall()
        return {(row[0], row[1], row[2]): row[3] for row in rows}
