"""GET /chat/stream: conversations as Server-Sent Events, and who is there.

It is a stream of the hub, read with the eyes of chat: what is no message of whom its topic says is
left out and counted, and so is one that came before. The id of an event names the place in all
topics, so that the last one is enough to go on.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime

from aiohttp import web

from psph.chat import message as messages
from psph.chat import presence
from psph.chat.conversation import (
    HISTORY,
    MOST_HISTORY,
    Direction,
    Place,
    Seen,
    buddies_of,
    directions,
    moved,
    places_text,
    presence_of,
    read_places,
)
from psph.chat.message import BadMessage
from psph.chat.presence import MOST_SAYING, Sightings
from psph.facades.chat_presence import Presences
from push_hub.errors import Busy
from push_hub.event_stream import HEARTBEAT, RETRY, Event
from push_hub.hub import Hub
from push_hub.keys import HUB
from push_hub.store.records import Update
from push_hub.streams import Stream
from traces import LogEvent

_log = logging.getLogger(__name__)

_END = "end"
_LOOK = 3.0
"""Seconds after which it is looked whether the reader is still there: nothing may be sent for as
long as a heartbeat, and somebody who left is to be known to be away before that."""
_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
    "X-Content-Type-Options": "nosniff",
}


async def serve_stream(request: web.Request, me: str, presences: Presences) -> web.StreamResponse:
    """The stream that the query of a request describes, for a user who has shown the token."""
    hub, query = request.app[HUB], request.query
    buddies = buddies_of(me, query.getall("with", []))
    # The header first: a browser that reconnects sends the URL it began with.
    text = request.headers.get("Last-Event-ID") or query.get("after", "")
    places = read_places(text, 2 * len(buddies))
    history = _history(query.get("history"))
    read = directions(me, buddies)
    topics = [each.topic for each in read] + [presence_of(each) for each in buddies]
    starts: list[Place] = [*places, *([()] * len(buddies))]
    try:
        presences.joined(me)
    except Busy as refusal:
        raise web.HTTPTooManyRequests(text=str(refusal)) from None
    try:
        stream = await hub.streams.open(topics, starts, f"chat {me}", last=history)
        try:
            reading = Reading(hub, read, places, buddies)
            return await _send(request, stream, reading)
        finally:
            hub.streams.shut(stream)
    finally:
        presences.left(me)


async def _send(request: web.Request, stream: Stream, reading: Reading) -> web.StreamResponse:
    if request.transport is not None:
        stream.abort = request.transport.abort
    response = web.StreamResponse(headers=_HEADERS)
    events, loop = aiter(stream), asyncio.get_running_loop()
    heartbeat = request.app[HUB].settings.heartbeat
    waiting: asyncio.Future[Event | str | None] | None = None
    try:
        await response.prepare(request)
        await response.write(RETRY)
        for told in await reading.begin(stream):
            await response.write(told)
        written = loop.time()
        # A connection that was closed has no transport any more.
        while request.transport is not None:
            if waiting is None:
                waiting = asyncio.ensure_future(anext(events, _END))
            await asyncio.wait({waiting}, timeout=min(reading.patience, _LOOK))
            told = b""
            if waiting.done():
                event, waiting = waiting.result(), None
                if isinstance(event, str):
                    break  # the hub stops
                told = b"" if event is None else reading.read(event)
            told += reading.passed()
            if not told and loop.time() >= written + heartbeat:
                told = HEARTBEAT
            if told:
                await response.write(told)
                written = loop.time()
    except (ConnectionError, TimeoutError):
        pass  # the reader left
    finally:
        if waiting is not None:
            waiting.cancel()
            await asyncio.wait({waiting})
    return response


class Reading:
    """What a stream of the hub amounts to for one reader, as bytes to send."""

    def __init__(
        self, hub: Hub, read: Sequence[Direction], places: Sequence[Place], buddies: Sequence[str]
    ) -> None:
        self._hub = hub
        self._directions = {each.topic.canonical: n for n, each in enumerate(read)}
        self._read = read
        self._places = list(places)
        self._seen = [Seen() for _ in read]
        self._buddies = {presence_of(each).canonical: each for each in buddies}
        self._sightings = {each: Sightings() for each in buddies}
        self._heard = 0
        """The update up to which words about who is there were heard at the beginning."""

    @property
    def patience(self) -> float:
        """Seconds after which to ask what has passed."""
        ends = [each.next for each in self._sightings.values() if each.next is not None]
        return max(0.0, min(ends) - self._clock()) if ends else math.inf

    async def begin(self, stream: Stream) -> list[bytes]:
        """Who is there, of all of them, by the last words of each of their PSPHs."""
        for record in stream.records:
            if record.canonical in self._buddies:
                await self._look_back(self._buddies[record.canonical], record.id)
        return [self._presence(each) for each in self._sightings]

    async def _look_back(self, jid: str, topic_id: int) -> None:
        """Hear the last words about somebody, each as of its own time."""
        sightings, store = self._sightings[jid], self._hub.store
        kept = await store.versions(topic_id, MOST_SAYING)
        first = await store.find(topic_id, kept[-1].position) if kept else None
        if first is None:
            return
        for update in await store.history([topic_id], first - 1, MOST_SAYING):
            sightings.passed(update.recorded_at)
            self._notice(jid, update, update.recorded_at)
            self._heard = max(self._heard, update.seq)
        sightings.passed(self._clock())

    def read(self, event: Event) -> bytes:
        """What to send for an event; nothing for some."""
        if event.notice is not None:
            return self._gap(event)
        update = event.update
        if update is None:
            return b""
        if update.topic in self._buddies:
            jid = self._buddies[update.topic]
            # What the stream has of the history would be old words after new ones.
            news = update.seq > self._heard and self._notice(jid, update, self._clock())
            return self._presence(jid) if news else b""
        return self._message(update)

    def passed(self) -> bytes:
        """What to send because of the time."""
        now = self._clock()
        gone = [jid for jid, each in self._sightings.items() if each.passed(now)]
        return b"".join(map(self._presence, gone))

    def _clock(self) -> float:
        return self._hub.context.clock()

    def _message(self, update: Update) -> bytes:
        number = self._directions[update.topic]
        direction = self._read[number]
        self._places[number] = moved(self._places[number], update.position)
        try:
            message = messages.read(update.body)
            if message.sender != direction.sender:
                raise BadMessage(f"it says that it is from {message.sender}")
        except BadMessage as error:
            self._refused(update, error)
            return b""
        if not self._seen[number].add(update.trace_id):
            return b""
        self._hub.counters.add("chat_events")
        self._hub.context.tracer.browser_sent(update, direction.recipient)
        return _event(
            "message",
            {
                "from": direction.sender,
                "to": direction.recipient,
                "text": message.text,
                "position": str(update.position),
                "id": update.trace_id,
                "at": _time(update.recorded_at),
            },
            places_text(self._places),
        )

    def _gap(self, event: Event) -> bytes:
        assert event.notice is not None
        notice, number = event.notice, self._directions.get(event.notice.topic)
        if number is None:
            return b""  # of presence only the latest counts
        direction, resumes = self._read[number], notice.resumes
        assert notice.after is not None  # no cursor is used
        assert resumes is not None
        if resumes.publisher != notice.after.publisher and resumes.version == 1:
            return b""  # another PSPH of the sender goes on, and all that it has taken comes
        return _event(
            notice.kind,
            {
                "from": direction.sender,
                "to": direction.recipient,
                "after": str(notice.after),
                "resumes": str(notice.resumes),
            },
        )

    def _notice(self, jid: str, update: Update, now: float) -> bool:
        try:
            said = presence.read(update.body)
            if said.jid != jid:
                raise BadMessage(f"it says that it is of {said.jid}")
        except BadMessage as error:
            self._refused(update, error)
            return False
        sightings, publisher = self._sightings[jid], update.position.publisher
        return sightings.heard(said, publisher, update.recorded_at, now)

    def _presence(self, jid: str) -> bytes:
        known = self._sightings[jid].known
        since = None if known.since is None else _time(known.since)
        return _event("presence", {"jid": jid, "state": known.state, "since": since})

    def _refused(self, update: Update, error: BadMessage) -> None:
        self._hub.counters.add("chat_refused")
        _log.warning(LogEvent("message.refused", position=update.position, reason=error))


def _event(kind: str, data: dict[str, str | None], identity: str = "") -> bytes:
    named = f"id: {identity}\n" if identity else ""
    return f"{named}event: {kind}\ndata: {json.dumps(data)}\n\n".encode()


def _time(seconds: float) -> str:
    found = datetime.fromtimestamp(seconds, UTC)
    return found.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _history(text: str | None) -> int:
    if text is None:
        return HISTORY
    if not re.fullmatch("[0-9]{1,4}", text) or int(text) > MOST_HISTORY:
        raise BadMessage(f"history is a number from 0 to {MOST_HISTORY}")
    return int(text)
