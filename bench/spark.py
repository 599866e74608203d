"""What the latency table costs on Spark, from trace files to rows, beside a bare aggregate.

Traces of two sizes are generated, and each is read, its clocks solved and its table made, by a
driver of 1 GB. The references read the same files in the same run:

* the bare aggregate is Spark's own: count, exact percentiles and maximum of a number of every
  event on an update's way, by domain and stage, with no clocks, no joins and no journeys;
* duckdb makes the same table from journeys, in this process, with all cores and no limit of memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from bench.spark_duckdb import LatencyInDuckdb, duckdb_version
from spark_jobs.clocks import Clocks
from spark_jobs.generating.generator import generate
from spark_jobs.generating.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SIZES = (1_000_000, 10_000_000)
DOMAINS = 4
DRIVER = "1g"
MICROSECONDS = 1_000_000
WARM = 20_000
"""Events of the run that is not measured."""

NOTES = [
    f"driver: {DRIVER} of memory, local[*]; files of all nodes, zstd, generated with seed 1",
    "total_s: files taken stock of, clocks solved, the table made; the session is up already",
    "bare aggregate: the same files and rows, exact percentiles of one number of a million values",
    "latency_vs_bare_aggregate: time of that against the table alone, with the clocks known",
    "growth_1m_10m: total of the larger size against that of the smaller",
    "the first jobs of a session are run before anything is measured",
]


def run(sizes: tuple[int, int] = SIZES, master: str = "local[*]") -> dict[str, object]:
    """Latency tables of 1 and 10 million events, beside a bare aggregate and duckdb."""
    with TemporaryDirectory(prefix="psph-bench-spark-") as temporary:
        root = Path(temporary)
        figures: dict[str, float] = {}
        generate(Settings(events=WARM, domains=DOMAINS), root / "warm")
        for size in sizes:
            with _timed(figures, f"generate_{size}_s"):
                generate(Settings(events=size, domains=DOMAINS), root / f"{size}")
        return _measure(root, sizes, master, figures)


def _measure(
    root: Path, sizes: tuple[int, int], master: str, figures: dict[str, float]
) -> dict[str, object]:
    from spark_jobs.session import build_session, stop

    with _timed(figures, "session_s"):
        spark = build_session("psph bench spark", master=master, log=root / "spark.log",
                              driver_memory=DRIVER)  # fmt: skip
    notes = list(NOTES)
    try:
        _end_to_end(spark, root / "warm", {}, "warm")
        totals = []
        for size in sizes:
            where = root / f"{size}"
            clocks, rows = _end_to_end(spark, where, figures, f"{size}")
            parts = ("inventory", "clocks", "latency")
            totals.append(sum(figures[f"{part}_{size}_s"] for part in parts))
        bare, table = _in_turns(spark, where, clocks)
    finally:
        stop(spark)
    ratios = {"latency_vs_bare_aggregate": round(bare / table, 3)}
    figures |= {"bare_aggregate_s": bare, "latency_s": table}
    if duckdb_version() is None:
        notes.append("duckdb is not installed: vs_duckdb is left out")
    else:
        with _timed(figures, "duckdb_s"):
            theirs = LatencyInDuckdb(where, clocks).counts()
        ours = {(row["from_domain"], row["to_domain"], row["stage"]): row["count"] for row in rows}
        if ours != theirs:
            raise RuntimeError("the tables of Spark and duckdb do not have the same counts")
        ratios["vs_duckdb"] = round(figures["duckdb_s"] / table, 3)
        notes.append(f"duckdb {duckdb_version()}: the same counts in every row of the table")
    figures["total_s"] = totals[-1]
    figures["growth_1m_10m"] = totals[-1] / totals[0]
    figures["events"] = sizes[-1]
    return {
        "ratios": ratios,
        "figures": {name: round(value, 3) for name, value in figures.items()},
        "notes": notes,
    }


def _end_to_end(
    spark: SparkSession, where: Path, figures: dict[str, float], size: str
) -> tuple[Clocks, list[dict[str, object]]]:
    """From files to rows, part by part."""
    from spark_jobs.correcting import estimate_clocks
    from spark_jobs.journeys import journeys
    from spark_jobs.latency import latency_table
    from spark_jobs.reading import read_traces

    with _timed(figures, f"inventory_{size}_s"):
        events = read_traces(spark, str(where)).events
    with _timed(figures, f"clocks_{size}_s"):
        clocks = estimate_clocks(events)
    with _timed(figures, f"latency_{size}_s"):
        table = latency_table(journeys(events, clocks, details=False)).collect()
    return clocks, [row.asDict() for row in table]


def _in_turns(spark: SparkSession, where: Path, clocks: Clocks) -> tuple[float, float]:
    """Seconds of the bare aggregate and of our table, once each, one right after the other."""
    from spark_jobs.journeys import journeys
    from spark_jobs.latency import latency_table
    from spark_jobs.reading import scan

    events = scan(spark, str(where))
    bare = _seconds(lambda: _bare_aggregate(events).collect())
    table = _seconds(lambda: latency_table(journeys(events, clocks, details=False)).collect())
    return bare, table


def _bare_aggregate(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    from spark_jobs.journeys import LEAVES
    from spark_jobs.latency import QUANTILES

    way = ("ping_received", "fetched", "published", "delivered", *LEAVES)
    number = F.pmod(F.floor(F.col("wall_ns") / 1_000), F.lit(MICROSECONDS))
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
