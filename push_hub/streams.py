"""From a recorded update to browsers: Server-Sent Events, many topics in one stream.

An event's id is the Position of its update, so Last-Event-ID and `after` resume from the stored
history. What cannot be resumed is said: `gap` when updates left the history, `reset` when the
numbering is another one than the client knew. Positions count per topic; a stream of several
topics resumes at the earliest update the id can mean, so an event may come twice but none is left
out, and a client that keeps a Position for each topic sees which.

A browser that reads too slowly is dropped: it comes back and resumes. The hub never waits for it.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from identifiers import Position, PublisherId, Topic
from push_hub.context import Context
from push_hub.errors import Refused
from push_hub.store.records import TopicRecord, Update

HEARTBEAT = b": still here\n\n"
_PAGE = 8


@dataclass(frozen=True, slots=True)
class Event:
    """One event as it goes over the wire; `update` is what it is about, if anything."""

    data: bytes
    update: Update | None = None
    notice: Notice | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """A `gap` or `reset`: the client knew `after`, and goes on with `resumes`."""

    kind: str
    topic: str
    """As the client spelled it."""
    after: Position
    resumes: Position


class Streams:
    """All streams of a hub."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._by_topic: dict[int, set[Stream]] = {}
        self._count = 0
        self._opened = 0
        self._closed = False
        self.opened: Callable[[], object] = lambda: None
        """Called when somebody begins to watch."""

    def __len__(self) -> int:
        return self._count

    def topics(self) -> frozenset[int]:
        """The topics that somebody is watching."""
        return frozenset(self._by_topic)

    def watching(self, topic_id: int) -> int:
        """How many streams carry the topic."""
        return len(self._by_topic.get(topic_id, ()))

    async def open(
        self, topics: Sequence[Topic], after: Sequence[Position | int | None], name: str
    ) -> Stream:
        """A stream of the topics, each from after a position, with its last so many versions, or
        from its current version on."""
        for topic in topics:
            if not self._context.settings.serves_host(topic.host):
                raise Refused(f"this hub does not serve topics of {topic.host}")
        if self._count >= self._context.settings.streams_at_once or self._closed:
            raise Refused("this hub has too many streams open: try again later")
        self._count += 1
        try:
            records = [
                await self._context.store.ensure_topic(
                    self._context.naming.plain(topic), self._context.caps, self._context.clock()
                )
                for topic in topics
            ]
        except BaseException:
            self._count -= 1
            raise
        spellings = {
            record.id: topic.spelling for record, topic in zip(records, topics, strict=True)
        }
        stream = Stream(self._context, spellings, name)
        self._opened += 1
        stream.topics, stream.reader = tuple(topics), f"{name} {self._opened}"
        for record, topic in zip(records, topics, strict=True):
            self._by_topic.setdefault(record.id, set()).add(stream)
            self._context.tracer.subscribed(record.canonical, name)
            self._context.carrying.joined(topic, stream.reader, None)
        stream.starts = list(zip(records, after, strict=True))
        self.opened()
        return stream

    def shut(self, stream: Stream) -> None:
        """The browser is gone."""
        stream.end()
        for topic_id in stream.spellings:
            listening = self._by_topic.get(topic_id, set())
            listening.discard(stream)
            if not listening:
                self._by_topic.pop(topic_id, None)
        for record, _ in stream.starts:
            self._context.tracer.unsubscribed(record.canonical, stream.name, stream.reason)
        for topic in stream.topics:
            self._context.carrying.left(topic, stream.reader)
        self._count -= 1

    def send(self, update: Update) -> None:
        """To every stream of the topic. One event is made for all that spell it alike."""
        made: dict[str, Event] = {}
        for stream in tuple(self._by_topic.get(update.topic_id, ())):
            spelling = stream.spellings[update.topic_id]
            if spelling not in made:
                made[spelling] = update_event(update, spelling)
            stream.put(made[spelling])

    def close(self) -> None:
        """End all streams: the browsers come back when the hub does."""
        self._closed = True
        for streams in tuple(self._by_topic.values()):
            for stream in tuple(streams):
                stream.end()


class Stream:
    """One browser. Iterate over it for events; None is a moment to send a heartbeat."""

    def __init__(self, context: Context, spellings: dict[int, str], name: str) -> None:
        self.spellings = spellings
        self.name = name
        self.topics: tuple[Topic, ...] = ()
        self.reader = name
        """What the carrier knows it by: no other stream has this name."""
        self.starts: list[tuple[TopicRecord, Position | int | None]] = []
        self.reason: str | None = None
        self.abort: Callable[[], None] = lambda: None
        """Cuts the connection, whose writer may be waiting for the browser."""
        self._context = context
        self._queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self._size = 0
        self._ended = False
        self._sent: dict[int, int] = {}
        self._last: dict[tuple[int, PublisherId], Position] = {}

    def put(self, event: Event) -> None:
        """Queue an event, or drop the browser when too much is waiting for it."""
        if self._ended:
            return
        self._size += len(event.data)
        # One event larger than the buffer is let through when nothing else waits.
        if self._size > self._context.settings.stream_buffer and not self._queue.empty():
            self._context.counters["streams_dropped"] += 1
            self.reason = "the browser reads too slowly"
            self.end()
            self.abort()
            return
        self._queue.put_nowait(event)

    def end(self) -> None:
        """Nothing more will come."""
        if not self._ended:
            self._ended = True
            self._queue.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[Event | None]:
        async for event in self._catch_up():
            yield event
        heartbeat = self._context.settings.heartbeat
        waiting: Event | None
        while not self._ended:
            try:
                async with asyncio.timeout(heartbeat):
                    waiting = await self._queue.get()
            except TimeoutError:
                yield None
                continue
            if waiting is None:
                return
            self._size -= len(waiting.data)
            update = waiting.update
            # Recorded while the history was read, and sent from there already.
            if update is not None and update.seq <= self._sent.get(update.topic_id, 0):
                continue
            if update is not None and (notice := self._notice(update)):
                yield notice
            yield waiting

    async def _catch_up(self) -> AsyncIterator[Event]:
        store = self._context.store
        resume: dict[int, int] = {}
        for record, after in self.starts:
            latest = await store.latest(record.id)
            if latest is None:
                continue
            self._sent[record.id] = 0
            if after is None:
                resume[record.id] = latest.seq - 1
                continue
            if isinstance(after, int):
                resume[record.id] = await self._before_last(latest, after)
                continue
            found = await store.find(record.id, after)
            if found is not None or self._continues(after, latest):
                # What is missing between this and the next one shows when that is sent.
                self._last[record.id, after.publisher] = after
                resume[record.id] = found or 0
                continue
            resume[record.id] = latest.seq - 1
            yield notice_event("reset", self.spellings[record.id], after, latest.position)
        if not resume:
            return
        at = min(resume.values())
        while page := await store.history(list(resume), at, _PAGE):
            for update in page:
                at = update.seq
                if update.seq > resume[update.topic_id]:
                    self._sent[update.topic_id] = update.seq
                    if notice := self._notice(update):
                        yield notice
                    yield update_event(update, self.spellings[update.topic_id])

    async def _before_last(self, latest: Update, count: int) -> int:
        """The number before those of a topic's last so many updates."""
        store = self._context.store
        last = await store.versions(latest.topic_id, count) if count else []
        first = await store.find(latest.topic_id, last[-1].position) if last else None
        return latest.seq if first is None else first - 1

    @staticmethod
    def _continues(after: Position, latest: Update) -> bool:
        """Whether the client's numbering is that of the latest update, and behind it."""
        now = latest.position
        return (after.publisher, after.epoch) == (now.publisher, now.epoch) and after < now

    def _notice(self, update: Update) -> Event | None:
        """What to say before an update when it is not the one after the last its publisher had.

        The history may lose its oldest while it is read, so this is asked for every event.
        """
        position = update.position
        key = (update.topic_id, position.publisher)
        last = self._last.get(key)
        if last is not None and position <= last:
            return None
        self._last[key] = position
        if last is None or position.directly_follows(last):
            return None
        kind = "gap" if position.epoch == last.epoch else "reset"
        return notice_event(kind, self.spellings[update.topic_id], last, position)


def update_event(update: Update, spelling: str) -> Event:
    """The event of an update, with the topic as the browser spelled it."""
    head = json.dumps(
        {
            "topic": spelling,
            "position": str(update.position),
            "content_type": update.content_type,
            "trace_id": update.trace_id,
        }
    )
    if update.entries is not None:
        # Already JSON, and on one line: json.dumps escapes line ends in texts.
        body = f'"entries": {update.entries}'
    else:
        body = f'"body_b64": "{base64.b64encode(update.body).decode()}"'
    data = f"id: {update.position}\ndata: {head[:-1]}, {body}}}\n\n"
    return Event(data.encode(), update)


def notice_event(kind: str, spelling: str, after: Position, resumes: Position) -> Event:
    """A notice as it goes over the wire."""
    data = {"topic": spelling, "after": str(after), "resumes": str(resumes)}
    notice = Notice(kind, spelling, after, resumes)
    return Event(f"event: {kind}\ndata: {json.dumps(data)}\n\n".encode(), notice=notice)
