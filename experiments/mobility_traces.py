"""Figures 8, 9 and 11 of the mobility support service: departure/arrival traces of a client.

A row for each message that the application got, and one without a time for each that it never did.
Times are seconds from the move-out call.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from experiments.experiment import Claim, Context, Experiment, Row
from experiments.roaming.pictures import draw
from experiments.roaming.scene import REST, Case, play
from experiments.roaming.trace import Trace
from psirp_sim.runtime.durations import SECOND

KEYS = ("figure", "network", "system", "mode", "s", "p", "seed", "number", "copy")
_TRACE = ("figure", "network", "system", "mode", "s", "p", "seed")
_ALL = ("elvin", "fioranomq", "siena")
# figure: network, systems, modes of the source, subscriptions; 2 publications a second.
FIGURES: dict[int, tuple[str, tuple[str, ...], tuple[str, ...], int]] = {
    8: ("gprs", ("siena",), ("none", "basic"), 50),
    9: ("wireline", _ALL, ("none", "basic", "ping"), 100),
    11: ("gprs", _ALL, ("none", "basic"), 100),
}
PAPER: list[Row] = [
    {
        "figure": figure, "network": network, "system": system, "mode": mode,
        "s": subscriptions, "p": 2,
    }
    for figure, (network, systems, modes, subscriptions) in FIGURES.items()
    for system in systems
    for mode in modes
]  # fmt: skip


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    figures: tuple[int, ...] = tuple(FIGURES)
    most_subscriptions: int = 100
    """Figures with more are drawn with so many."""
    rate: float = 2.0
    message_bytes: int = 100
    ours: bool = True
    """Beside the modes of the source."""

    def __post_init__(self) -> None:
        if not self.figures or not set(self.figures) <= set(FIGURES):
            raise ValueError(f"figures lists some of {', '.join(map(str, FIGURES))}")
        if not 1 <= self.most_subscriptions <= 1_000:
            raise ValueError("most_subscriptions lies between 1 and 1000")
        if not 0.1 <= self.rate <= 50 or not 8 <= self.message_bytes <= 10_000:
            raise ValueError("rate lies between 0.1 and 50, message_bytes between 8 and 10000")


def run(parameters: Parameters, seed: int, context: Context) -> list[Row]:
    cases = []
    for figure in parameters.figures:
        network, systems, modes, subscriptions = FIGURES[figure]
        subscriptions = min(subscriptions, parameters.most_subscriptions)
        modes = (*modes, "ours") if parameters.ours else modes
        rate, size = parameters.rate, parameters.message_bytes
        cases += [
            (figure, Case(system, network, mode, subscriptions, rate, size))
            for system in systems
            for mode in modes
        ]
    rows: list[Row] = []
    for done, (figure, case) in enumerate(cases):
        rows += _points(figure, case, seed, play(case, seed))
        context.progress((done + 1) / len(cases))
    return rows


def _points(figure: int, case: Case, seed: int, trace: Trace) -> list[Row]:
    """In the order of publication, copies after the first in the order they came."""
    arrivals: dict[int, list[int | None]] = {}
    for at, number in trace.received:
        arrivals.setdefault(number, []).append(at)

    def seconds(at: int | None) -> float | None:
        return None if at is None else round((at - trace.move_out) / SECOND, 6)

    common = {
        "figure": figure,
        "network": case.network,
        "system": case.system,
        "mode": case.mode,
        "s": case.subscriptions,
        "p": case.rate,
        "seed": seed,
    }
    shown = [n for n, at in enumerate(trace.published) if at >= trace.move_out - REST]
    return [
        {
            **common,
            "number": number - shown[0],
            "copy": copy,
            "published_s": seconds(trace.published[number]),
            "received_s": seconds(at),
            "move_in_s": seconds(trace.move_in),
        }
        for number in shown
        for copy, at in enumerate(arrivals.get(number, [None]))
    ]


def _traces(rows: Sequence[Row]) -> list[list[Row]]:
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in _TRACE), []).append(row)
    return list(found.values())


def _trace(points: Sequence[Row]) -> Trace:
    """As it was played, in nanoseconds from the move-out call."""
    first = [row["published_s"] for row in points if row["copy"] == 0]
    got = [(row["received_s"], row["number"]) for row in points if row["received_s"] is not None]
    return Trace(
        published=[round(at * SECOND) for at in first],
        received=[(round(at * SECOND), number) for at, number in sorted(got)],
        move_in=round(points[0]["move_in_s"] * SECOND),
    )


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else round(milliseconds / 1e3, 3)


def summarise(rows: Sequence[Row]) -> list[Row]:
    """A line for each trace."""
    found: list[Row] = []
    for points in _traces(rows):
        move_in = points[0]["move_in_s"]
        missing = [row["published_s"] for row in points if row["received_s"] is None]
        got = sorted(row["received_s"] for row in points if row["received_s"] is not None)
        before = [at for at in got if at < move_in]
        after = [at for at in got if at >= move_in]
        firsts = [row["received_s"] for row in points if row["copy"] == 0]
        in_order = [at for at in firsts if at is not None]
        trace = _trace(points)
        found.append(
            {
                **{key: points[0][key] for key in _TRACE},
                "move_in_s": move_in,
                "last_before_s": before[-1] if before else None,
                "first_after_s": after[0] if after else None,
                "silence_s": _seconds(trace.silence_ms),
                "diagonal_s": _seconds(trace.diagonal_ms),
                "messages": len(firsts),
                "lost_away": sum(0 <= at < move_in for at in missing),
                "lost_after": sum(at >= move_in for at in missing),
                "copies": sum(row["copy"] > 0 for row in points),
                "in_order": in_order == sorted(in_order),
            }
        )
    return found


def claims(rows: Sequence[Row]) -> list[Claim]:
    lines = summarise(rows)
    return [*_gaps(lines), *_reattaching(lines), *_degraded(lines), *_ours(lines)]


def _told(lines: Sequence[Row], column: str) -> str:
    return ", ".join(
        f"figure {line['figure']} {line['system']} {line['mode']}: {line[column]:g}"
        for line in lines
    )


def _gaps(lines: Sequence[Row]) -> list[Claim]:
    found = []
    none = [line for line in lines if line["mode"] == "none"]
    if none:
        # Two a second for ten seconds, whatever the phase; the last may still be under way.
        expected = {id(line): line["p"] * line["move_in_s"] - 2 for line in none}
        found.append(
            Claim(
                "blank-without-service",
                "paper",
                "without the service all messages between the two calls are lost",
                all(line["lost_away"] >= expected[id(line)] for line in none),
                _told(none, "lost_away"),
            )
        )
    served = [line for line in lines if line["mode"] in ("basic", "ping")]
    if served:
        found.append(
            Claim(
                "filled-with-service",
                "paper",
                "with it nothing published between the two calls is lost",
                not any(line["lost_away"] for line in served),
                _told(served, "lost_away"),
            )
        )
    siena = [line for line in lines if line["figure"] == 9 and line["system"] == "siena"]
    if siena:
        holes = {line["mode"]: line["lost_after"] for line in siena}
        found.append(
            Claim(
                "siena-holes",
                "paper",
                "Siena's trace has holes after the move-in with the basic service, and none with "
                "ping",
                holes["basic"] > 0 == holes["ping"],
                f"{holes['basic']} and {holes['ping']} lost",
            )
        )
    return found


def _reattaching(lines: Sequence[Row]) -> list[Claim]:
    """Without the service, just after the move-in."""
    none = {(line["figure"], line["system"]): line for line in lines if line["mode"] == "none"}
    found = []
    if (9, "elvin") in none:
        lost = none[9, "elvin"]["lost_after"]
        because = f"{lost} lost"
        if not lost:
            because += (
                "; the stand-in delivers as soon as the first of its subscriptions is made, and "
                "drops nothing because it is busy with the others"
            )
        claim = "without the service Elvin also loses some just after reattaching (wireline)"
        found.append(Claim("elvin-busy", "paper", claim, lost > 0, because))
    both = [system for system in _ALL if (9, system) in none and (11, system) in none]
    if both:
        pairs = {
            system: (none[9, system]["lost_after"], none[11, system]["lost_after"])
            for system in both
        }
        found.append(
            Claim(
                "gprs-amplifies",
                "paper",
                "over GPRS more is lost after reattaching without the service than on the wire",
                all(gprs > wire for wire, gprs in pairs.values()),
                ", ".join(
                    f"{name}: {gprs}, on the wire {wire}" for name, (wire, gprs) in pairs.items()
                ),
            )
        )
    return found


def _degraded(lines: Sequence[Row]) -> list[Claim]:
    waits = {
        (line["figure"], line["system"]): line["first_after_s"] - line["move_in_s"]
        for line in lines
        if line["mode"] == "basic" and line["first_after_s"] is not None
    }
    if not all((figure, system) in waits for figure in (9, 11) for system in _ALL):
        return []
    more = {system: waits[11, system] - waits[9, system] for system in _ALL}
    because = ", ".join(
        f"{system}: {waits[9, system]:.1f} s on the wire, {waits[11, system]:.1f} s over GPRS"
        for system in _ALL
    )
    holds = more["fioranomq"] > 2 * max(more["elvin"], more["siena"])
    if not holds:
        because += (
            "; a connection for each subscription costs the stand-in for Elvin the same round trip "
            "as the one for FioranoMQ"
        )
    claim = (
        "of the three only FioranoMQ is noticeably slower over GPRS than on the wire, with the "
        "basic service (its wait for the first message grows by more than twice the others')"
    )
    return [Claim("only-fioranomq-degrades", "paper", claim, holds, because)]


def _ours(lines: Sequence[Row]) -> list[Claim]:
    ours = [line for line in lines if line["mode"] == "ours"]
    if not ours:
        return []
    lost = sum(line["lost_away"] + line["lost_after"] for line in ours)
    copies = sum(line["copies"] for line in ours)
    found = [
        Claim(
            "unbroken",
            "ours",
            "our traces have no hole, no message twice and none out of order",
            lost == copies == 0 and all(line["in_order"] for line in ours),
            f"{lost} lost, {copies} twice in {len(ours)} traces",
        )
    ]
    best = {
        line["figure"]: line
        for line in lines
        if (line["system"], line["mode"]) == ("siena", "basic")
    }
    compared = [line for line in ours if line["figure"] in best]
    if compared:
        for id, column, claim in (
            (
                "never-silent-for-longer",
                "silence_s",
                "after the move-in call our traces are never without a message for longer than "
                "Siena's with the basic service in the same figure",
            ),
            (
                "on-the-diagonal-as-soon",
                "diagonal_s",
                "and they stay on the diagonal no later than that one",
            ),
        ):
            holds = all(_within(line, best[line["figure"]], column) for line in compared)
            told = ", ".join(
                f"figure {line['figure']} {line['system']}: {line[column]} s (Siena basic "
                f"{best[line['figure']][column]})"
                for line in compared
            )
            found.append(Claim(id, "ours", claim, holds, told))
    return found


def _within(line: Row, other: Row, column: str) -> bool:
    if line[column] is None or other[column] is None:
        return False
    return bool(line[column] <= other[column])


def pictures(rows: Sequence[Row], out: Path) -> None:
    """One for each figure, of the first run."""
    seed = min(row["seed"] for row in rows)
    for number in sorted({row["figure"] for row in rows}):
        chosen = [row for row in rows if row["figure"] == number and row["seed"] == seed]
        traces = {(points[0]["mode"], points[0]["system"]): points for points in _traces(chosen)}
        draw(traces, out / f"figure-{number}.png")


EXPERIMENT = Experiment(
    name="mobility-traces",
    summary="when a moving client got what was published when (figures 8, 9 and 11)",
    parameters=Parameters(),
    quick=Parameters(most_subscriptions=50),
    run=run,
    keys=KEYS,
    claims=claims,
    pictures=pictures,
    shown=summarise,
    paper=PAPER,
)
