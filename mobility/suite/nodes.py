"""The nodes of a trial: proxies, and clients with a user each who stores what it consumed.

What a client and its proxy say to each other is overheard here: a Welcome or a MovedOut that
reaches the client is a promise that the model holds the proxy to, and a client that tells a
Position ahead of its own disk would be lost after a crash.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from identifiers import Position, PublisherId
from mobility.events import Consumed, Gap, MovedIn, MovedOut, Notice, Update
from mobility.messages import Alive, Batch, Heard, MoveIn, MoveOut, Question, Topics, Welcome, read
from mobility.messages import MovedOut as Dismissal
from mobility.suite.system import SimulatedAccessPoint, SimulatedPort
from psirp_sim.runtime.environment import Changes, Environment
from psirp_sim.runtime.schedules import InvariantViolated

if TYPE_CHECKING:
    from mobility.suite.trial import MobilityTrial

_AT = b"harness/at/"
_DROPPED = b"harness/dropped/"


@dataclass(slots=True)
class _Asked:
    """A question to which the answer is a promise."""

    stay: int
    """Its number."""
    topics: set[str]
    at: int


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
        self._asked: dict[int, _Asked] = {}
        """By call: what asks for a promise."""
        self._leaves = 0
        """The call that last asked to be let go."""

    def start(self) -> None:
        at = {}
        for _, value in self.env.storage.scan(_AT):
            topic, publisher, version = msgspec.msgpack.decode(value)
            at[topic, PublisherId(publisher)] = version
        self.ledger.restored(at)
        self.client.start()
        for topic in list(self.client.flows):
            if self._dropped(topic) < self.trial.dropped[self.env.node, topic]:
                self.unsubscribe(topic)  # the crash undid that
        for topic in self.trial.wanted[self.env.node]:
            self.client.subscribe(topic)
        self.move_in()

    def unsubscribe(self, topic: str) -> None:
        """Its user does not want the topic any more, and forgets what it consumed of it."""
        for asked in self._asked.values():
            asked.topics.discard(topic)
        forgotten = [key for key, _ in self.env.storage.scan(_AT + topic.encode())]
        effect: dict[bytes, bytes | None] = dict.fromkeys(forgotten)
        effect[_DROPPED + topic.encode()] = b"%d" % self.trial.dropped[self.env.node, topic]
        self.ledger.unsubscribed(topic)
        self.client.unsubscribe(topic, effect)

    def _dropped(self, topic: str) -> int:
        """How often its user has, as far as that is durable."""
        return int(self.env.storage.get(_DROPPED + topic.encode()) or 0)

    def move_in(self) -> None:
        """Somewhere."""
        proxy = self.trial.anywhere(self.env.node)
        now = self.trial.world.now
        self.ledger.left(now)
        self.ledger.care.came(proxy, now)
        self.client.move_in(proxy)

    def receive(self, link: str, packet: bytes) -> None:
        message = read(packet)
        if isinstance(message, Welcome | Heard | Dismissal) and message.call in self._asked:
            self._promised(self._asked[message.call], message)
        self.client.receive(link, packet)
        if isinstance(message, Batch):
            self.trial.collected(self.env.node, message)

    def _promised(self, asked: _Asked, answer: Welcome | Heard | Dismissal) -> None:
        care, now = self.ledger.care, self.trial.world.now
        if isinstance(answer, Welcome):
            care.welcomed(asked.stay, asked.topics, now)
        elif isinstance(answer, Heard):
            care.pledged(asked.stay, asked.topics, now)
        elif answer.call == self._leaves and asked.stay == care.number:
            # Not only those that it named: it should have named all.
            care.moved_out(asked.stay, self.trial.wanted[self.env.node], now)
        if not isinstance(answer, Dismissal):
            care.answered(asked.stay, asked.at)

    def stop(self) -> None:
        self.client.stop()

    def _send(self, peer: str, packet: bytes) -> None:
        question = read(packet)
        assert isinstance(question, Question)
        if isinstance(question, MoveIn | MoveOut | Alive) and question.call not in self._asked:
            topics, now = question.topics, self.trial.world.now
            self._asked[question.call] = _Asked(self.ledger.care.number, set(topics), now)
            self._compare_with_disk(topics)
            if isinstance(question, MoveOut):
                self._leaves = question.call
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
        if event.topic not in self.trial.wanted[self.env.node]:
            raise InvariantViolated(f"{self.env.node} does not want {event.topic} any more")
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
