"""Feeds for pages: each is a stream of the hub in the chosen domain, as any browser opens it."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol

import aiohttp

from demo.pages import FeedWish, Page
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


async def follow(world: World, page: Page, *, wish: FeedWish, took: Took) -> None:
    """Send the page what the hub has of a topic, for ever; hubs come and go."""
    after = wish.after
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
                    page.send("refused", _about(wish) | {"error": text})
                    return
                answer.raise_for_status()
                opened = time.monotonic_ns()
                reader = EventReader()
                async for chunk in answer.content.iter_any():
                    for event in reader.feed(chunk):
                        after = await _pass_on(
                            page, wish, event, after, partial(took, opened=opened)
                        )
        except (aiohttp.ClientError, TimeoutError, BadEvent, OSError) as error:
            _log.info(LogEvent("stream.ended", topic=wish.topic, domain=wish.domain, reason=error))
        await asyncio.sleep(_RETRY)


async def _pass_on(
    page: Page,
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
        page.send(event.kind, _about(wish) | data)
        return after
    page.send(
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
