"""Subscriptions to feeds that were published before, over two PSPHs, a fabric and real sockets.

The feeds are those of a website in domain B, which sends them to its hub: a ping is not followed up
until somebody wants the topic. The subscriber is in domain A. PSPHs, name server and fabric are
processes that run `psph serve` with their defaults. One feed is subscribed to at a time, each of
them once: what a PSPH has had once, it has.

The subscriber is a stream. A callback is pushed nothing that was there before it was confirmed; a
stream begins with the current version, which is what the source's subscribers got.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

import aiohttp
import pyarrow.dataset as ds

from bench.crossing_site import Site
from bench.crossing_world import B, World, start_world
from psirp_sim.runtime import loop
from traces import Stage

SMALLEST = 287
"""Bytes of the smallest feed of the source; ours can be as small."""
PER_ENTRY = 16_000
"""Bytes of content in one entry: streams show no more than 20,000 characters of it."""
FILLING = "z"
"""The content; nothing else in a feed has this letter."""
MOST = 900
"""Feeds: a PSPH offers the fabric 1,000 that nobody has asked for."""
WARM_UP = 10
"""Subscriptions that are not counted: connections are made, and the zone is looked up."""
PAUSE = 0.02
"""Seconds before each subscription: what the one before has left to do is done."""
PATIENCE = 60.0
"""Seconds after which something is not waited for any more."""
LARGEST_EVENT = 16 << 20


@dataclass(frozen=True, slots=True)
class Trip:
    """One subscription. Milliseconds."""

    size: int
    process: float
    """ProcessD, by the subscriber: from sending the request until the feed is there."""
    total_push: float
    """TotalPushD, by the traces of PSPH A: from having the subscription until having sent the feed
    on."""
    fabric: float
    """Of that, until the fabric has delivered the feed."""


def feed(number: int, size: int) -> bytes:
    """An Atom feed of this many bytes; it is unlike all others."""
    head = (
        '<feed xmlns="http://www.w3.org/2005/Atom"><title>n</title><id>urn:n</id>'
        "<updated>2026-01-01T00:00:00Z</updated>"
    )
    tail = "</feed>"
    count = max(1, -(-size // PER_ENTRY))
    entries = [
        (
            f"<entry><id>urn:n:{number}:{each}</id><title>{number}</title>"
            "<updated>2026-01-01T00:00:00Z</updated><content>",
            "</content></entry>",
        )
        for each in range(count)
    ]
    room = size - len(head) - len(tail) - sum(map(len, (part for each in entries for part in each)))
    if room < 0:
        raise ValueError(f"a feed has at least {size - room} bytes")
    body = "".join(
        begin + FILLING * (room // count + (each < room % count)) + end
        for each, (begin, end) in enumerate(entries)
    )
    return (head + body + tail).encode()


def subscribe_to_all(sizes: Sequence[int], progress: Callable[[float], None]) -> list[Trip]:
    """A trip for each size, in this order."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="psph-payload-")))
        world = start_world(stack, directory / "world")
        subscriber = Subscriber(world, sizes, progress)
        loop.run(subscriber.run())
        world.a.stop()  # it writes down the last traces
        return subscriber.trips(world.a.hub.data / "traces")


class Subscriber:
    """Publisher in domain B and subscriber in domain A, in one event loop."""

    def __init__(
        self, world: World, sizes: Sequence[int], progress: Callable[[float], None]
    ) -> None:
        if len(sizes) > MOST:
            raise ValueError(f"at most {MOST} feeds can be offered")
        self._world = world
        self._progress = progress
        self._sizes = dict(enumerate([SMALLEST] * WARM_UP + list(sizes)))
        self._topics: dict[int, str] = {}
        self._took: dict[int, int] = {}

    async def run(self) -> None:
        async with AsyncExitStack() as stack:
            site = await stack.enter_async_context(Site(B, f"{self._world.b.url}/hub"))
            async with aiohttp.ClientSession() as session:
                for number, size in self._sizes.items():
                    body = feed(number, size)
                    site.put(str(number), body)
                    self._topics[number] = site.topic(str(number))
                    await self._publish(session, self._topics[number], body)
                await self._wait_until_offered(session)
            for number in self._sizes:
                await asyncio.sleep(PAUSE)
                self._took[number] = await self._subscribe(number)
                self._progress((number + 1) / len(self._sizes))

    async def _publish(self, session: aiohttp.ClientSession, topic: str, body: bytes) -> None:
        token = {"Authorization": f"Bearer {self._world.b.hub.token()}"}
        async with session.post(
            f"{self._world.b.url}/publish",
            params={"topic": topic},
            data=body,
            headers=token | {"Content-Type": "application/atom+xml"},
        ) as answer:
            if answer.status != 201:
                raise RuntimeError(f"a feed was answered {answer.status}: {await answer.text()}")

    async def _wait_until_offered(self, session: aiohttp.ClientSession) -> None:
        """The fabric has all feeds."""
        deadline, missing = time.monotonic() + PATIENCE, len(self._topics)
        while missing:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{missing} of {len(self._topics)} feeds were not published")
            await asyncio.sleep(0.2)
            async with session.get(f"{self._world.b.admin}/proxy/status") as answer:
                published = (await answer.json())["published"]
            missing = sum(
                not (published.get(topic, {}).get("open") and published[topic]["last"])
                for topic in self._topics.values()
            )

    async def _subscribe(self, number: int) -> int:
        """Nanoseconds from the request until the feed is there."""
        hub = urlsplit(self._world.a.url)
        # Version 1.0, in which the events come as they are and not in chunks.
        path = f"/stream?topic={quote(self._topics[number], safe='')}"
        request = f"GET {path} HTTP/1.0\r\nHost: {hub.netloc}\r\n\r\n".encode()
        reader, writer = await asyncio.open_connection(hub.hostname, hub.port, limit=LARGEST_EVENT)
        try:
            async with asyncio.timeout(PATIENCE):
                begun = time.monotonic_ns()
                writer.write(request)
                while not (line := await reader.readuntil(b"\n")).startswith(b"data: "):
                    pass
                took = time.monotonic_ns() - begun
        except (TimeoutError, asyncio.IncompleteReadError):
            raise RuntimeError(f"nothing came of {self._topics[number]}") from None
        finally:
            writer.close()
            await writer.wait_closed()
        came = sum(len(entry["content"]) for entry in json.loads(line[6:])["entries"])
        if came != feed(number, self._sizes[number]).count(FILLING.encode()):
            raise RuntimeError(f"{self._topics[number]} did not come as it was published")
        return took

    def trips(self, traces: Path) -> list[Trip]:
        """What was measured, with what PSPH A has written down of it."""
        stages: dict[str, dict[str, int]] = {}
        topics: dict[str, str] = {}
        for event in ds.dataset(traces, ignore_prefixes=["_"]).to_table().to_pylist():
            match event["stage"]:
                case Stage.SUBSCRIBED:
                    stages.setdefault(event["topic"], {})[Stage.SUBSCRIBED] = event["mono_ns"]
                case Stage.BROWSER_SENT:
                    stages.setdefault(event["topic"], {})[Stage.BROWSER_SENT] = event["mono_ns"]
                    topics[event["trace_id"]] = event["topic"]
                case Stage.DELIVERED if event["trace_id"] is not None:
                    stages.setdefault(event["trace_id"], {})[Stage.DELIVERED] = event["mono_ns"]
        for trace_id, topic in topics.items():
            stages[topic] |= stages[trace_id]
        return [self._trip(number, stages) for number in list(self._sizes)[WARM_UP:]]

    def _trip(self, number: int, stages: dict[str, dict[str, int]]) -> Trip:
        at = stages[self._topics[number]]
        begun = at[Stage.SUBSCRIBED]
        return Trip(
            self._sizes[number],
            self._took[number] / 1e6,
            (at[Stage.BROWSER_SENT] - begun) / 1e6,
            (at[Stage.DELIVERED] - begun) / 1e6,
        )
