"""Figures 2 to 5 of the pro-active mobility extension: a crowd commutes between two brokers.

Durable subscriptions, the source's pro-active brokers, and the shipped cores with preparation on,
over subscribers, publication rates and queue sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.commuting.parameters import CDF, KEYS, Parameters, measure
from experiments.commuting.scene import Case
from experiments.experiment import Context, Experiment, Plot, Row
from experiments.proactive_claims import claims

PAPER: list[Row] = [
    {"sweep": "subscribers", "mode": "paper", "p80_ms": 48, "dup_pct": 0},
    {"sweep": "subscribers", "mode": "durable", "p80_ms": 40},
    {"sweep": "rates", "mode": "paper", "statement": "loses more than 50 % less than durable"},
    {"sweep": "queues", "mode": "paper", "statement": "loses nearly 50 % less than durable"},
]
_SHOWN = {
    "sweep": "sweep",
    "mode": "mode",
    "subscribers": "subs",
    "rate": "rate",
    "queue_kb": "queue",
    "published_per_s": "pub/s",
    "loss_pct": "loss %",
    "dup_pct": "dup %",
    "throughput": "msg/s",
    "processing_us": "cpu µs",
    "operations": "ops",
    "hand_offs": "moves",
    "p50_ms": "p50 ms",
    "p80_ms": "p80 ms",
    "p99_ms": "p99 ms",
    "new_p80_ms": "new p80",
    "prepared_pct": "prep %",
    "context_messages": "ctx msg",
    "context_bytes": "ctx B",
    "vain_bytes": "vain B",
    "peak_kb": "peak KB",
}
"""What the table shows, and under which heading."""


def run(parameters: Parameters, seed: int, context: Context) -> list[Row]:
    rows: list[Row] = []
    found: dict[Case, Row] = {}  # the sweeps meet
    for done, (sweep, case) in enumerate(cases := parameters.cases):
        if case not in found:
            found[case] = measure(case, seed)
        rows.append({"sweep": sweep, **found[case]})
        context.progress((done + 1) / len(cases))
    return rows


def shown(rows: Sequence[Row]) -> list[Row]:
    """So that it can be read."""
    return [{title: _short(row.get(name)) for name, title in _SHOWN.items()} for row in rows]


def _short(value: object) -> object:
    return float(f"{value:.3g}") if isinstance(value, float) else value


def pictures(rows: Sequence[Row], out: Path) -> None:
    """Figure 3: the distribution of hand-off times, for each number of subscribers."""
    from matplotlib.figure import Figure

    swept = [row for row in rows if row["sweep"] == "subscribers"]
    modes = list(dict.fromkeys(row["mode"] for row in swept))
    if not modes:
        return
    figure = Figure(figsize=(4 * len(modes) + 1, 4), layout="constrained")
    grid = figure.subplots(1, len(modes), squeeze=False, sharex=True, sharey=True)[0]
    for axes, mode in zip(grid, modes, strict=True):
        for row in swept:
            points = [(row[f"p{percent}_ms"], percent) for percent in CDF]
            if row["mode"] == mode and all(at is not None for at, _ in points):
                axes.plot(*zip(*points, strict=True), "-o", markersize=3, label=row["subscribers"])
        axes.set(title=mode, xlabel="ms to the first message", xscale="log")
        axes.grid(visible=True, alpha=0.3)
        axes.legend(title="subscribers", fontsize=8)
    grid[0].set_ylabel("% of hand-offs")
    figure.savefig(out / "figure-3-hand-offs.png", dpi=110)


_LABELS = {
    "subscribers": "subscribers (number)",
    "rate": "publications (per second)",
    "queue_kb": "queue of a subscription (kB)",
    "processing_us": "processor time of a message (µs)",
    "throughput": "throughput (messages/s)",
    "loss_pct": "lost (%)",
    "dup_pct": "duplicates (%)",
}


def _plot(name: str, sweep: str, x: str, y: str) -> Plot:
    return Plot(name, x=x, y=y, series="mode", where={"sweep": sweep}, labels=_LABELS)


EXPERIMENT = Experiment(
    name="proactive",
    summary="a crowd commutes: loss, duplication, throughput and hand-offs (figures 2 to 5)",
    parameters=Parameters(),
    quick=Parameters(
        subscribers=(10, 50),
        rates=(10, 30),
        queues_kb=(10, 90),
        duration_s=100.0,
    ),
    run=run,
    keys=KEYS,
    claims=claims,
    plots=[
        _plot("figure-2-processing", "subscribers", "subscribers", "processing_us"),
        _plot("figure-2-throughput", "subscribers", "subscribers", "throughput"),
        *(
            _plot(f"figure-4-{y}", "rates", "rate", y)
            for y in ("loss_pct", "dup_pct", "throughput")
        ),
        *(
            _plot(f"figure-5-{y}", "queues", "queue_kb", y)
            for y in ("loss_pct", "dup_pct", "throughput")
        ),
    ],
    pictures=pictures,
    shown=shown,
    paper=PAPER,
)
