"""/stream: Server-Sent Events for browsers, and for programs that go on at another hub.

A browser that lost its stream repeats the URL it began with, `after` included, and says in
Last-Event-ID how far it came: a cursor of this hub's log. One that is not of this log, or is no
cursor at all, is no error: the reader gets a `reset` for each topic.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web

from identifiers import InvalidPosition, Position, PublisherId
from push_hub.errors import BadRequest, Refused
from push_hub.event_stream import HEARTBEAT, RETRY, alive_event, base_event
from push_hub.hub import Hub
from push_hub.keys import HUB
from push_hub.requests import web_topic
from push_hub.streams import Stream

MAX_POSITIONS: Final = 64
"""Publishers of one topic whose Positions a stream may resume after."""


NOW: Final = "now"
"""In the place of Positions: nothing that was there before."""


def add_stream(app: web.Application) -> None:
    """Serve it."""
    app.router.add_get("/stream", get_stream)


async def get_stream(request: web.Request) -> web.StreamResponse:
    """Server-Sent Events: /stream?topic=A&topic=B&after=POSITION&content=whole."""
    hub = request.app[HUB]
    named = hub.context.naming.topic
    found = [web_topic(text, "topic", named) for text in request.query.getall("topic", ())]
    topics = {topic.canonical: topic for topic in found}
    if not topics or len(topics) > hub.settings.topics_per_stream:
        raise BadRequest(f"name from 1 to {hub.settings.topics_per_stream} topics to stream")
    after = _after(request)
    if len(after) not in (0, len(topics)):
        raise BadRequest("give `after` once for each topic, in their order, or not at all")
    since = request.headers.get("Last-Event-ID") or None
    name, based = f"stream {request.remote}", request.query.get("base") == "event"
    places = after or [()] * len(topics)
    admission = None
    if based:
        # Somebody who counts versions: the base is only true once the topic's own hub has answered.
        # What is in memory need not wait for that.
        admission = asyncio.gather(
            *(hub.context.carrying.admit(each, name) for each in topics.values())
        )
        admission.add_done_callback(_retrieved)
        if since is not None or not hub.streams.are_recent(list(topics.values()), places):
            await admission
    try:
        stream = await hub.streams.open(
            list(topics.values()),
            places,
            name,
            last=_last(request, hub.settings.history, based),
            whole=_whole(request.query.get("content", "")),
            since=since,
        )
    except BaseException:
        if admission is not None:
            admission.cancel()
        raise
    return await _send(request, hub, stream, admission)


async def _send(
    request: web.Request, hub: Hub, stream: Stream, admission: asyncio.Future[list[None]] | None
) -> web.StreamResponse:
    """`admission`: when it is over, and the reader has caught up, it is told where it is."""
    if request.transport is not None:
        stream.abort = request.transport.abort
    try:
        response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream; charset=utf-8",
                "Cache-Control": "no-store",
                "Access-Control-Allow-Origin": "*",
                "X-Accel-Buffering": "no",
                "X-Content-Type-Options": "nosniff",
            }
        )
        await response.prepare(request)
        audible = request.query.get("heartbeat") == "event"
        heartbeat = alive_event(hub.settings.heartbeat) if audible else HEARTBEAT
        await response.write(RETRY + heartbeat)
        if admission is not None:
            admission.add_done_callback(lambda _: stream.wake())
        caught_up = False
        async for batch in stream.batches():
            said = [part for event in batch for part in (stream.id_line(event), event.data)]
            said = said or [heartbeat]
            at_once = bool(batch) and batch[-1].caught_up
            live = caught_up
            caught_up = caught_up or at_once
            # Otherwise after all that was recorded while it was under way.
            told = caught_up and (at_once or not batch)
            if told and admission is not None and admission.done():
                admission.result()  # Refused, perhaps
                admission = None
                said += (base_event(topic, base) for topic, base in (await stream.bases()).items())
            await response.write(b"".join(said))
            for event in batch:
                if event.update is not None:
                    hub.counters.add("browser_events")
                    if live:  # what a reader missed earlier says nothing about the way here
                        hub.context.metrics.journeys.delivered(
                            event.update.trace_id, "stream", hub.context.clock()
                        )
                    hub.context.tracer.browser_sent(event.update, stream.name)
    except (ConnectionError, TimeoutError):
        pass  # the browser left
    except Refused:
        pass  # told to whoever asks again
    finally:
        if admission is not None:
            admission.cancel()
        hub.streams.shut(stream)
    return response


def _retrieved(admission: asyncio.Future[list[None]]) -> None:
    """Nobody may be left who wants to know that it failed."""
    if not admission.cancelled():
        admission.exception()


def _after(request: web.Request) -> list[tuple[Position, ...] | None]:
    """The Positions to resume after, from each `after`, which may have several; None where it is
    `now`."""
    texts = request.query.getall("after", [])
    return [None if text == NOW else positions_of(text) for text in texts]


def positions_of(text: str) -> tuple[Position, ...]:
    """From a list with commas: of each publisher the highest. BadRequest when it is none."""
    found: dict[PublisherId, Position] = {}
    parts = text.split(",") if text else []
    if len(parts) > MAX_POSITIONS:
        raise BadRequest(f"after: give at most {MAX_POSITIONS} positions for a topic")
    for part in parts:
        try:
            position = Position.parse(part)
        except InvalidPosition as refusal:
            raise BadRequest(f"after: {refusal}") from None
        if max(position.epoch, position.version) >= 1 << 63:
            raise BadRequest(f"after: no hub numbers as far as {position}")
        before = found.get(position.publisher)
        found[position.publisher] = position if before is None else max(before, position)
    return tuple(found.values())


def _last(request: web.Request, history: int, based: bool) -> int:
    """With how many of its last versions a topic without a Position begins."""
    text = request.query.get("last")
    if text is None:
        return history if based else 1
    if not (text.isascii() and text.isdigit() and len(text) < 9 and int(text)):
        raise BadRequest("last: write how many versions to begin with, 1 or more")
    return min(int(text), history)


def _whole(text: str) -> bool:
    """Whether feeds are wanted as they are, and not as entries."""
    if text not in ("", "entries", "whole"):
        raise BadRequest("content: write `whole`, or `entries`, which it is without")
    return text == "whole"
