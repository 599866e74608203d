"""Feeds for pages: each is a stream of the hub in the chosen domain, as any browser opens it."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Protocol

import aiohttp

from demo import layout
from demo.pages import FeedWish, Tab
from demo.world import World
from push_hub.event_stream import BadEvent, EventReader, ReadEvent
from push_hub.feeds.sanitising import plain_text
from traces import LogEvent

_log = logging.getLogger(__name__)

REFUSALS = (400, 401, 403, 404, 501)
"""Answers that asking again does not change."""
_RETRY = 1.0
_SILENCE = 60.0
"""Seconds without even a heartbeat after which a hub is taken for gone."""


class Took(Protocol):
    """How many milliseconds an update took; None when that cannot be said."""

    def __call__(self, trace_id: str, opened: int) -> Awaitable[float | None]: ...


class Standing:
    """Tells a tab how something that it follows stands at a PSPH, whenever that changes."""

    def __init__(self, world: World, tab: Tab, domain: str, about: Mapping[str, object]) -> None:
        self._part = world.parts[layout.PROXIES[domain]]
        self._tab = tab
        self._about = about
        self._said = ""

    def live(self) -> None:
        """The PSPH has answered, and its stream is open."""
        self._say("live")

    def lost(self) -> None:
        """Its stream has ended, or it does not answer."""
        self._say("reconnecting" if self._part.running else "stopped")

    def _say(self, state: str) -> None:
        if state != self._said:
            self._said = state
            self._tab.send("state", {**self._about, "state": state})


async def follow(world: World, tab: Tab, *, wish: FeedWish, took: Took) -> None:
    """Send the tab what the hub has of a topic, for ever; hubs come and go."""
    after = wish.after
    standing = Standing(world, tab, wish.domain, _about(wish))
    while True:
        query = [("topic", wish.topic), *([("after", after)] if after else [])]
        try:
            async with world.session.get(
                f"{world.hub(wish.domain)}/stream",
                params=query,
                timeout=aiohttp.ClientTimeout(sock_read=_SILENCE),
            ) as answer:
                if answer.status in REFUSALS:
                    text = (await answer.text()).strip()[:500]
                    tab.send("refused", _about(wish) | {"error": text})
                    return
                answer.raise_for_status()
                standing.live()
                opened = time.monotonic_ns()
                reader = EventReader()
                async for chunk in answer.content.iter_any():
                    for event in reader.feed(chunk):
                        after = await _pass_on(
                            tab, wish, event, after, partial(took, opened=opened)
                        )
        except (aiohttp.ClientError, TimeoutError, BadEvent, OSError) as error:
            _log.info(LogEvent("stream.ended", topic=wish.topic, domain=wish.domain, reason=error))
        standing.lost()
        await asyncio.sleep(_RETRY)


async def _pass_on(
    tab: Tab,
    wish: FeedWish,
    event: ReadEvent,
    after: str | None,
    took: Callable[[str], Awaitable[float | None]],
) -> str | None:
    """Send one event; the position to resume after."""
    if not event.kind:
        return after  # a heartbeat
    data: dict[str, Any] = json.loads(event.data)
    if event.kind in ("gap", "reset"):
        tab.send(event.kind, _about(wish) | data)
        return after
    tab.send(
        "update",
        _about(wish)
        | {
            "position": data["position"],
            "entries": [_entry(each) for each in data.get("entries", [])],
            "content_type": data["content_type"],
            "trace_id": data["trace_id"],
            "took_ms": await took(data["trace_id"]),
            "arrived": round(time.time(), 3),
        },
    )
    return str(data["position"])


def _about(wish: FeedWish) -> dict[str, object]:
    return {"domain": wish.domain, "topic": wish.topic}


def _entry(entry: dict[str, str]) -> dict[str, str]:
    return {
        "id": entry["id"],
        "title": entry["title"],
        "link": entry["link"],
        "summary": plain_text(entry["content"]),
        "updated": entry["published"],
    }
