"""`psph schedules`: run a suite of fault schedules, or replay one seed of it."""

from __future__ import annotations

import time
from dataclasses import asdict

import click

from psirp_sim.runtime.schedules import Outcome, Suite, Summary, run_schedule, run_suite, shrink
from psph import entry_points
from psph.errors import PsphError
from psph.output import print_json, print_table, progress

SUITES = "psph.suites"
_SHOWN_EVENTS = 40


@click.command(short_help="Run random fault schedules against a protocol.")
@click.argument("suite", required=False)
@click.option("--seeds", type=click.IntRange(1), default=50, show_default=True, help="How many.")
@click.option("--first", type=click.IntRange(0), default=0, show_default=True, help="First seed.")
@click.option("--seconds", type=click.FloatRange(0), help="Stop early after that long.")
@click.option("--replay", type=click.IntRange(0), help="Run this one seed and show its faults.")
@click.option("--list", "list_suites", is_flag=True, help="List the suites.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def schedules(
    suite: str | None,
    seeds: int,
    first: int,
    seconds: float | None,
    replay: int | None,
    list_suites: bool,
    as_json: bool,
) -> None:
    """Run the fault schedules of a SUITE: random faults, invariants checked after every step.

    A failing seed is printed with the smallest schedule that still fails and the events that
    led to it; the exit code is 1.
    """
    if list_suites:
        _list(as_json)
        return
    if suite is None:
        raise click.UsageError("Name a SUITE, or use --list.")
    chosen: Suite = entry_points.load(SUITES, suite, "suite")()
    if replay is not None:
        outcome = run_schedule(chosen, replay)
        summary = Summary(chosen.name)
        summary.add(outcome)
        _report(chosen, summary, outcome, as_json)
        return
    begun = time.monotonic()
    with progress() as bar:
        task = bar.add_task(suite, total=seeds)

        def more(outcome: Outcome) -> bool:
            bar.advance(task)
            return seconds is None or time.monotonic() - begun < seconds

        summary = run_suite(chosen, range(first, first + seeds), more)
    _report(chosen, summary, None, as_json)


def _report(suite: Suite, summary: Summary, shown: Outcome | None, as_json: bool) -> None:
    smallest = shrink(suite, summary.failure) if summary.failure is not None else None
    if as_json:
        document = asdict(summary) | {"smallest": asdict(smallest) if smallest else None}
        print_json(document | ({"schedule": asdict(shown)} if shown else {}))
    else:
        if shown is not None:
            for fault in shown.faults:
                click.echo(f"  {fault}")
        click.echo(str(summary))
        if smallest is not None:
            _show_failure(smallest)
    if smallest is not None:
        raise PsphError(
            f"suite {suite.name}, seed {smallest.seed}: {smallest.failure} "
            f"(again with: psph schedules {suite.name} --replay {smallest.seed})"
        )
    if summary.shortfall:
        raise PsphError(f"suite {suite.name}: {summary.shortfall}")


def _show_failure(smallest: Outcome) -> None:
    click.echo(f"\nsmallest schedule that fails, in the world of seed {smallest.seed}:")
    for fault in smallest.faults:
        click.echo(f"  {fault}")
    if not smallest.faults:
        click.echo("  (no fault at all)")
    click.echo("\nlast events:")
    for line in smallest.events[-_SHOWN_EVENTS:]:
        click.echo(line)


def _list(as_json: bool) -> None:
    suites = [entry_points.load(SUITES, name, "suite") for name in entry_points.names(SUITES)]
    if as_json:
        print_json([{"suite": suite.name, "summary": suite.summary} for suite in suites])
    else:
        rows = [[suite.name, suite.summary] for suite in suites]
        print_table("suites of fault schedules", ["suite", "what must hold"], rows)
