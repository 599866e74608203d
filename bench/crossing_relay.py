"""The reference of the crossing: a bare aiohttp process that passes on what it is sent.

Asked to fetch, it answers, gets that URL and posts what it got; otherwise it posts the body it was
sent and answers then. Nothing is looked at, kept or numbered.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import ExitStack

import aiohttp
from aiohttp import web

from psirp_sim.runtime import loop


def start_relay(stack: ExitStack) -> str:
    """Its URL. It runs until the stack is left, which ends its input."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.crossing_relay"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    stack.enter_context(process)
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.startswith("ready "):
        raise RuntimeError("the reference did not start")
    return line.split()[1]


class Relay:
    """One HTTP exchange in, one out; in between a third when something is to be fetched."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._tasks: set[asyncio.Task[None]] = set()

    async def handle(self, request: web.Request) -> web.Response:
        to, topic = request.query["to"], request.query.get("fetch")
        body = await request.read()
        if topic is None:
            await self._post(to, body, request.content_type)
        else:
            # As a hub does: who pings does not wait for the fetch.
            task = asyncio.create_task(self._fetch_and_post(topic, to))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return web.Response(status=204)

    async def _fetch_and_post(self, topic: str, to: str) -> None:
        async with self._session.get(topic) as found:
            body = await found.read()
        await self._post(to, body, found.content_type)

    async def _post(self, to: str, body: bytes, kind: str) -> None:
        async with self._session.post(to, data=body, headers={"Content-Type": kind}) as answer:
            await answer.read()


async def _main() -> None:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        app = web.Application()
        app.router.add_post("/", Relay(session).handle)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        print(f"ready http://127.0.0.1:{runner.addresses[0][1]}/", flush=True)
        # Until nobody is there to ask any more.
        await asyncio.to_thread(sys.stdin.read)
        await runner.cleanup()


if __name__ == "__main__":
    loop.run(_main())
