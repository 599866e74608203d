"""Runs an experiment and writes down everything it takes to judge or repeat it."""

from __future__ import annotations

import csv
import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from experiments.experiment import Context, Experiment, Row
from experiments.plots import draw
from experiments.statistics import CI, combine
from psph import __version__
from psph.errors import PsphError
from psph.machine import machine
from psph.output import table_text


def execute(
    experiment: Experiment,
    out: Path,
    *,
    parameters: msgspec.Struct | None = None,
    seed: int = 0,
    runs: int = 1,
    topologies: Path | None = None,
    progress: Callable[[float], None] = lambda done: None,
) -> dict[str, Any]:
    """Run it with seed, seed + 1, ... and write result.json, table.txt, rows.csv and plots.

    Returns what result.json holds.
    """
    parameters = experiment.parameters if parameters is None else parameters
    # Found out before the work, not after it.
    _make_directory(out)
    done: list[Sequence[Row]] = []
    for number in range(runs):

        def report(share: float, number: int = number) -> None:
            progress((number + share) / runs)

        done.append(experiment.run(parameters, seed + number, Context(topologies, report)))
    rows = combine(done, experiment.keys)
    result = {
        "experiment": experiment.name,
        "seed": seed,
        "runs": runs,
        "parameters": msgspec.to_builtins(parameters),
        "code_version": code_version(),
        "machine": machine(),
        "rows": rows,
        "paper": [dict(row) for row in experiment.paper],
        "claims": [asdict(claim) for claim in experiment.claims(rows)],
    }
    _write(out, experiment, result)
    return result


def code_version() -> str:
    """The version, and the commit where the code runs from a checkout."""
    try:
        commit = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return __version__
    return f"{__version__}+{commit}"


def table(experiment: Experiment, rows: Sequence[Row]) -> str:
    """The rows as text, an interval beside the mean it belongs to."""
    rows = experiment.shown(rows)
    columns = [column for column in _columns(rows) if not column.endswith(CI)]
    return table_text(
        f"{experiment.name}: {experiment.summary}",
        columns,
        [[_with_interval(row, column) for column in columns] for row in rows],
        width=200,
    )


def _with_interval(row: Row, column: str) -> object:
    interval = row.get(column + CI)
    return f"{row[column]:.4g} ± {interval:.2g}" if interval else row.get(column)


def _columns(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(column for row in rows for column in row))


def _write(out: Path, experiment: Experiment, result: dict[str, Any]) -> None:
    rows = result["rows"]
    (out / "result.json").write_text(json.dumps(result, indent=2, allow_nan=False) + "\n")
    (out / "table.txt").write_text(table(experiment, rows) + "\n")
    with (out / "rows.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, _columns(rows))
        writer.writeheader()
        writer.writerows(rows)
    draw(experiment, rows, out)


def _make_directory(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / "result.json").touch()
    except OSError as error:
        raise PsphError(f"--out {out}: {error.strerror}; name a directory to write to") from error
