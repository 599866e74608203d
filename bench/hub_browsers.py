"""How soon an update reaches 1,000 browsers, and what a browser that waits costs.

The browsers are plain connections in a process of their own that ask for `/stream` and look for the
update's number in what comes. The hub is `psph hub` as it ships; content is sent to it directly, so
that no fetch is in the time. Memory is the resident memory of the hub's process, all of it, before
the first browser came and after the last one has.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, cast
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

from bench.hub_processes import PATIENCE, HubProcess, atom, start_hub
from psirp_sim.runtime import loop

TOPIC = "http://feeds.example.com/news.atom"


def run(browsers: int = 1_000, updates: int = 20) -> dict[str, object]:
    """Milliseconds until an update has reached 1,000 browsers; bytes of memory for each."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="psph-bench-")))
        hub = start_hub(stack, directory / "hub")
        _publish(hub, 0)
        before = hub.memory()
        began = time.monotonic()
        clients = _Clients(stack, hub.url, browsers)
        opened = time.monotonic() - began
        waiting = hub.memory()
        first: list[float] = []
        last: list[float] = []
        spent = hub.cpu()
        for number in range(1, updates + 1):
            at = time.time()
            _publish(hub, number)
            times = clients.saw(number)
            if len(times) != browsers:
                raise RuntimeError(f"{len(times)} of {browsers} browsers got update {number}")
            first.append(min(times) - at)
            last.append(max(times) - at)
        spent = hub.cpu() - spent
        after = hub.memory()
    return {
        "ratios": {},
        "figures": {
            "ms_to_reach_all_p50": round(median(last) * 1e3, 1),
            "ms_to_reach_all_worst": round(max(last) * 1e3, 1),
            "ms_to_reach_the_first_p50": round(median(first) * 1e3, 1),
            "events_per_s": round(browsers / median(last)),
            "kib_per_browser": round((waiting - before) / browsers / 1024, 1),
            "kib_per_browser_after_updates": round((after - before) / browsers / 1024, 1),
            "cpu_us_per_event": round(spent / updates / browsers * 1e6),
            "opened_per_s": round(browsers / opened),
            "events_verified": browsers * updates,
        },
        "notes": [
            f"{updates} updates of 1.6 kB, one after the other, to {browsers} streams; each stream "
            "got each update, which was checked",
            "from the publisher's request until the last browser had the event; the browsers are "
            "one process on the same machine, whose reading is in the time",
            "no ratio: nothing comparable is installed to measure beside it",
        ],
    }


def _publish(hub: HubProcess, number: int) -> None:
    request = Request(
        f"{hub.url}/publish?topic={quote(TOPIC, safe='')}",
        atom(number),
        {"Authorization": f"Bearer {hub.token()}", "Content-Type": "application/atom+xml"},
    )
    with urlopen(request, timeout=PATIENCE) as answer:
        answer.read()


class _Clients:
    """The process of the browsers."""

    def __init__(self, stack: ExitStack, url: str, count: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.hub_browsers", url, str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        stack.enter_context(self._process)
        stack.callback(self._process.kill)
        self._answer()  # all have got what is current

    def saw(self, number: int) -> list[float]:
        """When each browser had the update."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{number}\n")
        self._process.stdin.flush()
        found: list[float] = self._answer()
        return found

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the browsers are gone")
        return json.loads(line)


class _Browser(asyncio.Protocol):
    """A connection that notes when it saw which update."""

    def __init__(self, request: bytes, seen: dict[int, list[float]], news: asyncio.Event) -> None:
        self._request = request
        self._seen = seen
        self._news = news
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data: "):
                number = int(line.split(b"urn:news:")[1].split(b'"')[0])
                self._seen.setdefault(number, []).append(time.time())
                self._news.set()


async def _browse(url: str, count: int) -> None:
    parts = urlsplit(url)
    request = (
        f"GET /stream?topic={quote(TOPIC, safe='')} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
        "Accept: text/event-stream\r\n\r\n"
    ).encode()
    seen: dict[int, list[float]] = {}
    news = asyncio.Event()
    running = asyncio.get_running_loop()
    questions = asyncio.StreamReader()
    await running.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(questions), sys.stdin)
    slots = asyncio.Semaphore(64)

    async def browser() -> None:
        async with slots:
            await running.create_connection(
                lambda: _Browser(request, seen, news), parts.hostname or "", parts.port or 80
            )

    async def all_saw(number: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while len(seen.get(number, ())) < count:
                news.clear()
                await news.wait()

    await asyncio.gather(*(browser() for _ in range(count)))
    await all_saw(0)
    print(json.dumps(None), flush=True)
    while line := await questions.readline():
        await all_saw(int(line))
        print(json.dumps(seen[int(line)]), flush=True)


if __name__ == "__main__":
    loop.run(_browse(sys.argv[1], int(sys.argv[2])))
