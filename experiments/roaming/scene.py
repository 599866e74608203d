"""The source's experiment, once: a client moves from one node of a pub/sub system to another.

    publisher -- middle -- old, new      nodes of the system, on a LAN, mobility proxies at two
                            |    |
                            client       by the network of the case; first at `old`, then at `new`

The client subscribes, everything comes to rest, it moves out, is away for ten seconds and moves in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from experiments.roaming.access import ClientAccess, ProxyPort
from experiments.roaming.lines import Channel, Line
from experiments.roaming.routers import Publish, Router
from experiments.roaming.systems import SYSTEMS, System
from experiments.roaming.trace import Trace
from identifiers import Position, PublisherId
from mobility import (
    SECRET_BYTES,
    ClientSettings,
    MobileClient,
    MobilityProxy,
    Mode,
    MovedIn,
    MovedOut,
    Quota,
    Service,
    Stage,
    Update,
)
from mobility.events import Consumed, Notice
from psirp_sim.runtime.durations import MILLISECOND, SECOND
from psirp_sim.runtime.environment import Changes, Environment
from psirp_sim.runtime.simulator import PRESETS, Simulator, stream

TOPIC = "news"
NETWORKS = {"wireline": "lan", "gprs": "gprs"}
MODES = {
    "none": Mode.NONE,
    "basic": Mode.BASIC,
    "ping": Mode.PING,
    "delay": Mode.DELAY,
    "ours": Mode.POSITION,
}
REST = 5 * SECOND
"""Before the move-out, and after the move-in is over: what the trace shows of ordinary times."""
DRAIN = 30 * SECOND
"""After the last publication."""
LONGEST = 1_000 * SECOND
"""A step that takes longer will not happen."""
_LOOK = 100 * MILLISECOND


@dataclass(frozen=True, slots=True)
class Case:
    """What is tried."""

    system: str
    network: str
    mode: str
    subscriptions: int
    rate: float
    """Publications a second."""
    message_bytes: int = 100
    away: int = 10 * SECOND
    delay: int = 2 * SECOND
    """In mode delay."""

    @property
    def settings(self) -> ClientSettings:
        much = Quota(1_000_000, 1 << 30)
        return ClientSettings(
            service=Service(mode=MODES[self.mode], topic=much, client=much),
            delay=self.delay,
            # Answers take seconds on a GPRS link: batches that do not, and more time before a
            # question is repeated. The same on a LAN, where neither matters.
            batch=4 << 10,
            retry_first=5 * SECOND,
            retry_most=20 * SECOND,
            linger=SYSTEMS[self.system].longest(2 * self.subscriptions) + 3 * SECOND,
            patience=LONGEST,
        )


class _Lines:
    """The lines of a node, made when they are needed."""

    def __init__(
        self, env: Environment, receive: Callable[[str, Channel, bytes], None]
    ) -> None:
        self._env = env
        self._receive = receive
        self._lines: dict[str, Line] = {}

    def __call__(self, name: str) -> Line:
        if name not in self._lines:

            def receive(channel: Channel, message: bytes) -> None:
                self._receive(name, channel, message)

            self._lines[name] = Line(self._env, name, receive)
        return self._lines[name]


class _Node:
    """A core: a node of the pub/sub system, with a mobility proxy where clients come."""

    def __init__(self, env: Environment, system: System, with_positions: bool) -> None:
        self.lines = _Lines(env, self._heard)
        if env.node == "middle":
            self.router = Router(env, system, self.lines, below=("old", "new"))
            self.port = self.proxy = None
        else:
            self.router = Router(env, system, self.lines, above="middle")
            self.port = ProxyPort(env, system, self.router, with_positions)
            self.proxy = MobilityProxy(env, env.node, self.port, self._send)

    @property
    def idle(self) -> bool:
        return self.router.idle and (self.port is None or self.port.idle)

    def start(self) -> None:
        if self.proxy is not None:
            self.proxy.start()

    def receive(self, link: str, packet: bytes) -> None:
        self.lines(link).receive(packet)

    def stop(self) -> None:
        """Nothing to do."""

    def _heard(self, link: str, channel: Channel, message: bytes) -> None:
        if channel is Channel.PUBSUB:
            self.router.receive(link, message)
        elif self.proxy is not None:
            self.proxy.receive(link, message)

    def _send(self, peer: str, message: bytes) -> None:
        self.lines(peer).send(Channel.MOBILITY, message)


class _Client:
    """A core: the client that moves, and its application."""

    def __init__(
        self,
        env: Environment,
        case: Case,
        trace: Trace,
        secret: bytes,
        now: Callable[[], int],
    ) -> None:
        """`now`: the world's clock, which the publications are timed by."""
        self._now = now
        self.case = case
        self.trace = trace
        self.arrived: set[str] = set()
        self.gone = False
        self.lines = _Lines(env, self._heard)
        system = SYSTEMS[case.system]
        self.access = ClientAccess(env, system, self.lines, case.mode == "ours")
        self.client = MobileClient(
            env, secret, self.access, self._send, self._consume, self._notified, case.settings
        )

    def start(self) -> None:
        self.client.start()
        for number in range(self.case.subscriptions):
            self.client.subscribe(f"{TOPIC}/{number}")
        self.client.move_in("old")

    def receive(self, link: str, packet: bytes) -> None:
        self.lines(link).receive(packet)

    def stop(self) -> None:
        """Nothing to do."""

    def _heard(self, link: str, channel: Channel, message: bytes) -> None:
        if channel is Channel.PUBSUB:
            self.access.receive(link, message)
        else:
            self.client.receive(link, message)

    def _send(self, peer: str, message: bytes) -> None:
        self.lines(peer).send(Channel.MOBILITY, message)

    def _consume(self, event: Consumed) -> Changes:
        if isinstance(event, Update):
            number = int.from_bytes(event.message.body[:8])
            self.trace.received.append((self._now(), number))
        return {}

    def _notified(self, notice: Notice) -> None:
        if isinstance(notice, MovedOut):
            self.gone = True
        elif isinstance(notice, MovedIn):
            self.arrived.add(notice.proxy)
            if notice.proxy == "new":
                self.trace.moved_in = self._now()


class _Scene:
    def __init__(self, case: Case, seed: int) -> None:
        self.case = case
        self.trace = Trace()
        self.world = world = Simulator(seed, keep_events=0)
        random = stream(seed, "roaming")
        secret = random.randbytes(SECRET_BYTES)
        self._publisher = PublisherId(random.randbytes(PublisherId.SIZE))
        system, with_positions = SYSTEMS[case.system], case.mode == "ours"
        for name in ("middle", "old", "new"):
            world.add_node(name, lambda env: _Node(env, system, with_positions))
        world.add_node(
            "client", lambda env: _Client(env, case, self.trace, secret, lambda: world.now)
        )
        for one, other in (("old", "middle"), ("new", "middle"), ("old", "new")):
            world.add_link(one, other, PRESETS["lan"])
        for name in ("old", "new"):
            world.add_link("client", name, PRESETS[NETWORKS[case.network]])
        self._publishing = True
        self._every = round(SECOND / case.rate)
        world.engine.at(random.randrange(self._every), self._publish)

    @property
    def _nodes(self) -> list[_Node]:
        cores = [node.core for node in self.world.nodes.values()]
        return [core for core in cores if isinstance(core, _Node)]

    @property
    def _client(self) -> _Client:
        core = self.world.nodes["client"].core
        assert isinstance(core, _Client)
        return core

    def _publish(self) -> None:
        middle = self.world.nodes["middle"].core
        if not self._publishing or not isinstance(middle, _Node):
            return
        published = self.trace.published
        number = len(published)
        published.append(self.world.now)
        body = number.to_bytes(8).ljust(self.case.message_bytes, b".")
        position = str(Position(self._publisher, 1, number + 1))
        middle.router.publish(Publish(TOPIC, position, body))
        self.world.engine.at(self.world.now + self._every, self._publish)

    def _until(self, condition: Callable[[], bool]) -> None:
        until = self.world.now + LONGEST
        while not condition() and self.world.now < until:
            self.world.run_for(_LOOK)

    def _at_rest(self) -> bool:
        live = self._client.client.stage is Stage.LIVE
        return live and all(node.idle for node in self._nodes)

    def play(self) -> Trace:
        world, trace = self.world, self.trace
        world.run_for(SECOND)
        self._until(self._at_rest)
        world.run_for(REST)
        trace.move_out = world.now
        self._client.client.move_out()
        self._until(lambda: self._client.gone)
        trace.moved_out = world.now
        world.run_for(self.case.away)
        trace.move_in = world.now
        self._client.client.move_in("new")
        self._until(lambda: "new" in self._client.arrived and self._at_rest())
        world.run_for(REST)
        self._publishing = False
        world.run_for(DRAIN)
        return trace


def play(case: Case, seed: int) -> Trace:
    """What the client got, and when."""
    return _Scene(case, seed).play()
