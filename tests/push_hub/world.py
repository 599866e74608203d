"""A small web for the tests: a site with topics, a reader with callbacks, a hub between them.

All of them real servers on the loopback interface.
"""

from __future__ import annotations

import asyncio
import hashlib
import socket
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web

from psph.hub_serving import stop_accepting
from push_hub import HubSettings, create_app
from push_hub.addresses import parse_networks
from push_hub.app import HUB
from push_hub.leases import LeaseBounds
from push_hub.retries import RetrySchedule

LOOPBACK = parse_networks(["127.0.0.0/8"])
PATIENCE = 60
"""Seconds until a test gives up on what it waits for; nothing is measured by it."""


async def until(condition, what="the condition"):
    """Wait until it holds; the time-out only says that it never will."""
    for _ in range(PATIENCE * 100):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{what} never held")


@asynccontextmanager
async def served(app, port=0):
    """Serve it; with port 0 where nobody has to know the port before."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    with socket.create_server(("127.0.0.1", port), backlog=128) as listening:
        await web.SockSite(runner, listening).start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            await stop_accepting(listening)
            await runner.cleanup()


class Site:
    """A publisher: pages by path, with ETags; `hooks` replace the answer of a path."""

    def __init__(self):
        self.pages = {}
        self.hooks = {}
        self.requests = []
        self.url = ""

    def put(self, path, body, content_type="text/plain; charset=utf-8", **headers):
        self.pages[path] = (body, {"Content-Type": content_type, **headers})
        return self.url + path

    async def answer(self, request):
        self.requests.append(request)
        if request.path in self.hooks:
            return await self.hooks[request.path](request)
        if request.path not in self.pages:
            return web.Response(status=404)
        body, headers = self.pages[request.path]
        etag = f'"{hashlib.md5(body).hexdigest()}"'
        if request.headers.get("If-None-Match") == etag:
            return web.Response(status=304, headers={"ETag": etag})
        return web.Response(body=body, headers={"ETag": etag, **headers})

    def fetches(self, path):
        return [each for each in self.requests if each.path == path]


@dataclass
class Received:
    """A delivery."""

    path: str
    body: bytes
    headers: dict


@dataclass
class Reader:
    """Callbacks. `verify` and `receive` may be replaced by what a test wants to happen."""

    url: str = ""
    verifications: list = field(default_factory=list)
    denials: list = field(default_factory=list)
    received: list[Received] = field(default_factory=list)
    verify: object = None
    receive: object = None

    async def get(self, request):
        if request.query.get("hub.mode") == "denied":
            self.denials.append(request)
            return web.Response()
        self.verifications.append(request)
        if self.verify is not None:
            return await self.verify(request)
        return web.Response(text=request.query["hub.challenge"])

    async def post(self, request):
        body = await request.read()
        self.received.append(Received(request.path_qs, body, request.headers.copy()))
        return await self.receive(request) if self.receive is not None else web.Response()

    def at(self, path):
        return [each for each in self.received if each.path == path]


@dataclass
class World:
    """The three, and a client."""

    hub_url: str
    hub: object
    site: Site
    reader: Reader
    client: aiohttp.ClientSession

    async def post(self, *pairs, **fields):
        """Send a form to the hub; underscores stand for the prefix `hub.`."""
        form = [*((f"hub.{name}", value) for name, value in fields.items()), *pairs]
        async with self.client.post(f"{self.hub_url}/hub", data=form) as answer:
            return answer.status, await answer.text()

    async def subscribe(self, topic, path="/cb", **more):
        before = self.hub.counters["verifications_confirmed"]
        status, text = await self.post(
            mode="subscribe", topic=topic, callback=self.reader.url + path, **more
        )
        assert status == 202, text
        await until(lambda: self.hub.counters["verifications_confirmed"] > before, "confirmation")
        await until_async(self.settled, "verifications")

    async def settled(self):
        return (await self.hub.store.statistics()).verifications == 0

    async def ping(self, *topics):
        status, text = await self.post(*[("hub.url", each) for each in topics], mode="publish")
        assert status == 204, text

    async def subscription(self, topic, path="/cb"):
        return await self.hub.store.subscription(topic, self.reader.url + path)


async def until_async(condition, what):
    for _ in range(PATIENCE * 50):
        if await condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{what} never held")


def chosen(**changes):
    """Settings for the loopback interface, with retries that do not keep a test waiting.

    Time-outs are generous, so that answers are in time however slow the machine is: a test of a
    server that does not answer sets its own. No topic is rechecked unless a test says so: those of
    the tests look as if a cache may have answered.
    """
    defaults = {
        "public_url": "https://hub.example",
        "allow_fetch": LOOPBACK,
        "allow_callback": LOOPBACK,
        "leases": LeaseBounds(default=1000, shortest=1, longest=5000),
        "delivery_retries": RetrySchedule(first=0.05, factor=1.5, longest=2.0, attempts=4),
        "fetch_retries": RetrySchedule(first=0.05, factor=1.5, longest=2.0, attempts=3),
        "verification_retries": RetrySchedule(first=0.05, longest=0.1, attempts=2),
        "callback_timeout": 30.0,
        "fetch_timeout": 30.0,
        "follow_after": None,
        "recheck_after": (),
    }
    return HubSettings(**{**defaults, **changes})


@asynccontextmanager
async def world(data, trace=None, port=0, carrier=None, guide=None, started=None, **changes):
    site, reader = Site(), Reader()
    site_app = web.Application()
    site_app.router.add_get("/{path:.*}", site.answer)
    reader_app = web.Application(client_max_size=64 << 20)
    reader_app.router.add_get("/{path:.*}", reader.get)
    reader_app.router.add_post("/{path:.*}", reader.post)
    app = create_app(
        chosen(**changes), data, trace=trace, carrier=carrier, guide=guide, started=started
    )
    async with (
        served(site_app) as site.url,
        served(reader_app) as reader.url,
        served(app, port) as hub_url,
        aiohttp.ClientSession() as client,
    ):
        yield World(hub_url, app[HUB], site, reader, client)


def run(main):
    """Run a test's coroutine, within a time."""
    return asyncio.run(asyncio.wait_for(main, 150))
