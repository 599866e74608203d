"""The fault schedules of the proxy: websites in some domains, readers in others, whatever fails.

Two or three domains with a proxy each, sometimes two proxies that answer for different hosts of one
domain; forwarding nodes, two rendezvous servers, two topology managers. Websites ping their hub or
are only followed by it, and one publishes natively, with its zone's key; readers come and go; zones
lose their records and get them back; somebody with a stranger's key, or with another topic's name,
publishes what they must not. Nodes crash, some of those without a hub with their power, and stand
still, links are cut and storm.

What must hold:

* **safety**: a hub records every stream without a hole, in order and once, with the bytes and the
  trace id that it was published with; nothing that was forged; who was told that a topic is ready
  misses nothing that is published from then on; a hub's versions are published by who holds the
  writer lease only, or knows no other proxy of the host; and what a callback subscribed to is not
  forgotten by a restart;
* **liveness**: soon after the last fault every hub has the latest version of what is wanted there,
  who asked for what stays at home was refused, everybody else was told that their topic is ready,
  and what nobody wants is published by nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from identifiers import Position, identify
from psirp_sim.node import FabricNode
from psirp_sim.publications.settings import PublicationSettings
from psirp_sim.rendezvous.server import ROLE as RENDEZVOUS
from psirp_sim.rendezvous.suite import SETTINGS as RENDEZVOUS_SETTINGS
from psirp_sim.runtime.durations import MICROSECOND, MILLISECOND, SECOND
from psirp_sim.runtime.schedules import (
    FaultKind,
    InvariantViolated,
    Trial,
    network_faults,
    node_faults,
)
from psirp_sim.runtime.simulator import Clock, Independent, LinkProfile, Simulator, Uniform, stream
from psirp_sim.settings import FabricSettings
from psirp_sim.wire.sealing import FabricKeys
from psph.proxy.mapping import Item
from psph.proxy.model import Site, publisher_of_hub
from psph.proxy.peers import FORGED, LOOKING, Forger, Native, ProxyPeer, Reading
from psph.proxy.ports import WebUpdate, Zone
from psph.proxy.proxy import Proxy
from psph.proxy.settings import ProxySettings

Streams = dict[tuple[str, bytes], list[Position]]


class ProxyTrial:
    """One world."""

    duration = 8 * SECOND
    patience = 60 * SECOND

    def __init__(self, seed: int, proxy: type[Proxy]) -> None:
        self.proxy = proxy
        self.world = Simulator(seed)
        self._random = stream(seed, "proxy trial")
        self.wrong: str | None = None
        self._looked = 0
        self.sites: dict[str, list[Site]] = {}
        self.readings: dict[str, list[Reading]] = {}
        self.proxies: dict[str, ProxySettings] = {}
        self.zones: dict[str, Zone] = {}
        self.keys: dict[str, Ed25519PrivateKey] = {}
        self.published: dict[tuple[str, Position], WebUpdate] = {}
        """What entered at some hub, and was recorded there."""
        self.sent: set[tuple[Item, Position]] = set()
        """What was published in the fabric by whose turn it was."""
        self.first_sent: dict[Item, int] = {}
        self.turns: dict[tuple[Item, int], str] = {}
        """Who wrote a topic under which fencing epoch."""
        self.latest: dict[tuple[str, bytes], Position] = {}
        """Of each topic and hub."""
        self.heard: dict[str, Streams] = {}
        """What each hub has recorded of others."""
        self.joins: dict[str, int] = {}
        """When a proxy is first started, if that is not at the beginning."""
        self.alive: dict[str, int] = {}
        """When each proxy was last seen at work."""
        self.native = ""
        """The topic that somebody publishes without a hub."""
        self.native_bodies: dict[bytes, str] = {}
        """What they publish, and its trace id."""
        self.native_latest = (b"", 0, 0)
        """Publisher, epoch and version."""
        self._build()

    def _build(self) -> None:
        random = self._random
        self._fabric = [f"n{number}" for number in range(random.choice([3, 4, 6]))]
        self._servers = set(random.sample(self._fabric, 2))
        self._managers = set(random.sample(self._fabric, 2))
        self.dns_delay = random.choice([MILLISECOND, 300 * MILLISECOND, 2 * SECOND])
        self.fabric = FabricSettings(
            keys=FabricKeys("schedules"),
            link_seed=self.world.seed.to_bytes(8),
            hello_interval=500 * MILLISECOND,
            rendezvous=replace(RENDEZVOUS_SETTINGS, members=tuple(sorted(self._servers))),
            publications=PublicationSettings(longest_pause=SECOND, linger=3 * SECOND),
        )
        lossy = random.choice([0.0, 0.0, 0.02, 0.1])
        for index, name in enumerate(self._fabric):
            roles = ["topology"] if name in self._managers else []
            roles += [RENDEZVOUS] if name in self._servers else []
            make = partial(FabricNode, settings=self.fabric, roles=roles)
            self.world.add_node(name, make, self._clock())
            self._connect(name, random.sample(self._fabric[:index], min(index, 2)), lossy)
        for number in range(random.choice([2, 2, 3])):
            self._add_domain(f"site-{'abc'[number]}.test", lossy)
        if random.random() < 0.3:
            self.world.add_node("forger", lambda env: Forger(env, self), self._clock())
            self._connect("forger", random.sample(self._fabric, 1), lossy)
        self._extras(lossy)
        power = stream(self.world.seed, "power cuts")
        for name, node in self.world.nodes.items():
            # A model of a hub that loses its power would need another idea of what it recorded.
            node.crash_cuts_power = name not in self.proxies and power.random() < 0.3
        self._plan()
        self.world.run_for(0)

    def _extras(self, lossy: float) -> None:
        """What not every world has."""
        random = stream(self.world.seed, "extras")
        zone = random.choice(sorted(self.zones))
        if random.random() < 0.4:
            self.native = f"http://news.{zone}/native"
            make = partial(Native, trial=self, key=self.keys[zone])
            self.world.add_node("native", make, self._clock())
            self._connect("native", random.sample(self._fabric, 1), lossy)
        if random.random() < 0.3:
            begin = random.randrange(self.duration)
            end = random.randrange(begin, self.duration)
            self.world.engine.at(begin, self._change_zone, zone, Zone(False))
            self.world.engine.at(end, self._change_zone, zone, self.zones[zone])

    def _change_zone(self, name: str, zone: Zone) -> None:
        self.zones[name] = zone
        for readings in self.readings.values():
            for reading in readings:
                if identify(reading.topic).zone == name:
                    reading.ready_at.clear()  # and plain WebSub from now on, or no longer
        for peer in filter(None, map(self.peer, self.proxies)):
            if name in peer.directory.known:
                peer.directory.changed(name)

    def _clock(self) -> Clock:
        random = self._random
        return Clock(random.randint(-SECOND, SECOND), random.randint(-50_000, 50_000))

    def _connect(self, name: str, peers: Sequence[str], lossy: float) -> None:
        random = self._random
        for peer in peers:
            profile = LinkProfile(
                delay=Uniform(200 * MICROSECOND, random.randint(1, 10) * MILLISECOND),
                loss=Independent(random.choice([0.0, lossy])),
                duplicate=random.choice([0.0, 0.05]),
                reorder=random.choice([0.0, 0.1]),
                reorder_by=50 * MILLISECOND,
            )
            self.world.add_link(name, peer, profile)

    def _add_domain(self, zone: str, lossy: float) -> None:
        random = self._random
        key = self.keys[zone] = Ed25519PrivateKey.from_private_bytes(random.randbytes(32))
        public = (key.public_key().public_bytes_raw(),)
        self.zones[zone] = Zone(True, public)
        hosts: list[tuple[str, ...]] = [(zone,)]
        if random.random() < 0.3:
            hosts = [(f"news.{zone}",), (f"blog.{zone}", f"shop.{zone}")]
        for number, served in enumerate(hosts):
            name = f"{zone.split('.')[0]}-{number}"
            host = served[-1] if len(hosts) > 1 else f"news.{zone}"
            self.proxies[name] = ProxySettings(
                hosts=served,
                key=key,
                refused=(f"http://{host}/secret",),
                request_lease=3 * SECOND,
                linger=500 * MILLISECOND,
                announce=random.choice([SECOND, 3 * SECOND]),
                retry=200 * MILLISECOND,
            )
            self.sites[name] = [
                Site(f"http://{host}/{page}", random.random() < 0.6)
                for page in ("feed", "secret", "other")[: random.choice([1, 2, 3])]
            ]
            self.readings[name], self.heard[name] = [], {}
            self.world.add_node(name, lambda env: ProxyPeer(env, self), self._clock())
            self._connect(name, random.sample(self._fabric, random.choice([1, 1, 2])), lossy)

    def _plan(self) -> None:
        random, at = self._random, self.world.engine.at
        for name, sites in self.sites.items():
            for site in sites:
                for _ in range(random.choice([0, 1, 5, 30])):
                    at(random.randrange(self.duration), self._write, name, site)
        everything = [site.topic for sites in self.sites.values() for site in sites]
        everything += [self.native] if self.native else []
        for name in self.proxies:
            for topic in random.sample(everything, random.randint(1, len(everything))):
                reading = Reading(topic, random.random() < 0.5)
                self.readings[name].append(reading)
                if random.random() < 0.5:
                    reading.wanted = False
                    begins = random.randrange(self.duration)
                    at(begins, self._set_wanted, reading, True)
                    if random.random() < 0.5:
                        ends = random.randrange(begins, self.duration)
                        at(ends, self._set_wanted, reading, False)
                        if random.random() < 0.5:
                            again = random.randrange(ends, self.duration + SECOND)
                            at(again, self._set_wanted, reading, True)

    def _set_wanted(self, reading: Reading, wanted: bool) -> None:
        reading.wanted = wanted
        reading.ready_at.clear()

    def _write(self, name: str, site: Site) -> None:
        """A website has something new; its hub may be down."""
        site.content = self._random.randbytes(8) * self._random.choice([1, 10, 1_000])
        peer = self.peer(name)
        if peer is not None and site.pings and not self.world.nodes[name].paused:
            peer.hub.publish(site.topic, site.content, direct=self._random.random() < 0.5)

    def peer(self, name: str) -> ProxyPeer | None:
        """The core of a proxy that is up."""
        node = self.world.nodes.get(name)
        core = None if node is None or not node.up else node.core
        return core if isinstance(core, ProxyPeer) and core.started else None

    # What is told to the trial

    def publishing(self, peer: ProxyPeer, item: Item, position: Position, turn: int | None) -> None:
        """A proxy publishes a version of its hub, with a lease or (None) without."""
        name = peer.env.node
        if turn is not None:
            writer = self.turns.setdefault((item, turn), name)
            if writer != name:
                self.wrong = f"{writer} and {name} write in the same turn {turn}"
        elif peer.met & self._siblings(name):
            if (item, position) not in self.sent:
                self.wrong = f"{name} publishes without a writer lease"
            return
        self.sent.add((item, position))
        self.first_sent.setdefault(item, self.world.now)

    def _siblings(self, name: str) -> set[str]:
        """The other proxies of the same hosts."""
        hosts = self.proxies[name].hosts
        return {other for other, each in self.proxies.items() if each.hosts == hosts} - {name}

    def was_there(self, name: str, reading: Reading) -> bool:
        """Whether a topic of another zone had a version in the fabric when a reader came."""
        topic = identify(reading.topic)
        sent = self.first_sent.get((topic.sid.raw, topic.rid.raw))
        ours = self.proxies[name].serves(topic.host)
        return not ours and sent is not None and sent < reading.began

    def told_ready(self, name: str, reading: Reading) -> None:
        """From now on nothing may be missed of what anybody publishes of the topic."""
        for origin, sites in self.sites.items():
            if any(site.topic == reading.topic for site in sites):
                publisher = publisher_of_hub(origin).raw
                latest = self.latest.get((reading.topic, publisher))
                reading.ready_at.setdefault(publisher, latest.version if latest else 0)

    def recorded(self, name: str, update: WebUpdate) -> None:
        try:
            self._recorded(name, update)
        except InvariantViolated as violation:
            self.wrong = f"{name}: {violation}"

    def _recorded(self, name: str, update: WebUpdate) -> None:
        position = update.position
        if update.body == FORGED:
            raise InvariantViolated(f"a forged version of {update.topic} was taken")
        if position.publisher == publisher_of_hub(name):
            self.published[update.topic, position] = update
            key = (update.topic, position.publisher.raw)
            self.latest[key] = max(position, self.latest.get(key, position))
            return
        known = self.heard[name].setdefault((update.topic, position.publisher.raw), [])
        if position in known:
            return  # told again after a crash
        if update.topic == self.native:
            as_published = self.native_bodies.get(update.body) == update.trace_id
        else:
            as_published = self.published.get((update.topic, position)) == update
        if not as_published:
            raise InvariantViolated(f"{position} of {update.topic} is not what was published")
        if known and not position.directly_follows(known[-1]):
            begins_anew = position.epoch > known[-1].epoch and position.version == 1
            if update.topic != self.native or not begins_anew:
                raise InvariantViolated(f"{position} came after {known[-1]}")
        if not known:
            self._check_beginning(name, update)
        known.append(position)

    def _check_beginning(self, name: str, update: WebUpdate) -> None:
        for reading in self.readings[name]:
            ready = reading.ready_at.get(update.position.publisher.raw, update.position.version)
            concerned = reading.topic == update.topic and reading.wanted
            if concerned and update.position.version > ready + 1:
                raise InvariantViolated(
                    f"{update.topic} begins with {update.position}, and it was ready at {ready}"
                )

    # What goes wrong

    def faults(self) -> Sequence[FaultKind]:
        crash, *other_ills = node_faults(self.world, self.world.nodes)
        return [
            crash,
            *other_ills,
            replace(crash, name="crash-of-a-proxy", targets=sorted(self.proxies)),
            replace(
                crash, name="crash-of-a-server", targets=sorted(self._servers | self._managers)
            ),
            *network_faults(self.world, self.world.channels),
        ]

    # What must hold

    def check(self) -> None:
        if self.wrong is not None:
            raise InvariantViolated(self.wrong)

    def settled(self) -> bool:
        if self.world.now < self._looked + LOOKING:
            return False
        self._looked = self.world.now
        return self._unsettled() is None

    def finish(self) -> None:
        unsettled = self._unsettled()
        if unsettled is not None:
            raise InvariantViolated(f"{unsettled}, and the faults are long over")

    def _unsettled(self) -> str | None:
        wanted: dict[str, set[str]] = {}
        for name, readings in self.readings.items():
            for reading in readings:
                if reading.wanted:
                    wanted.setdefault(reading.topic, set()).add(name)
        for name, sites in self.sites.items():
            for site in sites:
                unsettled = self._site_unsettled(name, site, wanted.get(site.topic, set()))
                if unsettled is not None:
                    return unsettled
        for name in self.readings:
            peer = self.peer(name)
            if peer is None or not peer.proxy.begun:
                return f"{name} has not begun"
            wished = {reading.topic for reading in self.readings[name] if reading.wanted}
            if left := self._left_listening(name, wished, set(peer.proxy.inflow.topics)):
                return f"{name} still listens to {sorted(left)}"
            for reading in self.readings[name]:
                if reading.wanted and not reading.told and reading.topic != self.native:
                    return f"{name} was not told what becomes of {reading.topic}"
        return self._native_unsettled(wanted.get(self.native, set()))

    def _left_listening(self, name: str, wished: set[str], listens: set[str]) -> set[str]:
        """What a proxy has no reason to listen to."""
        return listens - wished

    def _native_unsettled(self, readers: set[str]) -> str | None:
        """What nobody's hub published is everybody's."""
        publisher, epoch, version = self.native_latest
        for reader in sorted(readers) if version else ():
            heard = self.heard[reader].get((self.native, publisher), [])
            if not heard or (heard[-1].epoch, heard[-1].version) != (epoch, version):
                return f"{reader} has {heard[-1:]} of {self.native}, and its publisher {version}"
        return None

    def _site_unsettled(self, name: str, site: Site, readers: set[str]) -> str | None:
        origin = self.peer(name)
        if origin is None or not origin.proxy.begun:
            return f"{name} has not begun"
        outside = readers - {name}
        if self.proxies[name].refuses(site.topic):
            return self._refusal_missing(site, outside)
        if not outside:
            if site.topic in origin.proxy.origin.topics or site.topic in origin.hub.kept:
                return f"{name} still publishes {site.topic}"
            return None
        if not site.pings and site.content:
            mine = origin.hub.updates.get(site.topic, [])
            if not mine or mine[-1].body != site.content:
                return f"{name} does not follow {site.topic}"
        latest = self.latest.get((site.topic, origin.hub.publisher.raw))
        for reader in sorted(outside):
            heard = self.heard[reader].get((site.topic, origin.hub.publisher.raw), [])
            if latest is not None and (not heard or heard[-1] != latest):
                return f"{reader} has {heard[-1:]} of {site.topic}, and {name} {latest}"
        return None

    def _refusal_missing(self, site: Site, outside: set[str]) -> str | None:
        for name in sorted(outside):
            peer = self.peer(name)
            if peer is not None and site.topic in peer.hub.denied:
                continue
            for reading in self.readings[name]:
                if reading.topic == site.topic and reading.wanted and reading.told != "refused":
                    return f"{name} was not told that {site.topic} is refused"
        return None


class ProxySuite:
    """The suite `proxy`; a test gives it proxies with planted bugs."""

    name = "proxy"
    summary = "what websites publish reaches readers in other domains once, and forgeries do not"
    most_faults = 8

    def __init__(self, proxy: type[Proxy] = Proxy) -> None:
        self._proxy = proxy

    def trial(self, seed: int) -> Trial:
        return ProxyTrial(seed, self._proxy)
