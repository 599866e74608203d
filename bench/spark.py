"""What a report costs on Spark, and its latency table alone beside a bare aggregate.

Traces of two sizes are generated, and a report is made of each, by a driver of 1 GB. The references
read the same files in the same run and are compared with the latency table alone:

* the bare aggregate is Spark's own: count, exact percentiles and maximum of a number of every
  event on an update's way, by domain and stage, with no clocks, no joins and no journeys. The
  number is the event's time as the file has it, so most values are there once, as they are among
  latencies in nanoseconds. Of a number that is rounded first, as we round latencies so that equal
  ones can be counted, the same aggregate is much cheaper; what it takes then is told as well;
* duckdb makes the same table from journeys, in this process, with all cores and no limit of memory.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from spark_jobs.session import LOCAL, check_java

SIZES = (1_000_000, 10_000_000)

NOTES = [
    "driver: 1 GB of memory; traces generated with seed 1, four domains, eight nodes",
    "total_s: all that psph report does, of the larger size; the session is up already",
    "bare aggregate: the same files and rows, exact percentiles of one number, as it was written;"
    " bare_aggregate_rounded_s: of 20,000 values",
    "latency_vs_bare_aggregate: time of that against the table alone, with the clocks known; this"
    " and vs_duckdb are of the smaller size",
    "growth_1m_10m: total of the larger size against that of the smaller",
    "nothing is run before the smaller report: as for psph report, all code is new to Java then",
]


def run(sizes: tuple[int, int] = SIZES, master: str = LOCAL) -> dict[str, object]:
    """Reports of 1 and 10 million events; the latency table beside a bare aggregate and duckdb."""
    check_java()
    from bench.spark_report import measure

    with TemporaryDirectory(prefix="psph-bench-spark-") as temporary:
        measured = measure(Path(temporary), sizes, master)
    notes = measured["notes"]
    assert isinstance(notes, list)
    return {**measured, "notes": [*NOTES, *notes]}
