"""Which peers are dead: those that nobody could connect to for long enough. Pure."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

FEWEST = 3
"""Failed looks at least, however long ago the first was: a pause of our own is not a death."""

P = TypeVar("P", bound=Hashable)


@dataclass(slots=True)
class _Silence:
    since: float
    failures: int


class Liveness(Generic[P]):
    """Remembers since when each peer is out of reach."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._silent: dict[P, _Silence] = {}

    def keep(self, peers: Collection[P]) -> None:
        """Forget all others: a peer that registers again begins anew."""
        self._silent = {peer: each for peer, each in self._silent.items() if peer in peers}

    def told(self, peer: P, reached: bool | None, now: float) -> None:
        """None: nobody can tell, which is no reason to believe it dead."""
        if reached is not False:
            self._silent.pop(peer, None)
        elif peer in self._silent:
            self._silent[peer].failures += 1
        else:
            self._silent[peer] = _Silence(now, 1)

    def dead(self, now: float) -> list[P]:
        """Out of reach for as long as the patience lasts, at every look."""
        return [
            peer
            for peer, silence in self._silent.items()
            if silence.failures >= FEWEST and now - silence.since >= self._patience
        ]
