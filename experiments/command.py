"""`psph experiment`: run an experiment and write down its results."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import click
import msgspec

from experiments import plots
from experiments.experiment import Experiment
from experiments.runner import execute, table
from psph import configuration, entry_points
from psph.output import print_json, print_table, progress

EXPERIMENTS = "psph.experiments"


@click.command(short_help="Run an experiment and write down its results.")
@click.argument("name", required=False)
@click.option("--list", "list_names", is_flag=True, help="List the experiments.")
@click.option("--quick", is_flag=True, help="A small version, done within two minutes.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--runs", type=click.IntRange(1), default=1, show_default=True, help="Repetitions.")
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="Change a parameter.")
@click.option(
    "--topologies",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Directory of real topologies.",
)
@click.option("--out", type=click.Path(path_type=Path), help="Directory for the results.")
@click.option("--json", "as_json", is_flag=True, help="Print result.json instead of the table.")
def experiment(
    name: str | None,
    list_names: bool,
    quick: bool,
    seed: int,
    runs: int,
    changes: tuple[str, ...],
    topologies: Path | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Run the experiment NAME and write result.json, table.txt, rows.csv and plots to --out.

    Claims that do not hold are reported with the reason; they do not change the exit code.
    """
    if list_names:
        _list(as_json)
        return
    if name is None or out is None:
        raise click.UsageError("Name an experiment and give --out DIR, or use --list.")
    chosen: Experiment = entry_points.load(EXPERIMENTS, name, "experiment")
    parameters = _changed(chosen.quick if quick else chosen.parameters, changes)
    with progress() as bar:
        task = bar.add_task(name, total=1.0)
        result = execute(
            chosen,
            out,
            parameters=parameters,
            seed=seed,
            runs=runs,
            topologies=topologies,
            progress=lambda done: bar.update(task, completed=done),
        )
    if as_json:
        print_json(result)
    else:
        _show(chosen, result, out)


def _changed(parameters: msgspec.Struct, changes: tuple[str, ...]) -> msgspec.Struct:
    values: dict[str, Any] = msgspec.to_builtins(parameters)
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals:
            raise click.UsageError(f"--set takes KEY=VALUE, not {change!r}.")
        try:
            values[key] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            values[key] = text  # a word needs no quotes
    return configuration.check(values, type(parameters), "--set")


def _show(chosen: Experiment, result: dict[str, Any], out: Path) -> None:
    click.echo(table(chosen, result["rows"]))
    click.echo()
    for claim in result["claims"]:
        mark = "holds " if claim["holds"] else "FAILS "
        reason = f" ({claim['because']})" if claim["because"] else ""
        click.echo(f"{mark} [{claim['kind']}] {claim['id']}: {claim['claim']}{reason}")
    if (chosen.plots or chosen.pictures) and not plots.available():
        click.echo(plots.MISSING)
    click.echo(f"written to {out}")


def _list(as_json: bool) -> None:
    found = [
        entry_points.load(EXPERIMENTS, name, "experiment")
        for name in entry_points.names(EXPERIMENTS)
    ]
    if as_json:
        print_json([{"experiment": each.name, "summary": each.summary} for each in found])
    else:
        rows = [[each.name, each.summary] for each in found]
        print_table("experiments", ["experiment", "what it shows"], rows)
