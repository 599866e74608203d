"""Asking the parts how they are, as any operator does: over their admin ports."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any

import aiohttp

from demo import layout
from demo.crossings import Crossings
from demo.network import Network, show_tree
from demo.world import World

_TIME_OUT = aiohttp.ClientTimeout(total=4)


class Observer:
    """What the parts say, put together."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._network = Network()
        self.crossings = Crossings()
        self._after = dict.fromkeys(layout.NODES, 0)
        self._asking: asyncio.Task[None] | None = None

    async def network(self) -> dict[str, object]:
        """All nodes and links, as they are now."""
        statuses, proxies = await asyncio.gather(
            self._ask_all(layout.NODES, "/fabric/status"),
            self._ask_all(layout.PROXIES.values(), "/mobility/status"),
        )
        return self._network.look(time.monotonic(), statuses, proxies)

    async def tree(self, topic: str) -> dict[str, object] | None:
        """Where the packets of a topic go; None when nobody publishes it into the fabric."""
        for proxy in layout.PROXIES.values():
            found = await self._ask(proxy, "/fabric/tree", topic=topic)
            if found is not None:
                return show_tree(found)
        return None

    async def look_at_traces(self) -> None:
        """Take what happened since the last look; whoever asks meanwhile waits for the same."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._take_traces(layout.NODES))
        await asyncio.shield(self._asking)

    async def took(self, trace_id: str, opened: int) -> float | None:
        """Milliseconds from the ping until now; None when that was before the stream opened.

        What was there already when somebody began to look did not take that long to arrive.
        """
        now = time.monotonic_ns()
        if self.crossings.pinged(trace_id) is None:
            await self._take_traces(layout.PROXIES.values())
        pinged = self.crossings.pinged(trace_id)
        if pinged is None or pinged < opened:
            return None
        return round((now - pinged) / 1e6, 1)

    async def stop(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    async def _take_traces(self, nodes: Iterable[str]) -> None:
        await asyncio.gather(*(self._take_from(node) for node in nodes))

    async def _take_from(self, node: str) -> None:
        if not self._world.parts[node].running:
            return
        before = self._after[node]
        answer = await self._ask(node, "/traces/recent", after=str(before))
        # Somebody else may have asked at the same time and have them already.
        if answer is not None and self._after[node] == before:
            self._after[node] = answer["next"]
            self.crossings.take(answer["events"])

    async def _ask_all(self, nodes: Iterable[str], path: str) -> dict[str, Any]:
        """What those say that run and answer."""
        names = [node for node in nodes if self._world.parts[node].running]
        answers = await asyncio.gather(*(self._ask(node, path) for node in names))
        found = zip(names, answers, strict=True)
        return {name: answer for name, answer in found if answer is not None}

    async def _ask(self, node: str, path: str, **query: str) -> Any:
        """None when it does not answer, or has nothing."""
        url = f"{self._world.admin(node)}{path}"
        try:
            async with self._world.session.get(url, params=query, timeout=_TIME_OUT) as answer:
                return await answer.json() if answer.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None
