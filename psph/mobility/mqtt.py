"""MQTT brokers, bridged, as a pub/sub system that clients move in (see `mobility.port`).

MQTT gives messages no identity, so a stream gets one where it enters: its publisher's library sends
each message of `topic` to the MQTT topic `topic/<publisher>`, with its Position as a user property
and retained. Who wants the topic subscribes to `topic/+`, and the latest of each stream, which the
broker retains, says at which Positions the subscription begins. Brokers replay nothing else, so
proxies buffer. What publishers send that know nothing of this has its Position from an entrance
(`mqtt_entrance`); elsewhere it is not heard.

What clients and proxies say to each other travels the same way: each has a topic of its own. Those
of proxies, `mobility/call/+`, have to cross bridges.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from identifiers import InvalidPosition, Position, PublisherId
from mobility import ClientSettings
from mobility.port import After, Listener, Message
from psirp_sim.runtime.durations import SECOND
from psirp_sim.runtime.environment import Environment
from psph.mobility.mqtt_connection import Connection, Received
from psph.mobility.mqtt_stream import Stream

SETTINGS = ClientSettings(batch=256 << 10, retry_first=3 * SECOND)
"""For clients at brokers, which carry messages of any size and lose none while they run: ask for
much at once, and do not ask again soon."""
POSITION, KIND = "position", "kind"
NO_PUBLISHER = "-"
"""In the place of the publisher where a message has no Position."""
CALLS = "mobility/call/"
FENCES = "mobility/fence/"
_QUOTED = {ord(each): f"%{ord(each):02X}" for each in "%#+\0"}


def mqtt_topic(topic: str) -> str:
    """Any text as the name of an MQTT topic, without wildcards and not one of the broker's own."""
    name = topic.translate(_QUOTED)
    return f"%24{name[1:]}" if name.startswith("$") else name


class Receive(Protocol):
    """What takes the messages of clients and proxies: `MobileClient` and `MobilityProxy` do."""

    def __call__(self, peer: str, packet: bytes, /) -> None: ...


@dataclass(slots=True)
class _Topic:
    """A topic at one broker, for all who listen to it here."""

    name: str
    listeners: dict[_Subscription, Listener] = field(default_factory=dict)
    streams: dict[PublisherId, Stream] = field(default_factory=dict)
    effective: bool = False

    def begin(self, subscription: _Subscription) -> None:
        listener = self.listeners.get(subscription)
        if listener is not None and self.effective:
            heads = [stream.last for stream in self.streams.values()]
            listener.subscribed(self.name, tuple(head for head in heads if head is not None))

    def deliver(self, position: Position | None, message: Message) -> None:
        for listener in list(self.listeners.values()):
            listener.deliver(self.name, position, message)


@dataclass(slots=True, eq=False)
class _Subscription:
    cancel: Callable[[], None]


class MqttPubSub:
    """Implements `mobility.port.PubSub`, and carries what is said to whoever is at `name`."""

    def __init__(self, env: Environment, name: str) -> None:
        self.env = env
        self.name = name
        self.receive: Receive = lambda peer, packet: None
        self._connection: Connection | None = None
        self._topics: dict[str, _Topic] = {}
        self._fences: dict[bytes, Callable[[], None]] = {}

    def connect(
        self,
        place: str,
        lost: Callable[[], None],
        keep: int = 0,
        ready: Callable[[], None] = lambda: None,
    ) -> None:
        """Be at that broker; everything that is subscribed to is, there."""
        self._connection = Connection(place, self.name, self._heard, lost, keep)
        self._connection.subscribe([CALLS + self.name, FENCES + self.name], ready)
        for name, there in self._topics.items():
            self._subscribe(name, there)

    def disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def send(self, peer: str, packet: bytes) -> None:
        """A question or an answer; one that is lost is asked again."""
        if self._connection is not None:
            topic = CALLS + mqtt_topic(peer)
            self._connection.publish(topic, packet, qos=0, answer=CALLS + self.name)

    # The port

    def history(self, topic: str) -> int:
        return 0

    def subscribe(self, topic: str, after: After, listener: Listener) -> _Subscription:
        name = mqtt_topic(topic)
        there = self._topics.get(name)
        if there is None:
            there = self._topics[name] = _Topic(topic)
            self._subscribe(name, there)

        def cancel() -> None:
            if there.listeners.pop(subscription, None) and not there.listeners:
                del self._topics[name]
                if self._connection is not None:
                    self._connection.unsubscribe(f"{name}/+")

        subscription = _Subscription(cancel)
        there.listeners[subscription] = listener
        self.env.call_later(0, there.begin, subscription)
        return subscription

    def publish(
        self, topic: str, position: Position | None, message: Message, done: Callable[[], None]
    ) -> None:
        assert self._connection is not None
        stream = NO_PUBLISHER if position is None else str(position.publisher)
        pairs = [] if position is None else [(POSITION, str(position))]
        pairs += [(KIND, message.kind)] if message.kind else []
        name = f"{mqtt_topic(topic)}/{stream}"
        retain = position is not None
        self._connection.publish(name, message.body, pairs, retain=retain, done=done)

    # What the broker says

    def _subscribe(self, name: str, there: _Topic) -> None:
        """In effect once what the broker retains has come: before a message sent after that."""
        there.effective = False
        connection, token = self._connection, f"{id(there)}".encode()

        def effective() -> None:
            there.effective = True
            for subscription in list(there.listeners):
                there.begin(subscription)

        def fence() -> None:
            self._fences[token] = effective
            if connection is not None and connection is self._connection:
                connection.publish(FENCES + self.name, token)

        if connection is not None:
            connection.subscribe([f"{name}/+"], fence)

    def _heard(self, connection: Connection, message: Received) -> None:
        if connection is not self._connection:
            return
        name, _, stream = message.topic.rpartition("/")
        if message.topic == CALLS + self.name and message.answer.startswith(CALLS):
            self.receive(message.answer.removeprefix(CALLS), message.body)
        elif message.topic == FENCES + self.name:
            self._fences.pop(message.body, lambda: None)()
        elif (there := self._topics.get(name)) is not None:
            self._deliver(there, stream, message)
        elif not message.topic.startswith(CALLS):
            connection.unsubscribe(f"{name}/+")  # of an earlier life
        # Writes become durable in order, so this one says that the others are.
        self.env.storage.write({}, lambda: connection.acknowledge(message))

    def _deliver(self, there: _Topic, stream: str, message: Received) -> None:
        body = Message(message.body, message.pairs.get(KIND, ""))
        if stream == NO_PUBLISHER:
            there.deliver(None, body)
            return
        try:
            position = Position.parse(message.pairs.get(POSITION, ""))
        except InvalidPosition:
            return  # no stream of the topic, but a topic below it
        if str(position.publisher) == stream:
            found = there.streams.get(position.publisher)
            if found is None:
                found = there.streams[position.publisher] = Stream(self.env, there.deliver)
            if message.retained:
                found.note(position)
            else:
                found.offer(position, body)


class MqttAccessPoint(MqttPubSub):
    """Implements `mobility.port.AccessPoint`: a place is the broker of the proxy, HOST:PORT."""

    def __init__(self, env: Environment, client: str, lost: Callable[[], None]) -> None:
        # Two copies of a client are two to the broker: which one counts, proxies decide.
        super().__init__(env, f"client/{client}-{env.random.getrandbits(64):016x}")
        self._lost = lost

    def attach(self, place: str) -> None:
        self.connect(place, self._lost)

    def detach(self) -> None:
        self._topics.clear()
        self._fences.clear()
        self.disconnect()
