"""Table 3 of the mobility support service: delay, losses and duplicates when a client moves.

Every mode of mobility/ over stand-ins for the source's three systems, and over one with a history,
on a LAN and over GPRS.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from experiments.experiment import Claim, Context, Experiment, Plot, Row
from experiments.roaming.parameters import KEYS, LABELS, Parameters, measure
from experiments.roaming.systems import SYSTEMS

# system, s, then delay in ms, losses and duplicates, each for basic and ping; GPRS, p = 2.
_TABLE = (
    ("elvin", 10, (13_551, 17_151), (0, 0), (18, 22)),
    ("elvin", 50, (48_608, 52_525), (0, 0), (76, 88)),
    ("elvin", 100, (95_031, 98_798), (0, 0), (148, 159)),
    ("fioranomq", 10, (13_932, 15_747), (0, 0), (11, 18)),
    ("fioranomq", 50, (40_544, 42_215), (0, 0), (43, 50)),
    ("fioranomq", 100, (74_773, 77_304), (0, 0), (90, 90)),
    ("siena", 10, (8_294, 11_751), (0, 0), (7, 12)),
    ("siena", 50, (10_984, 23_585), (2, 0), (4, 17)),
    ("siena", 100, (10_841, 39_608), (10, 0), (4, 30)),
)
PAPER: list[Row] = [
    {
        "network": "gprs", "system": system, "mode": mode, "s": s, "p": 2,
        "moved_in_ms": delay[column], "lost": lost[column], "duplicated": duplicated[column],
    }
    for system, s, delay, lost, duplicated in _TABLE
    for column, mode in enumerate(("basic", "ping"))
]  # fmt: skip
_BROADCASTING = ("elvin", "fioranomq")
_FITTED = (("elvin", "basic"), ("fioranomq", "basic"), ("siena", "basic"), ("siena", "ping"))


def run(parameters: Parameters, seed: int, context: Context) -> list[Row]:
    rows: list[Row] = []
    paper = {tuple(each[key] for key in KEYS): each for each in PAPER}
    for done, case in enumerate(cases := parameters.cases):
        found = measure(case, seed)
        theirs = paper.get(tuple(found[key] for key in KEYS), {})
        beside = {
            "paper_delay": theirs.get("moved_in_ms"),
            "paper_lost": theirs.get("lost"),
            "paper_dup": theirs.get("duplicated"),
        }
        figures = list(found.items())
        rows.append(dict([*figures[:8], *beside.items(), *figures[8:]]))
        context.progress((done + 1) / len(cases))
    return rows


def _select(rows: Sequence[Row], **columns: object) -> list[Row]:
    return [row for row in rows if all(row[name] == value for name, value in columns.items())]


def _both(rows: Sequence[Row], one: str, other: str, **columns: object) -> list[tuple[Row, Row]]:
    """Rows that differ in their mode only."""
    cases = ("network", "system", "s", "p")
    others = {tuple(row[key] for key in cases): row for row in _select(rows, mode=other, **columns)}
    return [
        (row, others[case])
        for row in _select(rows, mode=one, **columns)
        if (case := tuple(row[key] for key in cases)) in others
    ]


def slope(rows: Sequence[Row], column: str) -> float | None:
    """What each subscription adds between the smallest and the largest s."""
    rows = sorted((row for row in rows if row.get(column) is not None), key=lambda row: row["s"])
    if not rows or rows[-1]["s"] - rows[0]["s"] < 50:
        return None  # a batch more or less would decide it
    first, last = rows[0], rows[-1]
    return float((last[column] - first[column]) / (last["s"] - first["s"]))


def _range(rows: Sequence[Row], column: str) -> str:
    values = [row[column] / 1e3 for row in rows if row[column] is not None]
    return f"{min(values):.1f} to {max(values):.1f} s" if values else "never"


def _name(row: Row) -> str:
    return f"{row['system']} {row['mode']} {row['network']} s={row['s']}"


def _all(
    id: str,
    kind: str,
    claim: str,
    rows: Sequence[Row],
    good: Callable[[Row], bool],
    figure: Callable[[Row], str],
    summary: str,
) -> list[Claim]:
    """A claim about each of some rows; none when there are no such rows."""
    if not rows:
        return []
    bad = [row for row in rows if not good(row)]
    told = "; ".join(f"{_name(row)}: {figure(row)}" for row in bad[:6])
    because = told if bad else f"{summary} ({len(rows)} rows)"
    assert kind in ("paper", "ours")
    return [Claim(id, "paper" if kind == "paper" else "ours", claim, not bad, because)]


def claims(rows: Sequence[Row]) -> list[Claim]:
    return [*_papers(rows), *_calibration(rows), *_ours(rows)]


def _papers(rows: Sequence[Row]) -> list[Claim]:
    gprs = _select(rows, network="gprs")
    broadcasting = [row for row in rows if row["system"] in _BROADCASTING]
    found = _all(
        "none-loses-all",
        "paper",
        "without the service every message published while the client is away is lost",
        _select(rows, mode="none"),
        lambda row: row["lost_away"] == row["away"] > 0,
        lambda row: f"{row['lost_away']:g} of {row['away']:g}",
        "all",
    )
    found += _all(
        "broadcast-loses-nothing",
        "paper",
        "Elvin and FioranoMQ lose nothing with the basic service, nor with ping",
        [row for row in broadcasting if row["mode"] in ("basic", "ping")],
        lambda row: row["lost"] == 0,
        lambda row: f"{row['lost']:g} lost",
        "none lost",
    )
    many = [row for row in _select(gprs, system="siena", mode="basic", p=2) if row["s"] >= 50]
    found += _all(
        "siena-basic-loses",
        "paper",
        "Siena loses messages with the basic service over GPRS at 50 and more subscriptions",
        many,
        lambda row: row["lost"] > 0,
        lambda row: f"{row['lost']:g} lost",
        ", ".join(f"{row['lost']:g} at s={row['s']}" for row in many) + " (theirs: 2 and 10)",
    )
    found += _all(
        "ping-removes-losses",
        "paper",
        "ping removes the losses of Siena",
        _select(rows, system="siena", mode="ping"),
        lambda row: row["lost"] == 0,
        lambda row: f"{row['lost']:g} lost",
        "none lost",
    )
    return [*found, *_unchanged(gprs), *_slower(gprs)]


def _unchanged(rows: Sequence[Row]) -> list[Claim]:
    pairs = [
        (basic, ping)
        for basic, ping in _both(rows, "basic", "ping")
        if basic["system"] in _BROADCASTING
        and basic["s"] >= 100
        and basic["moved_in_ms"] is not None
        and ping["moved_in_ms"] is not None
    ]
    if not pairs:
        return []
    delays = [ping["moved_in_ms"] / basic["moved_in_ms"] - 1 for basic, ping in pairs]
    copies = [ping["duplicated"] / max(1, basic["duplicated"]) - 1 for basic, ping in pairs]
    told = "; ".join(
        f"{basic['system']} s={basic['s']}: delay {delay:+.1%}, duplicates {copy:+.1%}"
        for (basic, _), delay, copy in zip(pairs, delays, copies, strict=True)
    )
    return [
        Claim(
            "ping-harmless-elsewhere",
            "paper",
            "ping leaves Elvin and FioranoMQ nearly unchanged: at 100 subscriptions, over GPRS, "
            "delay and duplicates change by less than 10 % (theirs: by 7 % at most)",
            all(abs(each) < 0.1 for each in (*delays, *copies)),
            told,
        )
    ]


def _slower(rows: Sequence[Row]) -> list[Claim]:
    ratios = {}
    for siena in _select(rows, system="siena", mode="basic"):
        for system in _BROADCASTING:
            same = {"system": system, "mode": "basic", "s": siena["s"], "p": siena["p"]}
            for row in _select(rows, **same):
                ratios[f"{system} s={row['s']}"] = row["moved_in_ms"] / siena["moved_in_ms"]
    if not ratios:
        return []
    told = ", ".join(f"{name}: {ratio:.1f} times" for name, ratio in ratios.items())
    return [
        Claim(
            "connections-cost",
            "paper",
            "a move-in is slower over GPRS on Elvin and FioranoMQ, which open a connection for "
            "each subscription, than on Siena",
            all(ratio > 1 for ratio in ratios.values()),
            told,
        )
    ]


def _calibration(rows: Sequence[Row]) -> list[Claim]:
    """The stand-ins were fitted on these, so this says how well, and nothing about the source."""
    told, holds = [], True
    for system, mode in _FITTED:
        same = {"network": "gprs", "system": system, "mode": mode, "p": 2}
        ours, theirs = (
            slope(_select(rows, **same), "moved_in_ms"),
            slope(_select(PAPER, **same), "moved_in_ms"),
        )
        if ours is not None and theirs is not None:
            told.append(f"{system} {mode} {ours:.0f} (theirs {theirs:.0f})")
            holds = holds and abs(ours - theirs) <= max(0.1 * theirs, 10)
    if not told:
        return []
    claim = (
        "the stand-ins take as long for each subscription as the systems did: within 10 % or 10 ms"
    )
    return [Claim("calibrated", "ours", claim, holds, "ms: " + ", ".join(told))]


def _ours(rows: Sequence[Row]) -> list[Claim]:
    mine = _select(rows, mode="ours")
    found = _all(
        "nothing-lost-nothing-twice",
        "ours",
        "nothing is lost and nothing comes twice, in any case",
        mine,
        lambda row: row["lost"] == row["duplicated"] == row["dup_move_out"] == 0,
        lambda row: f"{row['lost']:g} lost, {row['duplicated'] + row['dup_move_out']:g} twice",
        "0 and 0",
    )
    found += _all(
        "order-kept",
        "ours",
        "the order of the publisher is kept",
        mine,
        lambda row: row["out_of_order"] == 0,
        lambda row: f"{row['out_of_order']:g} out of order",
        "kept",
    )
    return [*found, *_soon(rows, _select(mine, network="gprs"))]


def _soon(rows: Sequence[Row], gprs: Sequence[Row]) -> list[Claim]:
    """When ours brings what, over GPRS, beside the best of the source's: Siena's basic service."""
    best = {
        (row["s"], row["p"]): min(row["moved_in_ms"], row["delay_ms"] or row["moved_in_ms"])
        for row in _select(rows, network="gprs", system="siena", mode="basic")
    }
    beside = ", ".join(f"{value / 1e3:.1f}" for value in best.values())

    def within(row: Row, column: str) -> bool:
        return row[column] is not None and row[column] <= best[row["s"], row["p"]]

    def figure(row: Row, column: str) -> str:
        return f"{row[column]} ms, Siena basic {best[row['s'], row['p']]:.0f} ms"

    comparable = [row for row in gprs if (row["s"], row["p"]) in best]
    found: list[Claim] = []
    for id, column, claim in (
        (
            "as-fast-as-the-best",
            "delay_ms",
            "over GPRS the first live message comes, on every system, no later than with the basic "
            "service on Siena on the same link",
        ),
        (
            "never-silent-for-longer",
            "silence_ms",
            "and after the move-in call the application is never without a message for longer than "
            "that",
        ),
    ):
        found += _all(
            id,
            "ours",
            claim,
            comparable,
            partial(within, column=column),
            partial(figure, column=column),
            f"{_range(comparable, column)}; Siena basic {beside} s",
        )
    replaying = _select(gprs, system="replaying")
    others = [row for row in gprs if row["system"] != "replaying"]
    found += _all(
        "over-as-soon-as-the-best",
        "ours",
        "and where the system has a history the whole move-in is over no later",
        [row for row in comparable if row["system"] == "replaying"],
        lambda row: within(row, "moved_in_ms"),
        lambda row: figure(row, "moved_in_ms"),
        f"{_range(replaying, 'moved_in_ms')}; elsewhere {_range(others, 'moved_in_ms')}, since no "
        "other stand-in can say when its subscriptions are in effect",
    )
    theirs = {row["s"]: row["moved_in_ms"] for row in _select(PAPER, system="siena", mode="basic")}
    found += _all(
        "on-the-diagonal-by-the-papers-best",
        "ours",
        "over GPRS the trace stays on the diagonal no later than the shortest move-in of the "
        "source's table ends (Siena, basic)",
        [row for row in _select(gprs, p=2) if row["s"] in theirs],
        lambda row: row["diagonal_ms"] is not None and row["diagonal_ms"] <= theirs[row["s"]],
        lambda row: f"{row['diagonal_ms']} ms, theirs {theirs[row['s']]} ms",
        f"{_range(gprs, 'diagonal_ms')}; theirs "
        + ", ".join(f"{value / 1e3:.1f}" for value in theirs.values())
        + " s",
    )
    return found


EXPERIMENT = Experiment(
    name="mobility-table3",
    summary="a client moves: delay, losses and duplicates by mode and system (table 3)",
    parameters=Parameters(),
    quick=Parameters(subscriptions=(10, 100)),
    run=run,
    keys=KEYS,
    claims=claims,
    plots=[
        Plot(
            f"{name}-{system}-gprs",
            x="s",
            y=column,
            series="mode",
            log_y=True,
            where={"network": "gprs", "system": system},
            labels=LABELS,
        )
        for name, column in (("delay", "moved_in_ms"), ("diagonal", "diagonal_ms"))
        for system in SYSTEMS
    ],
    paper=PAPER,
)
