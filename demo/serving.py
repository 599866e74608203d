"""The page and its API. docs/http-api.md has every path."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

import psph
from demo import layout
from demo.following import follow
from demo.guarding import add_headers, guard
from demo.pages import Page, Wishes, read_wishes
from demo.website import LONGEST
from demo.world import World

WEB = Path(psph.__file__).parent / "web"
MOST_PAGES = 64
FORGET = 60.0
"""Seconds after its stream ended that a page is kept for a browser that reconnects."""
_LARGEST = 64 << 10


class PublishRequest(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    text: str


class Api:
    """What pages ask for, and the pages that are open."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._pages: dict[str, Page] = {}
        self._left: dict[str, float] = {}
        self._begun = time.monotonic()

    def application(self, token: str | None) -> web.Application:
        app = web.Application(middlewares=[guard(token)], client_max_size=_LARGEST)
        app.on_response_prepare.append(add_headers)
        app.on_shutdown.append(self._end)
        app.cleanup_ctx.append(self._running)
        router = app.router
        router.add_get("/", self._index)
        router.add_static("/web", WEB)
        router.add_get("/healthz", self._healthz)
        router.add_get("/api/world", self._get_world)
        router.add_get("/api/events", self._events)
        router.add_put("/api/pages/{page:[A-Za-z0-9_-]{1,64}}", self._put_page)
        router.add_post("/api/topics/publish", self._publish)
        return app

    async def _running(self, app: web.Application) -> AsyncIterator[None]:
        showing = asyncio.create_task(self._keep_showing())
        yield
        showing.cancel()
        await asyncio.gather(showing, return_exceptions=True)

    async def _end(self, app: web.Application) -> None:
        """Before the server waits for its requests: streams would not end by themselves."""
        for page in self._pages.values():
            page.drop_followers()
            page.close()

    # The page

    async def _index(self, request: web.Request) -> web.StreamResponse:
        return web.FileResponse(WEB / "index.html")

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _get_world(self, request: web.Request) -> web.Response:
        return web.json_response(self._world.describe())

    # Pages and their events

    async def _put_page(self, request: web.Request) -> web.Response:
        try:
            wishes = read_wishes(await request.read())
            self._check(wishes)
        except ValueError as error:
            raise _bad(str(error)) from None
        page = self._page(request.match_info["page"])
        page.wishes = wishes
        wanted: dict[object, Any] = {}
        for feed in wishes.feeds:
            wanted["feed", feed.domain, feed.topic] = lambda feed=feed: follow(
                self._world, page, feed, self._took
            )
        for key in page.followers.keys() - wanted.keys():
            page.followers.pop(key).cancel()
        for key in wanted.keys() - page.followers.keys():
            page.followers[key] = asyncio.create_task(wanted[key]())
        return web.json_response({"page": page.name})

    def _check(self, wishes: Wishes) -> None:
        for feed in wishes.feeds:
            if feed.domain not in layout.DOMAINS:
                raise ValueError(f"there is no domain {feed.domain!r} here")

    def _page(self, name: str) -> Page:
        if name not in self._pages:
            if len(self._pages) >= MOST_PAGES:
                raise web.HTTPServiceUnavailable(
                    text='{"error": "too many pages are open: close some"}',
                    content_type="application/json",
                )
            self._pages[name] = Page(name)
            self._left[name] = time.monotonic()
        return self._pages[name]

    async def _events(self, request: web.Request) -> web.StreamResponse:
        name = request.query.get("page", "")
        if not name.replace("-", "").replace("_", "").isalnum() or len(name) > 64:
            raise _bad("name the page: /api/events?page=ID")
        page = self._page(name)
        after = request.headers.get("Last-Event-ID", "")
        response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream; charset=utf-8",
                "Cache-Control": "no-store",
                "X-Accel-Buffering": "no",
            }
        )
        await response.prepare(request)
        try:
            await response.write(b"retry: 1000\n\n")
            page.show("status", self._status())
            async for event in page.events(int(after) if after.isdecimal() else None):
                await response.write(event)
        except (ConnectionError, TimeoutError):
            pass  # the browser left
        finally:
            self._left[name] = time.monotonic()
        return response

    async def _keep_showing(self) -> None:
        while True:
            await asyncio.sleep(1)
            self._forget()
            for page in self._pages.values():
                page.show("status", self._status())

    def _forget(self) -> None:
        now = time.monotonic()
        for name, page in list(self._pages.items()):
            if not page.listening and now - self._left[name] > FORGET:
                page.drop_followers()
                del self._pages[name], self._left[name]

    def _status(self) -> dict[str, object]:
        return {
            "uptime_s": int(time.monotonic() - self._begun),
            "domains": len(layout.DOMAINS),
            "nodes": len(layout.NODES),
            "nodes_up": sum(self._world.parts[node].running for node in layout.NODES),
            "pages": sum(page.listening > 0 for page in self._pages.values()),
        }

    async def _took(self, trace_id: str, opened: int) -> float | None:
        return None

    # Publishing

    async def _publish(self, request: web.Request) -> web.Response:
        wish = _read(await request.read(), PublishRequest)
        local = self._local(wish.topic)
        if not wish.text.strip() or len(wish.text) > LONGEST:
            raise _bad(f"an entry has 1 to {LONGEST} characters")
        try:
            async with self._world.session.post(
                f"{local}/publish", data=wish.text.encode()
            ) as answer:
                text = await answer.text()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _failed(f"the website does not answer: {error}") from None
        if answer.status != 201:
            raise _failed(text.strip())
        return web.Response(text=text, status=201, content_type="application/json")

    def _local(self, topic: str) -> str:
        for domain in layout.DOMAINS:
            found = self._world.topics(domain).get(topic)
            if found is not None:
                return found
        raise _bad("no website of this world has that topic")


def _read(body: bytes, kind: type[msgspec.Struct]) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise _bad(str(error)) from None


def _error(text: str) -> dict[str, str]:
    return {
        "text": msgspec.json.encode({"error": text}).decode(),
        "content_type": "application/json",
    }


def _bad(text: str) -> web.HTTPBadRequest:
    return web.HTTPBadRequest(**_error(text))


def _failed(text: str) -> web.HTTPBadGateway:
    return web.HTTPBadGateway(**_error(text))
