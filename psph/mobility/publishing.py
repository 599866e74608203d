"""What a moving client publishes: one publication after the other, to the hub that it is at.

Each carries the Position that the client gave it, so a hub that has taken it already says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from urllib.parse import urlencode

import aiohttp

from identifiers import Position
from mobility import Message
from push_hub.connecting import exact_url
from traces import LogEvent

_log = logging.getLogger(__name__)

HEADER = "Psph-Publication"
"""The Position that the client gave a publication."""
_TIMEOUT = aiohttp.ClientTimeout(total=20.0, sock_connect=5.0)
_AGAIN = 0.5

_Waiting = tuple[str, Position | None, Message, Callable[[], None]]


class Publishing:
    """The publications of one client, while it is at one place."""

    def __init__(
        self, session: aiohttp.ClientSession, token: str, guard: Callable[..., None]
    ) -> None:
        self._session = session
        self._token = token
        self._guard = guard
        self._url = ""
        self._waiting: deque[_Waiting] = deque()
        self._task: asyncio.Task[None] | None = None

    def open(self, url: str) -> None:
        """Publish there from now on."""
        self._url = url

    def close(self) -> None:
        """Publish nothing more; the client keeps what is not done."""
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def publish(
        self, topic: str, position: Position | None, message: Message, done: Callable[[], None]
    ) -> None:
        """After everything that was published before."""
        self._waiting.append((topic, position, message, done))
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while self._waiting:
            topic, position, message, done = self._waiting[0]
            if await self._taken(topic, position, message):
                self._waiting.popleft()
                self._guard(done)
            else:
                await asyncio.sleep(_AGAIN)

    async def _taken(self, topic: str, position: Position | None, message: Message) -> bool:
        headers = {"Content-Type": message.kind or "application/octet-stream"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        if position is not None:
            headers[HEADER] = str(position)
        url = exact_url(f"{self._url}/mobility/publish?{urlencode({'topic': topic})}")
        try:
            async with self._session.post(
                url, data=message.body, headers=headers, timeout=_TIMEOUT, allow_redirects=False
            ) as answer:
                if answer.status in (200, 201):
                    return True
                said = (await answer.content.read(200)).decode(errors="replace")
                reason = " ".join(said.split())
                _log.warning(LogEvent("publication.postponed", status=answer.status, reason=reason))
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            _log.info(LogEvent("publication.postponed", reason=error or type(error).__name__))
        return False
