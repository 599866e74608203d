"""The hubs for a page that cannot reach them: what a client that moves asks of one is passed on.

The hubs listen on loopback, and stay there: what they may fetch and call back, and who may chat as
anybody, are rules for this machine. A page that came from elsewhere has shown the token, and gets
the few paths that it needs to roam, below `/hubs/DOMAIN`.
"""

from __future__ import annotations

import asyncio
from functools import partial

import aiohttp
from aiohttp import web

from demo import layout
from demo.world import World
from psph.mobility.publishing import HEADER
from push_hub.connecting import exact_url

_PATHS = (
    ("GET", "/mobility"),
    ("GET", "/mobility/stream"),
    ("POST", "/mobility/messages"),
    ("POST", "/mobility/publish"),
    ("GET", "/stream"),
)
_ASKED_WITH = ("Authorization", "Content-Type", HEADER)
_ANSWERED_WITH = (
    "Cache-Control",
    "Content-Type",
    "Retry-After",
    "X-Accel-Buffering",
    "X-Content-Type-Options",
)
_AT_ONCE = 256
_LOOK = 1.0
"""Seconds after which it is looked whether the page is still there."""
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=5.0)


class Passing:
    """Requests to hubs, and their answers as they come."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._session: aiohttp.ClientSession | None = None
        self._under_way = 0

    def add(self, app: web.Application) -> None:
        for method, path in _PATHS:
            app.router.add_route(method, f"/hubs/{{domain}}{path}", partial(self.pass_on, path))
        app.on_startup.append(self._open)
        app.on_shutdown.append(self._close)

    async def _open(self, app: web.Application) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=_TIMEOUT,
            auto_decompress=False,
        )

    async def _close(self, app: web.Application) -> None:
        # Streams would not end by themselves.
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def pass_on(self, path: str, request: web.Request) -> web.StreamResponse:
        domain = request.match_info["domain"]
        if domain not in layout.DOMAINS:
            raise web.HTTPNotFound(text="there is no such domain\n")
        if self._session is None or self._under_way >= _AT_ONCE:
            raise web.HTTPServiceUnavailable(text="too much is under way\n")
        url = exact_url(f"{self._world.hub(domain)}{path}").with_query(request.query)
        headers = {each: request.headers[each] for each in _ASKED_WITH if each in request.headers}
        body = await request.read() or None
        self._under_way += 1
        try:
            async with self._session.request(
                request.method, url, headers=headers, data=body, allow_redirects=False
            ) as answer:
                return await _copy(request, answer)
        except (aiohttp.ClientError, OSError, TimeoutError):
            raise web.HTTPBadGateway(text=f"the hub of {domain} does not answer\n") from None
        finally:
            self._under_way -= 1


async def _copy(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    """Until either end is gone."""
    headers = {each: answer.headers[each] for each in _ANSWERED_WITH if each in answer.headers}
    response = web.StreamResponse(status=answer.status, headers=headers)
    await response.prepare(request)
    try:
        while request.transport is not None and not answer.content.at_eof():
            try:
                async with asyncio.timeout(_LOOK):
                    chunk = await answer.content.readany()
            except TimeoutError:
                continue
            if chunk:
                await response.write(chunk)
    except (aiohttp.ClientError, OSError):
        # One of them is gone in the middle of it: the other must not take it for the end.
        if request.transport is not None:
            request.transport.abort()
    return response
