"""Departure/arrival traces as the source draws them: the two calls as dashed lines, a broken line
where a message is missing, and in red what came again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.experiment import Row

Traces = Mapping[tuple[str, str], Sequence[Row]]
"""By mode and system."""


def draw(traces: Traces, path: Path) -> None:
    """A picture with a column for each system and a row for each mode."""
    from matplotlib.figure import Figure

    modes = list(dict.fromkeys(mode for mode, _ in traces))
    systems = list(dict.fromkeys(system for _, system in traces))
    figure = Figure(figsize=(4 * len(systems) + 1, 3 * len(modes)), layout="constrained")
    grid = figure.subplots(len(modes), len(systems), squeeze=False)
    for (mode, system), points in traces.items():
        axes = grid[modes.index(mode)][systems.index(system)]
        _draw(axes, points, f"{system}, {mode}, {points[0]['network']}, s = {points[0]['s']}")
    figure.savefig(path, dpi=110)


def _draw(axes: Any, points: Sequence[Row], title: str) -> None:
    nothing = float("nan")  # breaks the line where a message is missing
    first = [row for row in points if row["copy"] == 0]
    xs = [nothing if row["received_s"] is None else row["received_s"] for row in first]
    axes.plot(xs, [row["published_s"] for row in first], "-o", markersize=2, linewidth=0.8)
    again = [row for row in points if row["copy"] > 0]
    axes.plot(
        [row["received_s"] for row in again],
        [row["published_s"] for row in again],
        "x",
        markersize=3,
        color="tab:red",
    )
    for at in (0.0, points[0]["move_in_s"]):
        axes.axvline(at, linestyle="--", color="black", linewidth=0.8)
    axes.set_title(title, fontsize=9)
    axes.set(xlabel="received (s after the move-out call)", ylabel="published (s)")
    axes.grid(visible=True, alpha=0.3)
