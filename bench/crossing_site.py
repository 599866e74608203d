"""A website and the callbacks of its readers, in the event loop of a benchmark.

One process has both ends of what is measured, so that they share a clock.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from types import TracebackType
from typing import Self

from aiohttp import web

HOST = "127.0.0.1"

Arrival = tuple[int, str]
"""When a body was there, by the clock of all processes, and the Position it came with."""


class Site:
    """Feeds below /topics/, callbacks below /callback/; both by a name."""

    def __init__(self, zone: str, hub: str) -> None:
        self._zone = zone
        self._hub = hub
        self._feeds: dict[str, bytes] = {}
        self._expected: dict[bytes, asyncio.Future[Arrival]] = {}
        self.received: dict[str, list[bytes]] = defaultdict(list)
        """By callback: what came and was not expected, in order."""
        self._last: dict[str, int] = {}
        self._came = asyncio.Condition()
        app = web.Application()
        app.router.add_get("/topics/{name:.+}", self._feed)
        app.router.add_get("/callback/{name:.+}", self._verify)
        app.router.add_post("/callback/{name:.+}", self._take)
        self._runner = web.AppRunner(app, access_log=None)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, HOST, 0).start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._runner.cleanup()

    def topic(self, name: str) -> str:
        """As the world calls it."""
        return f"http://news.{self._zone}:{self._port}/topics/{name}"

    def local(self, name: str) -> str:
        """The same, for who does not know the zone."""
        return f"http://{HOST}:{self._port}/topics/{name}"

    def callback(self, name: str) -> str:
        return f"http://{HOST}:{self._port}/callback/{name}"

    def put(self, name: str, body: bytes) -> None:
        self._feeds[name] = body

    def expect(self, body: bytes) -> asyncio.Future[Arrival]:
        """Done when a callback has got this."""
        self._expected[body] = asyncio.get_running_loop().create_future()
        return self._expected[body]

    async def count(self, name: str, number: int) -> None:
        """Until a callback has got so many that were not expected."""
        async with self._came:
            await self._came.wait_for(lambda: len(self.received[name]) >= number)

    def last(self, name: str) -> int:
        """When the last of them came."""
        return self._last[name]

    async def _feed(self, request: web.Request) -> web.Response:
        body = self._feeds.get(request.match_info["name"])
        if body is None:
            return web.Response(status=404)
        itself = self.topic(request.match_info["name"])
        return web.Response(
            body=body,
            content_type="application/atom+xml",
            headers={"Link": f'<{self._hub}>; rel="hub", <{itself}>; rel="self"'},
        )

    async def _verify(self, request: web.Request) -> web.Response:
        return web.Response(text=request.query.get("hub.challenge", ""))

    async def _take(self, request: web.Request) -> web.Response:
        body = await request.read()
        now = time.monotonic_ns()
        expected = self._expected.pop(body, None)
        if expected is not None:
            expected.set_result((now, request.headers.get("X-Hub-Position", "")))
        else:
            name = request.match_info["name"]
            self.received[name].append(body)
            self._last[name] = now
            async with self._came:
                self._came.notify_all()
        return web.Response(status=204)
