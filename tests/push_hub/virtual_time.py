"""The shipped distributor and store in virtual time: hours of an outage pass in milliseconds.

Sockets cannot: callbacks are a function that says whether a host answers at that time.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import SimpleNamespace

import aiohttp

from identifiers import PublisherId
from push_hub import HubSettings
from push_hub.carrying import Carrying
from push_hub.context import Context
from push_hub.distribution import Distributor
from push_hub.metrics import HubMetrics
from push_hub.naming import Naming
from push_hub.store.records import Identity, Origin
from push_hub.store.sqlite import SqliteStore
from push_hub.store.sqlite_schema import migrate
from push_hub.tracing import Tracer
from tests.push_hub.store.stores import publish, subscribe
from traces import NullSink

MINUTE, HOUR = 60.0, 3_600.0
LEASE = 10 * 86_400


class VirtualLoop(asyncio.SelectorEventLoop):
    """Whenever everything waits, the time of the earliest timer has come."""

    def __init__(self):
        super().__init__()
        self.now = 1_000_000.0
        select = self._selector.select

        def passing(timeout):
            if timeout:
                self.now += timeout
            return select(0)

        self._selector.select = passing

    def time(self):
        return self.now


class _DirectEngine:
    """What the store's threads do, at once."""

    identity = Identity(PublisherId(bytes(16)), 1)

    def __init__(self):
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        self._connection.row_factory = sqlite3.Row
        migrate(self._connection)

    async def write(self, operation):
        return operation(self._connection)

    read = write


@dataclass
class Post:
    """A delivery that was attempted."""

    at: float
    callback: str
    body: bytes
    answered: bool


class Callbacks:
    """In the place of an aiohttp session: `is_up(url, time)` says who answers."""

    def __init__(self, loop, is_up, retry_after=None):
        self._loop = loop
        self._is_up = is_up
        self._retry_after = retry_after
        self.posts: list[Post] = []

    @asynccontextmanager
    async def post(self, url, *, data, headers, allow_redirects):
        up = self._is_up(str(url), self._loop.time())
        self.posts.append(Post(self._loop.time(), str(url), data._value, up))
        await asyncio.sleep(0.01)
        if not up and self._retry_after is None:
            raise aiohttp.ClientConnectionError("nobody is there")
        headers = {} if up else {"Retry-After": self._retry_after}
        yield SimpleNamespace(
            status=200 if up else 503, headers=headers, content=aiohttp.EMPTY_PAYLOAD
        )


class Outage:
    """A hub whose subscribers are away for a while."""

    def __init__(self, loop, callbacks, **settings):
        self.loop = loop
        self.callbacks = callbacks
        self._engine = _DirectEngine()
        self.settings = HubSettings("http://hub.example", **settings)

    async def begin(self):
        self.store = SqliteStore(self._engine)
        self.context = Context(
            self.settings, self.store, Tracer(NullSink(), "hub", "local"), self.loop.time,
            Naming("http://hub.example"), Carrying(Naming("http://hub.example"), 1, 1),
            HubMetrics(),
        )  # fmt: skip
        self.distributor = Distributor(self.context, self.callbacks)
        await self.distributor.start()

    async def subscribe(self, callback, topic):
        await subscribe(self.store, callback, lease=LEASE, now=self.loop.time(), topic=topic)

    async def publish(self, body, topic, origin=Origin.FETCHED):
        now = self.loop.time()
        recorded = await publish(self.store, body, origin=origin, topic=topic, now=now)
        self.distributor.recorded(recorded)

    async def lane(self, callback, topic):
        return await self.store.subscription(topic, callback)


def simulate(story, is_up, *, seed=0, retry_after=None, **settings):
    """Run `story(outage)` in virtual time; what it returns."""
    random.seed(seed)
    loop = VirtualLoop()
    outage = Outage(loop, Callbacks(loop, is_up, retry_after), **settings)

    async def main():
        await outage.begin()
        try:
            return await story(outage)
        finally:
            await outage.distributor.stop(0)

    try:
        return loop.run_until_complete(main())
    finally:
        loop.close()
