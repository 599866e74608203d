"""A small world for tests: proxies, clients and a pub/sub system, in virtual time."""

from __future__ import annotations

from identifiers import Position, PublisherId
from mobility import (
    ClientSettings,
    Gap,
    Message,
    MobileClient,
    MobilityProxy,
    ProxySettings,
    Service,
    Update,
)
from mobility.suite.system import (
    SimulatedAccessPoint,
    SimulatedPort,
    SimulatedSystem,
    SimulatedTopic,
)
from psirp_sim.runtime.durations import MILLISECOND, SECOND
from psirp_sim.runtime.simulator import Clock, LinkProfile, Simulator
from traces import MemorySink

PUBLISHER = PublisherId(b"p" * 16)
QUICK = {
    "alive": 300 * MILLISECOND,
    "retry_first": 60 * MILLISECOND,
    "retry_most": 500 * MILLISECOND,
    "poll": 40 * MILLISECOND,
    "linger": 400 * MILLISECOND,
    "patience": 30 * SECOND,
}


class _Proxy:
    def __init__(self, env, world):
        self.env = env
        port = world.port(env)
        self.proxy = MobilityProxy(env, env.node, port, self.send, world.proxy_settings)
        self.start, self.receive, self.stop = (
            self.proxy.start,
            self.proxy.receive,
            self.proxy.stop,
        )

    def send(self, peer, packet):
        if peer in self.env.links:
            self.env.links[peer].send(packet)


class _Client:
    def __init__(self, env, world, secret, settings):
        self.env = env
        self.world = world
        self.events = world.events.setdefault(env.node, [])
        self.notices = world.notices.setdefault(env.node, [])
        access = world.access(env)
        self.client = MobileClient(
            env, secret, access, self.send, self.consume, self.notices.append, settings
        )
        self.start, self.receive, self.stop = (
            self.client.start,
            self.client.receive,
            self.client.stop,
        )

    def send(self, peer, packet):
        if peer in self.env.links:
            self.env.links[peer].send(packet)

    def consume(self, event):
        self.events.append(event)
        return {}


class World:
    """Proxies a, b and c; topics with a history of so many messages."""

    def __init__(
        self, seed=1, history=1_000_000, topics=("news",), proxies="abc", slowest=20, **proxy
    ):
        self.trace = MemorySink()
        self.sim = Simulator(seed, trace=self.trace)
        self.system = SimulatedSystem(self.sim, slowest * MILLISECOND)
        for topic in topics:
            self.system.topics[topic] = SimulatedTopic(topic, history)
        self.proxy_settings = ProxySettings(**proxy)
        self.events, self.notices = {}, {}
        self.names = list(proxies)
        for index, name in enumerate(self.names):
            clock = Clock((index - 1) * 3600 * SECOND, (index - 1) * 200_000)
            self.sim.add_node(name, lambda env: _Proxy(env, self), clock)
            for other in self.names[:index]:
                self.sim.add_link(other, name, LinkProfile(mtu=65_000))

    def port(self, env):
        return SimulatedPort(self.system, env)

    def access(self, env):
        return SimulatedAccessPoint(self.system, env, lambda: None)

    def add(self, name="client", secret=b"s" * 32, topics=("news",), service=None, **settings):
        settings = ClientSettings(service=service or Service(), **{**QUICK, **settings})
        node = self.sim.add_node(name, lambda env: _Client(env, self, secret, settings))
        for proxy in self.names:
            self.sim.add_link(name, proxy, LinkProfile(mtu=65_000))
        self.run(1)
        for topic in topics:
            node.core.client.subscribe(topic)
        return node.core.client

    def client(self, name="client"):
        return self.sim.nodes[name].core.client

    def proxy(self, name):
        return self.sim.nodes[name].core.proxy

    def run(self, milliseconds):
        self.sim.run_for(milliseconds * MILLISECOND)

    def publish(self, count=1, topic="news", kind="", every=2):
        for _ in range(count):
            version = len(self.system.topics[topic].streams.get(PUBLISHER, [])) + 1
            message = Message(b"%d" % version, kind)
            self.system.publish(topic, Position(PUBLISHER, 1, version), message)
            self.run(every)

    def arrive(self, place, name="client"):
        """Move in, and be live."""
        self.client(name).move_in(place)
        self.run(1_500)
        assert self.client(name).stage == "live"

    def partition(self, one, other):
        self.sim.cut(one, other)
        self.sim.cut(other, one)

    def heal(self, one, other):
        self.sim.heal(one, other)
        self.sim.heal(other, one)

    def versions(self, name="client", topic="news"):
        """What was consumed, in order; a gap as (first, last)."""
        found = []
        for event in self.events[name]:
            if event.topic == topic and isinstance(event, Update):
                found.append(event.position.version)
            elif event.topic == topic and isinstance(event, Gap):
                found.append((event.first, event.last))
        return found
