"""The same answers by duckdb, written down once more in SQL: nothing is shared with spark_jobs but
what a clock showed at its knots."""

from __future__ import annotations

import duckdb

STAGES = ("fetched", "published", "delivered", "browser_sent", "pushed", "total")
EDGES = [m * 10**e for e in range(1, 8) for m in (1, 2, 5)] + [10**8]

EVENTS = """
CREATE TABLE events AS
SELECT * EXCLUDE (origin, offsets), coalesce(reference, e.node) AS component,
  wall_ns - coalesce(offsets[i + 1] + round((offsets[i + 2] - offsets[i + 1])
                     * ((wall_ns - origin - i * step) / step::DOUBLE))::BIGINT, 0) AS at
FROM (
  SELECT e.*, c.reference, c.origin, c.offsets, $step::BIGINT AS step,
    least(greatest(floor((wall_ns - c.origin) / $step::DOUBLE)::BIGINT, 0), len(c.offsets) - 2) AS i
  FROM read_parquet($files, hive_partitioning = true, union_by_name = true,
    hive_types = {'domain': VARCHAR, 'date': DATE, 'node': VARCHAR}) e
  LEFT JOIN clocks c ON c.node = e.node
) e
"""

JOURNEYS = """
CREATE TABLE journeys AS
WITH way AS (
  SELECT * FROM events WHERE trace_id IS NOT NULL AND topic IS NOT NULL AND reason IS NULL
), entered AS (
  SELECT trace_id,
    min(at) FILTER (stage = 'ping_received') AS ping,
    min(at) FILTER (stage = 'fetched') AS fetched,
    list(at) FILTER (stage = 'published') AS published,
    arg_min(node, (stage = 'published', at)) FILTER (stage IN ('fetched', 'published')) AS home,
  FROM way GROUP BY trace_id
), came AS (
  SELECT trace_id, node, stage, subscriber, min(at) AS at, count(*) AS times
  FROM way WHERE stage IN ('delivered', 'pushed', 'browser_sent') GROUP BY ALL
), at_node AS (
  SELECT trace_id, node, min(at) FILTER (stage = 'delivered') AS delivered,
    bool_or(stage <> 'delivered') AS leaves
  FROM came GROUP BY ALL
), nodes AS (SELECT node, any_value(domain) AS domain, any_value(component) AS component
             FROM events GROUP BY node)
SELECT came.*, delivered, ping, fetched, list_min(published) AS first_published,
  coalesce(list_max(list_filter(published, lambda p: p <= delivered)), list_min(published))
    AS published,
  home, f.domain AS from_domain, t.domain AS to_domain, f.component = t.component AS comparable,
FROM came JOIN at_node USING (trace_id, node) LEFT JOIN entered USING (trace_id)
LEFT JOIN nodes f ON f.node = home JOIN nodes t ON t.node = came.node
WHERE stage <> 'delivered' OR NOT leaves
"""

LATENCIES = """
CREATE TABLE latencies AS
WITH took AS (
  SELECT from_domain, to_domain, trace_id, unnest([
    {'stage': 'fetched', 'ns': CASE WHEN NOT anew THEN NULL ELSE fetched - ping END},
    {'stage': 'published', 'ns': CASE WHEN NOT anew THEN NULL ELSE published - fetched END},
    {'stage': 'delivered', 'ns': CASE WHEN comparable THEN delivered - published END},
    {'stage': stage, 'ns': CASE WHEN stage = 'delivered' THEN NULL
       WHEN home = node THEN at - fetched ELSE at - coalesce(delivered, fetched) END},
    {'stage': 'total', 'ns': CASE WHEN comparable AND anew
       THEN at - coalesce(ping, fetched, published) END}], recursive := true)
  FROM (SELECT *, coalesce(published = first_published, true) AS anew FROM journeys)
), us AS (SELECT *, floor(ns / 1000.0)::BIGINT AS whole FROM took WHERE ns IS NOT NULL)
SELECT *, floor(whole / digits)::BIGINT * digits::BIGINT AS us FROM (
  SELECT *, CASE WHEN abs(whole) < 10000 THEN 1.0
    ELSE pow(10, length(abs(whole)::VARCHAR) - 4) END AS digits FROM us)
"""


def connect(root, clocks):
    """A database with the tables events, journeys and latencies."""
    db = duckdb.connect()
    db.execute(
        "CREATE TABLE clocks (node VARCHAR, reference VARCHAR, origin BIGINT, offsets BIGINT[])"
    )
    for clock in clocks.clocks:
        row = [clock.node, clock.reference, clock.origin_ns, list(clock.offsets_ns)]
        db.execute("INSERT INTO clocks VALUES (?, ?, ?, ?)", row)
    db.execute(EVENTS, {"files": f"{root}/domain=*/**/*.parquet", "step": clocks.step_ns})
    db.execute(JOURNEYS)
    db.execute(LATENCIES)
    return db


def latency(db, *by):
    """By those columns: count, quantiles, maximum and histogram, in milliseconds."""
    keys = ", ".join(by)
    found = db.execute(
        f"SELECT {keys}, count(*), quantile_cont(us, [0.5, 0.9, 0.99, 0.999]), max(us), list(us)"
        f" FROM latencies GROUP BY {keys}"
    ).fetchall()
    table = {}
    for row in found:
        *key, count, quantiles, most, values = row
        histogram = [0] * (len(EDGES) + 1)
        for value in values:
            histogram[next((i for i, edge in enumerate(EDGES) if value <= edge), -1)] += 1
        table[tuple(key)] = (count, [q / 1_000 for q in quantiles], most / 1_000, histogram)
    return table
