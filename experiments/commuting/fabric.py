"""A system that does not flood, with mobility's port to it: what `ours` runs on.

Messages go only to brokers where somebody subscribed to their topic. The first subscription of a
topic at a broker takes time to spread: the publisher's node makes a route of it, and says which
version was the last before, as our fabric does. There is no history, so that whatever a client
needs later has to be buffered by somebody.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from experiments.commuting.itinerary import SELECTORS
from experiments.commuting.ledger import Ledger
from experiments.commuting.publisher import Publisher, body
from identifiers import Position, PublisherId
from mobility import After, Listener, Message
from psirp_sim.runtime.environment import Environment

EPOCH = 1


class _Word(msgspec.Struct, frozen=True, array_like=True, tag=True):
    pass


class Route(_Word, frozen=True):
    """From a broker to the publisher's node: somebody here wants the topic."""

    topic: str
    number: int


class Routed(_Word, frozen=True):
    """Back, under the same number: everything after this version comes."""

    topic: str
    number: int
    version: int


class Unroute(_Word, frozen=True):
    topic: str


class Published(_Word, frozen=True):
    topic: str
    version: int
    body: bytes


class Taken(_Word, frozen=True):
    """From a broker: the publisher may go on."""


class Subscribed(_Word, frozen=True):
    """To a client: topics with the last version before."""

    topics: dict[str, int]


class Mobile(_Word, frozen=True):
    """A message of mobility/."""

    content: bytes


class Together(_Word, frozen=True):
    """What a client says at one moment, as one request: subscriptions, messages of mobility/."""

    topics: tuple[str, ...]
    mobile: tuple[bytes, ...]


Word = Route | Routed | Unroute | Published | Taken | Subscribed | Mobile | Together
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Word)


def encode(word: Word) -> bytes:
    return _encoder.encode(word)


def decode(content: bytes) -> Word:
    word: Word = _decoder.decode(content)
    return word


class Routing(Publisher):
    """The publisher's node: sends messages where there is a route for them."""

    def __init__(
        self,
        env: Environment,
        ledger: Ledger,
        rate: float,
        since: int,
        until: int,
        message_bytes: int,
        spread: int,
    ) -> None:
        super().__init__(env, ledger, rate, since, until, message_bytes)
        self._spread = spread
        self._versions: dict[str, int] = {}
        self._routes: defaultdict[str, set[str]] = defaultdict(set)

    def publish(self) -> None:
        selector = self._random.randrange(SELECTORS)
        topic = str(selector)
        id = self._ledger.publish(selector)
        self._versions[topic] = version = self._versions.get(topic, 0) + 1
        word = encode(Published(topic, version, body(id, self._size)))
        for name, wire in self._wires.items():
            if topic in self._routes[name]:
                wire.send(word)
                self.sent(name)

    def hear(self, broker: str, message: bytes) -> None:
        word = decode(message)
        if isinstance(word, Taken):
            self.taken(broker)
        elif isinstance(word, Route):
            self._env.call_later(self._spread, self._install, broker, word)
        elif isinstance(word, Unroute):
            self._env.call_later(self._spread, self._routes[broker].discard, word.topic)

    def _install(self, broker: str, asked: Route) -> None:
        self._routes[broker].add(asked.topic)
        version = self._versions.get(asked.topic, 0)
        self._wires[broker].send(encode(Routed(asked.topic, asked.number, version)))


@dataclass(slots=True)
class _Topic:
    """At one broker."""

    number: int
    """Of the route that was asked for."""
    version: int = -1
    """The last that came by; -1 while there is no route."""
    listeners: dict[_Subscription, None] = field(default_factory=dict)
    """Those in effect."""
    waiting: dict[_Subscription, None] = field(default_factory=dict)


class _Subscription:
    def __init__(self, fabric: Fabric, topic: str, listener: Listener) -> None:
        self._fabric = fabric
        self.topic = topic
        self.listener = listener

    def cancel(self) -> None:
        self._fabric.cancel(self)


class Fabric:
    """Of one broker. A `PubSub`."""

    def __init__(
        self, env: Environment, publisher: PublisherId, tell: Callable[[bytes], None]
    ) -> None:
        """`tell`: to the publisher's node."""
        self._env = env
        self._publisher = publisher
        self._tell = tell
        self._topics: dict[str, _Topic] = {}
        self._routes = 0

    def history(self, topic: str) -> int:
        return 0

    def subscribe(self, topic: str, after: After, listener: Listener) -> _Subscription:
        subscription = _Subscription(self, topic, listener)
        there = self._topics.get(topic)
        if there is None:
            self._routes += 1
            there = self._topics[topic] = _Topic(self._routes)
            self._tell(encode(Route(topic, self._routes)))
        there.waiting[subscription] = None
        if there.version >= 0:
            self._env.call_later(0, self._take_effect, topic)
        return subscription

    def publish(
        self, topic: str, position: Position | None, message: Message, done: Callable[[], None]
    ) -> None:
        raise NotImplementedError("clients publish nothing here")

    def cancel(self, subscription: _Subscription) -> None:
        there = self._topics.get(subscription.topic)
        if there is None:
            return
        there.waiting.pop(subscription, None)
        there.listeners.pop(subscription, None)
        if not there.waiting and not there.listeners:
            del self._topics[subscription.topic]
            self._tell(encode(Unroute(subscription.topic)))

    def routed(self, word: Routed) -> None:
        there = self._topics.get(word.topic)
        if there is not None and there.number == word.number:
            there.version = word.version
            self._take_effect(word.topic)

    def published(self, word: Published) -> int:
        """So many copies it makes."""
        there = self._topics.get(word.topic)
        if there is None or there.version < 0:
            return 0
        there.version = word.version
        position = Position(self._publisher, EPOCH, word.version)
        message = Message(word.body)
        listeners = list(there.listeners)
        for each in listeners:
            if each in there.listeners:
                each.listener.deliver(word.topic, position, message)
        return len(listeners)

    def base(self, version: int) -> After:
        return (Position(self._publisher, EPOCH, version),) if version else ()

    def _take_effect(self, topic: str) -> None:
        there = self._topics.get(topic)
        if there is None or there.version < 0:
            return
        waiting, there.waiting = there.waiting, {}
        there.listeners.update(waiting)
        for each in waiting:
            if each in there.listeners:
                each.listener.subscribed(topic, self.base(there.version))
