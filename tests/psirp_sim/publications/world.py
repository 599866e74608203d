"""A small fabric in virtual time for tests of publications: a star, and ears that note events."""

from __future__ import annotations

from dataclasses import replace

from psirp_sim.node import FabricNode
from psirp_sim.publications.events import Gap, Reset, Update
from psirp_sim.publications.publisher import publisher_of
from psirp_sim.publications.settings import PublicationSettings
from psirp_sim.runtime.durations import SECOND
from psirp_sim.wire.data import Kind, MalformedPacket, Protocol, payload_of
from psirp_sim.wire.publications import Latest, Report, records_of, unpack
from tests.psirp_sim.rendezvous.world import ITEM, OTHER, SCOPE, Fabric

__all__ = [
    "ITEM",
    "OTHER",
    "SCOPE",
    "Ear",
    "World",
    "numbered",
    "packet_of",
    "publisher_of",
    "versions_in",
]


def numbered(count, begin=1):
    """Contents that say which version they are."""
    return [b"%d" % number for number in range(begin, begin + count)]


class Ear:
    """A listener that notes what it is told, and when."""

    def __init__(self, world):
        self._world = world
        self.events = []
        self.times = []
        self.codes = []
        self.subscription = None

    def __call__(self, event):
        self.events.append(event)
        self.times.append(self._world.now)

    def of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def updates(self):
        return self.of(Update)

    @property
    def versions(self):
        return [event.position.version for event in self.updates]

    @property
    def contents(self):
        return [event.content for event in self.updates]

    @property
    def told(self):
        """Everything, in a short form."""
        return [_short(event) for event in self.events]


def _short(event):
    match event:
        case Update():
            return event.position.version
        case Gap():
            return ("gap", event.first, event.last)
        case Reset():
            return "reset"


class World(Fabric):
    """One server; `hub` lies between all others, with links of a millisecond."""

    def __init__(
        self, clients=("a", "b"), *, trace=None, links=None, seed=1, loss=None, **publications
    ):
        """`links` are the profiles of links that are not like the others, by client."""
        self._trace, self._links = trace, links or {}
        self._publications = PublicationSettings(**publications)
        super().__init__(("r1",), clients, seed=seed, loss=loss)

    def add(self, name, *roles):
        if name == "hub":
            self.settings = replace(self.settings, publications=self._publications)
            if self._trace is not None:
                self.world.trace = self._trace
        settings = self.settings
        self.world.add_node(name, lambda env: FabricNode(env, settings, roles=roles, domain="d"))
        if name != "hub":
            self.world.add_link(name, "hub", self._links.get(name, self.profile))

    def at(self, name):
        """What applications use at that node."""
        return self.node(name).client

    def listen(self, node, rid=ITEM, ear=None, **options):
        """Subscribe with an ear; the registration is under way."""
        ear = ear or Ear(self.world)
        ear.subscription = self.at(node).subscribe(SCOPE, rid, ear, ear.codes.append, **options)
        return ear

    def write(self, name, *contents, rid=ITEM, **options):
        """Publish one after the other; the last Position."""
        for content in contents:
            position = self.at(name).publish(SCOPE, rid, content, **options)
        return position

    def begun(self, *listeners, publisher="a", rid=ITEM, listen=None, **options):
        """The item is offered, and publisher and listeners know of each other; the ears."""
        self.at(publisher).offer(SCOPE, rid, **options)
        ears = [self.listen(name, rid, **(listen or {})) for name in listeners]
        self.until(lambda: all(self.knows(publisher, name, rid) for name in listeners))
        self.run(0.5)
        return ears

    def knows(self, publisher, listener, rid=ITEM):
        offer = self.at(publisher).offers.get((SCOPE, rid))
        return (
            offer is not None
            and listener in offer.sending.followers
            and (SCOPE, rid) in self.receptions(listener)
        )

    def sending(self, name="a", rid=ITEM):
        return self.at(name).offers[SCOPE, rid].sending

    def receptions(self, name):
        """The streams that come to a node."""
        return self.at(name).subscriber.receptions

    def reception(self, name="b", rid=ITEM):
        (reception,) = self.receptions(name)[SCOPE, rid].values()
        return reception

    def restart(self, name, *, wiped=False, after=1.0):
        """Crash, and begin another life."""
        self.world.crash(name)
        if wiped:
            self.world.wipe(name)
        self.run(after)
        self.world.restart(name)
        self.until(lambda: self.node(name).begun)

    # Packets

    def watch(self, sender, link):
        """The packets of publications sent from now on in that direction, as (time, packet)."""
        seen = []

        def note(channel, sent):
            packet = packet_of(sent)
            if packet is not None:
                seen.append((self.world.now, packet))

        self.world.channels[sender, link].observer = note
        return seen

    def talk(self, sender, link):
        """The words about publications (`Latest`, `Report`) sent from now on in that direction."""
        heard = []

        def note(channel, sent):
            message = message_of(self.settings.keys, sent)
            if isinstance(message, (Latest, Report)):
                heard.append(message)

        self.world.channels[sender, link].observer = note
        return heard

    def lose(self, sender, link, which):
        """Packets of publications for which `which` is true do not arrive in that direction."""
        channel = self.world.channels[sender, link]
        usual = channel.receive

        def receive(channel, sent):
            packet = packet_of(sent)
            if packet is None or not which(packet):
                usual(channel, sent)

        channel.receive = receive

    def inject(self, name, payload):
        """Hand a node the payload of a packet, as any node on the way could."""
        try:
            return self.at(name).payload(payload)
        except MalformedPacket:
            return False

    def seconds_since(self, time):
        return (self.world.now - time) / SECOND


def packet_of(sent):
    """The packet of a publication; None when it is something else."""
    if sent[1:2] != bytes((Kind.DATA,)):
        return None
    payload = payload_of(sent)
    return unpack(payload[1:]) if payload[0] == Protocol.PUBLICATION else None


def message_of(keys, sent):
    """The message that was sent along a filter in one packet, or None."""
    if sent[1:2] != bytes((Kind.DATA,)):
        return None
    payload = payload_of(sent)
    return keys.open(payload[1:]) if payload[0] == Protocol.CONTROL else None


def versions_in(packet):
    return [record.version for record in records_of(packet.records)]
