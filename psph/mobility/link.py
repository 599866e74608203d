"""A client's connection to the mobility proxy of one hub: messages there, a stream back."""

from __future__ import annotations

import asyncio
import base64
import binascii
import secrets
from collections.abc import Callable

import aiohttp

from mobility.messages import LARGEST
from psph.mobility.event_reading import Ended, read_events
from push_hub.connecting import exact_url

_SILENCE = 15.0
"""Seconds without a heartbeat after which a proxy is gone: it sends one every five."""
_MOST_WAITING = 256
"""Messages that wait to be sent; the oldest are lost first, and said again."""
_AT_ONCE = 4
_LARGEST_EVENT = LARGEST // 3 * 4 + 1_024
_POST = aiohttp.ClientTimeout(total=10.0, sock_connect=5.0)


class ProxyLink:
    """Lives as long as the client stays, or until it breaks: `broken` is told why, once."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        receive: Callable[[bytes], None],
        broken: Callable[[str], None],
    ) -> None:
        self._session = session
        self._url = url
        self._receive = receive
        self._broken = broken
        self._word = secrets.token_urlsafe(24)
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue()
        self._tasks = [asyncio.create_task(self._listen())]
        self._tasks += [asyncio.create_task(self._post()) for _ in range(_AT_ONCE)]

    def send(self, packet: bytes) -> None:
        """Say something to the proxy; it may be lost."""
        if self._waiting.qsize() >= _MOST_WAITING:
            self._waiting.get_nowait()
        self._waiting.put_nowait(packet)

    def close(self) -> None:
        """Leave; nothing is called any more."""
        for task in self._tasks:
            task.cancel()

    def _break(self, reason: str) -> None:
        self.close()
        self._broken(reason)

    async def _listen(self) -> None:
        url = f"{self._url}/mobility/stream?session={self._word}"
        try:
            async for event in read_events(self._session, url, _SILENCE, _LARGEST_EVENT):
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
        while True:
            packet = await self._waiting.get()
            try:
                async with self._session.post(
                    url, data=packet, timeout=_POST, allow_redirects=False
                ) as answer:
                    if answer.status in (429, 503):
                        await asyncio.sleep(1.0)
                    await answer.read()
            except (aiohttp.ClientError, OSError, TimeoutError):
                # The stream tells whether the hub is gone; this message is said again.
                await asyncio.sleep(0.2)
