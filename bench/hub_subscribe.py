"""Verified subscriptions a second, beside a bare server that verifies and stores nothing.

    ours    `psph hub` as it ships: each request is on disk before it is answered, and each
            confirmation before the subscription counts
    bare    an aiohttp application that reads the form, answers 202, asks the callback and compares
            the challenge: no rules, no limits, no memory

They take turns in rounds, with callbacks nobody saw before. A round ends when the last of its
subscriptions is confirmed; those of ours are then counted in the database.
"""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack, closing
from pathlib import Path
from statistics import median
from urllib.request import urlopen

import aiohttp
from aiohttp import web

from bench.hub_processes import PATIENCE, HubProcess, Sink, start_hub, start_sink
from demo.ports import HOST
from psirp_sim.runtime import loop

AT_ONCE = 64


def run(subscriptions: int = 1_000, rounds: int = 5) -> dict[str, object]:
    """Subscriptions a second, each verified and on disk."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="psph-bench-")))
        sink = start_sink(stack, directory / "sink")
        hub = start_hub(stack, directory / "hub")
        bare = _start_bare(stack)
        counts: dict[str, tuple[str, Callable[[], int]]] = {
            "ours": (hub.url, lambda: hub.count("verifications_confirmed")),
            "bare": (bare, lambda: _bare_count(bare)),
        }
        took: dict[str, list[float]] = {name: [] for name in counts}
        answered: list[float] = []
        cpu = 0.0
        for number in range(rounds + 1):
            for name, (url, count) in counts.items():
                before = hub.cpu()
                began = time.monotonic()
                latencies = loop.run(_subscribe(url, sink, number * subscriptions, subscriptions))
                _wait(count, (number + 1) * subscriptions)
                if number == 0:
                    continue  # connections are made, programs become warm
                took[name].append(time.monotonic() - began)
                if name == "ours":
                    cpu += hub.cpu() - before
                    answered += latencies
        active = _active(hub)
    if active != subscriptions * (rounds + 1):
        raise RuntimeError(f"{active} subscriptions are active, not {subscriptions * (rounds + 1)}")
    pairs = zip(took["bare"], took["ours"], strict=True)
    answered.sort()
    return {
        "ratios": {"vs_bare_server": round(median(bare / ours for bare, ours in pairs), 3)},
        "figures": {
            "verified_per_s": round(subscriptions / median(took["ours"])),
            "bare_verified_per_s": round(subscriptions / median(took["bare"])),
            "answer_ms_p50": round(answered[len(answered) // 2] * 1e3, 1),
            "answer_ms_p99": round(answered[len(answered) * 99 // 100] * 1e3, 1),
            "cpu_us_per_subscription": round(cpu / rounds / subscriptions * 1e6),
            "subscriptions_verified": active,
        },
        "notes": [
            f"median of {rounds} rounds of {subscriptions} requests, {AT_ONCE} clients at "
            "once, each with an address of its own, all to one topic and one callback host; the "
            f"sink was {sink.kind}",
            "from the first request until the last subscription is confirmed; every one was then "
            "counted in the database",
            "bare: an aiohttp server that verifies but checks, limits and stores nothing: a floor",
        ],
    }


async def _subscribe(url: str, sink: Sink, first: int, count: int) -> list[float]:
    """Send the requests; the seconds until each was answered."""
    numbers = iter(range(first, first + count))
    latencies: list[float] = []

    async def some(client: aiohttp.ClientSession) -> None:
        for number in numbers:
            form = {"hub.mode": "subscribe", "hub.topic": f"{sink.url}/topics/feed.atom",
                    "hub.callback": sink.callback(number), "hub.secret": "secret"}  # fmt: skip
            began = time.monotonic()
            async with client.post(f"{url}/hub", data=form) as answer:
                if answer.status != 202:
                    raise RuntimeError(f"the hub answered {answer.status}: {await answer.text()}")
            latencies.append(time.monotonic() - began)

    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        for each in range(AT_ONCE):
            # Each from an address of its own: the hub limits how much one client may ask.
            address = f"127.0.3.{each + 1}" if sys.platform == "linux" else HOST
            connector = aiohttp.TCPConnector(local_addr=(address, 0))
            session = aiohttp.ClientSession(connector=connector)
            group.create_task(some(await stack.enter_async_context(session)))
    return latencies


def _wait(count: Callable[[], int], expected: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while (found := count()) < expected:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{found} of {expected} subscriptions were verified")
        time.sleep(0.02)


def _active(hub: HubProcess) -> int:
    with closing(sqlite3.connect(hub.data / "hub.sqlite", timeout=PATIENCE)) as database:
        (count,) = database.execute(
            "SELECT count(*) FROM subscriptions WHERE state = 'active'"
        ).fetchone()
    return int(count)


# The bare server, in its own process


def _start_bare(stack: ExitStack) -> str:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.hub_subscribe"], stdout=subprocess.PIPE, text=True
    )
    stack.enter_context(process)
    stack.callback(process.kill)
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _bare_count(url: str) -> int:
    with urlopen(f"{url}/count", timeout=PATIENCE) as answer:
        return int(answer.read())


async def _bare() -> None:
    confirmed: set[tuple[str, str]] = set()
    tasks: set[asyncio.Task[None]] = set()

    async def verify(topic: str, callback: str) -> None:
        challenge = secrets.token_urlsafe(32)
        asked = {"hub.mode": "subscribe", "hub.topic": topic, "hub.challenge": challenge}
        async with client.get(callback, params=asked) as answer:
            if await answer.text() == challenge:
                confirmed.add((topic, callback))

    async def subscribe(request: web.Request) -> web.Response:
        form = await request.post()
        task = asyncio.create_task(verify(str(form["hub.topic"]), str(form["hub.callback"])))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return web.Response(status=202)

    async def count(request: web.Request) -> web.Response:
        return web.Response(text=str(len(confirmed)))

    app = web.Application()
    app.router.add_post("/hub", subscribe)
    app.router.add_get("/count", count)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, HOST, 0, backlog=1024).start()
    async with aiohttp.ClientSession() as client:
        print(f"http://{HOST}:{runner.addresses[0][1]}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    loop.run(_bare())
