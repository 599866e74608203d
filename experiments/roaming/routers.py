"""The nodes of a pub/sub system: three of them, one above the two that a client moves between.

Every publication that begins with the name before a filter's `/` matches it. So the filters
`news/1`, `news/2`, ... all match the publications of `news`, as in the source's experiments, and a
subscriber gets each of these once, however many of its filters match.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from experiments.roaming.lines import Channel, Line
from experiments.roaming.systems import System
from psirp_sim.runtime.environment import Environment


class Subscribe(msgspec.Struct, frozen=True, array_like=True, tag=True):
    filter: str
    padding: bytes = b""


class Unsubscribe(msgspec.Struct, frozen=True, array_like=True, tag=True):
    filter: str


class Publish(msgspec.Struct, frozen=True, array_like=True, tag=True):
    topic: str
    position: str | None
    body: bytes


class Leave(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """All filters of the sender go."""


Said = Subscribe | Unsubscribe | Publish | Leave
_decoder = msgspec.msgpack.Decoder(Said)


def encode(said: Said) -> bytes:
    return msgspec.msgpack.encode(said)


def decode(content: bytes) -> Said:
    return _decoder.decode(content)


def subscription(filter: str, size: int) -> bytes:
    """The request, in so many bytes."""
    short = len(encode(Subscribe(filter)))
    return encode(Subscribe(filter, bytes(max(0, size - short))))


def matches(filter: str, topic: str) -> bool:
    return filter.split("/", 1)[0] == topic


def wanted(filters: Iterable[str], topic: str) -> str | None:
    """The first of the filters that match."""
    return next((each for each in filters if matches(each, topic)), None)


@dataclass(slots=True, eq=False)
class Subscriber:
    """Somebody with filters at a node."""

    deliver: Callable[[Publish], None]
    filters: dict[str, None] = field(default_factory=dict)
    """Those in effect."""


class Router:
    """One node. `above` is the node that it passes subscriptions on to."""

    def __init__(
        self,
        env: Environment,
        system: System,
        line: Callable[[str], Line],
        below: Iterable[str] = (),
        above: str | None = None,
    ) -> None:
        self._env = env
        self._system = system
        self._line = line
        self._above = above
        self._below = tuple(below)
        self._subscribers: list[Subscriber] = []
        self._clients: dict[str, Subscriber] = {}
        """By the link they are at."""
        self._routes: dict[str, dict[str, None]] = {name: {} for name in self._below}
        self._passed: dict[str, None] = {}
        """Filters that the node above knows, or will."""
        self._work: deque[tuple[int, Callable[[], None]]] = deque()

    @property
    def idle(self) -> bool:
        return not self._work

    # What subscribers ask, those on this host directly

    def add(self, subscriber: Subscriber) -> None:
        self._subscribers.append(subscriber)

    def subscribe(
        self, subscriber: Subscriber, filter: str, done: Callable[[], None] | None = None
    ) -> None:
        def accepted() -> None:
            if subscriber in self._subscribers:
                subscriber.filters[filter] = None
                if done is not None:
                    done()

        self._do(self._system.accept, accepted)

    def unsubscribe(self, subscriber: Subscriber, filter: str) -> None:
        subscriber.filters.pop(filter, None)
        self._withdraw()

    def remove(self, subscriber: Subscriber) -> None:
        if subscriber in self._subscribers:
            self._subscribers.remove(subscriber)
            self._withdraw()

    def publish(self, publication: Publish, source: str = "") -> None:
        """Deliver here, and to the nodes that it is for, except where it comes from."""
        for subscriber in list(self._subscribers):
            if wanted(subscriber.filters, publication.topic) is not None:
                subscriber.deliver(publication)
        for name in self._below:
            routed = wanted(self._routes[name], publication.topic) is not None
            if name != source and (self._system.broadcasts or routed):
                self._tell(name, publication)
        if self._above is not None and self._above != source:
            self._tell(self._above, publication)

    # What comes over links

    def receive(self, link: str, content: bytes) -> None:
        said = decode(content)
        if isinstance(said, Publish):
            self.publish(said, link)
        elif link in self._routes:
            self._route(link, said)
        elif isinstance(said, Subscribe):
            if link not in self._clients:
                self._clients[link] = Subscriber(lambda each: self._tell_client(link, each))
                self.add(self._clients[link])
            self.subscribe(self._clients[link], said.filter)
        elif isinstance(said, Leave) and link in self._clients:
            self.remove(self._clients.pop(link))

    def _route(self, link: str, said: Said) -> None:
        routes = self._routes[link]
        if isinstance(said, Subscribe):
            self._do(self._system.install, lambda: routes.setdefault(said.filter))
        elif isinstance(said, Unsubscribe):
            # After what came before it.
            self._do(0, lambda: routes.pop(said.filter, None))

    def _tell(self, name: str, said: Said) -> None:
        self._line(name).send(Channel.PUBSUB, encode(said))

    def _tell_client(self, link: str, publication: Publish) -> None:
        if self._system.keeps_connections:
            self._line(link).send(Channel.PUBSUB, encode(publication))
        else:
            self._line(link).send_alone(Channel.PUBSUB, encode(publication))

    # One thing after the other

    def _do(self, takes: int, job: Callable[[], object]) -> None:
        self._work.append((takes, lambda: job() and None))
        if len(self._work) == 1:
            self._env.call_later(takes, self._done)

    def _done(self) -> None:
        _, job = self._work[0]
        job()
        self._work.popleft()
        if self._work:
            self._env.call_later(self._work[0][0], self._done)
        else:
            self._pass_on()

    def _pass_on(self) -> None:
        """Nothing is left to take in: now the node above learns what is new."""
        if self._above is None or self._system.broadcasts:
            return
        for filter in self._wanted_here():
            if filter not in self._passed:
                self._passed[filter] = None
                self._tell(self._above, Subscribe(filter))

    def _withdraw(self) -> None:
        if self._above is None or self._system.broadcasts:
            return
        needed = self._wanted_here()
        for filter in [each for each in self._passed if each not in needed]:
            del self._passed[filter]
            self._tell(self._above, Unsubscribe(filter))

    def _wanted_here(self) -> dict[str, None]:
        return {filter: None for each in self._subscribers for filter in each.filters}
