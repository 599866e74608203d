"""The pictures of a report, each for light and for dark pages; PNG bytes, no files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO
from typing import Any

from matplotlib.figure import Figure

from spark_jobs.collected import Row
from spark_jobs.departures import Departures
from spark_jobs.latency import EDGES_US, STAGES

MOST_LINES = 8
_INK = {"light": "#1b1f24", "dark": "#e6e8eb"}
_PAPER = {"light": "#ffffff", "dark": "#16191d"}
_COLOURS = (
    "#3b7dd8", "#e07b39", "#3f9e63", "#c94f7c", "#8a63d2", "#a89131", "#3aa6a6", "#8c8c8c",
)  # fmt: skip
_BEYOND_MS = 200_000.0


@dataclass(frozen=True)
class Picture:
    """One plot, twice."""

    name: str
    says: str
    light: bytes
    dark: bytes


def draw(name: str, says: str, paint: Callable[[Any], None]) -> Picture:
    """The picture that the function paints on axes."""
    return Picture(name, says, _drawn(paint, "light"), _drawn(paint, "dark"))


def distribution(latency: Sequence[Row]) -> Picture | None:
    """Which share of the journeys of each pair of domains was done after how long."""
    pairs = [row for row in latency if row["stage"] == "total"]
    pairs = sorted(pairs, key=lambda row: -row["count"])[:MOST_LINES]
    if not pairs:
        return None

    def paint(axes: Any) -> None:
        edges = [edge / 1_000 for edge in EDGES_US] + [_BEYOND_MS]
        for row, colour in zip(pairs, _COLOURS, strict=False):
            so_far, shares = 0, []
            for n in row["histogram"]:
                so_far += n
                shares.append(100 * so_far / row["count"])
            axes.step(edges, shares, where="pre", label=_pair(row), color=colour)
        axes.set(xscale="log", xlabel="milliseconds", ylabel="% of journeys done", ylim=(0, 101))
        axes.legend(fontsize=8)

    return draw("latency", "Share of journeys that were done after so many milliseconds", paint)


def series(windows: Sequence[Row]) -> Picture | None:
    """The median and the 99th percentile of each pair over time."""
    by_pair: dict[str, list[Row]] = {}
    for row in windows:
        by_pair.setdefault(_pair(row), []).append(row)
    busiest = sorted(by_pair, key=lambda pair: -sum(row["count"] for row in by_pair[pair]))
    if not busiest:
        return None

    def paint(axes: Any) -> None:
        for pair, colour in zip(busiest[:MOST_LINES], _COLOURS, strict=False):
            times = [_when(row["window_ns"]) for row in by_pair[pair]]
            axes.plot(times, [r["p50_ms"] for r in by_pair[pair]], color=colour, label=pair)
            axes.plot(times, [r["p99_ms"] for r in by_pair[pair]], color=colour, ls=":")
        axes.set(yscale="symlog", ylabel="milliseconds, total", xlabel="time of arrival, UTC")
        axes.tick_params(axis="x", rotation=30)
        axes.legend(fontsize=8)

    return draw("series", "Median (line) and 99th percentile (dots) over time", paint)


def shares(table: Sequence[Row]) -> Picture | None:
    """Where the time of a journey goes."""
    weight: dict[str, int] = {}
    for row in table:
        weight[_pair(row)] = max(weight.get(_pair(row), 0), row["count"])
    pairs = sorted(weight, key=lambda pair: -weight[pair])[:MOST_LINES][::-1]
    if not pairs:
        return None

    def paint(axes: Any) -> None:
        ends = dict.fromkeys(pairs, 0.0)
        for stage, colour in zip(STAGES[:-1], _COLOURS, strict=False):
            found = {_pair(row): 100 * row["share"] for row in table if row["stage"] == stage}
            widths = [max(0.0, found.get(pair, 0.0)) for pair in pairs]
            axes.barh(pairs, widths, left=[ends[p] for p in pairs], color=colour, label=stage)
            for pair, width in zip(pairs, widths, strict=True):
                ends[pair] += width
        axes.set(xlabel="% of the time of all journeys", xlim=(0, 100))
        axes.legend(fontsize=8, ncols=3, loc="lower left", bbox_to_anchor=(0, 1))

    return draw("shares", "Which stage took which share of the time", paint)


def trace_of(one: Departures) -> Picture | None:
    """When a subscriber received what was published when."""
    points = one.points.rows
    if not points:
        return None
    start = min(row["published_ns"] for row in points)

    def paint(axes: Any) -> None:
        received = [(row["received_ns"] - start) / 1e9 for row in points]
        published = [(row["published_ns"] - start) / 1e9 for row in points]
        axes.plot(received, published, ".", markersize=3, color=_COLOURS[0])
        for move in one.moves.rows:
            axes.axvline((move["at_ns"] - start) / 1e9, ls="--", lw=1, color=_COLOURS[1])
        axes.set(xlabel="received, s", ylabel="published, s", title=one.subscriber)

    says = "Departure/arrival trace: a gap is a loss; dashed lines: moving out, moving in"
    return draw("departures", says, paint)


def _drawn(paint: Callable[[Any], None], mode: str) -> bytes:
    # The object interface, not pyplot: no global state and no display.
    figure = Figure(figsize=(7.2, 4.2), layout="constrained", facecolor=_PAPER[mode])
    axes = figure.add_subplot()
    axes.set_facecolor(_PAPER[mode])
    paint(axes)
    ink = _INK[mode]
    axes.grid(visible=True, alpha=0.25, color=ink)
    axes.tick_params(colors=ink, which="both")
    for text in (axes.xaxis.label, axes.yaxis.label, axes.title):
        text.set_color(ink)
    for spine in axes.spines.values():
        spine.set_color(ink)
    legend = axes.get_legend()
    if legend is not None:
        legend.get_frame().set(facecolor=_PAPER[mode], edgecolor=ink, alpha=0.8)
        for text in legend.get_texts():
            text.set_color(ink)
    out = BytesIO()
    figure.savefig(out, format="png", dpi=110)
    return out.getvalue()


def _pair(row: Row) -> str:
    return f"{row['from_domain'] or '?'} → {row['to_domain']}"


def _when(ns: int) -> datetime:
    return datetime.fromtimestamp(ns / 1e9, UTC)
