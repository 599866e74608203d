"""`psph sim`: run a scenario file in virtual time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import click

from psirp_sim.runtime import scenario as scenarios
from psirp_sim.runtime.durations import parse_duration
from psph import configuration, entry_points
from psph.errors import PsphError
from psph.output import print_json, print_table, progress

PROTOCOLS = "psph.protocols"
_SLICES = 200


@click.command(short_help="Run a scenario file in virtual time.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--seed", type=int, help="Use this seed instead of the file's.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
@click.option("--events", type=click.IntRange(0), default=0, help="Show the last N events.")
def sim(file: Path, seed: int | None, as_json: bool, events: int) -> None:
    """Run the scenario in FILE in virtual time and show what became of it.

    The digest stands for everything that happened: two runs with equal digests were equal
    event by event. docs/simulator.md has every key of the file.
    """
    scenario = configuration.load(file, scenarios.Scenario)
    protocols = {
        name: entry_points.load(PROTOCOLS, name, "protocol")
        for name in entry_points.names(PROTOCOLS)
    }
    try:
        world = scenario.build(protocols, file.parent, seed)
    except scenarios.ScenarioError as error:
        raise PsphError(f"{file}: {error}") from error
    begun = time.perf_counter()
    with progress() as bar:
        task = bar.add_task(scenario.title or file.stem, total=_SLICES)
        duration = parse_duration(scenario.duration)
        for part in range(1, _SLICES + 1):
            world.run_until(duration * part // _SLICES)
            bar.advance(task)
    summary = scenarios.summary(world) | {"wall_seconds": round(time.perf_counter() - begun, 3)}
    if events:
        summary["last_events"] = list(world.log.lines())[-events:]
    if as_json:
        print_json(summary)
    else:
        _show(scenario.title or file.stem, summary)


def _show(title: str, summary: Mapping[str, object]) -> None:
    for key in ("nodes", "links"):
        rows = summary[key]
        assert isinstance(rows, list)
        columns = list(dict.fromkeys(column for row in rows for column in row))
        # A counter that is nought for everybody only widens the table.
        columns = [column for column in columns if any(row.get(column) for row in rows)]
        print_table(f"{title}: {key}", columns, [[row.get(c) for c in columns] for row in rows])
        click.echo()
    for line in summary.get("last_events", ()):  # type: ignore[attr-defined]
        click.echo(line)
    click.echo(
        f"{summary['events']} events, {summary['virtual_time']} of virtual time in "
        f"{summary['wall_seconds']} s, seed {summary['seed']}, digest {summary['digest']}"
    )
