"""The browser stream of a hub as a client's access point: topics come by `/stream`, native ones by
`/mobility/native`.

What is subscribed to in one moment shares a connection. A connection that ends takes the whole
place with it: the client is nowhere, and moves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from identifiers import Position
from mobility import After, ClientSettings, Listener, Message
from psirp_sim.runtime.durations import SECOND
from psph.mobility.connections import Connections
from psph.mobility.link import ProxyLink
from psph.mobility.publishing import Publishing
from psph.mobility.topic_stream import Guard, StreamSubscription, TopicStream

SETTINGS = ClientSettings(retry_first=3 * SECOND)
"""For clients at hubs: what is said over HTTP is not lost while the hub runs, so it is not said
again soon; many clients that come at once would keep a hub busy with it."""
_LONGEST_QUERY = 6_000
_MOST_TOPICS = 100


class StreamAccess:
    """Implements `mobility.port.AccessPoint`; `send` reaches the proxy of the same hub."""

    def __init__(
        self,
        connections: Connections,
        url_of: Callable[[str], str],
        guard: Guard,
        receive: Callable[[str, bytes], None],
        broken: Callable[[str], None],
        token: str = "",
        together: Guard = lambda call, *args: call(*args),
    ) -> None:
        """`url_of` the name of a proxy is where its hub is. `token` lets the client publish.
        `together` makes a call in which several messages are delivered."""
        self._connections = connections
        self._url_of = url_of
        self._guard = guard
        self._receive = receive
        self._on_broken = broken
        self._together = together
        self._place = self._url = ""
        self._link: ProxyLink | None = None
        self._publishing = Publishing(connections.session, token, guard)
        self._new: list[StreamSubscription] = []
        self._opening = False
        self._tasks: set[asyncio.Task[None]] = set()

    def attach(self, place: str) -> None:
        self._place, self._url = place, self._url_of(place)

        def receive(packet: bytes) -> None:
            self._guard(self._receive, place, packet)

        self._link = ProxyLink(self._connections, self._url, receive, self._broken)
        self._publishing.open(self._url)
        self._open_soon()

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
        self._open_soon()
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

    def _open_soon(self) -> None:
        if not self._opening:
            self._opening = True
            asyncio.get_running_loop().call_soon(self._open)

    def _open(self) -> None:
        """Connections for what was subscribed to since the last time; and for a place that is new,
        the one to its proxy, after those that messages come by."""
        self._opening = False
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
        if self._link is not None and not self._link.begun:
            self._link.begin()

    async def _read(self, url: str, subscriptions: list[StreamSubscription]) -> None:
        stream = TopicStream(subscriptions, self._guard, self._together)
        self._broken(await stream.read(self._connections, url))
