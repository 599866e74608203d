"""`psph traces follow`: the streaming job from the command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from spark_jobs.streaming.closing import Closed


@click.command(short_help="Follow traces while nodes write them, and tell what crossings cost.")
@click.option(
    "--traces",
    "directory",
    required=True,
    metavar="DIR",
    help="Where nodes write traces; anything that Spark reads.",
)
@click.option(
    "--out",
    required=True,
    metavar="DIR",
    help="For the windows, the file that the page reads, and what a restart needs.",
)
@click.option(
    "--master",
    default="local[*]",
    show_default=True,
    metavar="M",
    help="Where Spark runs: local[*], spark://HOST:PORT, yarn, k8s://URL.",
)
@click.option(
    "--window",
    default=10,
    show_default=True,
    metavar="S",
    type=click.IntRange(1, 86_400),
    help="Seconds in a window.",
)
@click.option(
    "--late",
    default=90,
    show_default=True,
    metavar="S",
    type=click.IntRange(1, 86_400),
    help="How late events may appear: more than nodes' rotate_seconds.",
)
@click.option(
    "--every",
    default=5.0,
    show_default=True,
    metavar="S",
    type=click.FloatRange(0, 3_600),
    help="Seconds between two looks for files.",
)
@click.option("--once", is_flag=True, help="Stop when all files that are there are read.")
@click.option(
    "--log",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("psph-spark.log"),
    show_default=True,
    help="For what Spark says.",
)
@click.option("--json", "as_json", is_flag=True, help="Print each window as a line of JSON.")
def follow(
    directory: str, out: str, master: str, window: int, late: int, every: float, once: bool,
    log: Path, as_json: bool,
) -> None:  # fmt: skip
    """Tell for each window of time and pair of domains how long crossings took, when it is over.

    A window is over when events have come that are --late younger. Killed and started again with
    the same --out it goes on where it was; no window is missing then, and none is there twice.
    `psph up --data D` shows what is written to D/live. Ctrl-C stops it.
    """
    from spark_jobs.errors import NoTraces
    from spark_jobs.session import build_session, stop
    from spark_jobs.streaming.following import SETTINGS, Following, start, wait

    if "://" not in directory and not Path(directory).is_dir():
        raise NoTraces(f"there is no directory {directory}: name the one that nodes write to")
    tell = _tell_programs if as_json else _tell_people
    spark = build_session("psph traces follow", master=master, log=log, settings=SETTINGS)
    try:
        query = start(spark, Following(directory, out, window, late, every, once), tell)
        wait(query, log)
    except KeyboardInterrupt:
        click.echo("stopped; the same command goes on from here", err=True)
    finally:
        stop(spark)


def _tell_programs(windows: Sequence[Closed]) -> None:
    for row in windows:
        click.echo(json.dumps(row.plain()))
    sys.stdout.flush()


def _tell_people(windows: Sequence[Closed]) -> None:
    for row in windows:
        when = datetime.fromtimestamp(row.window_ns / 1e9, UTC)
        took = "by clocks that cannot be compared"
        if row.p50_ms is not None:
            took = f"p50 {row.p50_ms:.3f} ms, p99 {row.p99_ms:.3f} ms, +- {row.uncertainty_ms:.3f}"
        click.echo(
            f"{when:%H:%M:%S}  {row.from_domain} to {row.to_domain}: {row.count} crossings, {took}"
        )
    sys.stdout.flush()
