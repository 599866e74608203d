"""The layout of a trace directory, without Spark: an empty directory is reported at once."""

from __future__ import annotations

from spark_jobs.errors import NoTraces

LAYOUT = "domain=*/date=*/node=*"
FILES = "*.parquet"


def no_traces(path: str) -> NoTraces:
    """What to say of a path where nothing is found."""
    return NoTraces(f"no traces in {path}: it has no {LAYOUT} directories (docs/traces.md)")
