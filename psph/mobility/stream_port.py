"""The browser stream of a hub as a client's access point: topics come by `/stream`, native ones by
`/mobility/native`.

What is subscribed to in one moment shares a connection. A connection that ends takes the whole
place with it: the client is nowhere, and moves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiohttp

from identifiers import Position
from mobility import After, Listener, Message
from psph.mobility.link import ProxyLink
from psph.mobility.publishing import Publishing
from psph.mobility.topic_stream import Guard, StreamSubscription, TopicStream

_LONGEST_QUERY = 6_000
_MOST_TOPICS = 100


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
        waiting = sorted((each for each in self._new if not each.over), key=lambda each: each.path)
        self._new = []
        shares: list[list[StreamSubscription]] = []
        size = _LONGEST_QUERY
        for each in waiting:
            full = size + len(each.query) > _LONGEST_QUERY or len(shares[-1]) == _MOST_TOPICS
            if full or shares[-1][0].path != each.path:
                shares.append([])
                size = 0
            shares[-1].append(each)
            size += len(each.query)
        for share in shares:
            task = asyncio.create_task(self._read(self._url, share))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _read(self, url: str, subscriptions: list[StreamSubscription]) -> None:
        stream = TopicStream(subscriptions, self._guard)
        self._broken(await stream.read(self._session, url))
