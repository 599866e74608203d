"""The benchmark `spark`, small: the shape of its result, and that duckdb agrees with Spark.

Makes two whole reports, so `make test` does not collect it; `.ci/long` runs it.
"""

from __future__ import annotations

import pytest

from bench.spark_report import measure_in
from spark_jobs.answers import TABLES

pytestmark = pytest.mark.timeout(1_800)


def test_shape(spark, tmp_path):
    result = measure_in(spark, tmp_path, (1_500, 3_000), {})
    assert set(result) == {"ratios", "figures", "notes"}
    assert set(result["ratios"]) == {"latency_vs_bare_aggregate", "vs_duckdb"}
    figures = result["figures"]
    assert {"total_s", "growth_1m_10m", "latency_s", "duckdb_s"} <= set(figures)
    assert {"bare_aggregate_s", "bare_aggregate_rounded_s"} <= set(figures)
    # Time per stage, of both sizes.
    for table in TABLES:
        assert {f"{table}_1500_s", f"{table}_3000_s"} <= set(figures)
    assert all(value > 0 for value in {**result["ratios"], **figures}.values())
    (same,) = result["notes"]
    assert "the same counts" in same
