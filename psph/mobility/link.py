"""A client's connection to the mobility proxy of one hub: a stream back, whose request has the
first questions already, and further questions as they come up, those together that wait together.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import secrets
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

import aiohttp

from mobility.messages import LARGEST
from psph.mobility.connections import Connections
from psph.mobility.event_reading import Ended, read_events
from psph.mobility.several import MOST, bundled
from push_hub.connecting import exact_url

_SILENCE = 15.0
"""Seconds without a heartbeat after which a proxy is gone: it sends one every five."""
_MOST_WAITING = 256
"""Messages that wait to be sent; the oldest are lost first, and said again."""
_AT_ONCE = 4
_TOGETHER = 64 << 10
"""Bytes of messages that go in one request; one that is larger goes alone."""
_LARGEST_EVENT = LARGEST // 3 * 4 + 1_024
_POST = aiohttp.ClientTimeout(total=10.0, sock_connect=5.0)


class ProxyLink:
    """Lives as long as the client stays, or until it breaks: `broken` is told why, once."""

    def __init__(
        self,
        connections: Connections,
        url: str,
        receive: Callable[[bytes], None],
        broken: Callable[[str], None],
    ) -> None:
        self._connections = connections
        self._url = url
        self._receive = receive
        self._broken = broken
        self._word = secrets.token_urlsafe(24)
        self._waiting: deque[bytes] = deque(maxlen=_MOST_WAITING)
        self._posting = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.begun = False

    def begin(self) -> None:
        """Connect; what was to be said before goes along."""
        self.begun = True
        self._start(self._listen())

    def send(self, packet: bytes) -> None:
        """Say something to the proxy; it may be lost."""
        self._waiting.append(packet)
        if self.begun and self._posting < _AT_ONCE:
            self._posting += 1
            self._start(self._post())

    def close(self) -> None:
        """Leave; nothing is called any more."""
        for task in self._tasks:
            task.cancel()

    def _break(self, reason: str) -> None:
        self.close()
        self._broken(reason)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _take(self) -> list[bytes]:
        """What waits, or the first of it, for one body."""
        taken: list[bytes] = []
        size = 0
        while self._waiting and len(taken) < MOST:
            size += len(self._waiting[0])
            if taken and size > _TOGETHER:
                break
            taken.append(self._waiting.popleft())
        return taken

    async def _listen(self) -> None:
        url = f"{self._url}/mobility/stream?session={self._word}"
        try:
            events = read_events(
                self._connections, url, _SILENCE, _LARGEST_EVENT, bundled(self._take())
            )
            async for event in events:
                if event.kind == "packed":
                    self._receive(base64.b64decode(event.data, validate=True))
                elif event.kind == "mobility":
                    self._receive(event.data.encode())
        except Ended as end:
            self._break(str(end))
        except binascii.Error as error:
            self._break(f"it sent what makes no sense: {error}")

    async def _post(self) -> None:
        url = exact_url(f"{self._url}/mobility/messages?session={self._word}")
        try:
            while self._waiting:
                packets = self._take()
                body, media_type = bundled(packets)
                try:
                    async with self._connections.session.post(
                        url,
                        data=body,
                        headers={"Content-Type": media_type},
                        timeout=_POST,
                        allow_redirects=False,
                    ) as answer:
                        await answer.read()
                        if answer.status not in (429, 503):
                            continue
                    pause = 1.0
                except (aiohttp.ClientError, OSError, TimeoutError):
                    pause = 0.2
                # The stream tells whether the hub is gone; this is said again.
                self._waiting.extendleft(reversed(packets))
                await asyncio.sleep(pause)
        finally:
            self._posting -= 1
