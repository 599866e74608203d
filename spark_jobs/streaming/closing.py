"""From windows of pairs of nodes, by wrong clocks, to rows of pairs of domains. No Spark here.

Within a window two clocks run apart by microseconds, so all that a window took is wrong by the
same amount: its quantiles are moved by it. The amount comes from the probes of the last while,
solved over all nodes as reports do it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

import numpy as np

from spark_jobs.clocks import Clocks, Exchange, solve
from spark_jobs.streaming.windows import SHARES

REMEMBERED_NS = 1_800 * 10**9
"""How long probes count: clocks change their pace with the temperature."""
SHOWN = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99, "max_ms": 1.0}

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Closed:
    """Crossings from one domain to another that ended in a window of time."""

    window_ns: int
    from_domain: str
    to_domain: str
    count: int
    compared: int
    """Those of nodes whose clocks can be compared; the others have a number but no latency."""
    p50_ms: float | None
    p90_ms: float | None
    p99_ms: float | None
    max_ms: float | None
    uncertainty_ms: float | None
    """By which all of them may be off, to either side."""

    def plain(self) -> dict[str, Any]:
        return asdict(self)


class Closing:
    """Remembers the probes of the last while."""

    def __init__(self, probes: Iterable[Row] = ()) -> None:
        self._probes = list(probes)

    def close(self, rows: Iterable[Row]) -> list[Closed]:
        """What windows say that were closed together, in the order of time."""
        rows = list(rows)
        crossings = [row for row in rows if row["kind"] == "crossing"]
        self._probes += [row for row in rows if row["kind"] == "probe"]
        latest = max((row["window_ns"] for row in rows), default=0)
        self._probes = sorted(
            (row for row in self._probes if row["window_ns"] > latest - REMEMBERED_NS), key=_order
        )
        clocks = solve([_exchange(row) for row in self._probes])
        key = _of_domains
        return [
            _joined(name, list(each), clocks)
            for name, each in groupby(
                sorted(crossings, key=lambda row: (key(row), _order(row))), key
            )
        ]


def _joined(name: tuple[int, str, str], rows: list[Row], clocks: Clocks) -> Closed:
    """One row of those of several pairs of nodes; of one pair it is exact."""
    values, weights, uncertain = [], [], []
    compared = 0
    for row in rows:
        known = _apart(row["from_node"], row["to_node"], row["wall_ns"], clocks)
        if known is not None:
            offset, uncertainty = known
            compared += row["count"]
            values.append(np.array(row["quantiles_ns"]) - offset)
            weights.append(np.full(len(SHARES), row["count"]))
            uncertain.append(uncertainty)
    shown: dict[str, float | None] = dict.fromkeys(SHOWN)
    if len(values) == 1:
        shown = {label: _ms(values[0][SHARES.index(share)]) for label, share in SHOWN.items()}
    elif values:
        points, weight = np.concatenate(values), np.concatenate(weights)
        order = np.argsort(points)
        reached = np.cumsum(weight[order]) / weight.sum()
        for label, share in SHOWN.items():
            place = min(int(np.searchsorted(reached, share)), len(points) - 1)
            shown[label] = _ms(points[order][place])
    window_ns, from_domain, to_domain = name
    return Closed(
        window_ns=window_ns,
        from_domain=from_domain,
        to_domain=to_domain,
        count=sum(row["count"] for row in rows),
        compared=compared,
        p50_ms=shown["p50_ms"],
        p90_ms=shown["p90_ms"],
        p99_ms=shown["p99_ms"],
        max_ms=shown["max_ms"],
        uncertainty_ms=_ms(max(uncertain)) if uncertain else None,
    )


def _apart(one: str, other: str, at: int, clocks: Clocks) -> tuple[float, int] | None:
    """How much later the other's clock is than the one's, and how sure that is."""
    if one == other:
        return 0.0, 0
    place = {clock.node: number for number, clock in enumerate(clocks.clocks)}
    if one not in place or other not in place:
        return None
    uncertainty = clocks.uncertainties_ns[place[one]][place[other]]
    if uncertainty is None:
        return None
    return clocks.offset_ns(other, at) - clocks.offset_ns(one, at), uncertainty


def _exchange(row: Row) -> Exchange:
    return Exchange(
        row["from_node"], row["to_node"], row["wall_ns"], row["offset_ns"], row["round_trip_ns"]
    )


def _of_domains(row: Row) -> tuple[int, str, str]:
    return row["window_ns"], row["from_domain"], row["to_domain"]


def _order(row: Row) -> tuple[int, str, str]:
    return row["window_ns"], row["from_node"], row["to_node"]


def _ms(ns: float) -> float:
    return round(float(ns) / 1e6, 3)
