"""One trial: a world from a seed, the moves and publications in it, and what must hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from identifiers import Position, PublisherId
from mobility.client import Stage
from mobility.identity import SECRET_BYTES
from mobility.memory import Debt
from mobility.messages import Batch
from mobility.port import Message
from mobility.service import Quota, Sacrifice, Service
from mobility.settings import ClientSettings, ProxySettings
from mobility.suite.care import Care, Spells
from mobility.suite.faults import faults_of
from mobility.suite.model import Ledger
from mobility.suite.nodes import ClientNode, ProxyNode
from mobility.suite.system import SimulatedSystem, SimulatedTopic
from mobility.suite.waiting import LAG, Waits
from psirp_sim.runtime.durations import MILLISECOND, SECOND
from psirp_sim.runtime.environment import Core, Environment
from psirp_sim.runtime.schedules import FaultKind, InvariantViolated
from psirp_sim.runtime.simulator import Clock, Independent, LinkProfile, Simulator, Uniform, stream

if TYPE_CHECKING:
    from mobility.suite import MobilitySuite

ENOUGH = 1_000_000
"""A history or a quota that nothing exceeds."""
ALIVE = 300 * MILLISECOND
TWINS = ["twin0", "twin1"]
"""Two that move in with one secret, at one proxy."""


class MobilityTrial:
    """One world, its moves, and the model it is compared with."""

    duration = 5 * SECOND
    patience = 60 * SECOND

    def __init__(self, seed: int, suite: MobilitySuite) -> None:
        self.suite = suite
        self.world = Simulator(seed)
        self._random = random = stream(seed, "mobility trial")
        self.system = SimulatedSystem(self.world, random.choice([20, 100, 400]) * MILLISECOND)
        self.proxies = [f"proxy{n}" for n in range(min(10, 2 + int(random.expovariate(0.5))))]
        self.clients = [f"client{n}" for n in range(min(20, 1 + int(random.expovariate(0.35))))]
        self.secrets = {name: random.randbytes(SECRET_BYTES) for name in self.clients}
        if random.random() < 0.2:
            self.clients += TWINS
            self.secrets |= dict.fromkeys(TWINS, random.randbytes(SECRET_BYTES))
        self._history = random.choice([0, random.randint(2, 12), ENOUGH])
        service = self._service()
        self.client_settings = ClientSettings(
            service=service,
            alive=ALIVE,
            retry_first=60 * MILLISECOND,
            retry_most=500 * MILLISECOND,
            poll=40 * MILLISECOND,
            linger=self.system.slowest + 200 * MILLISECOND,
            patience=self.patience,
            batch=random.choice([200, 4_000]),
            window=random.choice([1, 4]),
            json=random.random() < 0.2,
            debts=100,
        )
        self.proxy_settings = self._proxy_settings()
        self._spells = {name: Spells() for name in [*self.proxies, *self.clients]}
        silence = self.proxy_settings.silence * (ALIVE + MILLISECOND)
        keep = int(service.keep * SECOND) - MILLISECOND  # clocks differ
        self.ledgers = {
            name: Ledger(
                name,
                self.system,
                Care(self._spells[name], self._spells, silence, self.system.slowest, keep),
                service.topic.messages,
                newest_go=service.first is Sacrifice.NEWEST,
                compared=name not in TWINS,
            )
            for name in self.clients
        }
        self.wanted: dict[str, list[str]] = {}
        self.dropped: Counter[tuple[str, str]] = Counter()
        """How often which client has unsubscribed from which topic."""
        self._publishers = [PublisherId(random.randbytes(16)) for _ in range(random.randint(1, 2))]
        self._waits = Waits(self)
        self._emptied = 0
        """From when on a buffer that has nothing more leads to a publication."""
        self._accepted: dict[tuple[str, Position], Message] = {}
        """What clients were told is going to be published."""
        self._build()

    def _proxy_settings(self) -> ProxySettings:
        return ProxySettings(relay_time=SECOND)

    def _service(self) -> Service:
        random, history = self._random, self._history
        quota = random.choice([ENOUGH, random.randint(history + 1, history + 10)])
        if history == ENOUGH:
            quota = 1_000
        return Service(
            topic=Quota(quota, 1 << 30),
            client=Quota(ENOUGH, 1 << 30),
            keep=random.choice([3_600.0, 3_600.0, random.uniform(0.3, 2.5)]),
            first=random.choice([Sacrifice.OLDEST, Sacrifice.NEWEST, Sacrifice.TOPIC]),
        )

    def _build(self) -> None:
        random = self._random
        for name in [*self.proxies, *self.clients]:
            clock = Clock(random.randint(-3600, 3600) * SECOND, random.randint(-100_000, 100_000))
            self.world.add_node(name, self._boot, clock)
        for index, proxy in enumerate(self.proxies):
            for other in [*self.proxies[:index], *self.clients]:
                self._link(other, proxy)
        topics = [f"topic{n}" for n in range(random.randint(1, 4))]
        tells_base = self._history > 0 or random.random() < 0.7
        for topic in topics:
            self.system.topics[topic] = SimulatedTopic(topic, self._history, tells_base)
        narrow = stream(self.world.seed, "narrow links")
        if narrow.random() < 0.2:
            self.system.topics[narrow.choice(topics)].lag = narrow.randint(*LAG)
        for client in self.clients:
            self.wanted[client] = random.sample(topics, random.randint(1, len(topics)))
        for _ in range(random.randint(40, 160)):
            self.world.engine.at(
                random.randrange(self.duration), self._publish, random.choice(topics)
            )
        for client in self.clients:
            for _ in range(random.randint(1, 5)):
                self.world.engine.at(random.randrange(self.duration), self._move, client)
            for _ in range(random.choice([0, 2, 6])):
                moment, topic = random.randrange(self.duration), random.choice(topics)
                self.world.engine.at(moment, self._let_publish, client, topic)
        for client in random.choice([[], self.clients]):
            for _ in range(random.randint(1, 4)):
                moment, topic = random.randrange(self.duration), random.choice(topics)
                self.world.engine.at(moment, self._change, client, topic)

    def _boot(self, env: Environment) -> Core:
        return ProxyNode(env, self) if env.node in self.proxies else ClientNode(env, self)

    def _link(self, one: str, other: str) -> None:
        random = self._random
        profile = LinkProfile(
            delay=Uniform(500_000, random.randint(1, 25) * MILLISECOND),
            loss=Independent(random.choice([0.0, 0.02, 0.2])),
            duplicate=random.choice([0.0, 0.1]),
            reorder=random.choice([0.0, 0.1]),
            mtu=65_000,
        )
        self.world.add_link(one, other, profile)

    def anywhere(self, client: str) -> str:
        return self.proxies[0] if client in TWINS else self._random.choice(self.proxies)

    # What happens

    def _publish(self, topic: str) -> None:
        publisher = self._random.choice(self._publishers)
        version = len(self.system.topics[topic].streams.get(publisher, [])) + 1
        body = self._random.randbytes(12)
        self.system.publish(topic, Position(publisher, 1, version), Message(body))

    def _change(self, name: str, topic: str) -> None:
        """A client unsubscribes, or subscribes, perhaps again and at once."""
        node, wanted, random = self.world.nodes[name], self.wanted[name], self._random
        if not isinstance(node.core, ClientNode) or node.paused or name in TWINS:
            return
        if topic in wanted:
            wanted.remove(topic)
            self.dropped[name, topic] += 1
            node.core.unsubscribe(topic)
            if random.random() < 0.5:
                soon = random.randrange(random.choice([50 * MILLISECOND, SECOND]))
                self.world.engine.at(self.world.now + soon, self._change, name, topic)
            if random.random() < 0.5:
                return
        wanted.append(topic)
        node.core.client.subscribe(topic)
        if random.random() < 0.3:
            soon = random.randrange(2 * SECOND)
            self.world.engine.at(self.world.now + soon, self._move, name)

    def _burst(self, client: str) -> None:
        """More than a history has, at a bad moment."""
        topics, now = self.wanted[client] or [*self.system.topics], self.world.now
        topic = self._random.choice(topics)
        for _ in range(2 * min(self._history, 12) + 3):
            now += self._random.randint(1, 3 * MILLISECOND)
            self.world.engine.at(now, self._publish, topic)

    def _let_publish(self, name: str, topic: str) -> None:
        node = self.world.nodes[name]
        if isinstance(node.core, ClientNode) and not node.paused and name not in TWINS:
            message = Message(self._random.randbytes(12))

            def accepted(position: Position) -> None:
                self._accepted[topic, position] = message

            node.core.client.publish(topic, message, accepted)

    def _move(self, name: str) -> None:
        """One of the ways to move: properly, or just so, at once or later."""
        node, random = self.world.nodes[name], self._random
        way, away = random.random(), random.randrange(random.choice([1, 1, 4]) * SECOND)
        if not isinstance(node.core, ClientNode) or node.paused:
            return
        client, ledger = node.core.client, self.ledgers[name]
        ledger.left(self.world.now)
        if way < 0.5:
            client.move_out()
            if random.random() < 0.15:
                self._change(name, random.choice([*self.system.topics]))
            if random.random() < 0.2:
                self._burst(name)
        elif way < 0.75:
            node.core.move_in()
            return
        else:
            ledger.care.left(self.world.now)
            client.connection_lost()
            if random.random() < 0.3:
                # At once, or when the proxy should have noticed.
                self.world.engine.at(self.world.now + random.choice([0, away]), self._burst, name)
        self.world.engine.at(self.world.now + away, self._come, name)

    def moved_out(self, name: str) -> None:
        """That client was told that it may go."""
        if self._random.random() < 0.3:
            self._burst(name)

    def collected(self, name: str, batch: Batch) -> None:
        """That client was given what a proxy had. On a narrow link that may be before its topics
        are in effect: what is published now is only in buffers, and the next one comes."""
        if batch.items:
            self._waits.collected(name)
        slow = max(self.system.topics.values(), key=lambda topic: topic.lag)
        now = self.world.now
        if batch.more or not slow.lag or not self._emptied <= now < 2 * self.duration:
            return
        self._emptied = now + 10 * MILLISECOND
        for topic in self.wanted[name]:
            if topic != slow.name and topic not in self.ledgers[name].effective:
                for moment in (now + 1, now + self.system.slowest):
                    self.world.engine.at(moment, self._publish, topic)

    def _come(self, name: str) -> None:
        node = self.world.nodes[name]
        if not isinstance(node.core, ClientNode):
            return  # it moves in when it starts again
        if node.paused:
            self.world.engine.at(self.world.now + 100 * MILLISECOND, self._come, name)
        elif node.core.client.stage is not Stage.SUPERSEDED:
            node.core.move_in()

    def faults(self) -> Sequence[FaultKind]:
        return faults_of(self)

    def observe(self) -> None:
        """Something began or ended that nodes may not have survived."""
        self._waits.disturbed()
        for name, spells in self._spells.items():
            node = self.world.nodes[name]
            spells.observe(self.world.now, node.up, node.paused)
        for name in self.clients:
            if not self.world.nodes[name].up:
                # From now on, not from when it is up again, what its proxy keeps only grows.
                self.ledgers[name].left(self.world.now)
                self.ledgers[name].care.left(self.world.now)

    # What must hold

    def check(self) -> None:
        """What is consumed, and that it is in time: each event is checked as it is consumed."""
        self._waits.look()

    def _unsettled(self) -> str | None:
        for name in [*self.proxies, *self.clients]:
            if not self.world.nodes[name].up:
                return f"{name} is down"
        return self._unsettled_clients() or self._unsettled_stays() or self._unpublished()

    def _unsettled_clients(self) -> str | None:
        superseded = 0
        for name, core in self.cores:
            client = core.client
            if client.stage is Stage.SUPERSEDED and name in TWINS:
                superseded += 1
            elif client.stage is not Stage.LIVE:
                return f"{name} is {client.stage}"
            elif len(client.outgoing):
                return f"{name} has {len(client.outgoing)} publications left"
            elif (behind := self.ledgers[name].behind(self.wanted[name])) is not None:
                return behind
        if TWINS[0] in self.clients and superseded != 1:
            return f"{superseded} of two clients with one secret know that there is another"
        return None

    @property
    def cores(self) -> list[tuple[str, ClientNode]]:
        found = [(name, self.world.nodes[name].core) for name in self.clients]
        return [(name, core) for name, core in found if isinstance(core, ClientNode)]

    def _unsettled_stays(self) -> str | None:
        stays = {
            core.client.id: core.client.debts for name, core in self.cores if name not in TWINS
        }
        for name in self.proxies:
            core = self.world.nodes[name].core
            assert isinstance(core, ProxyNode)
            for handler in core.proxy.handlers.values():
                client = handler.record.client
                if client in stays and Debt(name, handler.record.epoch) not in stays[client]:
                    return f"{name} keeps a stay that is over"
        return None

    def _unpublished(self) -> str | None:
        for (topic, position), message in self._accepted.items():
            stream_of = self.system.topics[topic].streams.get(position.publisher, [])
            if len(stream_of) < position.version:
                return f"{position} on {topic} never came into the system"
            if stream_of[position.version - 1].message != message:
                return f"{position} on {topic} is not what was published"
        return None

    def settled(self) -> bool:
        return self._unsettled() is None

    def finish(self) -> None:
        unsettled = self._unsettled()
        if unsettled is not None:
            raise InvariantViolated(f"{unsettled}, and the faults are long over")
