"""A subscriber of `ours`: the client library of mobility/, as it ships, and its access point."""

from __future__ import annotations

from collections.abc import Callable

from experiments.commuting.fabric import (
    EPOCH,
    Mobile,
    Published,
    Subscribed,
    Together,
    Word,
    decode,
    encode,
)
from experiments.commuting.itinerary import RANGE
from experiments.commuting.ledger import Ledger
from experiments.commuting.publisher import id_of
from experiments.commuting.wires import Wire
from identifiers import Position, PublisherId
from mobility import After, ClientSettings, Listener, Message, MobileClient, Update
from mobility.events import Consumed
from psirp_sim.runtime.environment import Changes, Environment


class _Access:
    """An `AccessPoint`: the system as a client sees it, over the wire to the broker it is at. What
    is said at one moment goes as one request, as the client of a PSPH sends it."""

    def __init__(self, env: Environment, publisher: PublisherId) -> None:
        self._env = env
        self._publisher = publisher
        self.wires: dict[str, Wire] = {}
        self._place = ""
        self._listener: Listener | None = None
        self._topics: dict[str, None] = {}
        self._wanted: list[str] = []
        self._mobile: list[bytes] = []
        """Both not sent yet."""

    def attach(self, place: str) -> None:
        self._place = place
        self.wires[place].renew()

    def detach(self) -> None:
        self._place = ""
        self._listener = None
        self._topics.clear()
        self._wanted.clear()
        self._mobile.clear()

    def history(self, topic: str) -> int:
        return 0

    def subscribe(self, topic: str, after: After, listener: Listener) -> _Cancel:
        self._listener = listener
        self._topics[topic] = None
        self._soon()
        self._wanted.append(topic)
        return _Cancel(self._topics, topic)

    def publish(
        self, topic: str, position: Position | None, message: Message, done: Callable[[], None]
    ) -> None:
        raise NotImplementedError("clients publish nothing here")

    def send(self, peer: str, content: bytes) -> None:
        """A message of mobility/; clients speak to the proxy that they are at only."""
        if peer == self._place:
            self._soon()
            self._mobile.append(content)

    def receive(self, place: str, word: Word) -> None:
        if place != self._place or self._listener is None:
            return
        if isinstance(word, Published) and word.topic in self._topics:
            position = Position(self._publisher, EPOCH, word.version)
            self._listener.deliver(word.topic, position, Message(word.body))
        elif isinstance(word, Subscribed):
            for topic, version in word.topics.items():
                base = (Position(self._publisher, EPOCH, version),) if version else ()
                if topic in self._topics and self._listener is not None:
                    self._listener.subscribed(topic, base)

    def _soon(self) -> None:
        if not self._wanted and not self._mobile:
            self._env.call_later(0, self._flush)

    def _flush(self) -> None:
        if self._wanted or self._mobile:
            word = Together(tuple(self._wanted), tuple(self._mobile))
            self._wanted.clear()
            self._mobile.clear()
            self.wires[self._place].send(encode(word))


class _Cancel:
    def __init__(self, topics: dict[str, None], topic: str) -> None:
        self._topics = topics
        self._topic = topic

    def cancel(self) -> None:
        self._topics.pop(self._topic, None)


class ClientNode:
    """A core: a mobile client and its application."""

    def __init__(
        self,
        env: Environment,
        ledger: Ledger,
        publisher: PublisherId,
        secret: bytes,
        settings: ClientSettings,
    ) -> None:
        self._env = env
        self._ledger = ledger
        self._access = _Access(env, publisher)
        self.client = MobileClient(
            env, secret, self._access, self._access.send, self._consume, settings=settings
        )

    def start(self) -> None:
        for link in self._env.links:
            self._access.wires[link] = self._wire(link)
        self.client.start()
        first = self._ledger.itineraries[self._env.node].first
        for selector in range(first, first + RANGE):
            self.client.subscribe(str(selector))

    def stop(self) -> None:
        self.client.stop()

    def receive(self, link: str, packet: bytes) -> None:
        self._access.wires[link].receive(packet)

    def connect(self, broker: str) -> None:
        """It came within reach of a broker."""
        self.client.move_in(broker)

    def leave(self) -> None:
        """It is out of reach."""
        self.client.connection_lost()

    def _wire(self, link: str) -> Wire:
        return Wire(self._env, link, lambda message: self._hear(link, decode(message)))

    def _hear(self, link: str, word: Word) -> None:
        if isinstance(word, Mobile):
            self.client.receive(link, word.content)
        else:
            self._access.receive(link, word)

    def _consume(self, event: Consumed) -> Changes:
        if isinstance(event, Update):
            self._ledger.receive(self._env.node, id_of(event.message.body))
        return {}
