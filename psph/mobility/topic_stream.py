"""One connection to `/stream` of a hub, or to `/mobility/native`: what comes by it goes to the
listeners of its topics."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlencode

from identifiers import Position
from mobility import After, Listener, Message
from psph.mobility.connections import Connections
from psph.mobility.event_reading import Ended, read_batches
from psph.mobility.hub_port import kind_of
from psph.mobility.native_topics import NATIVE
from push_hub.event_stream import BadEvent, ReadEvent
from push_hub.stream_events import StreamBase, StreamGap, StreamUpdate, read_stream_event
from push_hub.stream_routes import MAX_POSITIONS, NOW

_SILENCE = 45.0
"""Seconds: a hub says every fifteen that it is there."""

Guard = Callable[..., None]
"""Calls a core with some arguments."""


class StreamSubscription:
    """One topic of one listener."""

    def __init__(self, topic: str, after: After, listener: Listener) -> None:
        self.topic = topic
        self.after = after
        self.listener = listener
        self.over = False

    def cancel(self) -> None:
        self.over = True

    @property
    def query(self) -> str:
        after = NOW if self.after is None else ",".join(map(str, self.after[-MAX_POSITIONS:]))
        return urlencode([("topic", self.topic), ("after", after)])

    @property
    def path(self) -> str:
        """Where the hub has topics of that kind."""
        return "/mobility/native" if self.topic.startswith(NATIVE) else "/stream"


class TopicStream:
    """A connection for some subscriptions, of different topics and one path."""

    def __init__(
        self, subscriptions: list[StreamSubscription], guard: Guard, together: Guard
    ) -> None:
        """`together` makes a call in which several events are handed on."""
        self._by_topic = {each.topic: each for each in subscriptions}
        self._path = subscriptions[0].path
        self._guard = guard
        self._together = together

    async def read(self, connections: Connections, url: str) -> str:
        """Hand on what comes until it ends; why it did."""
        query = "&".join(each.query for each in self._by_topic.values())
        address = f"{url}{self._path}?base=event&content=whole&{query}"
        try:
            async for events in read_batches(connections, address, _SILENCE):
                self._together(self._heard_all, events)
        except Ended as end:
            return str(end)
        except BadEvent as error:
            return f"it sent what makes no sense: {error}"
        return "it ended the stream"

    def _heard_all(self, events: list[ReadEvent]) -> None:
        for event in events:
            self._heard(event)

    def _heard(self, event: ReadEvent) -> None:
        said = read_stream_event(event)
        found = None if said is None else self._by_topic.get(said.topic)
        if said is None or found is None or found.over:
            return
        if isinstance(said, StreamBase):
            base: After = said.base or None
            if base is not None and found.after is not None:
                base = found.after  # what is newer has been delivered already
            self._guard(found.listener.subscribed, said.topic, base)
        elif isinstance(said, StreamUpdate):
            message = Message(said.content, kind_of(said.content_type))
            self._guard(found.listener.deliver, said.topic, said.position, message)
        elif isinstance(said, StreamGap):
            last = said.resumes
            before = Position(last.publisher, last.epoch, last.version - 1)
            self._guard(found.listener.gap, said.topic, said.after.next(), before)
