"""What the experiments with a moving client can be asked for, and the rows they have in common."""

from __future__ import annotations

import msgspec

from experiments.experiment import Row
from experiments.roaming.scene import MODES, NETWORKS, Case, play
from experiments.roaming.systems import SYSTEMS
from experiments.roaming.trace import Trace
from psirp_sim.runtime.durations import SECOND

MOST_SUBSCRIPTIONS = 1_000
MOST_RATE = 50.0


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row for each combination."""

    systems: tuple[str, ...] = tuple(SYSTEMS)
    networks: tuple[str, ...] = tuple(NETWORKS)
    modes: tuple[str, ...] = tuple(MODES)
    subscriptions: tuple[int, ...] = (10, 50, 100)
    rates: tuple[float, ...] = (2,)
    """Publications a second."""
    message_bytes: int = 100
    away_s: float = 10.0
    delay_s: float = 2.0
    """In mode delay: between subscribing and collecting."""

    def __post_init__(self) -> None:
        for name, known in (("systems", SYSTEMS), ("networks", NETWORKS), ("modes", MODES)):
            given = getattr(self, name)
            if not given or not set(given) <= set(known):
                raise ValueError(f"{name} lists some of {', '.join(known)}")
        if not self.subscriptions or not all(
            1 <= each <= MOST_SUBSCRIPTIONS for each in self.subscriptions
        ):
            raise ValueError(f"subscriptions lists numbers from 1 to {MOST_SUBSCRIPTIONS}")
        if not self.rates or not all(0.1 <= each <= MOST_RATE for each in self.rates):
            raise ValueError(f"rates lists publications a second, 0.1 to {MOST_RATE:g}")
        if not 8 <= self.message_bytes <= 10_000:
            raise ValueError("message_bytes lies between 8 and 10000")
        if not 0 <= self.away_s <= 600 or not 0 <= self.delay_s <= 600:
            raise ValueError("away_s and delay_s lie between 0 and 600")

    @property
    def cases(self) -> list[Case]:
        return [
            Case(
                system,
                network,
                mode,
                subscriptions,
                rate,
                self.message_bytes,
                round(self.away_s * SECOND),
                round(self.delay_s * SECOND),
            )
            for network in self.networks
            for system in self.systems
            for mode in self.modes
            for subscriptions in self.subscriptions
            for rate in self.rates
        ]


def key(case: Case) -> dict[str, object]:
    """The columns that say which case a row is about."""
    return {
        "network": case.network,
        "system": case.system,
        "mode": case.mode,
        "s": case.subscriptions,
        "p": case.rate,
    }


KEYS = ("network", "system", "mode", "s", "p")
LABELS = {
    "s": "subscriptions of the client (number)",
    "p": "publications/s",
    "duplicated": "duplicates (messages)",
    "moved_in_ms": "end of the move-in after the call (ms)",
    "diagonal_ms": "on the diagonal for good, after the call (ms)",
}
"""What columns are called in pictures."""


def measure(case: Case, seed: int) -> Row:
    """One move, as figures."""
    return {**key(case), **figures(play(case, seed))}


def figures(trace: Trace) -> dict[str, float | None]:
    """What is read off a trace. Duplicates upon the move-in are counted as in the source's table;
    those that the move-out made have a column of their own."""
    return {
        "moved_in_ms": trace.moved_in_ms,
        "lost": trace.lost,
        "duplicated": trace.duplicated,
        "delay_ms": trace.delay_ms,
        "silence_ms": trace.silence_ms,
        "diagonal_ms": trace.diagonal_ms,
        "move_out_ms": trace.move_out_ms,
        "away": trace.published_away,
        "lost_away": trace.lost_before_move_in,
        "dup_move_out": trace.duplicated_by_move_out,
        "out_of_order": trace.out_of_order,
    }
