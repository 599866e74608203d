"""The measuring of the benchmark `spark`; apart from it, because it needs Spark to be imported."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.spark_duckdb import LatencyInDuckdb, duckdb_version
from spark_jobs.clocks import Clocks
from spark_jobs.generating.generator import generate
from spark_jobs.generating.settings import Settings
from spark_jobs.journeys import LEAVES, journeys
from spark_jobs.latency import QUANTILES, latency_table
from spark_jobs.progress import Bar
from spark_jobs.reading import scan
from spark_jobs.report import Findings, Wish, make_report
from spark_jobs.session import build_session, stop

DOMAINS = 4
DRIVER = "1g"
ROUNDED = 20_000
"""Values of the rounded number: about as many as latencies of four digits have."""


def measure(root: Path, sizes: tuple[int, int], master: str) -> dict[str, object]:
    """Below the directory: traces, a session, reports, references."""
    figures: dict[str, float] = {}
    with _timed(figures, "session_s"):
        spark = build_session(
            "psph bench spark", master=master, log=root / "spark.log", driver_memory=DRIVER
        )
    try:
        return measure_in(spark, root, sizes, figures)
    finally:
        stop(spark)


def measure_in(
    spark: SparkSession, root: Path, sizes: tuple[int, int], figures: dict[str, float]
) -> dict[str, object]:
    """With a session that is up; the figures are added to."""
    totals = []
    beside: tuple[dict[str, float], list[str]] = {}, []
    for size in sizes:
        where = root / f"{size}"
        with _timed(figures, f"generate_{size}_s"):
            generate(Settings(events=size, domains=DOMAINS), where)
        found, took = _report(spark, where)
        events = sum(row["events"] for row in found.overview.rows)
        if events != size:
            raise RuntimeError(f"{events} of {size} events were reported on")
        figures |= {f"{step}_{size}_s": seconds for step, seconds in took.items()}
        totals.append(sum(took.values()))
        if size == sizes[0]:  # of the larger size it would take minutes more
            beside = _beside_references(spark, where, found, figures)
    figures["total_s"] = totals[-1]
    figures["growth_1m_10m"] = totals[-1] / totals[0]
    ratios, notes = beside
    return {
        "ratios": {name: round(value, 3) for name, value in ratios.items()},
        "figures": {name: round(value, 3) for name, value in figures.items()},
        "notes": notes,
    }


def _beside_references(
    spark: SparkSession, where: Path, found: Findings, figures: dict[str, float]
) -> tuple[dict[str, float], list[str]]:
    """The latency table alone beside a bare aggregate and duckdb: ratios and notes."""
    figures |= _in_turns(spark, where, found.clocks)
    table = figures["latency_s"]
    ratios = {"latency_vs_bare_aggregate": figures["bare_aggregate_s"] / table}
    if duckdb_version() is None:
        return ratios, ["duckdb is not installed: vs_duckdb is left out"]
    with _timed(figures, "duckdb_s"):
        theirs = LatencyInDuckdb(where, found.clocks).counts()
    ours = {
        (row["from_domain"], row["to_domain"], row["stage"]): row["count"]
        for row in found.tables["latency"].rows
    }
    if ours != theirs:
        raise RuntimeError("the tables of Spark and duckdb do not have the same counts")
    ratios["vs_duckdb"] = figures["duckdb_s"] / table
    return ratios, [f"duckdb {duckdb_version()}: the same counts in every row of the table"]


class _Stopwatch(Bar):
    """Instead of a bar: how long each step of a report takes."""

    def __init__(self) -> None:
        self.took: dict[str, float] = {}
        self._step: tuple[str, float] | None = None

    def step(self, what: str) -> None:
        self.stop()
        self._step = what.replace(" ", "_"), time.perf_counter()

    def stop(self) -> None:
        if self._step is not None:
            name, begun = self._step
            self.took[name] = time.perf_counter() - begun


def _report(spark: SparkSession, traces: Path) -> tuple[Findings, dict[str, float]]:
    """All tables, plots and the page, as `psph report` makes them."""
    watch = _Stopwatch()
    found = make_report(spark, Wish(str(traces)), traces.with_name(f"report-{traces.name}"), watch)
    watch.stop()
    return found, watch.took


def _in_turns(spark: SparkSession, where: Path, clocks: Clocks) -> dict[str, float]:
    """Seconds of the bare aggregates and of our table, once each, one right after the other."""
    events = scan(spark, str(where))
    exact = F.col("wall_ns")
    rounded = F.pmod(F.floor(exact / 1_000), F.lit(ROUNDED))
    table = latency_table(journeys(events, clocks, details=False))
    return {
        "bare_aggregate_s": _seconds(_bare_aggregate(events, exact).collect),
        "latency_s": _seconds(table.collect),
        "bare_aggregate_rounded_s": _seconds(_bare_aggregate(events, rounded).collect),
    }


def _bare_aggregate(events: DataFrame, number: Column) -> DataFrame:
    way = ("ping_received", "fetched", "published", "delivered", *LEAVES)
    return (
        events.where(F.col("stage").isin(*way) & F.col("reason").isNull())
        .groupBy("domain", "stage")
        .agg(
            F.count("*"),
            F.percentile(number, F.array(*map(F.lit, QUANTILES.values()))),
            F.max(number),
        )
    )


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


@contextmanager
def _timed(figures: dict[str, float], name: str) -> Iterator[None]:
    begun = time.perf_counter()
    yield
    figures[name] = time.perf_counter() - begun
