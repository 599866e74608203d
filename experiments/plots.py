"""Pictures of an experiment's rows; needs matplotlib, and does without where it is absent."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.experiment import Experiment, Plot, Row
from experiments.statistics import CI

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MISSING = "no plots: matplotlib is not installed (pip install 'psph[spark]' brings it)"
UNITS = {
    "us": "µs", "ms": "ms", "s": "s", "bytes": "bytes", "kb": "kB", "kib": "KiB", "pct": "%",
}  # fmt: skip
"""What the last word of a column's name says about its unit."""
_COLOURS = 10
"""In matplotlib's cycle: C0 to C9."""
_STYLES = (("-", "o"), ("--", "s"), (":", "^"), ("-.", "D"))
"""Of lines and of markers: with each the colours begin again."""
_BESIDE = 6
"""A legend with more lines than this stands beside the axes, and hides none of them."""


def available() -> bool:
    """Whether plots can be drawn here."""
    return find_spec("matplotlib") is not None


def draw(experiment: Experiment, rows: Sequence[Row], out: Path) -> list[Path]:
    """Write NAME.png for every plot of the experiment, and its pictures."""
    if not available():
        return []
    if experiment.pictures is not None:
        experiment.pictures(rows, out)
    paths = []
    for plot in experiment.plots:
        paths.append(out / f"{plot.name}.png")
        figure_of(plot, experiment.name, rows).savefig(paths[-1], dpi=120)
    return paths


def label(plot: Plot, column: str) -> str:
    """What stands at the axis of a column: its name and unit."""
    if column in plot.labels:
        return plot.labels[column]
    *words, last = column.split("_")
    if words and last in UNITS:
        return f"{' '.join(words)} ({UNITS[last]})"
    return column.replace("_", " ")


def figure_of(plot: Plot, title: str, rows: Sequence[Row]) -> Figure:
    """One picture. Where x is text, its values keep the order of the rows."""
    # The object interface, not pyplot: no global state and no display.
    from matplotlib.figure import Figure

    rows = [row for row in rows if _is_shown(plot, row)]
    lines = _lines(plot, rows)
    figure = Figure(figsize=(9 if len(lines) > _BESIDE else 7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    # Before anything is drawn: afterwards it would replace the ticks.
    names = _names([row[plot.x] for row in rows])
    axes.set_xscale("log" if plot.log_x and names is None else "linear")
    axes.set_yscale("log" if plot.log_y else "linear")
    if names is not None:
        axes.set_xticks(range(len(names)), names)
    for number, (name, points) in enumerate(lines.items()):
        if names is not None:
            points = [(names.index(str(x)), y, error) for x, y, error in points]
        xs, ys, errors = zip(*sorted(points, key=lambda point: point[0]), strict=True)
        line, marker = _STYLES[number // _COLOURS % len(_STYLES)]
        axes.errorbar(
            xs, ys, yerr=errors, color=f"C{number % _COLOURS}", linestyle=line, marker=marker,
            markersize=4, capsize=3, label=str(name),
        )  # fmt: skip
    chosen = ", ".join(map(str, plot.where.values()))
    axes.set(
        title=f"{title}: {chosen}" if chosen else title,
        xlabel=label(plot, plot.x),
        ylabel=label(plot, plot.y),
    )
    axes.grid(visible=True, alpha=0.3)
    if plot.series is not None and lines:
        if len(lines) > _BESIDE:
            figure.legend(title=label(plot, plot.series), loc="outside right upper")
        else:
            axes.legend(title=label(plot, plot.series), loc="best")
    return figure


def _is_shown(plot: Plot, row: Row) -> bool:
    wanted = all(row.get(column) == value for column, value in plot.where.items())
    return wanted and row.get(plot.y) is not None


def _names(values: Sequence[Any]) -> list[str] | None:
    """The values of a text column, each once; None where they are numbers."""
    if not any(isinstance(each, str) for each in values):
        return None
    return list(dict.fromkeys(map(str, values)))


def _lines(plot: Plot, rows: Sequence[Row]) -> dict[Any, list[tuple[Any, Any, float]]]:
    lines: dict[Any, list[tuple[Any, Any, float]]] = {}
    for row in rows:
        name = row[plot.series] if plot.series is not None else plot.y
        point = (row[plot.x], row[plot.y], row.get(plot.y + CI, 0.0))
        lines.setdefault(name, []).append(point)
    return lines
