"""Who wants topics besides callbacks: streams, readers of /t/, and others outside.

What they want is followed like what is subscribed to, and not forgotten. It is kept in memory only:
after a restart they come again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from identifiers import Topic
from push_hub.context import Context
from push_hub.store.records import TopicRecord
from push_hub.streams import Streams


class Interest:
    """Topics by who holds them."""

    def __init__(self, context: Context, streams: Streams) -> None:
        self._context = context
        self._streams = streams
        self._holders: dict[str, set[str]] = {}
        self._ids: dict[str, int] = {}
        self.begun: Callable[[], object] = lambda: None
        """Called when somebody begins to want a topic."""
        streams.opened = lambda: self.begun()

    def topics(self) -> frozenset[int]:
        """All that somebody wants now."""
        return self._streams.topics() | frozenset(self._ids.values())

    def hold(self, topic: Topic, holder: str) -> bool:
        """From now on; `settle` has to follow, which makes the topic known. Whether it is new."""
        holders = self._holders.setdefault(topic.canonical, set())
        new = holder not in holders
        holders.add(holder)
        return new

    async def settle(self, topic: Topic) -> TopicRecord:
        """The topic, known now; Refused when the hub has too many."""
        context = self._context
        plain = context.naming.plain(topic)
        record = await context.store.ensure_topic(plain, context.caps, context.clock())
        if topic.canonical in self._holders and topic.canonical not in self._ids:
            self._ids[topic.canonical] = record.id
            self.begun()
        return record

    def release(self, topic: Topic, holder: str) -> None:
        """Not any more."""
        holders = self._holders.get(topic.canonical)
        if holders is None:
            return
        holders.discard(holder)
        if not holders:
            del self._holders[topic.canonical]
            self._ids.pop(topic.canonical, None)


class Looks:
    """Lets others wait until a fetch of a topic ended, or it has an update."""

    def __init__(self) -> None:
        self._waiting: dict[int, set[asyncio.Event]] = {}

    def happened(self, topic_id: int) -> None:
        """One or the other."""
        for each in self._waiting.get(topic_id, ()):
            each.set()

    @contextmanager
    def of(self, topic_id: int) -> Iterator[asyncio.Event]:
        """An event that is set whenever something happens to the topic."""
        event = asyncio.Event()
        waiting = self._waiting.setdefault(topic_id, set())
        waiting.add(event)
        try:
            yield event
        finally:
            waiting.discard(event)
            if not waiting and self._waiting.get(topic_id) is waiting:
                del self._waiting[topic_id]
