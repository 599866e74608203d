"""The fault schedules of mobility: clients that move at random while everything fails.

One to twenty clients, two to ten proxies, links that lose and reorder, crashes, pauses, partitions.
Clients move out and in, vanish, move on before they arrived, subscribe and publish.

What must hold (`model` says what counts):

* **safety**, at every event: each client consumes every version once and in order, or is told of a
  gap that the model allows; what clients publish comes into the system once and in order;
* **liveness**, once the faults are over: every client is live and has consumed everything, and no
  proxy keeps anything for stays that are over.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from identifiers import Position, PublisherId
from mobility.client import MobileClient, Stage
from mobility.events import Consumed, Gap, MovedIn, Notice, Update
from mobility.identity import SECRET_BYTES
from mobility.memory import Debt
from mobility.port import Message
from mobility.proxy import MobilityProxy
from mobility.service import Quota, Sacrifice, Service
from mobility.settings import ClientSettings, ProxySettings
from mobility.suite.model import Ledger
from mobility.suite.system import (
    SimulatedAccessPoint,
    SimulatedPort,
    SimulatedSystem,
    SimulatedTopic,
)
from psirp_sim.runtime.durations import MILLISECOND, SECOND
from psirp_sim.runtime.environment import Changes, Core, Environment
from psirp_sim.runtime.schedules import (
    FaultKind,
    InvariantViolated,
    Trial,
    network_faults,
    node_faults,
)
from psirp_sim.runtime.schedules.faults import Held
from psirp_sim.runtime.simulator import (
    Clock,
    Independent,
    LinkProfile,
    Simulator,
    Uniform,
    stream,
)

_AT = b"harness/at/"
ENOUGH = 1_000_000
"""A history or a quota that nothing exceeds."""


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
    """A core: a mobile client, and its user who stores what it consumed."""

    def __init__(self, env: Environment, trial: MobilityTrial) -> None:
        self.env = env
        self.trial = trial
        self.ledger = trial.ledgers[env.node]
        access = SimulatedAccessPoint(trial.system, env, self._broken, self.ledger.bases)
        self.client = trial.suite.client(
            env,
            trial.secrets[env.node],
            access,
            self._send,
            self._consume,
            self._notified,
            trial.client_settings,
        )

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
        proxy = self.trial.anywhere()
        self.trial.came(self.env.node, proxy)
        self.client.move_in(proxy)

    def receive(self, link: str, packet: bytes) -> None:
        self.client.receive(link, packet)

    def stop(self) -> None:
        self.client.stop()

    def _send(self, peer: str, packet: bytes) -> None:
        self.env.links[peer].send(packet)

    def _broken(self) -> None:
        self.trial.hurt(self.env.node)
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
        key = _AT + event.topic.encode() + publisher.raw
        return {key: msgspec.msgpack.encode((event.topic, publisher.raw, version))}

    def _notified(self, notice: Notice) -> None:
        if isinstance(notice, MovedIn):
            self.trial.arrived(self.env.node, notice.proxy)


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
        history = random.choice([0, random.randint(2, 12), ENOUGH])
        quota = random.choice([ENOUGH, random.randint(history + 1, history + 10)])
        if history == ENOUGH:
            quota = 1_000
        service = Service(
            topic=Quota(quota, 1 << 30),
            client=Quota(ENOUGH, 1 << 30),
            keep=3_600.0,
            first=random.choice([Sacrifice.OLDEST, Sacrifice.NEWEST, Sacrifice.TOPIC]),
        )
        self.client_settings = ClientSettings(
            service=service,
            alive=300 * MILLISECOND,
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
        self.proxy_settings = ProxySettings(relay_time=SECOND)
        newest_go = service.first is Sacrifice.NEWEST
        self.ledgers = {name: Ledger(name, self.system, quota, newest_go) for name in self.clients}
        self.wanted: dict[str, list[str]] = {}
        self._visited: dict[str, set[str]] = {name: set() for name in self.clients}
        """Proxies that a client may rely on."""
        self._failing: Counter[str] = Counter()
        self._accepted: dict[tuple[str, PublisherId], int] = {}
        self._build(history)

    def _build(self, history: int) -> None:
        random = self._random
        for name in [*self.proxies, *self.clients]:
            clock = Clock(random.randint(-3600, 3600) * SECOND, random.randint(-100_000, 100_000))
            self.world.add_node(name, self._boot, clock)
        for index, proxy in enumerate(self.proxies):
            for other in [*self.proxies[:index], *self.clients]:
                self._link(other, proxy)
        topics = [f"topic{n}" for n in range(random.randint(1, 4))]
        tells_base = history > 0 or random.random() < 0.7
        for topic in topics:
            self.system.topics[topic] = SimulatedTopic(topic, history, tells_base)
        for client in self.clients:
            self.wanted[client] = random.sample(topics, random.randint(1, len(topics)))
        publishers = [PublisherId(random.randbytes(16)) for _ in range(random.randint(1, 2))]
        for _ in range(random.randint(40, 160)):
            moment = random.randrange(self.duration)
            topic, publisher = random.choice(topics), random.choice(publishers)
            self.world.engine.at(moment, self._publish, topic, publisher, random.randbytes(12))
        for client in self.clients:
            for _ in range(random.randint(1, 5)):
                self.world.engine.at(random.randrange(self.duration), self._move, client)
            for _ in range(random.choice([0, 2, 6])):
                moment, topic = random.randrange(self.duration), random.choice(topics)
                self.world.engine.at(moment, self._let_publish, client, topic)

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

    def anywhere(self) -> str:
        return self._random.choice(self.proxies)

    # What happens

    def _publish(self, topic: str, publisher: PublisherId, body: bytes) -> None:
        version = len(self.system.topics[topic].streams.get(publisher, [])) + 1
        self.system.publish(topic, Position(publisher, 1, version), Message(body))

    def _let_publish(self, name: str, topic: str) -> None:
        node = self.world.nodes[name]
        if isinstance(node.core, ClientNode) and not node.paused:
            body = self._random.randbytes(12)
            node.core.client.publish(topic, Message(body), lambda at: self._taken(topic, at))

    def _taken(self, topic: str, position: Position) -> None:
        self._accepted[topic, position.publisher] = position.version

    def _move(self, name: str) -> None:
        """One of the ways to move: properly, or just so, at once or later."""
        node, random = self.world.nodes[name], self._random
        way, away = random.random(), random.randrange(SECOND)
        if not isinstance(node.core, ClientNode) or node.paused:
            return
        client = node.core.client
        self.ledgers[name].left(self.world.now)
        if way < 0.5:
            client.move_out()
            self.world.engine.at(self.world.now + away, self._come, name, True)
        elif way < 0.75:
            self._come(name, False)
        else:
            self.hurt(name)
            client.connection_lost()
            self.world.engine.at(self.world.now + away, self._come, name, False)

    def _come(self, name: str, properly: bool) -> None:
        node = self.world.nodes[name]
        if not isinstance(node.core, ClientNode):
            return  # it moves in when it starts again
        if node.paused:
            self.world.engine.at(self.world.now + 100 * MILLISECOND, self._come, name, properly)
            return
        client = node.core.client
        if not (properly and client.stage is Stage.DETACHED):
            self.hurt(name)
        node.core.move_in()

    # Who is in whose care

    def hurt(self, name: str) -> None:
        """That client left without a word, or had to, or something it relies on fails."""
        self.ledgers[name].unsafe(self.world.now)

    def came(self, name: str, proxy: str) -> None:
        """That client moves in there, and relies on it from now on."""
        self.ledgers[name].left(self.world.now)
        self._visited[name].add(proxy)
        if self._failing[proxy]:
            self.hurt(name)

    def arrived(self, name: str, proxy: str) -> None:
        """That client is live: it relies on nobody else."""
        self._visited[name] = {proxy}
        self.ledgers[name].left_at = None
        if not self._failing[name] and not self._failing[proxy]:
            self.ledgers[name].safe(self.world.now)

    def faults(self) -> Sequence[FaultKind]:
        kinds = [
            *node_faults(self.world, self.world.nodes),
            *network_faults(self.world, self.world.channels),
            self._loses("reception", lambda name, proxy: [(name, proxy), (proxy, name)]),
            self._loses("hearing", lambda name, proxy: [(proxy, name)]),
            self._loses("voice", lambda name, proxy: [(name, proxy)]),
        ]
        return [*map(self._noting, kinds), self._crash_with_something_kept()]

    def _crash_with_something_kept(self) -> FaultKind:
        """A proxy dies with buffers, or a client with what it has yet to publish."""
        down = Held(self.world.crash, self.world.restart)
        crashed: dict[str, list[str]] = {}

        def kept(name: str) -> int:
            core = self.world.nodes[name].core
            if isinstance(core, ProxyNode):
                away = [each for each in core.proxy.handlers.values() if each.state == "away"]
                return sum(len(each.buffer) > 2 for each in away)
            return len(core.client.outgoing) if isinstance(core, ClientNode) else 0

        def at_stake(who: str) -> int:
            return max(map(kept, getattr(self, who)))

        def begin(who: str) -> None:
            name = max(getattr(self, who), key=kept)
            crashed.setdefault(who, []).append(name)
            self._fails(name)
            down.begin(name)

        def end(who: str) -> None:
            name = crashed[who].pop(0)
            self._works(name)
            down.end(name)

        who = ["proxies", "clients"]
        return FaultKind("crash-with-buffer", who, begin, end, at_stake, at_stake, aimed=True)

    def _loses(self, what: str, which: Callable[[str, str], list[tuple[str, str]]]) -> FaultKind:
        """A client loses the proxy it is at, in the middle of something."""
        cut = Held(self.world.cut, self.world.heal)
        lost: dict[str, list[tuple[str, str]]] = {}

        def ways(name: str) -> list[tuple[str, str]]:
            core = self.world.nodes[name].core
            proxy = core.client.proxy if isinstance(core, ClientNode) else ""
            return which(name, proxy) if proxy else []

        def begin(name: str) -> None:
            for way in ways(name):
                lost.setdefault(name, []).append(way)
                cut.begin(*way)

        def end(name: str) -> None:
            for way in lost.pop(name, []):
                cut.end(*way)

        def at_stake(name: str) -> int:
            return sum(self.world.channels[way].in_flight for way in ways(name))

        def harm(name: str) -> int:
            return sum(self.world.channels[way].counters.cut for way in lost.get(name, []))

        return FaultKind(what, self.clients, begin, end, at_stake, harm, aimed=True)

    def _noting(self, kind: FaultKind) -> FaultKind:
        """The same fault; while it lasts, those are not safe who rely on what fails."""

        def begin(target: str) -> None:
            for name in self._relying_on(target):
                self._fails(name)
            kind.begin(target)

        def end(target: str) -> None:
            for name in self._relying_on(target):
                self._works(name)
            kind.end(target)

        return replace(kind, begin=begin, end=end)

    def _fails(self, name: str) -> None:
        self._failing[name] += 1
        for client in self.clients:
            if client == name or name in self._visited[client]:
                self.hurt(client)

    def _works(self, name: str) -> None:
        self._failing[name] -= 1

    def _relying_on(self, target: str) -> list[str]:
        """A node relies on itself, a client on its links; between proxies only time is lost."""
        ends = re.split("[>=]", target)
        return ends if len(ends) == 1 else [name for name in ends if name in self.clients]

    # What must hold

    def check(self) -> None:
        """Each event is checked as it is consumed."""

    @property
    def _stays(self) -> dict[str, tuple[Debt, ...]]:
        cores = [self.world.nodes[name].core for name in self.clients]
        found = [core.client for core in cores if isinstance(core, ClientNode)]
        return {client.id: client.debts for client in found}

    def _unsettled(self) -> str | None:
        for name in self.clients:
            core = self.world.nodes[name].core
            if not isinstance(core, ClientNode):
                return f"{name} is down"
            if core.client.stage is not Stage.LIVE:
                return f"{name} is {core.client.stage}"
            if len(core.client.outgoing):
                return f"{name} has {len(core.client.outgoing)} publications left"
            behind = self.ledgers[name].behind()
            if behind is not None:
                return behind
        stays = self._stays
        for name in self.proxies:
            core = self.world.nodes[name].core
            if not isinstance(core, ProxyNode):
                return f"{name} is down"
            for handler in core.proxy.handlers.values():
                stay = Debt(name, handler.record.epoch)
                if stay not in stays.get(handler.record.client, ()):
                    return f"{name} keeps a stay that is over"
        for (topic, publisher), version in self._accepted.items():
            if len(self.system.topics[topic].streams.get(publisher, [])) < version:
                return f"{version} of {publisher} on {topic} never came into the system"
        return None

    def settled(self) -> bool:
        return self._unsettled() is None

    def finish(self) -> None:
        unsettled = self._unsettled()
        if unsettled is not None:
            raise InvariantViolated(f"{unsettled}, and the faults are long over")


class MobilitySuite:
    """The suite `mobility`; a test gives it cores with planted bugs."""

    name = "mobility"
    summary = "clients that move: every version once, in order, or a gap that was stated"
    most_faults = 12

    def __init__(
        self,
        client: type[MobileClient] = MobileClient,
        proxy: type[MobilityProxy] = MobilityProxy,
    ) -> None:
        self.client = client
        self.proxy = proxy

    def trial(self, seed: int) -> Trial:
        return MobilityTrial(seed, self)
