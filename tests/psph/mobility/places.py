"""Hubs with mobility proxies on real sockets of this process, fed as a fabric would feed them.

async with places(tmp_path, 2) as (a, b):
    await give((a, b), 1)      # version 1 of TOPIC arrives at both
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

from identifiers import Position, PublisherId, identify
from psph.configuration.mobility import MobilityConfiguration
from psph.hub_serving import serving
from psph.mobility.proxy import RunningProxy
from push_hub import HubSettings, Publisher, create_app
from push_hub.addresses import parse_networks
from push_hub.keys import HUB
from tests.ports import free_port
from traces import NullSink

TOPIC = "http://news.site-b.test/feed"
PUBLISHER = PublisherId(b"publisher of it.")
TOKEN = "a token to publish with"
LOOPBACK = ["127.0.0.0/8"]


class Place:
    """One hub and its proxy, which may be stopped for a while."""

    def __init__(self, directory, port, events, options, history):
        self.url = f"http://127.0.0.1:{port}"
        self.port = port
        self.directory = directory
        self._events, self._options, self._history = events, options, history
        self._stack = AsyncExitStack()
        directory.mkdir(exist_ok=True)

    @property
    def hub(self):
        return self.app[HUB]

    @property
    def core(self):
        return self.proxy.core

    def stays(self, state):
        return [each for each in self.core.handlers.values() if each.state == state]

    async def start(self):
        self.proxy = RunningProxy(
            MobilityConfiguration(**self._options),
            node=self.directory.name, domain="site-a.test",
            storage=self.directory / "mobility.sqlite", trace=self._events, history=1_024,
        )  # fmt: skip
        await self._stack.enter_async_context(serving("127.0.0.1", self.port, self._make))

    async def stop(self):
        await self._stack.aclose()

    @asynccontextmanager
    async def stopped(self):
        await self.stop()
        yield
        await self.start()

    def _make(self, url):
        settings = HubSettings(
            url, follow_after=None, history=self._history,
            publishers=(Publisher(TOKEN, "http"),), allow_fetch=parse_networks(LOOPBACK),
        )  # fmt: skip
        self.app = create_app(settings, self.directory, started=self._started)
        self.proxy.add(self.app, url)
        return self.app

    def _started(self, hub):
        self.published = []
        hub.listen(lambda update: self.published.append(update.body.decode()))


@asynccontextmanager
async def places(directory, count, events=None, history=1_024, **options):
    """`history`: versions that each hub keeps for streams that resume."""
    ports = [free_port() for _ in range(count)]
    options = {
        "peers": [f"http://127.0.0.1:{port}" for port in ports], "allow_peer": LOOPBACK,
        "grace_s": 0.2, **options,
    }  # fmt: skip
    events = NullSink() if events is None else events
    made = [
        Place(directory / f"place{n}", port, events, options, history)
        for n, port in enumerate(ports)
    ]
    async with AsyncExitStack() as stack:
        for place in made:
            await place.start()
            stack.push_async_callback(place.stop)
        yield made


async def give(where, *versions):
    """These versions of the topic arrive there."""
    for version in versions:
        for place in where:
            await place.hub.accept(
                identify(TOPIC), "text/plain", str(version).encode(),
                position=Position(PUBLISHER, 1, version), trace_id="", published=True,
            )  # fmt: skip


async def until(condition, seconds=30.0):
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


class Relay:
    """Stands between a client and a hub, and may fall silent: no byte more, no FIN."""

    def __init__(self, port, delay=0.0):
        self._to = port
        self._delay = delay
        self._open, self._answers = asyncio.Event(), asyncio.Event()
        self._open.set()
        self._answers.set()
        self._tasks = set()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def fall_silent(self):
        self._open.clear()
        self._answers.clear()

    def keep_answers(self):
        """The hub hears everything, and is not heard."""
        self._answers.clear()

    async def _serve(self, reader, writer):
        there, back = await asyncio.open_connection("127.0.0.1", self._to)
        for source, sink, way in (
            (reader, back, self._open), (there, writer, self._answers),
        ):  # fmt: skip
            task = asyncio.create_task(self._pump(source, sink, way))
            self._tasks.add(task)

    async def _pump(self, source, sink, way):
        try:
            while chunk := await source.read(65_536):
                await way.wait()
                await asyncio.sleep(self._delay)
                sink.write(chunk)
                await sink.drain()
            await way.wait()
        except ConnectionError:
            pass
        finally:
            sink.close()
