"""Cutting links and stopping nodes, for pages."""

from __future__ import annotations

import asyncio

import aiohttp

from demo import layout
from demo.world import World
from psph.errors import PsphError

LINKS = {layout.link_id(a, b): (a, b) for a, b in layout.LINKS}


class Faults:
    """What pages have broken, and not mended yet."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._cut: set[str] = set()
        self._locks = {node: asyncio.Lock() for node in layout.NODES}

    async def link(self, name: str, up: bool) -> None:
        """Mend or cut a link, at both ends. KeyError when there is none of that name."""
        ends = LINKS[name]
        (self._cut.discard if up else self._cut.add)(name)
        for node, other in (ends, ends[::-1]):
            await self._tell(node, other, up)

    async def node(self, name: str, up: bool) -> None:
        """Start a node with the data it has, or stop it. KeyError when there is no such node."""
        async with self._locks[name]:
            part = self._world.parts[name]
            if up and not part.running:
                await part.start()
                for link in self._cut:
                    if name in LINKS[link]:
                        a, b = LINKS[link]
                        await self._tell(name, b if a == name else a, False)
            elif not up and part.running:
                await part.fail()

    async def _tell(self, node: str, link: str, up: bool) -> None:
        if not self._world.parts[node].running:
            return  # it is told when it is there again
        try:
            await self._world.tell(node, f"/fabric/links/{link}", {"up": up})
        except (aiohttp.ClientError, TimeoutError) as error:
            raise PsphError(f"{node} does not answer: {error}") from error
