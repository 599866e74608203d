"""When a client moves, and where to: by the clock, because its hub died, because another answers
faster, because the network changed, or because somebody said so."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from psph.mobility.monitor import HostMonitor, Speeds, network_state
from psph.mobility.roamer import HubUnusable, Roamer

_FIRST_RETRY, _LONGEST_RETRY = 0.2, 5.0
"""Seconds between attempts while no hub can be used."""
_SHORT = 2.0
"""Seconds within which a hub that is lost was no good to begin with."""
_TOLD = 1.0
"""Seconds that a hub may take to say that it has taken over."""


@dataclass(frozen=True, slots=True)
class Wish:
    """Somebody wants the client to move; None: to the next hub."""

    reason: str
    hub: str | None = None
    away: bool = False
    """The present hub is gone."""
    out: bool = False
    """To nowhere, until the next wish."""


class Mover:
    """Moves one client between hubs until it is cancelled."""

    def __init__(
        self,
        roamer: Roamer,
        hubs: Sequence[str],
        *,
        every: float | None = None,
        monitor: float | None = None,
        told: Callable[[str], object] = lambda words: None,
        network: Callable[[], frozenset[str]] = network_state,
    ) -> None:
        """`every`: seconds between moves in turn. `monitor`: seconds between looks at the host's
        `network` and at how fast the hubs answer."""
        self._roamer = roamer
        self._hubs = tuple(dict.fromkeys(hubs))
        self._every = every
        self._told = told
        self._wishes: asyncio.Queue[Wish] = asyncio.Queue()
        self._at = -1
        self._moved_at = -_SHORT
        self._short = 0
        """Stays that ended at once, one after the other."""
        self._monitor: HostMonitor | None = None
        self._look = monitor
        if monitor is not None:
            self._monitor = HostMonitor(
                self._hubs, roamer.ask, self._network, every=monitor, network=network
            )

    def move(self, hub: str | None = None, reason: str = "asked to") -> None:
        """Go there, or to the next one."""
        self._wishes.put_nowait(Wish(reason, hub))

    def leave(self) -> None:
        """Be nowhere, until somebody wishes otherwise."""
        self._wishes.put_nowait(Wish("asked to", out=True))

    def lost(self, reason: str) -> None:
        """The hub is gone: the roamer says so."""
        self._wishes.put_nowait(Wish(f"the hub is gone ({reason})", away=True))

    def _network(self, reason: str) -> None:
        # Connections of the old address may take minutes to notice: they are not waited for.
        self._wishes.put_nowait(Wish(reason, away=True))

    async def run(self) -> None:
        watching = asyncio.create_task(self._watch())
        try:
            await self._go(Wish("the beginning", away=True))
            out = False
            while True:
                wish = Wish("it is time")
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if out else self._every):
                        wish = await self._wishes.get()
                if out and wish.away:
                    continue
                out = wish.out
                if out:
                    await self._roamer.move_out(_TOLD)
                else:
                    await self._go(wish)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _go(self, wish: Wish) -> None:
        if wish.away:
            await self._calm_down()
        pause = _FIRST_RETRY
        tried = 0
        while True:
            hub = wish.hub if wish.hub is not None and not tried else self._next(wish.away)
            try:
                if not wish.away and not tried:
                    await self._roamer.move_out(_TOLD)
                await self._roamer.move(hub)
            except HubUnusable as error:
                self._told(str(error))
                tried += 1
                if tried % len(self._hubs) == 0:
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _LONGEST_RETRY)
                continue
            if hub in self._hubs:
                self._at = self._hubs.index(hub)
            self._told(f"moving to {hub}: {wish.reason}")
            self._moved_at = asyncio.get_running_loop().time()
            # That the place it has just left is gone is of no interest any more.
            kept = [self._wishes.get_nowait() for _ in range(self._wishes.qsize())]
            for each in kept:
                if not each.away:
                    self._wishes.put_nowait(each)
            return

    async def _calm_down(self) -> None:
        """Hubs that answer and then end what they begin are not tried as fast as they answer."""
        soon = asyncio.get_running_loop().time() < self._moved_at + _SHORT
        self._short = self._short + 1 if soon else 0
        if self._short:
            await asyncio.sleep(min(_FIRST_RETRY * 2 ** (self._short - 1), _LONGEST_RETRY))

    def _next(self, away: bool) -> str:
        if away and self._monitor is not None:
            present = self._hubs[self._at] if self._at >= 0 else None
            order = [hub for hub in self._speeds.order(self._hubs) if hub != present]
            if order:
                self._at = self._hubs.index(order[0])
                return order[0]
        self._at = (self._at + 1) % len(self._hubs)
        return self._hubs[self._at]

    @property
    def _speeds(self) -> Speeds:
        assert self._monitor is not None
        return self._monitor.speeds

    async def _watch(self) -> None:
        """Whether another hub answers faster; only while somebody monitors."""
        if self._monitor is None:
            return
        looking = asyncio.create_task(self._monitor.run())
        try:
            while True:
                await asyncio.sleep(self._look or 1.0)
                better = self._speeds.better(self._roamer.hub)
                if better is not None:
                    self.move(better, "it answers faster")
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
