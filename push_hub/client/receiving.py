"""A callback over HTTP: answers the hub, and keeps what arrives until somebody reads it."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from push_hub.client.callback import (
    Confirmed,
    Denied,
    Memory,
    Notification,
    authentic,
    delivery_id,
    read_verification,
)
from push_hub.client.errors import SubscriptionEnded
from push_hub.distribution import DELIVERY_HEADER
from push_hub.feeds import read_feed
from push_hub.fetching import passable_type

_BUSY: Final = "5"
"""Seconds after which a hub may try again when too much waits to be read."""

_PLAIN: Final = {"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff"}


@dataclass(frozen=True, slots=True)
class _Waiting:
    content_type: str
    content: bytes
    delivery_id: str | None
    current: bool


class Receiver:
    """The state of one callback. `wanted` is the mode that is confirmed when the hub asks."""

    def __init__(self, secret: bytes | None, max_content: int, max_waiting: int) -> None:
        self.topic = ""
        self.wanted = ""
        self.counters: Counter[str] = Counter()
        self._secret = secret
        self._max_content = max_content
        self._max_waiting = max_waiting
        self._memory = Memory()
        self._waiting: deque[_Waiting] = deque()
        self._bytes = 0
        self._wake = asyncio.Event()
        self._reading = asyncio.Lock()
        self._verdict: asyncio.Future[Confirmed | Denied] | None = None
        self._ended: str | None = None
        self._closed = False

    def add_routes(self, app: web.Application, path: str) -> None:
        """Serve the callback at a path of the application."""
        app.router.add_get(path, self.get, allow_head=False)
        app.router.add_post(path, self.post)

    def open(self) -> None:
        """Begin, or begin again after `close`: a route of an application cannot be made twice."""
        self._closed = False
        self._ended = None

    def expect(self, mode: str) -> asyncio.Future[Confirmed | Denied]:
        """From now on confirm this mode; the future has what the hub asks or says next."""
        self.wanted = mode
        self._verdict = asyncio.get_running_loop().create_future()
        return self._verdict

    async def get(self, request: web.Request) -> web.StreamResponse:
        """The hub verifies our intent, or denies."""
        said = read_verification(request.query, self.topic, self.wanted)
        if said is None:
            self.counters["strange"] += 1
            return web.Response(status=404, text="nothing here asked for that\n")
        text = said.challenge if isinstance(said, Confirmed) else "noted\n"
        response = web.Response(body=text.encode(), headers=_PLAIN)
        await response.prepare(request)
        await response.write_eof()
        # Only now: whoever waits may publish at once, and the hub has to know us by then.
        self._heard(said)
        return response

    def _heard(self, said: Confirmed | Denied) -> None:
        if self._verdict is not None and not self._verdict.done():
            self._verdict.set_result(said)
        elif isinstance(said, Denied):
            self.end(said.reason)

    async def post(self, request: web.Request) -> web.Response:
        """The hub delivers."""
        if self.wanted == "unsubscribe":
            return web.Response(status=410, text="not subscribed any more\n")
        if self.wanted != "subscribe" or self._closed:
            return self._later()
        content = await self._read(request)
        if content is None:
            self.counters["too_large"] += 1
            return web.Response(status=413, text=f"at most {self._max_content} bytes\n")
        if not authentic(request.headers.get("X-Hub-Signature"), self._secret, content):
            # WebSub section 8: answered as if it were believed, so that nobody learns by asking.
            self.counters["rejected"] += 1
            return web.Response(status=202)
        known_as = delivery_id(request.headers.get(DELIVERY_HEADER))
        if self._memory.repeated(known_as):
            self.counters["repeated"] += 1
            return web.Response()
        if len(self._waiting) >= self._max_waiting or (
            self._waiting and self._bytes + len(content) > 4 * self._max_content
        ):
            return self._later()
        self._memory.remember(known_as)
        self.counters["received"] += 1
        content_type = passable_type(request.headers.get("Content-Type"))
        self._put(_Waiting(content_type, content, known_as, False))
        return web.Response()

    def put_current(self, content_type: str, content: bytes) -> None:
        """What the topic holds; read like a delivery, and before those that came meanwhile."""
        if not any(each.content == content for each in self._waiting):
            self._put(_Waiting(content_type, content, None, True))
            self._waiting.rotate(1)

    def end(self, reason: str) -> None:
        """The hub will deliver no more: readers get what waits, and then this reason."""
        self._ended = reason
        self._wake.set()

    def close(self) -> None:
        """Nobody reads any more."""
        self._closed = True
        self._wake.set()

    async def read(self) -> Notification | None:
        """The next notification; None after `close`. May be cancelled: nothing is lost then."""
        async with self._reading:
            while not self._waiting:
                if self._closed:
                    return None
                if self._ended is not None:
                    raise SubscriptionEnded(f"the hub ended the subscription: {self._ended}")
                self._wake.clear()
                await self._wake.wait()
            first = self._waiting[0]
            feed = await asyncio.to_thread(read_feed, first.content_type, first.content)
            # No await from here on: it is taken and remembered, or neither.
            self._waiting.remove(first)
            self._bytes -= len(first.content)
            return self._memory.notification(
                self.topic,
                first.content_type,
                first.content,
                feed,
                delivery_id=first.delivery_id,
                current=first.current,
            )

    def _put(self, waiting: _Waiting) -> None:
        self._waiting.append(waiting)
        self._bytes += len(waiting.content)
        self._wake.set()

    def _later(self) -> web.Response:
        self.counters["postponed"] += 1
        return web.Response(status=503, text="later, please\n", headers={"Retry-After": _BUSY})

    async def _read(self, request: web.Request) -> bytes | None:
        if (request.content_length or 0) > self._max_content:
            return None
        parts, size = [], 0
        async for chunk in request.content.iter_any():
            size += len(chunk)
            if size > self._max_content:
                return None
            parts.append(chunk)
        return b"".join(parts)


async def serve(receiver: Receiver, path: str, host: str, port: int) -> tuple[web.AppRunner, str]:
    """Serve the callback alone; the runner, to clean up, and the base URL it listens at."""
    app = web.Application()
    receiver.add_routes(app, path)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError:
        await runner.cleanup()
        raise
    shown = f"[{host}]" if ":" in host else host
    return runner, f"http://{shown}:{runner.addresses[0][1]}"
