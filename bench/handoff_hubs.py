"""The side of ours in `handoff` that moves between hubs, over HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import aiohttp
import msgspec

from bench.crossing_world import World, start_world
from bench.handoff_movers import PATIENCE, Arrivals, Mover, Side, arrive, body, leave
from mobility import MovedIn, Stage, Update
from mobility.events import Consumed, Notice
from psph.mobility.roamer import HubUnusable, Roamer
from psph.mobility.roaming_host import RoamingHost

MOBILITY = """
[mobility]
allow_peer = ["127.0.0.0/8"]
peers = ["http://127.0.0.1:8081", "http://127.0.0.1:8082"]
prepare = {prepare}
"""
"""Everything is on one machine, and the zones' records name the PSPHs otherwise than their hubs are
called here; the rest is as it ships."""
MOST = {True: 1_000, False: 100}
ADDRESSES = [f"127.0.1.{number}" for number in range(1, 51)]
"""A thousand clients do not come from one address: a hub would slow it down."""


class HubRoamer:
    """A client of ours at hubs, over HTTP."""

    def __init__(self, topic: str, host: RoamingHost, name: str) -> None:
        self.arrivals = Arrivals()
        self.roamer = Roamer(
            [topic],
            consume=self._consume,
            notice=self._notice,
            lost=self._lost,
            host=host,
            name=name,
        )
        self._returning: asyncio.Task[None] | None = None

    @property
    def live(self) -> bool:
        return self.roamer.stage is Stage.LIVE

    @property
    def gone(self) -> bool:
        return self.roamer.stage is Stage.DETACHED

    async def come(self, place: str) -> None:
        self.arrivals.begin()
        await self.roamer.move(place)

    async def go(self) -> None:
        if not await self.roamer.move_out(PATIENCE):
            raise RuntimeError("a hub did not let a client of the benchmark go")

    def _lost(self, reason: str) -> None:
        """The hub did not answer in time: again, as `psph roam` does. The clock runs on."""
        self._returning = asyncio.create_task(self._return(self.roamer.hub))

    async def _return(self, place: str) -> None:
        while True:
            try:
                await self.roamer.move(place)
            except HubUnusable:
                await asyncio.sleep(0.5)
            else:
                return

    def _consume(self, event: Consumed) -> None:
        if isinstance(event, Update):
            self.arrivals.take(event.message.body)
        else:
            self.arrivals.other.append(event)

    def _notice(self, notice: Notice) -> None:
        if isinstance(notice, MovedIn):
            self.arrivals.live_at = time.monotonic()


async def at_hubs(
    stack: AsyncExitStack, directory: Path, name: str, prepare: bool
) -> dict[str, Side]:
    """`prepare`: whether contexts are one hop ahead of the clients."""
    processes = stack.enter_context(ExitStack())
    more = MOBILITY.format(prepare=str(prepare).lower())
    world: World = await asyncio.to_thread(start_world, processes, directory, more)
    session = await stack.enter_async_context(aiohttp.ClientSession())
    token = (world.b.hub.data / "admin-token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "text/plain"}

    async def publish(topic: str, number: int) -> None:
        async with session.post(
            f"{world.b.url}/publish", params={"topic": topic}, data=body(number), headers=headers
        ) as answer:
            if answer.status != 201:
                raise RuntimeError(f"hub B answered {answer.status} {await answer.text()}")

    host = await stack.enter_async_context(RoamingHost(directory / "clients", ADDRESSES))
    places = (world.a.url, world.b.url)

    async def movers(stack: AsyncExitStack, topic: str, count: int) -> Sequence[Mover]:
        found = [HubRoamer(topic, host, f"{topic} {number}") for number in range(count)]
        for each in found:
            await stack.enter_async_context(each.roamer)
            for place in places:  # as clients of MQTT know their brokers' addresses
                await each.roamer.prepare(place)
        return found

    async def remarks() -> list[str]:
        status = await asyncio.to_thread(world.b.status, "/mobility/status")
        share = msgspec.convert(status, _Status).prepare.share
        return [f"{name}: {share or 0:.0%} of the hand-overs to B were prepared there"]

    # Neighbours are learned: somebody has to have gone that way.
    async with AsyncExitStack() as scouting:
        scouts = await movers(scouting, "http://news.site-b.test/scout", 1)
        await publish("http://news.site-b.test/scout", 0)
        for place in (*places, *places):
            await arrive(scouts, place)
            await leave(scouts)

    topic = "http://news.site-b.test/moves"
    return {name: Side(places, publish, movers, topic, MOST[prepare], remarks)}


class _Prepare(msgspec.Struct):
    share: float | None = None


class _Status(msgspec.Struct):
    prepare: _Prepare
