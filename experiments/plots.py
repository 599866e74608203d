"""Pictures of an experiment's rows; needs matplotlib, and does without where it is absent."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from experiments.experiment import Experiment, Plot, Row
from experiments.statistics import CI

MISSING = "no plots: matplotlib is not installed (pip install 'psph[spark]' brings it)"


def available() -> bool:
    """Whether plots can be drawn here."""
    return find_spec("matplotlib") is not None


def draw(experiment: Experiment, rows: Sequence[Row], out: Path) -> list[Path]:
    """Write NAME.png for every plot of the experiment, and its pictures."""
    if not available():
        return []
    if experiment.pictures is not None:
        experiment.pictures(rows, out)
    return [_draw(plot, experiment.name, rows, out) for plot in experiment.plots]


def _draw(plot: Plot, title: str, rows: Sequence[Row], out: Path) -> Path:
    # The object interface, not pyplot: no global state and no display.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for name, points in _lines(plot, rows).items():
        xs, ys, errors = zip(*sorted(points, key=lambda point: point[0]), strict=True)
        axes.errorbar(xs, ys, yerr=errors, marker="o", markersize=4, capsize=3, label=str(name))
    chosen = ", ".join(map(str, plot.where.values()))
    axes.set(title=f"{title}: {chosen}" if chosen else title, xlabel=plot.x, ylabel=plot.y)
    axes.set_xscale("log" if plot.log_x else "linear")
    axes.set_yscale("log" if plot.log_y else "linear")
    axes.grid(visible=True, alpha=0.3)
    if plot.series is not None and axes.has_data():
        axes.legend(title=plot.series)
    path = out / f"{plot.name}.png"
    figure.savefig(path, dpi=120)
    return path


def _lines(plot: Plot, rows: Sequence[Row]) -> dict[Any, list[tuple[Any, Any, float]]]:
    lines: dict[Any, list[tuple[Any, Any, float]]] = {}
    for row in rows:
        wanted = all(row.get(column) == value for column, value in plot.where.items())
        if wanted and row.get(plot.y) is not None:
            name = row[plot.series] if plot.series is not None else plot.y
            point = (row[plot.x], row[plot.y], row.get(plot.y + CI, 0.0))
            lines.setdefault(name, []).append(point)
    return lines
