"""A small fabric in virtual time for tests of the rendezvous: a star of servers and clients."""

from __future__ import annotations

from dataclasses import replace

from psirp_sim.node import FabricNode
from psirp_sim.rendezvous.homes import homes
from psirp_sim.rendezvous.publishing import Base
from psirp_sim.rendezvous.settings import RendezvousSettings
from psirp_sim.runtime.durations import MILLISECOND, SECOND
from psirp_sim.runtime.simulator import Constant, LinkProfile, Simulator
from psirp_sim.settings import FabricSettings
from psirp_sim.wire.rendezvous import Code
from psirp_sim.wire.sealing import FabricKeys

SERVERS = ("r1", "r2", "r3")
CLIENTS = ("a", "b", "c")
SCOPE, ITEM, OTHER = b"S" * 32, b"I" * 32, b"J" * 32
BASE = Base(bytes(16), 1, 7)


class Fabric:
    """`hub` is the topology manager, and everybody's neighbour."""

    def __init__(
        self, servers=SERVERS, clients=CLIENTS, members=None, loss=None, seed=1, **settings
    ):
        self.world = Simulator(seed, keep_events=20_000)
        self.profile = LinkProfile(delay=Constant(MILLISECOND), **({"loss": loss} if loss else {}))
        self.settings = FabricSettings(
            keys=FabricKeys("tests"),
            link_seed=b"tests",
            rendezvous=replace(RendezvousSettings(), members=tuple(members or servers), **settings),
        )
        self.add("hub", "topology")
        for name in servers:
            self.add(name, "rendezvous")
        for name in clients:
            self.add(name)
        self.run(5)

    def add(self, name, *roles):
        settings = self.settings
        self.world.add_node(name, lambda env: FabricNode(env, settings, roles=roles))
        if name != "hub":
            self.world.add_link(name, "hub", self.profile)

    def run(self, seconds):
        self.world.run_for(int(seconds * SECOND))

    def until(self, true, at_most=30.0):
        """Run until it is true; how many seconds that took."""
        begin = self.world.now
        while not true():
            if self.world.now - begin > at_most * SECOND:
                raise AssertionError(f"still not so after {at_most} s")
            self.world.run_for(5 * MILLISECOND)
        return (self.world.now - begin) / SECOND

    def node(self, name):
        return self.world.nodes[name].core

    def client(self, name):
        return self.node(name).rendezvous

    def server(self, name):
        return self.node(name).server

    def homes(self, sid=SCOPE, servers=SERVERS):
        return homes(sid, list(servers))

    # Requests; each gives back a list that the code is put into

    def publish_scope(self, name, sid=SCOPE, **options):
        codes = []
        self.client(name).publish_scope(sid, codes.append, **options)
        return codes

    def publish(self, name, sid=SCOPE, rid=ITEM, base=lambda: BASE, **options):
        codes = []
        self.client(name).publish(
            sid, rid, codes.append, base=base, changed=lambda publication: None, **options
        )
        return codes

    def subscribe(self, name, sid=SCOPE, rid=ITEM, **options):
        codes = []
        self.client(name).subscribe(sid, rid, codes.append, changed=lambda source: None, **options)
        return codes

    def done(self, codes):
        """Run until the request has ended; its code."""
        self.until(lambda: codes)
        return codes[0]

    def matched(self, publisher="a", subscriber="b", sid=SCOPE, rid=ITEM):
        """Whether both ends know of each other."""
        publication = self.client(publisher).publishing.publications.get((sid, rid))
        source = self.client(subscriber).subscribing.sources.get((sid, rid, publisher))
        return (
            publication is not None
            and subscriber in publication.listeners
            and not publication.announcements
            and bool(publication.filters)
            and source is not None
            and source.known
        )

    def listeners(self, publisher="a", sid=SCOPE, rid=ITEM):
        return sorted(self.client(publisher).publishing.publications[sid, rid].listeners)

    def offer(self, publisher="a", sid=SCOPE, rid=ITEM):
        """Publish scope and item."""
        scope = self.publish_scope(publisher, sid)
        assert self.done(scope) is Code.OK
        assert self.done(self.publish(publisher, sid, rid)) is Code.OK
