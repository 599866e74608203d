"""From a recorded update to browsers: Server-Sent Events, many topics in one stream.

A stream resumes (`resuming`) after the Positions given for each topic, at this hub or another one;
or after the id of its last event, a cursor of this hub's log (`cursor`) that is good for all its
topics. For that, the events of a stream come in the order in which their updates were recorded: an
update that came after a later one would be skipped by a reader that resumes between the two.

A browser that reads too slowly is dropped: it comes back and resumes. The hub never waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from identifiers import Position, Topic
from push_hub.context import Context
from push_hub.cursor import Log
from push_hub.errors import Busy, Refused
from push_hub.event_stream import Event, caught_up_event
from push_hub.recalling import Recalling
from push_hub.recent import Recent, Remembered
from push_hub.resuming import Resumption, Start
from push_hub.store.records import Update


@dataclass(frozen=True, slots=True)
class Streamed:
    """A topic of a stream: its number in the store, and its name."""

    id: int
    canonical: str


class Streams:
    """All streams of a hub."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._by_topic: dict[int, set[Stream]] = {}
        self._count = 0
        self._opened = 0
        self._closed = False
        self._recalling = Recalling(context)
        self._recent = Recent(context.settings.history)
        self._log = Log(context.store.identity)
        self.opened: Callable[[], object] = lambda: None
        """Called when somebody begins to watch."""

    async def start(self) -> None:
        """Before anything is recorded."""
        self._recent.last_seq = await self._context.store.last_seq()

    def __len__(self) -> int:
        return self._count

    def topics(self) -> frozenset[int]:
        """The topics that somebody is watching."""
        return frozenset(self._by_topic)

    def watching(self, topic_id: int) -> int:
        """How many streams carry the topic."""
        return len(self._by_topic.get(topic_id, ()))

    async def open(
        self,
        topics: Sequence[Topic],
        after: Sequence[Sequence[Position] | None],
        name: str,
        *,
        last: int = 1,
        whole: bool = False,
        since: str | None = None,
    ) -> Stream:
        """A stream of the topics, each from after the Positions given for it (one of each
        publisher), or with its `last` so many versions; where None is given, from now on.

        `whole`: feeds are sent as they are and not as entries. `since`: the id of the last event
        that its reader had; the Positions are those it began with then.
        """
        for topic in topics:
            if not self._context.settings.serves_host(topic.host):
                raise Refused(f"this hub does not serve topics of {topic.host}")
        if self._count >= self._context.settings.streams_at_once or self._closed:
            raise Busy("this hub has too many streams open: try again later")
        self._count += 1
        try:
            records = [await self._find(self._context.naming.plain(topic)) for topic in topics]
        except BaseException:
            self._count -= 1
            raise
        starts = [
            Start(record.id, topic, tuple(positions or ()), 0 if positions is None else last)
            for record, topic, positions in zip(records, topics, after, strict=True)
        ]
        resumption = Resumption(
            self._context, self._recalling, self._recent, self._log, starts, whole=whole,
            since=since,
        )  # fmt: skip
        self._opened += 1
        stream = Stream(self._context, resumption, records, topics, name, whole)
        stream.reader = f"{name} {self._opened}"
        for record, topic in zip(records, topics, strict=True):
            self._by_topic.setdefault(record.id, set()).add(stream)
            self._context.tracer.subscribed(record.canonical, name)
            self._context.carrying.joined(topic, stream.reader, None)
        self.opened()
        return stream

    def are_recent(
        self, topics: Sequence[Topic], after: Sequence[Sequence[Position] | None]
    ) -> bool:
        """Whether readers with these Positions of each topic lack nothing that is not in memory."""
        for topic, positions in zip(topics, after, strict=True):
            topic_id = self._recent.topic_id(self._context.naming.plain(topic).canonical)
            if topic_id is None or self._recent.place(topic_id, positions or ()) is None:
                return False
        return True

    async def _find(self, topic: Topic) -> Streamed:
        topic_id = self._recent.topic_id(topic.canonical)
        if topic_id is None:
            caps, clock = self._context.caps, self._context.clock
            topic_id = (await self._context.store.ensure_topic(topic, caps, clock())).id
        return Streamed(topic_id, topic.canonical)

    def shut(self, stream: Stream) -> None:
        """The browser is gone."""
        stream.end()
        for topic_id in stream.spellings:
            listening = self._by_topic.get(topic_id, set())
            listening.discard(stream)
            if not listening:
                self._by_topic.pop(topic_id, None)
        for record in stream.records:
            self._context.tracer.unsubscribed(record.canonical, stream.name, stream.reason)
        for topic in stream.topics:
            self._context.carrying.left(topic, stream.reader)
        self._count -= 1

    def send(self, update: Update) -> None:
        """To every stream of the topic."""
        made = self._recent.add(update)
        for stream in tuple(self._by_topic.get(update.topic_id, ())):
            stream.put(made)

    def close(self) -> None:
        """End all streams: the browsers come back when the hub does."""
        self._closed = True
        for streams in tuple(self._by_topic.values()):
            for stream in tuple(streams):
                stream.end()

    async def stop(self) -> None:
        """After `close`: nothing is asked for any more."""
        await self._recalling.stop()


class Stream:
    """One browser. Iterate over it for events; None is a moment to send a heartbeat."""

    def __init__(
        self,
        context: Context,
        resumption: Resumption,
        records: Sequence[Streamed],
        topics: Sequence[Topic],
        name: str,
        whole: bool,
    ) -> None:
        self.records = tuple(records)
        self.topics = tuple(topics)
        self.spellings = {
            record.id: topic.spelling for record, topic in zip(records, topics, strict=True)
        }
        self.name = name
        self.whole = whole
        self.reader = name
        """What the carrier knows it by: no other stream has this name."""
        self.reason: str | None = None
        self.abort: Callable[[], None] = lambda: None
        """Cuts the connection, whose writer may be waiting for the browser."""
        self._context = context
        self._resumption = resumption
        self._queue: asyncio.Queue[Remembered | None] = asyncio.Queue()
        self._size = 0
        self._ended = False

    def put(self, update: Remembered) -> None:
        """Queue an update, or drop the browser when too much is waiting for it."""
        if self._ended:
            return
        self._size += self._size_of(update)
        # One event larger than the buffer is let through when nothing else waits.
        if self._size > self._context.settings.stream_buffer and not self._queue.empty():
            self._context.counters.add("streams_dropped")
            self.reason = "the browser reads too slowly"
            self.end()
            self.abort()
            return
        self._queue.put_nowait(update)

    async def bases(self) -> dict[str, tuple[Position, ...]]:
        """Once it has caught up: where its reader is in each topic, as that is spelled."""
        return {
            self.spellings[record.id]: await self._resumption.base(record.id)
            for record in self.records
        }

    def id_line(self, event: Event) -> bytes:
        """To be sent before the event; empty for one that is not in the hub's log."""
        if event.update is None or not event.update.seq:
            return b""
        return f"id: {self._resumption.cursor(event.update.seq)}\n".encode()

    def end(self) -> None:
        """Nothing more will come."""
        self._ended = True
        self.wake()

    def wake(self) -> None:
        """Let its reader have a heartbeat once what is queued now has been sent."""
        self._queue.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[Event | None]:
        async for batch in self.batches():
            for event in batch:
                yield event
            if not batch:
                yield None

    async def batches(self) -> AsyncIterator[list[Event]]:
        """Events that are there at the same moment; none is a moment to send a heartbeat."""
        async for batch in self._resumption.catch_up():
            yield batch
        yield [caught_up_event()]
        heartbeat = self._context.settings.heartbeat
        while not self._ended:
            try:
                async with asyncio.timeout(heartbeat):
                    waiting = await self._queue.get()
            except TimeoutError:
                yield []
                continue
            if waiting is None:
                if not self._ended:
                    yield []
                continue
            self._size -= self._size_of(waiting)
            batch = [event async for event in self._resumption.next(waiting)]
            if batch:
                yield batch

    def _size_of(self, update: Remembered) -> int:
        spelling = self.spellings[update.update.topic_id]
        return len(update.event(spelling, self.whole).data)
