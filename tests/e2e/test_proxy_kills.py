"""A stream of versions crosses from one domain to the other while everything on its way dies once.

Nothing is lost. A browser stream and `psph subscribe` see each version once; a callback gets again
only what was on its way to it when its hub died.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field

import aiohttp
import pytest
from aiohttp import web

from identifiers import Position, PublisherId
from tests.e2e.domains import PSPH, Domains
from tests.e2e.node_process import PATIENCE
from tests.sizes import size

VERSIONS = size(500, 2_000)
A, B = "site-a.test", "site-b.test"
TOPIC = f"http://news.{B}/direct"
DOWN = 1.0
"""Seconds for which something is dead."""
PAUSE = 0.008
"""Between two versions: the stream has to last for as long as there is something to kill. Even so
all of it is less than the histories keep, so that nobody is away for too long."""


@dataclass
class Readers:
    """What is seen in domain A."""

    callback: list[tuple[str, str]] = field(default_factory=list)
    """Delivery ids and bodies."""
    stream: list[tuple[str, str]] = field(default_factory=list)
    """Positions and bodies."""
    notices: list[str] = field(default_factory=list)
    """Events of the stream that are no updates."""
    watching: asyncio.Event = field(default_factory=asyncio.Event)
    in_flight: Counter = field(default_factory=Counter)
    """Delivery ids that were on their way when hub A died."""


async def serve_callback(readers):
    async def handle(request):
        if request.method == "GET":
            return web.Response(text=request.query.get("hub.challenge", ""))
        readers.callback.append((request.headers["X-Hub-Delivery"], await request.text()))
        return web.Response(status=204)

    app = web.Application()
    app.router.add_route("*", "/callback", handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}/callback"


async def watch(session, world, readers):
    """As a browser does: comes back with the id of the last event."""
    last = None
    while True:
        headers = {} if last is None else {"Last-Event-ID": last}
        try:
            async with session.get(
                f"{world.hub(A)}/stream", params={"topic": TOPIC}, headers=headers
            ) as stream:
                kind = None
                readers.watching.set()
                async for line in stream.content:
                    if line.startswith(b"event: "):
                        kind = line[7:].strip().decode()
                    elif line.startswith(b"id: "):
                        last = line[4:].strip().decode()
                    elif line.startswith(b"data: "):
                        data = json.loads(line[6:])
                        if kind is None:
                            readers.stream.append((data["position"], data["body_b64"]))
                        else:
                            readers.notices.append(f"{kind} {data}")
                        kind = None
        except aiohttp.ClientError:
            await asyncio.sleep(0.1)


async def publish_all(session, world, accepted):
    """One version after the other; one that is not answered may have been taken, or not."""
    token = world.token(B)
    for number in range(VERSIONS):
        while True:
            try:
                async with session.post(
                    f"{world.hub(B)}/publish",
                    params={"topic": TOPIC},
                    data=f"version {number}".encode(),
                    headers={"Authorization": f"Bearer {token}", "Content-Type": "text/plain"},
                ) as answer:
                    assert answer.status == 201, await answer.text()
                    accepted[(await answer.json())["position"]] = f"version {number}"
                    await asyncio.sleep(PAUSE)
                    break
            except aiohttp.ClientError:
                await asyncio.sleep(0.1)


async def kill_all(world, readers, accepted):
    """One after the other, in the middle of the stream; each is back after a while."""
    victims = [world.proxies[A], world.fabric[4], world.proxies[B], world.fabric[0], world.dns]
    for number, victim in enumerate(victims, 1):
        while len(accepted) < number * VERSIONS // (len(victims) + 1):
            await asyncio.sleep(0.02)
        await asyncio.to_thread(victim.kill)
        if victim is world.proxies[A]:
            readers.in_flight.update(in_flight(victim.directory / "data" / "hub.sqlite"))
        await asyncio.sleep(DOWN)
        victim.launch()
        await asyncio.to_thread(victim.ready)


def in_flight(database):
    """What a hub that is dead was delivering."""
    with closing(sqlite3.connect(database, timeout=30)) as connection:
        rows = connection.execute(
            "SELECT s.id, u.publisher, u.epoch, u.version FROM subscriptions s"
            " JOIN deliveries d ON d.id = s.in_flight JOIN updates u ON u.seq = d.seq"
        ).fetchall()
    return {f"{Position(PublisherId(row[1]), row[2], row[3])}-{row[0]}" for row in rows}


async def subscribe(session, world, callback):
    form = {"hub.mode": "subscribe", "hub.topic": TOPIC, "hub.callback": callback}
    async with session.post(f"{world.hub(A)}/hub", data=form) as answer:
        assert answer.status == 202, await answer.text()


async def until(condition, say):
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, say()
        await asyncio.sleep(0.1)


def active(world):
    """Subscriptions at A that were confirmed."""
    with closing(
        sqlite3.connect(world.proxies[A].directory / "data" / "hub.sqlite", timeout=30)
    ) as database:
        query = "SELECT count(*) FROM subscriptions WHERE state = 'active'"
        return database.execute(query).fetchone()[0]


async def cross(world):
    readers, accepted = Readers(), {}
    connector = aiohttp.TCPConnector(force_close=True)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=20)
    runner, callback = await serve_callback(readers)
    reader = await asyncio.create_subprocess_exec(
        *PSPH, "subscribe", "--json", "--hub", f"{world.hub(A)}/hub", TOPIC,
        stdout=asyncio.subprocess.PIPE, limit=1 << 20,
    )  # fmt: skip
    printed = []

    async def read():
        while line := await reader.stdout.readline():
            printed.append(json.loads(line))

    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        tasks = [asyncio.create_task(read()), asyncio.create_task(watch(session, world, readers))]
        try:
            await subscribe(session, world, callback)
            await until(lambda: active(world) == 2, lambda: "nobody is subscribed")
            await readers.watching.wait()
            async with asyncio.TaskGroup() as group:
                group.create_task(publish_all(session, world, accepted))
                group.create_task(kill_all(world, readers, accepted))
            last = max(map(Position.parse, accepted))

            def complete():
                return (
                    len({position for position, _ in readers.stream}) >= last.version
                    and len({identity for identity, _ in readers.callback}) >= last.version
                    and len(printed) >= last.version
                )

            await until(
                complete,
                lambda: (
                    f"{last}: the stream has {len(readers.stream)}, the callback"
                    f" {len(readers.callback)}, psph subscribe {len(printed)};"
                    f" {world.proxies[A].ask('/proxy/status')}"
                ),
            )
        finally:
            for task in tasks:
                task.cancel()
            reader.terminate()
            await reader.wait()
            await asyncio.gather(*tasks, return_exceptions=True)
            await runner.cleanup()
    return readers, accepted, printed, last


@pytest.mark.timeout(420)
def test_nothing_is_lost_between_domains_while_everything_dies_once(tmp_path):
    with Domains(tmp_path, [A, B], nodes=5) as world:
        world.start()
        readers, accepted, printed, last = asyncio.run(cross(world))

    expected = [str(Position(last.publisher, last.epoch, n)) for n in range(1, last.version + 1)]
    assert set(accepted) <= set(expected)
    # A version that was taken without an answer is in the stream all the same, and numbered once.
    assert [position for position, _ in readers.stream] == expected
    assert not readers.notices
    assert [each["position"] for each in printed] == expected
    firsts = list(dict.fromkeys(identity for identity, _ in readers.callback))
    assert [identity.rpartition("-")[0] for identity in firsts] == expected
    repeats = Counter(identity for identity, _ in readers.callback)
    for identity, count in repeats.items():
        assert count - 1 <= readers.in_flight[identity], f"{identity} came {count} times"
    for identity, body in readers.callback:
        assert accepted.get(identity.rpartition("-")[0], body) == body
    print(
        f"{len(expected)} versions, {len(accepted)} of them answered; {sum(repeats.values())} posts"
    )
