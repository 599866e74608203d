"""How a trace directory is laid out; known without Spark, so that what is empty is told at once."""

from __future__ import annotations

from spark_jobs.errors import NoTraces

LAYOUT = "domain=*/date=*/node=*"
FILES = "*.parquet"


def no_traces(path: str) -> NoTraces:
    """What to say of a path where nothing is found."""
    return NoTraces(f"no traces in {path}: it has no {LAYOUT} directories (docs/traces.md)")
