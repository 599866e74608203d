"""The same tables on a cluster as on a laptop: a real master, two real workers, the same job.

Needs minutes of a small machine, so `make test` does not collect it; `.ci/run` runs it.
"""

from __future__ import annotations

import pytest

from spark_jobs.correcting import estimate_clocks
from spark_jobs.generating.generator import generate
from spark_jobs.generating.settings import Settings
from spark_jobs.journeys import journeys
from spark_jobs.latency import latency_series, latency_table, stage_shares
from spark_jobs.reading import read_traces
from spark_jobs.session import build_session, stop
from tests.spark_jobs.cluster import PATIENCE, executors, running_cluster

pytestmark = pytest.mark.timeout(3 * PATIENCE)
LOOPBACK = {
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "600m", "spark.executor.cores": "1", "spark.cores.max": "2",
    "spark.sql.shuffle.partitions": "4",
}  # fmt: skip


def tables(master, traces, log):
    """Everything about latency, in an order that does not depend on who computed it."""
    spark = build_session("cluster check", master=master, log=log, settings=LOOPBACK)
    try:
        read = read_traces(spark, str(traces))
        clocks = estimate_clocks(read.events)
        found = journeys(read.events, clocks)
        latency = latency_table(found)
        made = {
            "latency": latency,
            "series": latency_series(found, 10_000_000_000),
            "shares": stage_shares(latency),
        }
        rows = {
            name: sorted((row.asDict() for row in table.collect()), key=str)
            for name, table in made.items()
        }
        return {"clocks": clocks, "files": read.files.files, **rows}
    finally:
        stop(spark)


def test_a_cluster_finds_what_a_laptop_finds(tmp_path):
    generate(Settings(events=20_000, domains=3, loss=0.02), tmp_path / "traces")
    with running_cluster(tmp_path) as master:
        there = tables(master, tmp_path / "traces", tmp_path / "cluster.log")
        assert all(executors(tmp_path)), "both workers worked"
    here = tables("local[*]", tmp_path / "traces", tmp_path / "local.log")
    assert there.keys() == here.keys()
    for name, table in here.items():
        assert there[name] == _nearly(table), name
    assert len(here["latency"]) > 20


def _nearly(table):
    """Sums of floats depend on the order they are added in; all else must be the same."""
    if not isinstance(table, list):
        return table
    return [
        {k: pytest.approx(v, rel=1e-9) if isinstance(v, float) else v for k, v in row.items()}
        for row in table
    ]
