"""Between the domains there is nothing but the links: every crossing is found on them."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest

from demo.world import World, WorldSettings
from tests.demo.relays import Relays
from tests.demo.up import until

A, B = "site-a.test", "site-b.test"


@pytest.mark.parametrize("processes", [False, True], ids=["one process", "processes"])
def test_every_crossing_is_found_in_a_capture(tmp_path, processes):
    relays = Relays()
    settings = WorldSettings(
        tmp_path / "world", processes=processes, grow_every=0.0, ways=relays.ways
    )
    world = World(settings)
    relays.start(world.ports)
    try:
        asyncio.run(_cross(world, relays))
    finally:
        relays.close()


async def _cross(world, relays):
    async with world, aiohttp.ClientSession() as session:
        for reader, publisher, ends in (
            (A, B, ("psph-b", "psph-a")),
            (B, A, ("psph-a", "psph-b")),
        ):
            topic, local = list(world.topics(publisher).items())[1]
            bodies = []
            following = asyncio.create_task(_follow(session, world.hub(reader), topic, bodies))
            await until(lambda bodies=bodies: bodies, "the current version")
            for number in range(3):
                text = f"crossing {number} to {reader}"
                await _publish(session, local, text)
                await until(lambda bodies=bodies, text=text: any(text in b for b in bodies), text)
                assert _leads(relays.carried(text.encode()), *ends), text
            # The other way round: what does not pass the links does not arrive.
            relays.holding = b"kept from"
            await _publish(session, local, f"kept from {reader}")
            await until(lambda: relays.kept, "a packet that is kept")
            await asyncio.sleep(0.2)
            assert not any("kept from" in body for body in bodies)
            relays.holding = None
            await until(lambda bodies=bodies: any("kept from" in b for b in bodies), "the rest")
            relays.kept.clear()
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


async def _follow(session, hub, topic, bodies):
    async with session.get(
        f"{hub}/stream", params={"topic": topic}, timeout=aiohttp.ClientTimeout()
    ) as answer:
        async for line in answer.content:
            if line.startswith(b"data: "):
                bodies.append(json.dumps(json.loads(line[6:])["entries"]))


async def _publish(session, local, text):
    async with session.post(f"{local}/publish", data=text) as answer:
        assert answer.status == 201


def _leads(links, source, target):
    """Whether packets went from one to the other, link by link."""
    reached = {source}
    while found := {b for a, b in links if a in reached} - reached:
        reached |= found
    return target in reached
