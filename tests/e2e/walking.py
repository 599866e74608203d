"""A client of this process that walks among PSPHs, some of which are killed on its way.

walk = Walk(world, places, roamer)
await walk.go(places[0])
await walk.round()
walk.counted()   # hand-offs that were prepared, and those that were not
"""

from __future__ import annotations

import asyncio
import time

from mobility.messages import Release, Released, encode, read
from psph.mobility.roamer import HubUnusable
from tests.e2e.node_process import PATIENCE

EXPECTED = 0.5
"""Seconds for a neighbour to learn that the client left; who walks needs longer."""


class Walk:
    """One client and where it has been; counts how many of its hand-offs were prepared."""

    def __init__(self, world, places, roamer):
        self.world, self.places, self.roamer = world, places, roamer
        self.at = ""
        self.moves = self.kills = 0
        self.prepared = self.unprepared = 0
        """At places that were killed since."""

    def status(self, place):
        return self.world.proxies[place].ask("/mobility/status")

    def count(self, place):
        counters = self.status(place)["prepare"]["counters"]
        return counters["prepared"], counters["unprepared"]

    def counted(self):
        """Prepared and unprepared hand-offs, everywhere."""
        here = [self.count(place) for place in self.places]
        return (
            self.prepared + sum(each[0] for each in here),
            self.unprepared + sum(each[1] for each in here),
        )

    async def is_expected(self, place):
        """Whether the place learns in time that the client may come."""
        deadline = time.monotonic() + EXPECTED
        while time.monotonic() < deadline:
            status = await asyncio.to_thread(self.status, place)
            if status["prepare"]["contexts"]["active"]:
                return True
            await asyncio.sleep(0.1)
        return False

    async def go(self, place):
        """Be nowhere for a moment, then there."""
        if self.at:
            await self.roamer.move_out()
            await self.is_expected(place)
        await self.come(place)

    async def come(self, place):
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    await self.roamer.move(self.world.hub(place))
                    await self.roamer.live()
                    break
                except HubUnusable:
                    await asyncio.sleep(0.1)
        self.at = place
        self.moves += 1

    async def kill(self, place):
        """-9, and started again."""
        prepared, unprepared = await asyncio.to_thread(self.count, place)
        self.prepared += prepared
        self.unprepared += unprepared
        proxy = self.world.proxies[place]
        proxy.kill()
        proxy.launch()
        await asyncio.to_thread(proxy.ready)
        self.kills += 1

    async def round(self, kill=False):
        """To each place and back to the first. One dies with the client's context, just before
        the client comes; another just after it left."""
        for number, place in enumerate((*self.places[1:], self.places[0])):
            if kill and number == 1:
                await self.roamer.move_out()
                await self.is_expected(place)
                await self.kill(place)
                await self.come(place)
            else:
                left = self.at
                await self.go(place)
                if kill and number == 3:
                    await self.kill(left)


async def forget(session, roamer):
    """The client says that it needs nothing any more, to the last place."""
    claim = {**roamer.client.who, "epoch": roamer.client.who["epoch"] + 1}
    for debt in roamer.client.debts:
        question = Release(**claim, call=1, proxy=debt.proxy, stay=debt.stay)
        async with session.post(f"{debt.proxy}/mobility/relay", data=encode(question)) as answer:
            assert isinstance(read(await answer.read()), Released)


def left_behind(status):
    """What a proxy keeps of any client."""
    prepare = status["prepare"]
    return {
        **status["stays"], **prepare["contexts"], **prepare["topics"],
        **{key: status[key] for key in ("sessions", "buffered_messages", "buffered_bytes")},
        **{key: prepare[key] for key in ("context_bytes", "prepared_clients", "untold")},
    }  # fmt: skip
