"""The fault schedules of publications: applications that publish and listen, whatever fails.

Five to thirty nodes, two of them rendezvous servers and two topology managers, on links that lose
up to a fifth of the packets, double and reorder them, and some of which are slow; one to twenty
audiences that join and leave, some of them slow; nodes crash, some of them with their power, stand
still and lose their disks, links are cut and storm.

What must hold (`ledger` knows what an application was promised):

* **safety**, at every event a subscriber is told: each version once and in order, with its
  content; a gap only where the publisher's history was exceeded, a reset only where the publisher
  lost its state or withdrew; nothing missed from the moment on that the publisher knew of the
  subscriber; what publishers, subscribers and their queues keep stays within its bounds;
* **liveness**: soon after the last fault every subscriber has the latest version of each live
  publisher that it can reach.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from identifiers import Position
from psirp_sim.node import FabricNode
from psirp_sim.publications.ledger import Ledger
from psirp_sim.publications.publisher import publisher_of
from psirp_sim.publications.settings import PublicationSettings
from psirp_sim.publications.traffic import SCOPE, Audience, Author, Must, Peer
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
from psirp_sim.wire.rendezvous import Code
from psirp_sim.wire.sealing import FabricKeys
from psirp_sim.zfilters import Scheme

LOOKING = 100 * MILLISECOND
"""Between two looks at whether everything has come right."""


class PublicationsTrial:
    """One world, its applications, and the ledger of what they were told."""

    duration = 8 * SECOND
    patience = 45 * SECOND

    def __init__(self, seed: int, node: type[FabricNode]) -> None:
        self.node = node
        self.world = Simulator(seed)
        self._random = stream(seed, "publications trial")
        self.authors: dict[str, list[Author]] = {}
        self.audiences: dict[str, list[Audience]] = {}
        self.wrong: str | None = None
        self._looked = self._inspected = 0
        self._build()
        power = stream(seed, "power cuts")
        for each in self.world.nodes.values():
            each.crash_cuts_power = power.random() < 0.3
            each.storage.power_safe = power.random() < 0.2

    def _build(self) -> None:
        random = self._random
        count = random.choice([5, 5, 5, 6, 6, 6, 7, 7, 8, 8, 8, 9, 10, 10, 12, 14, 18, 30])
        names = [f"n{number:02}" for number in range(count)]
        self._servers = set(random.sample(names, 2))
        self._managers = set(random.sample(names, 2))
        small = random.random() < 0.4
        publications = PublicationSettings(
            history_versions=random.choice([4, 12]) if small else 1_024,
            history_bytes=random.choice([20_000, 300_000]) if small else 4 << 20,
            waiting_bytes=random.choice([150_000, 2 << 20]),
            unfinished_events=random.choice([1, 4, 256]),
            longest_pause=SECOND,
            linger=3 * SECOND,
        )
        self.ledger = Ledger(publications)
        self.settings = FabricSettings(
            keys=FabricKeys("schedules"),
            link_seed=self.world.seed.to_bytes(8),
            scheme=Scheme(),
            hello_interval=500 * MILLISECOND,
            rendezvous=replace(RENDEZVOUS_SETTINGS, members=tuple(sorted(self._servers))),
            publications=publications,
        )
        lossy = random.choice([0.0, 0.0, 0.02, 0.2])
        for index, name in enumerate(names):
            self._add_node(name, random.sample(names[:index], min(index, 2)), lossy)
        self._plan(names)
        slow = any(each.slow > LOOKING // 2 for mine in self.audiences.values() for each in mine)
        if lossy > 0.1 or publications.waiting_bytes < 1 << 20 or slow:
            # Where every fifth packet is lost on each link of a long way, there is room for two
            # versions at a time, or somebody takes ten events a second, everything takes longer;
            # it must still come right.
            self.patience = 150 * SECOND
        self.world.run_for(0)

    def _add_node(self, name: str, peers: Sequence[str], lossy: float) -> None:
        random = self._random
        clock = Clock(random.randint(-SECOND, SECOND), random.randint(-50_000, 50_000))
        roles = ["topology"] if name in self._managers else []
        if name in self._servers:
            roles.append(RENDEZVOUS)
        self.world.add_node(name, lambda env: Peer(env, self, roles), clock)
        for peer in peers:
            profile = LinkProfile(
                delay=Uniform(200 * MICROSECOND, random.randint(1, 10) * MILLISECOND),
                loss=Independent(random.choice([0.0, lossy])),
                duplicate=random.choice([0.0, 0.05]),
                reorder=random.choice([0.0, 0.1]),
                reorder_by=100 * MILLISECOND,
            )
            if random.random() < 0.2:
                profile = replace(profile, bandwidth=5_000_000, queue=64_000)
            self.world.add_link(name, peer, profile)

    # What applications do

    def _plan(self, names: Sequence[str]) -> None:
        random = self._random
        items = [bytes([number]) * 32 for number in range(1, 1 + random.choice([1, 2, 4]))]
        for name in random.sample(names, random.choice([1, 1, 2, 3])):
            mine = random.sample(items, random.choice([1, len(items)]))
            self.authors[name] = [
                Author(item, durable, numbered=not durable and random.random() < 0.5)
                for item in mine
                for durable in [random.random() < 0.6]
            ]
            for author in self.authors[name]:
                self._plan_author(name, author)
        published = sorted({author.item for mine in self.authors.values() for author in mine})
        for number in range(random.choice([1, 2, 3, 5, 8, 20])):
            audience = Audience(
                b"" if random.random() < 0.2 else random.choice(published),
                random.choice(["position", "cursor", "none"]),
                random.choice([0, 0, 0, 5 * MILLISECOND, 100 * MILLISECOND]),
                moody=random.random() < 0.1,
                name=f"audience {number}",
            )
            self._plan_audience(random.choice(names), audience)

    def _plan_author(self, name: str, author: Author) -> None:
        random = self._random
        at = self.world.engine.at
        for _ in range(random.choice([1, 10, 30, 80])):
            at(random.randrange(self.duration), self._publish, name, author, 1)
        for _ in range(random.choice([0, 1, 2])):
            at(random.randrange(self.duration), self._publish, name, author, 20)
        if random.random() < 0.15:
            withdrawn = random.randrange(self.duration)
            at(withdrawn, self._set_offered, author, False)
            at(random.randrange(withdrawn, self.duration), self._set_offered, author, True)

    def _plan_audience(self, name: str, audience: Audience) -> None:
        random = self._random
        self.audiences.setdefault(name, []).append(audience)
        if random.random() < 0.5:
            audience.wanted = False
            begins = random.randrange(self.duration)
            self.world.engine.at(begins, self._set_wanted, audience, True)
            if random.random() < 0.4:
                ends = random.randrange(begins, self.duration)
                self.world.engine.at(ends, self._set_wanted, audience, False)
                if random.random() < 0.5:
                    again = random.randrange(ends, self.duration + SECOND)
                    self.world.engine.at(again, self._set_wanted, audience, True)

    def _set_offered(self, author: Author, offered: bool) -> None:
        author.offered = offered

    def _set_wanted(self, audience: Audience, wanted: bool) -> None:
        audience.wanted = wanted

    def _publish(self, name: str, author: Author, times: int) -> None:
        peer = self._peer(name)
        if peer is None or self.world.nodes[name].paused:
            return
        random = self._random
        for _ in range(times):
            size = random.choice([0, 1, 100, 127, 1_000, 3_000, random.choice([3_000, 60_000])])
            peer.publish(author, random.randbytes(8) * (size // 8) + bytes(size % 8))

    def may_miss_nothing_from(self, author: str, item: bytes, position: Position) -> None:
        """A version is told to the world: who the publisher knows to listen must get it."""
        publisher = self._peer(author)
        assert publisher is not None
        offer = publisher.node.client.offers.get((SCOPE, item))
        if offer is None or offer.publication is None or offer.registered is not Code.OK:
            return  # it is not published yet, and who has heard of it may have to forget it
        current = publisher.node.rendezvous.publishing.publications.get((SCOPE, item))
        if offer.publication is not current:
            return  # the item was registered again: its earlier listeners have to forget it
        for listener in offer.publication.listeners.values():
            peer = self._peer(listener.node)
            if peer is None or peer.node.boot != listener.epoch:
                continue
            subscriptions = peer.node.rendezvous.subscribing.subscriptions
            for audience in [each for each in peer.subscriptions if each in peer.registered]:
                registered = subscriptions.get((SCOPE, audience.item))
                if registered is not None and registered.sequence == listener.sequence:
                    place = (position.epoch, position.version)
                    must = Must(place, author, publisher.node.boot)
                    known = audience.must.setdefault((item, position.publisher.raw), must)
                    if known.life != must.life:
                        audience.must[item, position.publisher.raw] = must

    def life_of(self, name: str) -> int:
        peer = self._peer(name)
        return 0 if peer is None else peer.node.boot

    def _peer(self, name: str) -> Peer | None:
        """The core of a node that is up."""
        node = self.world.nodes.get(name)
        core = None if node is None or not node.up else node.core
        return core if isinstance(core, Peer) else None

    # What goes wrong

    def faults(self) -> Sequence[FaultKind]:
        crash, *other_ills = [
            replace(kind, begin=partial(self._stop, kind.begin))
            for kind in node_faults(self.world, self.world.nodes)
        ]
        ends = sorted({*self.authors, *self.audiences})
        return [
            crash,
            *other_ills,
            replace(crash, name="crash-of-an-end", targets=ends),
            replace(
                crash, name="crash-of-a-server", targets=sorted(self._servers | self._managers)
            ),
            replace(
                crash,
                name="loss-of-disk",
                targets=sorted(set(ends) - self._servers),
                begin=partial(self._lose_disk, crash.begin),
            ),
            *network_faults(self.world, self.world.channels),
        ]

    def _stop(self, begin: Callable[[str], None], name: str) -> None:
        """A fault begins; it may be a power cut that takes what was durable."""
        storage = self.world.nodes[name].storage
        before = storage.epoch
        begin(name)
        if storage.epoch != before:
            self._state_lost(name)

    def _lose_disk(self, crash: Callable[[str], None], name: str) -> None:
        crash(name)
        self.world.wipe(name)
        self._state_lost(name)
        for audience in self.audiences.get(name, ()):
            audience.done_before.clear()

    def _state_lost(self, name: str) -> None:
        for author in self.authors.get(name, ()):
            author.lost = True
        for audience in self.audiences.get(name, ()):
            if audience.memory == "cursor":
                audience.done_before |= {
                    stream: reader.done for stream, reader in audience.readers.items()
                }
                audience.readers.clear()

    # What must hold

    def check(self) -> None:
        if self.wrong is not None:
            raise InvariantViolated(self.wrong)
        if self.world.now >= self._inspected + LOOKING:
            self._inspected = self.world.now
            for name in self.world.nodes:
                peer = self._peer(name)
                if peer is not None and peer.node.begun:
                    self._check_bounds(peer)

    def _check_bounds(self, peer: Peer) -> None:
        client, settings = peer.node.client, self.settings.publications
        for offer in client.offers.values():
            kept = len(offer.history) <= settings.history_versions
            if not kept or offer.history.spare > settings.history_bytes:
                raise InvariantViolated(f"{peer.env.node} keeps more than its history")
            if offer.sending.remembered > 2 * settings.history_versions + 32:
                raise InvariantViolated(f"{peer.env.node} remembers what it sent for ever")
        if client.subscriber.waiting_bytes > settings.waiting_bytes:
            raise InvariantViolated(f"{peer.env.node} keeps more than its waiting room holds")
        for subscription in peer.subscriptions.values():
            if subscription.in_hand > settings.unfinished_events:
                raise InvariantViolated(f"{peer.env.node} hands on more than its listener takes")

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
        for name, authors in self.authors.items():
            peer = self._peer(name)
            if peer is None or not peer.node.begun:
                continue
            together = self.world.connected(name)
            if not (together & self._servers and together & self._managers):
                continue
            for author in authors:
                if author.offered:
                    offer = peer.node.client.offers.get((SCOPE, author.item))
                    if offer is None or offer.closing or offer.registered is not Code.OK:
                        return f"{name} cannot offer what it wants to"
                    unsettled = self._unheard(name, author, together)
                    if unsettled is not None:
                        return unsettled
                    if not offer.sending.complete:
                        return f"{name} does not know that its listeners have everything"
        return None

    def _unheard(self, name: str, author: Author, together: set[str]) -> str | None:
        publisher = publisher_of(name).raw
        published = self.ledger.streams.get((author.item, publisher))
        peer = self._peer(name)
        assert peer is not None
        epoch, version = peer.node.client.offers[SCOPE, author.item].sending.base[1:]
        if published is None or not version:
            return None
        if (epoch, version) != published.latest:
            return f"{name} is at {version}, and published {published.latest}"
        for other in sorted(together):
            there = self._peer(other)
            for audience in self.audiences.get(other, ()) if there is not None else ():
                stream = (author.item, publisher)
                reader = audience.readers.get(stream)
                if audience.wanted and audience.item in (b"", author.item):
                    last = audience.done_before.get(stream) if reader is None else reader.last
                    if last != (epoch, version):
                        return f"{other} is at {last}, and {name} at {(epoch, version)}"
        return None


class PublicationsSuite:
    """The suite `publications`; a test gives it nodes with planted bugs."""

    name = "publications"
    summary = "every version arrives once and in order, or a gap is told, whatever fails"
    most_faults = 10

    def __init__(self, node: type[FabricNode] = FabricNode) -> None:
        self._node = node

    def trial(self, seed: int) -> Trial:
        return PublicationsTrial(seed, self._node)
