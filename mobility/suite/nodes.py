"""The nodes of a trial: proxies, and clients with a user each who stores what it consumed.

What a client and its proxy say to each other is overheard here: a Welcome or a MovedOut that
reaches the client is a promise that the model holds the proxy to, and a client that tells a
Position ahead of its own disk would be lost after a crash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from identifiers import Position, PublisherId
from mobility.events import Consumed, Gap, MovedIn, MovedOut, Notice, Update
from mobility.messages import Alive, MoveIn, MoveOut, Question, Topics, Welcome, read
from mobility.messages import MovedOut as Dismissal
from mobility.suite.system import SimulatedAccessPoint, SimulatedPort
from psirp_sim.runtime.environment import Changes, Environment
from psirp_sim.runtime.schedules import InvariantViolated

if TYPE_CHECKING:
    from mobility.suite.trial import MobilityTrial

_AT = b"harness/at/"


class ProxyNode:
    """A core: a mobility proxy on a node of the simulator."""

    def __init__(self, env: Environment, trial: MobilityTrial) -> None:
        self.env = env
        port = SimulatedPort(trial.system, env)
        self.proxy = trial.suite.proxy(env, env.node, port, self._send, trial.proxy_settings)

    def start(self) -> None:
        self.proxy.start()

    def receive(self, link: str, packet: bytes) -> None:
        self.proxy.receive(link, packet)

    def stop(self) -> None:
        self.proxy.stop()

    def _send(self, peer: str, packet: bytes) -> None:
        self.env.links[peer].send(packet)


class ClientNode:
    """A core: a mobile client, and its user."""

    def __init__(self, env: Environment, trial: MobilityTrial) -> None:
        self.env = env
        self.trial = trial
        self.ledger = trial.ledgers[env.node]
        access = SimulatedAccessPoint(trial.system, env, self._broken, self.ledger)
        self.client = trial.suite.client(
            env,
            trial.secrets[env.node],
            access,
            self._send,
            self._consume,
            self._notified,
            trial.client_settings,
        )
        self._asked: dict[int, int] = {}
        """Calls that ask for a promise, and the number of the stay each concerns."""

    def start(self) -> None:
        at = {}
        for _, value in self.env.storage.scan(_AT):
            topic, publisher, version = msgspec.msgpack.decode(value)
            at[topic, PublisherId(publisher)] = version
        self.ledger.restored(at)
        self.client.start()
        for topic in self.trial.wanted[self.env.node]:
            self.client.subscribe(topic)
        self.move_in()

    def move_in(self) -> None:
        """Somewhere."""
        proxy = self.trial.anywhere(self.env.node)
        now = self.trial.world.now
        self.ledger.left(now)
        self.ledger.care.came(proxy, now)
        self.client.move_in(proxy)

    def receive(self, link: str, packet: bytes) -> None:
        message = read(packet)
        if isinstance(message, Welcome | Dismissal) and message.call in self._asked:
            number, now = self._asked[message.call], self.trial.world.now
            if isinstance(message, Welcome):
                self.ledger.care.welcomed(number, now)
            elif number == self.ledger.care.number:
                self.ledger.care.moved_out(number, now)
        self.client.receive(link, packet)

    def stop(self) -> None:
        self.client.stop()

    def _send(self, peer: str, packet: bytes) -> None:
        question = read(packet)
        assert isinstance(question, Question)
        if isinstance(question, MoveIn | MoveOut):
            self._asked[question.call] = self.ledger.care.number
        if isinstance(question, MoveIn | MoveOut | Alive):
            self._compare_with_disk(question.topics)
        self.env.links[peer].send(packet)

    def _compare_with_disk(self, topics: Topics) -> None:
        disk = self.trial.world.nodes[self.env.node].storage
        for topic, places in topics.items():
            for position in map(Position.parse, places or ()):
                stored = disk.durable(_key(topic, position.publisher))
                at = self.ledger.bases.get(topic, {}).get(position.publisher, 0)
                if stored is not None:
                    at = max(at, msgspec.msgpack.decode(stored)[2])
                if position.version > at:
                    raise InvariantViolated(
                        f"{self.env.node} told {position.version} of {topic}, and its disk has {at}"
                    )

    def _broken(self) -> None:
        self.client.connection_lost()
        self.move_in()

    def _consume(self, event: Consumed) -> Changes:
        self.ledger.consumed(event)
        if isinstance(event, Update):
            assert event.position is not None
            publisher, version = event.position.publisher, event.position.version
        else:
            assert isinstance(event, Gap)
            assert event.publisher is not None
            publisher, version = event.publisher, event.last
        value = msgspec.msgpack.encode((event.topic, publisher.raw, version))
        return {_key(event.topic, publisher): value}

    def _notified(self, notice: Notice) -> None:
        if isinstance(notice, MovedIn):
            self.ledger.arrived(self.trial.world.now)
        elif isinstance(notice, MovedOut):
            self.trial.moved_out(self.env.node)


def _key(topic: str, publisher: PublisherId) -> bytes:
    return _AT + topic.encode() + publisher.raw
