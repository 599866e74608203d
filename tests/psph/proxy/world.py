"""Proxies in virtual time for tests: an environment for one core, and a fabric for several."""

from __future__ import annotations

from dataclasses import replace

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from identifiers import identify
from psirp_sim.node import FabricNode
from psirp_sim.publications.settings import PublicationSettings
from psirp_sim.runtime.durations import MILLISECOND, SECOND
from psirp_sim.runtime.simulator import Simulator
from psph.proxy.model import ModelDirectory, ModelHub, ModelRegistry, Site
from psph.proxy.ports import Zone
from psph.proxy.proxy import Proxy
from psph.proxy.settings import ProxySettings
from tests.psirp_sim.rendezvous.world import Fabric

A, B = "site-a.test", "site-b.test"
FEED, SECRET, OTHER = (f"http://news.{B}/{page}" for page in ("feed", "secret", "other"))


def key_of(zone):
    return Ed25519PrivateKey.from_private_bytes(zone.encode().ljust(32, b"."))


class Alone:
    """A core that only keeps its environment."""

    def __init__(self, env):
        self.env = env

    def start(self):
        pass

    def receive(self, link, packet):
        pass

    def stop(self):
        pass


def environment():
    """A simulator with one node, and that node's environment."""
    world = Simulator(1)
    world.add_node("n", Alone)
    world.run_for(1)
    return world, world.nodes["n"].core.env


class Peer:
    """A core: a node of the fabric with a proxy and a hub on it."""

    def __init__(self, env, world, settings):
        self.env = env
        self.node = FabricNode(env, world.settings, domain=env.node)
        self.recorded = []
        self.hub = ModelHub(env, world.sites, self.recorded.append)
        self.directory = ModelDirectory(env, world.zones, world.dns_delay)
        self.proxy = world.kind(env, settings, self.node, ModelRegistry(), self.directory, self.hub)
        self.directory.changed = self.proxy.zone_changed
        self.hub.listener = self.proxy.recorded

    def start(self):
        self.node.start()
        self.proxy.start()

    def receive(self, link, packet):
        self.node.receive(link, packet)

    def stop(self):
        self.node.stop()


class World(Fabric):
    """A proxy for each domain, by the name of the node, and forwarding nodes between them."""

    def __init__(
        self, proxies=None, *, sites=(), natives=(), dns_delay=MILLISECOND, kind=Proxy, votes=True
    ):
        """With `votes` the servers give writer leases already."""
        self.proxies = proxies or {"a": (A,), "b": (B,)}
        self.options = {}
        self.sites = [Site(topic, True) for topic in sites]
        self.zones = {zone: self.zone(zone) for zone in (A, B)}
        self.dns_delay, self.kind = dns_delay, kind
        super().__init__(("r1",), (*self.proxies, *natives))
        self.until(lambda: all(self.proxy(name).begun for name in self.proxies))
        if votes:
            self.run(6)  # a new server gives no writer leases at first

    @staticmethod
    def zone(name):
        return Zone(True, (key_of(name).public_key().public_bytes_raw(),))

    def settings_of(self, name):
        hosts = self.proxies[name]
        return ProxySettings(
            hosts=hosts,
            key=key_of(".".join(hosts[0].split(".")[-2:])),
            refused=(SECRET,),
            request_lease=3 * SECOND,
            linger=500 * MILLISECOND,
            announce=2 * SECOND,
            retry=200 * MILLISECOND,
            most_requested=3,
        )

    def add(self, name, *roles):
        if name not in self.proxies:
            publications = PublicationSettings(linger=2 * SECOND)
            self.settings = replace(self.settings, publications=publications)
            super().add(name, *roles)
            return
        self.world.add_node(name, lambda env: Peer(env, self, self.settings_of(name)))
        self.world.add_link(name, "hub", self.profile)

    def join(self, name, hosts):
        """Start another proxy."""
        self.proxies[name] = hosts
        self.add(name)
        self.until(lambda: self.node(name) is not None and self.proxy(name).begun)

    def cut(self, *names):
        for name in names:
            self.world.cut(name, "hub")
            self.world.cut("hub", name)

    def heal(self, *names):
        for name in names:
            self.world.heal(name, "hub")
            self.world.heal("hub", name)

    def proxy(self, name):
        return self.node(name).proxy

    def hub(self, name):
        return self.node(name).hub

    def want(self, name, topic=FEED, subscriber="reader", until=None):
        """Read a topic there; a list that the state and the note are put into once decided."""
        told = []
        self.proxy(name).want(identify(topic), subscriber, until)
        self.proxy(name).when_ready(identify(topic), lambda *what: told.append(what))
        return told

    def leave(self, name, topic=FEED, subscriber="reader"):
        self.proxy(name).leave(identify(topic), subscriber)

    def publish(self, name, *bodies, topic=FEED):
        for body in bodies:
            self.hub(name).publish(topic, body, direct=True)
        self.run(0.01)

    def bodies(self, name, topic=FEED):
        """What the hub has recorded, in order."""
        return [each.body for each in self.hub(name).updates.get(topic, ())]

    def told(self, told):
        """Run until it is decided; the state and the note."""
        self.until(lambda: told)
        return told[0]

    def restart(self, name, after=0.2):
        self.world.crash(name)
        self.run(after)
        self.world.restart(name)
        self.until(lambda: self.proxy(name).begun)
