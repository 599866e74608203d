"""The fault schedules of several proxies for the same hosts: whoever dies, one writes a topic at a
time, and nothing that entered at either is lost.

A zone with two or three proxies that all serve its hosts, and a zone of readers with one or two.
Websites publish at any of them: content that each counts, pings at one or at several, or nothing at
all, to be looked at. Some of the proxies are started only later, and sometimes the fabric begins in
two parts, so that they do not know of each other at first. What else happens is as in the suite
`proxy`.

What must hold besides:

* **safety**: under one fencing epoch one proxy writes a topic, and no two hold its lease at once;
  a proxy that knows another one writes nothing without a lease; every stream is recorded in order
  and without a hole once it has begun; a version that is left out before it begins was fetched,
  never sent by its publisher, once a reader was promised that nothing will be missed;
* **liveness**: soon after the last fault every reader's hub, those in the zone included, has every
  version that a publisher sent to any of the zone's hubs since, and the website's last content.
"""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from identifiers import Position, identify
from psirp_sim.runtime.durations import MILLISECOND, SECOND
from psirp_sim.runtime.schedules import InvariantViolated, Trial
from psirp_sim.runtime.simulator import stream
from psph.proxy.mapping import Item
from psph.proxy.model import Site, publisher_of_hub
from psph.proxy.peers import ProxyPeer, Reading
from psph.proxy.ports import WebUpdate, Zone
from psph.proxy.proxy import Proxy
from psph.proxy.settings import ProxySettings
from psph.proxy.suite import ProxyTrial

AGAIN = 300 * MILLISECOND
"""After which a website that was not answered tries again."""


class ClusterTrial(ProxyTrial):
    """One world."""

    patience = 90 * SECOND

    def _build(self) -> None:
        self.direct: set[str] = set()
        """Topics whose publisher sends content."""
        self.accepted: dict[str, set[bytes]] = {}
        """Of such topics: what a hub has taken."""
        self.senders: dict[Item, set[str]] = {}
        """The proxies that have published each topic."""
        self.begun: dict[tuple[str, str], int] = {}
        """When the hub of a proxy had its first version of a topic."""
        super()._build()

    def _extras(self, lossy: float) -> None:
        """Those of the other suite have nothing to do with who writes a topic."""
        random = stream(self.world.seed, "joining")
        if random.random() < 0.3:
            part = set(random.sample(self._fabric, len(self._fabric) // 2))
            self._part(part, random.randrange(self.duration))
        for name in sorted(self.proxies):
            if random.random() < 0.3:
                self.joins[name] = random.randrange(self.duration)

    def _part(self, part: set[str], until: int) -> None:
        """Cut all links between some nodes of the fabric and the others, until then."""
        between = [key for key in self.world.channels if len(part.intersection(key)) == 1]
        between = [key for key in between if set(key) <= set(self._fabric)]
        for key in between:
            self.world.cut(*key)
            self.world.engine.at(until, self.world.heal, *key)

    def _add_domain(self, zone: str, lossy: float) -> None:
        random = self._random
        key = self.keys[zone] = Ed25519PrivateKey.from_private_bytes(random.randbytes(32))
        self.zones[zone] = Zone(True, (key.public_key().public_bytes_raw(),))
        writes = zone == "site-a.test"
        sites = []
        for page in ("chat", "feed", "quiet")[: random.choice([1, 2, 3])] if writes else ():
            site = Site(f"http://news.{zone}/{page}", page != "quiet")
            if page == "chat":
                self.direct.add(site.topic)
                self.accepted[site.topic] = set()
            sites.append(site)
        for number in range(random.choice([2, 2, 3]) if writes else random.choice([1, 2])):
            name = f"{zone.split('.')[0]}-{number}"
            self.proxies[name] = ProxySettings(
                hosts=(zone,),
                key=key,
                weight=random.choice([0, 1, 1, 5]),
                request_lease=3 * SECOND,
                member_lease=random.choice([SECOND, 3 * SECOND]),
                standby=random.choice([0, 200 * MILLISECOND]),
                linger=500 * MILLISECOND,
                announce=random.choice([SECOND, 20 * SECOND]),
                retry=200 * MILLISECOND,
            )
            self.sites[name] = sites
            self.readings[name], self.heard[name] = [], {}
            self.world.add_node(name, lambda env: ProxyPeer(env, self), self._clock())
            self._connect(name, random.sample(self._fabric, random.choice([1, 2])), lossy)

    # What websites do

    def _write(self, name: str, site: Site) -> None:
        """Something new, at one of the zone's hubs, or at another one if that is down."""
        hubs = [name for name, sites in self.sites.items() if site in sites]
        content = self._random.randbytes(8) * self._random.choice([1, 10, 1_000])
        if site.topic in self.direct:
            self._send(site, content, self._random.choice(hubs))
            return
        site.content = content
        if site.pings:
            for hub in self._random.sample(hubs, self._random.choice([1, 1, len(hubs)])):
                self._ping(site, hub, content)

    def _send(self, site: Site, content: bytes, name: str) -> None:
        """As a chat does: to one hub after the other until it is taken."""
        if content in self.accepted[site.topic]:
            return
        if (peer := self._serving(name)) is not None:
            peer.hub.publish(site.topic, content, direct=True)
        hubs = [name for name, sites in self.sites.items() if site in sites]
        after = hubs[(hubs.index(name) + 1) % len(hubs)]
        self.world.engine.at(self.world.now + AGAIN, self._send, site, content, after)

    def _ping(self, site: Site, name: str, content: bytes) -> None:
        if site.content != content:
            return  # there is something newer, and its ping
        peer, accepted = self._serving(name), False

        def answered() -> None:
            nonlocal accepted
            accepted = True

        def look() -> None:
            if not accepted:
                self._ping(site, name, content)

        if peer is not None:
            peer.hub.ping(identify(site.topic), answered)
        self.world.engine.at(self.world.now + AGAIN, look)

    def _serving(self, name: str) -> ProxyPeer | None:
        """The core of a proxy whose hub answers: it does so once the proxy has begun."""
        peer = self.peer(name)
        ready = peer is not None and peer.proxy.begun and not self.world.nodes[name].paused
        return peer if ready else None

    # What is told to the trial

    def publishing(self, peer: ProxyPeer, item: Item, position: Position, turn: int | None) -> None:
        super().publishing(peer, item, position, turn)
        self.senders.setdefault(item, set()).add(peer.env.node)
        holders = [
            other
            for other in self.proxies
            if (holder := self.peer(other)) is not None
            and holder.proxy.begun
            and (lease := holder.node.rendezvous.writers.leases.get(item)) is not None
            and lease.held
        ]
        if turn is not None and len(holders) > 1:
            self.wrong = f"{holders} hold the writer lease of one topic at the same time"

    def was_there(self, name: str, reading: Reading) -> bool:
        """What publishers sent to a proxy that died is available when it is back. A proxy that has
        never met an earlier sender of the topic answers without knowing of its versions; so does
        one whose hub has no version yet, because the model's hub waits for a ping."""
        if reading.topic in self.direct or not super().was_there(name, reading):
            return False
        topic = identify(reading.topic)
        senders = self.senders[topic.sid.raw, topic.rid.raw]
        answering = [
            peer
            for other, each in self.proxies.items()
            if each.serves(topic.host) and (peer := self.peer(other)) is not None
        ]
        return all(
            senders - {peer.env.node} <= peer.met
            and self.begun.get((peer.env.node, reading.topic), reading.began) < reading.began
            for peer in answering
        )

    def told_ready(self, name: str, reading: Reading) -> None:
        """Who has never heard of the others cannot wait for them."""
        peer, zone = self.peer(name), identify(reading.topic).zone
        siblings = {other for other in self.sites if self.proxies[other].hosts == (zone,)} - {name}
        if peer is None or (name.startswith(zone.split(".")[0]) and siblings - peer.met):
            return
        for origin in self.sites:
            publisher = publisher_of_hub(origin).raw
            latest = self.latest.get((reading.topic, publisher))
            reading.ready_at.setdefault(publisher, latest.version if latest else 0)

    def _recorded(self, name: str, update: WebUpdate) -> None:
        super()._recorded(name, update)
        self.begun.setdefault((name, update.topic), self.world.now)
        if update.topic in self.direct:
            self.accepted[update.topic].add(update.body)

    def _check_beginning(self, name: str, update: WebUpdate) -> None:
        missed = self._missed(name, update.topic, update.position.publisher.raw)
        if missed is not None and missed < update.position:
            raise InvariantViolated(
                f"{update.topic} begins with {update.position}, and {missed} counts too"
            )

    def _missed(self, name: str, topic: str, publisher: bytes) -> Position | None:
        """The first version of a stream that somebody at a hub should have and it has not."""
        readings = [each for each in self.readings[name] if each.topic == topic and each.wanted]
        ready = min((each.ready_at.get(publisher, 1 << 62) for each in readings), default=1 << 62)
        heard = set(self.heard[name].get((topic, publisher), ()))
        for (other, position), update in sorted(
            self.published.items(), key=lambda each: (each[0][0], each[0][1].version)
        ):
            counts = (other, position.publisher.raw) == (topic, publisher) and update.published
            if counts and position.version > ready and position not in heard:
                return position
        return None

    # What must hold

    def _site_unsettled(self, name: str, site: Site, readers: set[str]) -> str | None:
        for reader in sorted(readers):
            peer = self.peer(reader)
            if peer is None or not peer.proxy.begun:
                return f"{reader} has not begun"
            for origin, sites in self.sites.items():
                if site in sites and origin != reader:
                    missed = self._missed(reader, site.topic, publisher_of_hub(origin).raw)
                    if missed is not None:
                        return f"{reader} lacks {missed} of {site.topic}"
            bodies = [each.body for each in peer.hub.updates.get(site.topic, [])]
            if site.content and site.content not in bodies and self._is_told(reader, site):
                return f"{reader} lacks the last content of {site.topic}"
        return None

    def _is_told(self, name: str, site: Site) -> bool:
        return any(
            each.topic == site.topic and each.wanted and each.told for each in self.readings[name]
        )

    def _left_listening(self, name: str, wished: set[str], listens: set[str]) -> set[str]:
        """Who may have to write a topic listens to it as long as anybody wants it."""
        served = {site.topic for site in self.sites[name]}
        return listens - wished - served


class ClusterSuite:
    """The suite `cluster`; a test gives it proxies with planted bugs."""

    name = "cluster"
    summary = "one of several proxies writes a topic at a time, and nothing is lost when it dies"
    most_faults = 8

    def __init__(self, proxy: type[Proxy] = Proxy) -> None:
        self._proxy = proxy

    def trial(self, seed: int) -> Trial:
        return ClusterTrial(seed, self._proxy)
