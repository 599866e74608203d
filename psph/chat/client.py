"""The other side of chat: a client that goes on whatever happens to its PSPH.

It reads a stream and sends one message after the other. When the PSPH dies it turns to another, or
to the same when that is back: it reads on after the last event, and what was not acknowledged, or
just before by the one that died, is sent again under the same id. So every message is shown once
and in order.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

import aiohttp

from bootstrap import BootstrapError
from psph.chat.conversation import HISTORY, Seen, buddies_of, directions
from psph.chat.events import (
    ChatEvent,
    Connected,
    Disconnected,
    NotSent,
    Said,
    of_server,
)
from psph.chat.hubs import Hubs
from psph.chat.message import clean, normal_jid
from psph.chat.outbox import Outbox, Outgoing
from psph.chat.sse import LARGEST, EventReader, ServerEvent

_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 3.0
_GROWTH: Final = 1.5
_SILENCE: Final = 60.0
"""Seconds without even a heartbeat after which a stream counts as lost."""
_PATIENCE: Final = 20.0
"""Seconds for an answer."""
_FINAL: Final = frozenset({400, 401, 403, 404, 405, 409, 413, 501})
"""Answers that will not change when the same is asked again."""


class ChatFailed(Exception):
    """Chat cannot go on; one line that says why."""


class _Lost(Exception):
    """The PSPH is gone, or cannot serve us now."""


class ChatClient:
    """One user who talks with others. `run` until it is cancelled; `say` meanwhile."""

    def __init__(
        self,
        me: str,
        buddies: Sequence[str],
        hubs: Hubs,
        show: Callable[[ChatEvent], None],
        *,
        token: str = "",
        history: int = HISTORY,
    ) -> None:
        """BadMessage when these are no JIDs. Without a token the PSPH is asked for one."""
        self.me = normal_jid(me)
        self.buddies = buddies_of(self.me, buddies)
        self._hubs = hubs
        self._show = show
        self._token = token
        self._history = history
        self._last = ""
        self._seen = {
            (each.sender, each.recipient): Seen() for each in directions(self.me, self.buddies)
        }
        self._outbox = Outbox()
        self._unseen: set[str] = set()
        """Ids of what was acknowledged and has not come over the stream yet."""
        self._changed = asyncio.Event()
        self._serving: tuple[str, str] | None = None
        """The PSPH that serves us, and the token there."""
        self._lost = False

    @property
    def waiting(self) -> int:
        """Messages that were not acknowledged yet."""
        return len(self._outbox)

    def tell(self, event: ChatEvent) -> None:
        """Show something among what happens."""
        self._show(event)

    def say(self, text: str, recipient: str | None = None) -> None:
        """Send a message, whenever that is possible; BadMessage when it is none."""
        text = clean(text)
        to = self.buddies[0] if recipient is None else normal_jid(recipient)
        self._outbox.add(to, text)
        self._change()

    async def room(self) -> None:
        """Until another message may be said."""
        await self._until(lambda: self._outbox.has_room)

    async def acknowledged(self) -> None:
        """Until everything that was said is."""
        await self._until(lambda: not self._outbox)

    async def echoed(self) -> None:
        """Until it was shown, too."""
        await self._until(lambda: not self._outbox and not self._unseen)

    async def run(self) -> None:
        """Until it is cancelled, or ChatFailed."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_PATIENCE, sock_read=_SILENCE)
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
            tasks = [
                asyncio.create_task(self._read(session)),
                asyncio.create_task(self._send(session)),
            ]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
                for task in tasks:
                    if task.done():
                        task.result()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    # Reading

    async def _read(self, session: aiohttp.ClientSession) -> None:
        pause, hub = _FIRST_PAUSE, ""
        while True:
            try:
                hub = await self._hubs.choose()
                token = self._token or await self._ask_for_token(session, hub)
                async for event in self._events(session, hub, token):
                    if event is None:
                        self._begun(hub, token)
                        pause = _FIRST_PAUSE
                    else:
                        self._take(event)
                reason = "it closed the stream"
            except (aiohttp.ClientError, OSError, TimeoutError, _Lost, BootstrapError) as error:
                reason = _reason(error)
            except ValueError as error:
                reason = f"it sent nonsense: {error}"
            self._ended(hub, reason)
            await asyncio.sleep(pause)
            pause = min(pause * _GROWTH, _LONGEST_PAUSE)

    async def _events(
        self, session: aiohttp.ClientSession, hub: str, token: str
    ) -> AsyncIterator[ServerEvent | None]:
        """First None, when the stream has begun."""
        query = [("me", self.me), *(("with", each) for each in self.buddies)]
        query.append(("history", str(self._history)))
        headers = {"Authorization": f"Bearer {token}"}
        if self._last:
            headers["Last-Event-ID"] = self._last
        async with session.get(
            f"{hub}/chat/stream", params=query, headers=headers, read_bufsize=LARGEST
        ) as answer:
            if answer.status != 200:
                raise await _failure(answer)
            yield None
            reader = EventReader()
            async for line in answer.content:
                event = reader.line(line)
                if event is not None:
                    yield event

    def _begun(self, hub: str, token: str) -> None:
        again = self._lost
        self._serving, self._lost = (hub, token), False
        self._hubs.worked(hub)
        self._outbox.at(hub, time.monotonic())
        self._change()
        self._show(Connected(hub, again))

    def _ended(self, hub: str, reason: str) -> None:
        self._serving = None
        self._hubs.failed(hub)
        if not self._lost:
            self._lost = True
            self._show(Disconnected(hub, reason))

    def _take(self, event: ServerEvent) -> None:
        found = of_server(event)
        if event.id:
            self._last = event.id
        if isinstance(found, Said):
            seen = self._seen.get((found.sender, found.recipient))
            if seen is None or not seen.add(found.id):
                return  # taken by two PSPHs of a domain
            self._unseen.discard(found.id)
        if found is not None:
            self._show(found)
        self._change()

    # Sending

    async def _send(self, session: aiohttp.ClientSession) -> None:
        pause = _FIRST_PAUSE
        while True:
            await self._until(lambda: self._outbox and self._serving is not None)
            if self._serving is None:
                continue
            first, (hub, token) = self._outbox.first, self._serving
            if not first.again:
                self._unseen.add(first.id)
            try:
                wait = await self._post(session, hub, token, first)
            except (aiohttp.ClientError, OSError, TimeoutError, _Lost):
                await asyncio.sleep(pause)
                pause = min(pause * _GROWTH, _LONGEST_PAUSE)
                continue
            except ChatFailed as error:
                self._unseen.discard(first.id)
                self._outbox.refused(first)
                self._show(NotSent(first.text, str(error)))
            else:
                if wait:
                    await asyncio.sleep(wait)
                    continue
                self._outbox.taken(first, hub, time.monotonic())
            pause = _FIRST_PAUSE
            self._change()

    async def _post(
        self, session: aiohttp.ClientSession, hub: str, token: str, message: Outgoing
    ) -> float:
        """0 when it was acknowledged, otherwise the seconds to wait until it may be."""
        body = {"from": self.me, "to": message.recipient, "text": message.text, "id": message.id}
        headers = {"Authorization": f"Bearer {token}"}
        limit = aiohttp.ClientTimeout(total=_PATIENCE)
        async with session.post(
            f"{hub}/chat/messages", json=body, headers=headers, timeout=limit
        ) as answer:
            if answer.status == 200:
                return 0.0
            if answer.status == 429:
                text = answer.headers.get("Retry-After", "")
                return min(float(text), 60.0) if text.isdecimal() else 1.0
            raise await _failure(answer)

    async def _ask_for_token(self, session: aiohttp.ClientSession, hub: str) -> str:
        limit = aiohttp.ClientTimeout(total=_PATIENCE)
        async with session.get(
            f"{hub}/chat/token", params={"me": self.me}, timeout=limit
        ) as answer:
            if answer.status != 200:
                raise await _failure(answer)
            found = json.loads(await answer.content.read(4_096))
            if not isinstance(found, dict) or not isinstance(found.get("token"), str):
                raise ValueError("a token that is none")
            return str(found["token"])

    # Waiting

    def _change(self) -> None:
        self._changed.set()

    async def _until(self, condition: Callable[[], object]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()


def _reason(error: Exception) -> str:
    """Why there is no connection, in words."""
    if isinstance(error, aiohttp.ClientPayloadError | aiohttp.ServerDisconnectedError):
        return "it closed the connection"
    if isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno:
        return os.strerror(error.os_error.errno)
    return str(error) or type(error).__name__


async def _failure(answer: aiohttp.ClientResponse) -> Exception:
    """What an answer that is no success means: it may be better later, or not."""
    raw = await answer.content.read(4_096)
    try:
        found = json.loads(raw)
        reason = str(found["error"]) if isinstance(found, dict) and "error" in found else ""
    except ValueError:
        reason = ""
    if answer.status in (404, 405, 501) and not reason:
        reason = "there is no chat: it is no PSPH, or an old one"
    reason = " ".join((reason or f"it answers {answer.status}").split())[:300]
    return ChatFailed(reason) if answer.status in _FINAL else _Lost(reason)
