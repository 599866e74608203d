"""The same tables on a cluster as on a laptop: a real master, two real workers, the same job.

Needs minutes of a small machine, so `make test` does not collect it; `.ci/long` runs it.
"""

from __future__ import annotations

import pytest

from spark_jobs import progress
from spark_jobs.generating.generator import generate
from spark_jobs.generating.settings import Settings
from spark_jobs.report import STEPS, Wish, make_report
from spark_jobs.session import build_session, stop
from tests.spark_jobs.cluster import PATIENCE, executors, running_cluster
from tests.spark_jobs.conftest import FAST

pytestmark = pytest.mark.timeout(3 * PATIENCE)
LOOPBACK = {
    **FAST,
    "spark.executor.extraJavaOptions": FAST["spark.driver.extraJavaOptions"],
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "600m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    "spark.sql.shuffle.partitions": "4",
}


def tables(master, traces, out):
    """All tables of a report, in an order that does not depend on who computed them."""
    spark = build_session(
        "cluster check", master=master, log=out.with_suffix(".log"), settings=LOOPBACK
    )
    try:
        with progress.bar(spark, STEPS) as bar:
            found = make_report(spark, Wish(str(traces)), out, bar)
    finally:
        stop(spark)
    assert (out / "report.html").is_file()
    made = {name: sorted(table.rows, key=str) for name, table in found.tables.items()}
    return {"files": found.files.files, **made}


def test_a_cluster_finds_what_a_laptop_finds(tmp_path):
    generate(Settings(events=20_000, domains=3, loss=0.02), tmp_path / "traces")
    with running_cluster(tmp_path) as master:
        there = tables(master, tmp_path / "traces", tmp_path / "cluster")
        assert all(executors(tmp_path)), "both workers worked"
    here = tables("local[*]", tmp_path / "traces", tmp_path / "local")
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
