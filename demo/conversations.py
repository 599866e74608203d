"""Conversations for pages: each is a stream of the PSPH of the one who reads it."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import aiohttp

from demo import layout
from demo.following import REFUSALS, Standing
from demo.pages import ChatWish, Tab
from demo.world import World
from psph.chat.sse import LARGEST, EventReader, ServerEvent
from traces import LogEvent

_log = logging.getLogger(__name__)

_RETRY = 1.0
_SILENCE = 60.0
HISTORY = 50
GREETING = (
    "Hello bob! You read this in another domain: it is a topic that your PSPH subscribes to here."
)
_GREETING_ID = b"psph up greeting".hex()
"""Always the same, so that a world that is started again with its data has it once."""
NO_CHAT = "the PSPH of this domain has no chat"


class ChatRefused(Exception):
    """The PSPH does not let somebody chat: its status, and why."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def domain_of(jid: str) -> str:
    """The domain of a user of ours; ValueError for others."""
    domain = jid.rpartition("@")[2]
    if "@" not in jid or domain not in layout.DOMAINS:
        raise ValueError(f"{jid[:80]!r} is nobody of this world")
    return domain


async def send(world: World, me: str, to: str, text: str, name: str) -> dict[str, Any]:
    """Send a message; ChatRefused when the PSPH says no."""
    headers = {"Authorization": f"Bearer {await _token(world, me)}"}
    body = {"from": me, "to": to, "text": text, "id": name}
    url = f"{world.hub(domain_of(me))}/chat/messages"
    async with world.session.post(url, json=body, headers=headers) as answer:
        return await _answer(answer)


async def greet(world: World) -> None:
    """Let the first user write to the second, so that a page has something to show."""
    me, to = layout.USERS.values()
    try:
        await send(world, me, to, GREETING, _GREETING_ID)
    except (ChatRefused, aiohttp.ClientError, TimeoutError) as error:
        _log.warning(LogEvent("greeting.failed", reason=error))


async def follow(world: World, tab: Tab, *, wish: ChatWish) -> None:
    """Send the tab a conversation, for ever; PSPHs come and go."""
    about = {"me": wish.me, "with": wish.with_}
    standing = Standing(world, tab, domain_of(wish.me), about)
    after = wish.after
    url = f"{world.hub(domain_of(wish.me))}/chat/stream"
    while True:
        try:
            query = {"me": wish.me, "with": wish.with_, "history": str(HISTORY)}
            headers = {"Authorization": f"Bearer {await _token(world, wish.me)}"}
            if after:
                headers["Last-Event-ID"] = after
            timeout = aiohttp.ClientTimeout(sock_read=_SILENCE)
            async with world.session.get(
                url, params=query, headers=headers, timeout=timeout, read_bufsize=LARGEST
            ) as answer:
                if answer.status != 200:
                    await _answer(answer)
                standing.live()
                reader = EventReader()
                async for line in answer.content:
                    event = reader.line(line)
                    if event is not None:
                        after = event.id or after
                        _pass_on(tab, about, event)
        except ChatRefused as refusal:
            if refusal.status in REFUSALS:
                tab.send("refused", about | {"error": str(refusal)})
                return
        except (aiohttp.ClientError, TimeoutError, ValueError, OSError) as error:
            _log.info(LogEvent("conversation.ended", user=wish.me, reason=error))
        standing.lost()
        await asyncio.sleep(_RETRY)


def _pass_on(tab: Tab, about: dict[str, str], event: ServerEvent) -> None:
    data: dict[str, Any] = json.loads(event.data)
    if event.kind == "message":
        tab.send("chat", about | data | {"after": event.id})
    elif event.kind in ("presence", "gap", "reset"):
        tab.send(event.kind, about | data)


async def _token(world: World, me: str) -> str:
    url = f"{world.hub(domain_of(me))}/chat/token"
    async with world.session.get(url, params={"me": me}) as answer:
        return str((await _answer(answer))["token"])


async def _answer(answer: aiohttp.ClientResponse) -> dict[str, Any]:
    """The JSON of an answer; ChatRefused when it is none, or a refusal."""
    if answer.status == 404:
        raise ChatRefused(501, NO_CHAT)
    text = await answer.text()
    try:
        found: dict[str, Any] = json.loads(text)
    except ValueError:
        found = {"error": text.strip()[:500]}
    if answer.status != 200:
        raise ChatRefused(answer.status, str(found.get("error", "refused")))
    return found
