"""The browser stream of a hub as a client's access point: topics come by `/stream`.

What is subscribed to in one moment shares a connection. A connection that ends takes the whole
place with it: the client is nowhere, and moves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from urllib.parse import urlencode

import aiohttp
import msgspec

from identifiers import InvalidPosition, Position
from mobility import After, Listener, Message
from psph.mobility.event_reading import Ended, read_events
from psph.mobility.hub_port import kind_of
from psph.mobility.link import ProxyLink
from psph.mobility.publishing import Publishing
from push_hub.event_stream import BadEvent, ReadEvent
from push_hub.stream_events import StreamGap, StreamUpdate, read_stream_event

_SILENCE = 45.0
"""Seconds: a hub says every fifteen that it is there."""
_LONGEST_QUERY = 6_000
_MOST_TOPICS = 100

Guard = Callable[..., None]
"""Calls a core with some arguments."""


class _Base(msgspec.Struct):
    topic: str
    base: list[str]


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
        after = "now" if self.after is None else ",".join(map(str, self.after[-64:]))
        return urlencode([("topic", self.topic), ("after", after)])


class StreamAccess:
    """Implements `mobility.port.AccessPoint`; `send` reaches the proxy of the same hub."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url_of: Callable[[str], str],
        guard: Guard,
        receive: Callable[[str, bytes], None],
        broken: Callable[[str], None],
        token: str = "",
    ) -> None:
        """`url_of` the name of a proxy is where its hub is. `token` lets the client publish."""
        self._session = session
        self._url_of = url_of
        self._guard = guard
        self._receive = receive
        self._on_broken = broken
        self._place = self._url = ""
        self._link: ProxyLink | None = None
        self._publishing = Publishing(session, token, guard)
        self._new: list[StreamSubscription] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def attach(self, place: str) -> None:
        self._place, self._url = place, self._url_of(place)

        def receive(packet: bytes) -> None:
            self._guard(self._receive, place, packet)

        self._link = ProxyLink(self._session, self._url, receive, self._broken)
        self._publishing.open(self._url)

    def detach(self) -> None:
        self._publishing.close()
        if self._link is not None:
            self._link.close()
            self._link = None
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()
        self._new.clear()

    def send(self, peer: str, packet: bytes) -> None:
        """To the proxy that the client is at."""
        if self._link is not None and peer == self._place:
            self._link.send(packet)

    def history(self, topic: str) -> int:
        return 1  # it does replay; how far, its hub knows

    def subscribe(self, topic: str, after: After, listener: Listener) -> StreamSubscription:
        if not self._new:
            asyncio.get_running_loop().call_soon(self._open)
        subscription = StreamSubscription(topic, after, listener)
        self._new.append(subscription)
        return subscription

    def publish(
        self, topic: str, position: Position | None, message: Message, done: Callable[[], None]
    ) -> None:
        self._publishing.publish(topic, position, message, done)

    def _broken(self, reason: str) -> None:
        if self._link is not None:
            self.detach()
            self._on_broken(reason)

    def _open(self) -> None:
        """Connections for what was subscribed to since the last time."""
        waiting, self._new = [each for each in self._new if not each.over], []
        shares: list[list[StreamSubscription]] = []
        size = _LONGEST_QUERY
        for each in waiting:
            if size + len(each.query) > _LONGEST_QUERY or len(shares[-1]) == _MOST_TOPICS:
                shares.append([])
                size = 0
            shares[-1].append(each)
            size += len(each.query)
        for share in shares:
            task = asyncio.create_task(self._read(self._url, share))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _read(self, url: str, subscriptions: list[StreamSubscription]) -> None:
        query = "&".join(each.query for each in subscriptions)
        by_topic = {each.topic: each for each in subscriptions}
        address = f"{url}/stream?base=event&content=whole&{query}"
        try:
            async for event in read_events(self._session, address, _SILENCE):
                self._heard(event, by_topic)
        except Ended as end:
            self._broken(str(end))
        except (BadEvent, msgspec.MsgspecError, InvalidPosition) as error:
            self._broken(f"it sent what makes no sense: {error}")

    def _heard(self, event: ReadEvent, by_topic: dict[str, StreamSubscription]) -> None:
        if event.kind == "base":
            told = msgspec.json.decode(event.data, type=_Base)
            base: After = tuple(map(Position.parse, told.base)) or None
            found = by_topic.get(told.topic)
            if found is None or found.over:
                return
            if base is not None and found.after is not None:
                base = found.after  # what is newer has been delivered already
            self._guard(found.listener.subscribed, told.topic, base)
            return
        said = read_stream_event(event)
        found = None if said is None else by_topic.get(said.topic)
        if said is None or found is None or found.over:
            return
        if isinstance(said, StreamUpdate):
            message = Message(said.content, kind_of(said.content_type))
            self._guard(found.listener.deliver, said.topic, said.position, message)
        elif isinstance(said, StreamGap):
            last = said.resumes
            before = Position(last.publisher, last.epoch, last.version - 1)
            self._guard(found.listener.gap, said.topic, said.after.next(), before)
