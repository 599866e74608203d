"""A broker of `ours`: the proxy of mobility/, as it ships, on a node of a system.

A client leaves without a word. Its broker learns of it as the baselines do, from what is not
acknowledged, and tells the proxy that the connection is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from experiments.commuting.broker import PUBLISHER
from experiments.commuting.fabric import (
    Fabric,
    Mobile,
    Published,
    Routed,
    Subscribed,
    Taken,
    Together,
    Word,
    decode,
    encode,
)
from experiments.commuting.metering import Metered
from experiments.commuting.wires import Wire
from experiments.commuting.worker import Tally, Worker
from identifiers import Position, PublisherId
from mobility import After, Message, MobilityProxy, ProxySettings
from psirp_sim.runtime.environment import Environment


class ProxyCase(Protocol):
    """What a proxy's node is told of the case."""

    @property
    def operation(self) -> int: ...

    @property
    def patience(self) -> int: ...

    @property
    def message_bytes(self) -> int: ...


class _Session:
    """The subscriptions of one client, while it is at this broker. A `Listener`."""

    def __init__(self, env: Environment, wire: Wire) -> None:
        self._env = env
        self._wire = wire
        self._bases: dict[str, int] = {}
        self.subscriptions: list[Callable[[], None]] = []

    def subscribed(self, topic: str, base: After) -> None:
        if not self._bases:
            self._env.call_later(0, self._flush)
        self._bases[topic] = base[0].version if base else 0

    def deliver(self, topic: str, position: Position | None, message: Message) -> None:
        self._flush()
        assert position is not None
        self._wire.send(encode(Published(topic, position.version, message.body)))

    def gap(self, topic: str, first: Position, last: Position) -> None:
        """There is no history that could have one."""

    def close(self) -> None:
        for cancel in self.subscriptions:
            cancel()
        self._bases.clear()

    def _flush(self) -> None:
        if self._bases:
            self._wire.send(encode(Subscribed(self._bases)))
            self._bases = {}


class ProxyNode:
    """A core: a broker of the system with a mobility proxy."""

    def __init__(
        self,
        env: Environment,
        publisher: PublisherId,
        clients: dict[str, str],
        case: ProxyCase,
        settings: ProxySettings,
    ) -> None:
        """`clients`: the ids of clients, by the links they are at."""
        self._env = env
        self._clients = clients
        self._patience = case.patience
        self._item_bytes = case.message_bytes + 100
        self.worker = Worker(env, case.operation)
        self._wires: dict[str, Wire] = {}
        self._sessions: dict[str, _Session] = {}
        self._operations = 0
        self.fabric = Fabric(env, publisher, lambda word: self._tell(PUBLISHER, word))
        self.proxy = MobilityProxy(
            Metered(env, self.worker), env.node, self.fabric, self._send, settings
        )

    def start(self) -> None:
        self.proxy.start()

    def stop(self) -> None:
        self.proxy.stop()

    def receive(self, link: str, packet: bytes) -> None:
        self._wire(link).receive(packet)

    def _wire(self, link: str) -> Wire:
        if link not in self._wires:
            self._wires[link] = Wire(
                self._env,
                link,
                lambda message: self.worker.do(lambda: self._hear(link, decode(message))),
                self._patience if link in self._clients else 0,
                broken=lambda: self.worker.do(lambda: self._lost(link)),
            )
        return self._wires[link]

    def _tell(self, link: str, word: bytes) -> None:
        self._wire(link).send(word)

    def _hear(self, link: str, word: Word) -> int:
        """Returns how many operations it took."""
        if isinstance(word, Published):
            self._tell(PUBLISHER, encode(Taken()))
            return self.fabric.published(word) + self._spent()
        if isinstance(word, Routed):
            self.fabric.routed(word)
        elif isinstance(word, Mobile):
            self.proxy.receive(link, word.content)
        elif isinstance(word, Together):
            if word.topics:
                self._subscribe(link, word.topics)
            for content in word.mobile:
                self.proxy.receive(link, content)
        return self._spent()

    def _subscribe(self, link: str, topics: tuple[str, ...]) -> None:
        """A client came; whatever it had subscribed to here is over."""
        self._close(link)
        session = self._sessions[link] = _Session(self._env, self._wire(link))
        for topic in topics:
            subscription = self.fabric.subscribe(topic, None, session)
            session.subscriptions.append(subscription.cancel)

    def _lost(self, link: str) -> int:
        self._close(link)
        self.proxy.connection_lost(self._clients[link], link)
        return self._spent()

    def _close(self, link: str) -> None:
        session = self._sessions.pop(link, None)
        if session is not None:
            session.close()

    def _send(self, peer: str, content: bytes) -> None:
        if peer in self._clients:
            self._operations += len(content) // self._item_bytes  # about so many messages
        else:
            self._operations += 1
        self._tell(peer, encode(Mobile(content)))

    @property
    def tally(self) -> Tally:
        counters = self.proxy.ahead.counters
        return Tally(
            self.worker.operations,
            self.worker.cpu,
            counters["words_sent"],
            counters["word_bytes_sent"],
            counters["bytes_in_vain"],
            counters["prepared"],
            counters["unprepared"],
        )

    @property
    def buffered(self) -> int:
        """Bytes, of stays and of contexts."""
        return self.proxy.buffered_bytes + self.proxy.ahead.contexts.bytes

    def _spent(self) -> int:
        spent, self._operations = self._operations, 0
        return spent
