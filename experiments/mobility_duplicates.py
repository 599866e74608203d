"""Figure 10 of the mobility support service: duplicates by subscriptions and publication rate.

On the wireline network, without ping and with it; and ours, which has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import mul

from experiments.experiment import Claim, Context, Experiment, Plot, Row
from experiments.roaming.parameters import KEYS, LABELS, Parameters, measure

PAPER: list[Row] = [
    {"system": "siena", "network": "wireline", "statement": "ping adds at most 45 % duplicates"}
]


def run(parameters: Parameters, seed: int, context: Context) -> list[Row]:
    rows: list[Row] = []
    for done, case in enumerate(cases := parameters.cases):
        found = measure(case, seed)
        columns = ("duplicated", "dup_move_out", "lost", "out_of_order", "moved_in_ms")
        rows.append({name: found[name] for name in (*KEYS, *columns)})
        context.progress((done + 1) / len(cases))
    return rows


def proportionality(rows: Sequence[Row]) -> tuple[float, float] | None:
    """The k of duplicates = k * s * p that fits best, and the share of their variance that it
    explains; None where there are none."""
    products = [row["s"] * row["p"] for row in rows]
    counts = [row["duplicated"] for row in rows]
    mean = sum(counts) / len(counts)
    spread = sum((each - mean) ** 2 for each in counts)
    if not spread:
        return None
    k = sum(map(mul, products, counts)) / sum(each * each for each in products)
    error = sum((count - k * product) ** 2 for product, count in zip(products, counts, strict=True))
    return k, 1 - error / spread


def _of(rows: Sequence[Row], system: str, mode: str) -> list[Row]:
    return [row for row in rows if row["system"] == system and row["mode"] == mode]


def claims(rows: Sequence[Row]) -> list[Claim]:
    return [*_proportional(rows), *_ping(rows), *_ours(rows)]


def _proportional(rows: Sequence[Row]) -> list[Claim]:
    claims = []
    for system in dict.fromkeys(row["system"] for row in rows):
        told, holds = [], True
        for mode in ("basic", "ping"):
            of_mode = _of(rows, system, mode)
            found = proportionality(of_mode) if of_mode else None
            if found is not None:
                told.append(f"{mode}: {found[0]:.3f} s p explains {found[1]:.1%}")
                holds = holds and found[1] >= 0.9
            elif of_mode:
                lost = sum(row["lost"] for row in of_mode)
                told.append(
                    f"{mode}: {of_mode[0]['duplicated']:g} in every case, since the old handler is "
                    f"gone before the routes are there: {lost:g} lost instead"
                )
                holds = False
        if told:
            claim = (
                f"duplicates on {system} grow in proportion to subscriptions and rate, without "
                "ping and with it (a multiple of both explains 90 % of the variance)"
            )
            id = f"proportional-{system}"
            claims.append(Claim(id, "paper", claim, holds, "; ".join(told)))
    return claims


def _ping(rows: Sequence[Row]) -> list[Claim]:
    found = []
    for system, share, claim in (
        ("siena", 0.45, "ping adds at most 45 % duplicates on Siena"),
        ("elvin", 0.1, "ping adds few duplicates on Elvin: at most 10 % of all of them"),
        ("fioranomq", 0.1, "ping adds few duplicates on FioranoMQ: at most 10 % of all of them"),
    ):
        basic, ping = _of(rows, system, "basic"), _of(rows, system, "ping")
        if not basic or not ping:
            continue
        before = sum(row["duplicated"] for row in basic)
        after = sum(row["duplicated"] for row in ping)
        lost = sum(row["lost"] for row in basic)
        because = f"{before:g} in all cases together without it, {after:g} with it"
        if system == "siena" and after > (1 + share) * before:
            because += (
                f"; without ping the old handler is removed at once and the routes come later, so "
                f"{lost:g} messages are lost there and hardly any overlap is left to be doubled"
            )
        holds = after <= (1 + share) * before
        found.append(Claim(f"ping-adds-{system}", "paper", claim, holds, because))
    return found


def _ours(rows: Sequence[Row]) -> list[Claim]:
    mine = [row for row in rows if row["mode"] == "ours"]
    if not mine:
        return []
    twice = sum(row["duplicated"] + row["dup_move_out"] for row in mine)
    lost = sum(row["lost"] for row in mine)
    return [
        Claim(
            "no-duplicates",
            "ours",
            "nothing comes twice and nothing is lost, whatever the subscriptions and the rate",
            twice == lost == 0,
            f"{twice:g} twice, {lost:g} lost in {len(mine)} rows",
        )
    ]


_SYSTEMS = ("elvin", "fioranomq", "siena")

EXPERIMENT = Experiment(
    name="mobility-duplicates",
    summary="duplicates upon a move-in by subscriptions and publication rate (figure 10)",
    parameters=Parameters(
        systems=_SYSTEMS,
        networks=("wireline",),
        modes=("basic", "ping", "ours"),
        subscriptions=(1, 2, 5, 10, 20, 50, 100),
        rates=(1, 2, 5, 10),
    ),
    quick=Parameters(
        systems=_SYSTEMS,
        networks=("wireline",),
        modes=("basic", "ping", "ours"),
        subscriptions=(1, 10, 50),
        rates=(1, 5),
    ),
    run=run,
    keys=KEYS,
    claims=claims,
    plots=[
        Plot(
            f"duplicates-{system}-{mode}",
            x="s",
            y="duplicated",
            series="p",
            where={"system": system, "mode": mode},
            labels=LABELS,
        )
        for system in _SYSTEMS
        for mode in ("basic", "ping")
    ],
    paper=PAPER,
)
