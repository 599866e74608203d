"""A domain with two PSPHs, and a thousand readers at one of them, which dies while they read.

All find the other one by DNS and go on from their Positions: nobody misses a version, or gets one
twice, or out of order. The same holds for who reads at a hub of its own in that domain.
"""

from __future__ import annotations

import asyncio
import json
import resource
import time
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import pytest

from bootstrap import Resolver
from bootstrap.http_resolver import ZoneResolver
from identifiers import Position, identify
from psph.guide import DomainHubs
from push_hub.client import StreamFollower, StreamUpdate
from tests.e2e.domains import PSPH
from tests.e2e.failover.names import FIRST, SECOND, A, B
from tests.e2e.node_process import PATIENCE
from tests.e2e.proxies.test_proxy_guided import hub_alone
from tests.sizes import size

READERS, FEW = size(200, 1_000), 25
VERSIONS = size(20, 40)


class Reader:
    """One who follows, and notes what comes."""

    def __init__(self, follower):
        self.follower = follower
        self.seen = []
        self.notices = []

    async def read(self):
        async for event in self.follower:
            if isinstance(event, StreamUpdate):
                self.seen.append(event.position)
            else:
                self.notices.append(event)


@asynccontextmanager
async def readers(world, topic, count, words):
    """So many who found the PSPHs of their domain by DNS."""
    server = f"127.0.0.1:{world.dns_port}"
    names = ZoneResolver([A], [server])
    connector = aiohttp.TCPConnector(limit=0, resolver=names)
    async with (
        Resolver([server]) as resolver,
        aiohttp.ClientSession(connector=connector) as session,
        AsyncExitStack() as stack,
    ):
        stack.push_async_callback(names.close)
        hubs = DomainHubs(resolver, A, identify(topic))
        found = [
            Reader(
                await stack.enter_async_context(
                    StreamFollower(
                        [topic], hubs, session=session, told=words.append,
                        failed=hubs.failed, worked=hubs.worked,
                    )
                )
            )
            for _ in range(count)
        ]  # fmt: skip
        tasks = [asyncio.create_task(each.read()) for each in found]
        try:
            yield found
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def reader_of_its_own_hub(session, world, topic, directory):
    """Somebody at a `psph hub` of the domain, once that follows the topic at a PSPH."""
    directory.mkdir()

    async def only():
        return [hub]

    async def followed():
        params = {"url": topic, "format": "json"}
        async with session.get(f"{hub}/topics", params=params) as answer:
            words = (await answer.json())["watched"] if answer.status == 200 else []
        return any("the hub of our domain, by stream" in each for each in words)

    async with (
        hub_alone(world, directory) as hub,
        StreamFollower([topic], only) as follower,
    ):
        reader = Reader(follower)
        task = asyncio.create_task(reader.read())
        try:
            async with asyncio.timeout(PATIENCE):
                while not await followed():
                    await asyncio.sleep(0.1)
            yield reader
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def publish(session, world, topic, number):
    token = world.token(B)
    async with session.post(
        f"{world.hub(B)}/publish",
        params={"topic": topic},
        data=f"version {number}".encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "text/plain"},
    ) as answer:
        assert answer.status == 201, await answer.text()
        return Position.parse((await answer.json())["position"])


async def until(condition, say):
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, say()
        await asyncio.sleep(0.1)


async def watch(session, hub, topic, seen):
    """Somebody else who reads at a PSPH, for as long as it is there."""
    async with session.get(f"{hub}/stream", params={"topic": topic}) as stream:
        async for line in stream.content:
            if line.startswith(b"id: "):
                seen.add(hub)


def behind(found, last):
    """How many readers are where, of those who do not have the last version."""
    late = [each.seen[-1:] for each in found if each.seen[-1:] != [last]]
    return f"{len(late)} of {len(found)} readers are behind {last}, for instance at {late[:3]}"


async def fail_over(world, topic, directory, count, warm, words):
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=20)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        reader_of_its_own_hub(session, world, topic, directory / "alone") as alone,
        readers(world, topic, count, words) as found,
    ):
        watched = {world.hub(each) for each in (FIRST, SECOND)} if warm else set()
        seen = set()
        others = [asyncio.create_task(watch(session, hub, topic, seen)) for hub in watched]
        try:
            await until(
                lambda: all(each.follower.hub for each in found), lambda: f"not all: {words[:5]}"
            )
            # Readers of one topic meet at one PSPH; who found it too slow is at the other already.
            at, there = Counter(each.follower.hub for each in found).most_common(1)[0]
            assert there > count / 2
            killed = FIRST if str(world.hub_ports[FIRST]) in at else SECOND
            accepted = [await publish(session, world, topic, 1)]
            await until(
                lambda: all(each.seen == accepted for each in (*found, alone)),
                lambda: behind([*found, alone], accepted[0]),
            )
            await until(lambda: seen == watched, lambda: f"only {seen} has the first version")
            moved = None
            for number in range(2, VERSIONS + 1):
                accepted.append(await publish(session, world, topic, number))
                await asyncio.sleep(0.1)
                if number == VERSIONS // 3:
                    await asyncio.to_thread(world.proxies[killed].kill)
                    moved = time.monotonic()
            await until(
                lambda: all(each.seen[-1] == accepted[-1] for each in (*found, alone)),
                lambda: (
                    f"{behind([*found, alone], accepted[-1])}; {words[-5:]};"
                    f" {world.proxies[SECOND if killed == FIRST else FIRST].ask('/proxy/status')}"
                ),
            )
            took = time.monotonic() - moved
        finally:
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
        return found, alone, accepted, at, there, took


@pytest.mark.timeout(420)
@pytest.mark.parametrize(("count", "warm"), [(READERS, False), (FEW, True)])
def test_readers_go_on_at_the_other_psph(world, tmp_path, count, warm):
    """`warm`: somebody reads the topic at the other one already, which so has what was before."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4 * count)), hard))
    words = []
    try:
        topic = f"http://news.{B}/{'warm' if warm else 'cold'}"
        found, alone, accepted, at, there, took = asyncio.run(
            fail_over(world, topic, tmp_path, count, warm, words)
        )
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for each in found:
        assert each.seen == accepted
        assert not each.notices
        assert each.follower.hub != at
    assert alone.seen == accepted
    assert not alone.notices
    assert sum("going on at" in each for each in words) >= there
    print(f"{count} readers, {VERSIONS} versions; all had the last {took:.1f} s after the kill")


@pytest.mark.timeout(300)
def test_psph_subscribe_goes_on_at_the_other_psph(world):
    topic = f"http://news.{B}/subscribed"

    async def follow():
        reader = await asyncio.create_subprocess_exec(
            *PSPH, "subscribe", topic, "--json", "--count", str(VERSIONS),
            "--domain", A, "--dns", f"127.0.0.1:{world.dns_port}",
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            async with aiohttp.ClientSession() as session:
                async with asyncio.timeout(PATIENCE):
                    line = (await reader.stderr.readline()).decode()
                assert line.startswith("following at "), line
                killed = FIRST if str(world.hub_ports[FIRST]) in line else SECOND
                accepted = [await publish(session, world, topic, 1)]
                async with asyncio.timeout(PATIENCE):
                    lines = [await reader.stdout.readline()]
                for number in range(2, VERSIONS + 1):
                    accepted.append(await publish(session, world, topic, number))
                    if number == VERSIONS // 2:
                        await asyncio.to_thread(world.proxies[killed].kill)
                    await asyncio.sleep(0.02)
                async with asyncio.timeout(PATIENCE):
                    while line := await reader.stdout.readline():
                        lines.append(line)
                assert [json.loads(each).get("position") for each in lines] == [*map(str, accepted)]
                assert await reader.wait() == 0
        finally:
            if reader.returncode is None:
                reader.kill()
            await reader.communicate()

    asyncio.run(follow())
