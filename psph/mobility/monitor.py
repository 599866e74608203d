"""What a host can see of its own moves: its addresses and its default route, and which hubs answer.

The monitor knows nothing of messages, and the applications behind it nothing of moves: it only says
that the network is another one now, and how long each hub takes to answer.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

_ROUTES: Final = Path("/proc/net/route")
_ADDRESSES: Final = Path("/proc/net/fib_trie")
_ADDRESSES_6: Final = Path("/proc/net/if_inet6")
_WEIGHT: Final = 0.3
"""Of the latest answer, in the time that a hub is said to take."""
_CLEARLY: Final = 0.5
"""How much faster another hub has to be: a share of the time that the present one takes."""
_LEAST_GAIN: Final = 0.02
"""Seconds that a move has to gain per answer: what differs by less is noise."""
_SURE: Final = 3
"""Answers of a hub before its time means anything."""


def network_state(
    routes: Path = _ROUTES, addresses: Path = _ADDRESSES, addresses_6: Path = _ADDRESSES_6
) -> frozenset[str]:
    """The default routes and addresses of this host; empty where the system does not tell."""
    found = set()
    for line in _lines(routes)[1:]:
        fields = line.split()
        if len(fields) > 2 and fields[1] == "00000000":
            found.add(f"default {fields[0]} {fields[2]}")
    lines = _lines(addresses)
    for line, following in pairwise(lines):
        if "/32 host LOCAL" in following:
            found.add(line.split()[-1])
    for line in _lines(addresses_6):
        fields = line.split()
        # Link-local ones come and go with the interface, and lead nowhere.
        if len(fields) > 5 and fields[3] in ("00", "10"):
            found.add(str(ipaddress.IPv6Address(int(fields[0], 16))))
    return frozenset(found)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


class Speeds:
    """How long hubs take to answer."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._answers: dict[str, int] = {}

    def answered(self, hub: str, seconds: float) -> None:
        known = self._seconds.get(hub, seconds)
        self._seconds[hub] = known + (seconds - known) * _WEIGHT
        self._answers[hub] = self._answers.get(hub, 0) + 1

    def failed(self, hub: str) -> None:
        """It begins anew."""
        self._seconds.pop(hub, None)
        self._answers.pop(hub, None)

    def order(self, hubs: Sequence[str]) -> list[str]:
        """Those that answer first, the fastest of them first."""
        return sorted(hubs, key=lambda hub: self._seconds.get(hub, float("inf")))

    def better(self, present: str) -> str | None:
        """A hub that is clearly faster than the present one."""
        sure = [hub for hub in self._seconds if self._answers[hub] >= _SURE]
        if present not in sure:
            return None
        best = min(sure, key=lambda hub: self._seconds[hub])
        here, there = self._seconds[present], self._seconds[best]
        return best if there < here * _CLEARLY and here - there > _LEAST_GAIN else None


class HostMonitor:
    """Looks again and again, and says when a move may be due: `changed` gets the reason."""

    def __init__(
        self,
        hubs: Sequence[str],
        ask: Callable[[str], Awaitable[object]],
        changed: Callable[[str], object],
        *,
        every: float = 1.0,
        network: Callable[[], frozenset[str]] = network_state,
    ) -> None:
        """`ask` asks a hub for a sign of life, and raises an exception when it gives none."""
        self._hubs = tuple(hubs)
        self._ask = ask
        self._changed = changed
        self._every = every
        self._network = network
        self.speeds = Speeds()

    async def run(self) -> None:
        """Until it is cancelled."""
        before = self._network()
        while True:
            await asyncio.sleep(self._every)
            now = self._network()
            if now != before:
                gone, new = sorted(before - now), sorted(now - before)
                words = [f"{each} is gone" for each in gone] + [f"{each} is new" for each in new]
                before = now
                for hub in self._hubs:
                    self.speeds.failed(hub)
                self._changed(f"the network changed: {', '.join(words)[:200]}")
            await asyncio.gather(*map(self._look, self._hubs))

    async def _look(self, hub: str) -> None:
        began = time.monotonic()
        try:
            await self._ask(hub)
        except Exception:
            self.speeds.failed(hub)
        else:
            self.speeds.answered(hub, time.monotonic() - began)
