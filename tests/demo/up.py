"""A running `psph up` for tests, and a page that remembers what it was sent."""

from __future__ import annotations

import asyncio
import json
import queue
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import aiohttp

PATIENCE = 60
"""Seconds until a test gives up; nothing is measured by it."""
# -P: commands are those that are installed, not those of an old build in the folder one is in.
PSPH = [sys.executable, "-P", "-c", "from psph.cli import main; main()"]


@contextmanager
def running(directory, *options):
    """The first line of a world that runs, and its process."""
    process = subprocess.Popen(
        [*PSPH, "up", "--port", "0", "--data", directory, *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    lines = queue.Queue()
    reader = threading.Thread(target=lambda: lines.put(process.stdout.readline()))
    reader.start()
    try:
        line = lines.get(timeout=PATIENCE)
        assert line.startswith("ready "), line + process.stderr.read()
        yield line.strip(), process
    finally:
        process.terminate()
        try:
            process.wait(30)
        finally:
            process.kill()
            reader.join()
            process.stdout.close()
            process.stderr.close()


async def until(condition, what="the condition"):
    """Wait until it holds; what it answers then. The time-out only says that it never will."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found = condition()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return found
        await asyncio.sleep(0.02)
    raise AssertionError(f"{what} never held")


class Reader:
    """A page without a browser: the API, and every event that came."""

    def __init__(self, url, name="reader", after=""):
        """`after`: where another stream of the page has been."""
        self.url = url
        self.name = name
        self._after = after
        self.events = []
        self.last_id = None

    async def __aenter__(self):
        self.session = aiohttp.ClientSession()
        self.world = await self.get("/api/world")
        self._listening = asyncio.create_task(self._listen())
        await until(lambda: self.of("hello"), "hello")
        return self

    async def __aexit__(self, *_):
        await self.leave()
        await self.session.close()

    async def leave(self):
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)

    async def _listen(self):
        headers = {} if self.last_id is None else {"Last-Event-ID": self.last_id}
        kind = "message"
        async with self.session.get(
            f"{self.url}/api/events", params={"page": self.name, "after": self._after},
            headers=headers,
            timeout=aiohttp.ClientTimeout(),
        ) as answer:  # fmt: skip
            assert answer.status == 200
            async for raw in answer.content:
                name, _, value = raw.decode().rstrip("\n").partition(": ")
                if name == "event":
                    kind = value
                elif name == "id":
                    self.last_id = value
                elif name == "data":
                    self.events.append((kind, json.loads(value)))

    def of(self, kind):
        return [data for each, data in self.events if each == kind]

    def titles(self):
        return [entry["title"] for data in self.of("update") for entry in data["entries"]]

    async def get(self, path):
        async with self.session.get(f"{self.url}{path}") as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def ask(self, method, path, body):
        data = body if isinstance(body, bytes) else json.dumps(body)
        async with self.session.request(method, f"{self.url}{path}", data=data) as answer:
            return answer.status, json.loads(await answer.text())

    async def wish(self, **wishes):
        status, answer = await self.ask("PUT", f"/api/pages/{self.name}", wishes)
        assert status == 200, answer

    async def publish(self, topic, text):
        body = {"topic": topic, "text": text}
        status, answer = await self.ask("POST", "/api/topics/publish", body)
        assert status == 201, answer
        return answer

    def topic(self, domain, number=1):
        """The second feed of a site grows only when a test adds to it."""
        return self.world["domains"][domain]["topics"][number]
