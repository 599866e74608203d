"""`psph traces generate`: a made-up world from the command line."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

SHARE = click.FloatRange(0, 0.5)


@click.command(short_help="Write traces of a made-up world, with the truth beside them.")
@click.option(
    "--out",
    required=True,
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="A new directory for the traces; the truth goes to its _truth.",
)
@click.option(
    "--events",
    default=100_000,
    show_default=True,
    metavar="N",
    type=click.IntRange(500, 10**9),
    help="Exactly so many.",
)
@click.option("--domains", default=3, show_default=True, metavar="D", type=click.IntRange(2, 26))
@click.option(
    "--topics",
    metavar="N",
    type=click.IntRange(1),
    help="By default one for 500 events, up to 200.",
)
@click.option(
    "--zipf",
    default=1.1,
    show_default=True,
    metavar="S",
    type=click.FloatRange(0, 4),
    help="How uneven topics are; 0 is all alike.",
)
@click.option(
    "--skew",
    default=500.0,
    show_default=True,
    metavar="MS",
    type=click.FloatRange(0, 3_600_000),
    help="How wrong a clock may be at first.",
)
@click.option(
    "--drift",
    default=50.0,
    show_default=True,
    metavar="PPM",
    type=click.FloatRange(0, 1_000),
    help="How much too fast or slow it may run.",
)
@click.option(
    "--jitter",
    default=0.5,
    show_default=True,
    metavar="MS",
    type=click.FloatRange(0, 1_000),
    help="How long probes wait on the way, roughly.",
)
@click.option(
    "--asymmetry",
    default=0.0,
    show_default=True,
    metavar="MS",
    type=click.FloatRange(0, 1_000),
    help="By how much ways forth and back may differ.",
)
@click.option("--loss", default=0.001, show_default=True, metavar="SHARE", type=SHARE)
@click.option("--duplicates", default=0.001, show_default=True, metavar="SHARE", type=SHARE)
@click.option("--reorder", default=0.001, show_default=True, metavar="SHARE", type=SHARE)
@click.option(
    "--failures",
    default=0.01,
    show_default=True,
    metavar="SHARE",
    type=SHARE,
    help="POSTs that fail at first.",
)
@click.option(
    "--handoffs",
    metavar="N",
    type=click.IntRange(0, 1_000),
    help="Clients that move once; by default up to four for each domain.",
)
@click.option(
    "--seconds",
    metavar="S",
    type=click.FloatRange(10, 604_800),
    help="How long it all takes, roughly; by default there are 2,000 events a second.",
)
@click.option(
    "--start",
    default="2027-01-15T09:00:00",
    show_default=True,
    metavar="TIME",
    type=click.DateTime(["%Y-%m-%dT%H:%M:%S", "%Y-%m-%d"]),
    help="When, in UTC.",
)
@click.option("--seed", default=1, show_default=True, metavar="N", type=click.IntRange(0))
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def generate(
    out: Path, events: int, domains: int, topics: int | None, zipf: float, skew: float,
    drift: float, jitter: float, asymmetry: float, loss: float, duplicates: float,
    reorder: float, failures: float, handoffs: int | None, seconds: float | None,
    start: datetime, seed: int, as_json: bool,
) -> None:  # fmt: skip
    """Write traces as the nodes of D domains would, and the truth that reports should find.

    Clocks are wrong, updates get lost, doubled and late, POSTs fail, clients move: docs/traces.md
    tells how, and what the truth looks like. The same options give the same rows.
    """
    from spark_jobs.generating.generator import generate as run
    from spark_jobs.generating.settings import InvalidSettings, Settings

    console = Console(stderr=True)
    try:
        settings = Settings(
            events=events, domains=domains, topics=topics, zipf=zipf, skew_ms=skew,
            drift_ppm=drift, jitter_ms=jitter, asymmetry_ms=asymmetry, loss=loss,
            duplicates=duplicates, reorder=reorder, failures=failures, handoffs=handoffs,
            seconds=seconds, start=start.replace(tzinfo=UTC), seed=seed,
        )  # fmt: skip
        with Progress(
            TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(),
            console=console, transient=True, disable=not console.is_terminal,
        ) as bar:  # fmt: skip
            task = bar.add_task("making up traces", total=events)
            counted = run(settings, out, lambda done: bar.update(task, completed=done))
    except InvalidSettings as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        raise click.ClickException(f"cannot write to {out}: {error.strerror or error}") from None
    if as_json:
        click.echo(json.dumps({"out": str(out), **counted}, indent=2))
        return
    for name, value in counted.items():
        click.echo(f"{name:>12} {value:>12,}")
