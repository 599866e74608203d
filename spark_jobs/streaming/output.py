"""Where closed windows go, so that each is there once however often the job dies.

    OUT/windows/batch=N/    Parquet: the rows of one micro-batch, for other jobs
    OUT/probes/batch=N/     Parquet: the clock probes of it, which later batches need
    OUT/latency.json        the last windows, for a page; only where OUT is a local directory
    OUT/checkpoint/         Spark's: which files were read, what is still open

A micro-batch whose job died before it was committed is run again with the same files and the same
number, and replaces what it had written.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.local_tables import local_table
from spark_jobs.streaming.closing import REMEMBERED_NS, Closed

SHOWN_WINDOWS = 500
"""Rows in the file for the page."""
CLOSED_SCHEMA = (
    "window_ns long, from_domain string, to_domain string, count long, compared long,"
    " p50_ms double, p90_ms double, p99_ms double, max_ms double, uncertainty_ms double"
)


class Output:
    """The directory that a job writes to."""

    def __init__(self, spark: SparkSession, path: str, window_seconds: int) -> None:
        self._spark = spark
        self._path = path.rstrip("/")
        self._window_seconds = window_seconds
        self._shown: deque[dict[str, Any]] = deque(maxlen=SHOWN_WINDOWS)
        self.checkpoint = f"{self._path}/checkpoint"

    def remembered(self, before: int) -> list[dict[str, Any]]:
        """The probes of batches before that one; takes up what is shown, too."""
        if not before:
            return []
        shown = self._read("windows", before).orderBy(F.desc("window_ns")).limit(SHOWN_WINDOWS)
        self._shown.extend(sorted((row.asDict() for row in shown.collect()), key=_by_time))
        probes = self._read("probes", before)
        latest = probes.agg(F.max("window_ns")).collect()[0][0]
        recent = probes.where(F.col("window_ns") > (latest or 0) - REMEMBERED_NS)
        return [row.asDict() for row in recent.collect()]

    def write(self, batch: int, closed: Sequence[Closed], probes: DataFrame) -> None:
        """The rows of a batch, in place of those that it may have written before."""
        rows = [row.plain() for row in closed]
        if rows:
            table = local_table(self._spark, rows, CLOSED_SCHEMA)
            table.coalesce(1).write.mode("overwrite").parquet(f"{self._path}/windows/batch={batch}")
        probes.coalesce(1).write.mode("overwrite").parquet(f"{self._path}/probes/batch={batch}")
        self._shown.extend(rows)
        self._show()

    def _read(self, what: str, before: int) -> DataFrame:
        schema = PROBES_SCHEMA if what == "probes" else CLOSED_SCHEMA
        try:
            found = self._spark.read.schema(f"{schema}, batch long").parquet(f"{self._path}/{what}")
        except AnalysisException:
            return local_table(self._spark, [], schema)
        return found.where(F.col("batch") < before).drop("batch")

    def _show(self) -> None:
        """For the page: appears whole, by a rename."""
        if "://" in self._path:
            return
        final = Path(self._path) / "latency.json"
        aside = final.with_name(f".latency.{os.getpid()}.part")
        said = {"window_s": self._window_seconds, "windows": list(self._shown)}
        aside.write_text(json.dumps(said))
        aside.replace(final)


PROBES_SCHEMA = (
    "kind string, window_ns long, from_node string, to_node string, wall_ns long,"
    " offset_ns long, round_trip_ns long"
)


def probes_of(spark: SparkSession, rows: Iterable[dict[str, Any]]) -> DataFrame:
    """The probes among the rows of a batch."""
    names = [field.split()[0] for field in PROBES_SCHEMA.split(",")]
    kept = [{name: row[name] for name in names} for row in rows if row["kind"] == "probe"]
    return local_table(spark, kept, PROBES_SCHEMA)


def _by_time(row: dict[str, Any]) -> tuple[int, str, str]:
    return row["window_ns"], row["from_domain"], row["to_domain"]
