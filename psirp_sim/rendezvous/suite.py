"""The fault schedules of the rendezvous: servers, clients, matches and writer leases.

Five to thirty nodes, two to six of them rendezvous servers, some of which come late and some of
which are drained; the others publish and subscribe to items and scopes, change their minds, and
compete for the lease to write a topic, while nodes crash, some of them with their power, stand
still, die or lose their disk and links are cut and storm.

What must hold:

* **safety**, after every step: no topic has two holders of its writer lease, and the fencing
  epochs of its holders grow; no request ends otherwise than it may;
* **liveness**: every request has ended soon after its time-out; soon after the last fault each
  subscriber is matched with each live publisher it can reach, no publisher has a listener that is
  gone, each registration is kept by both homes of its scope, and, where most servers of the view
  are there and not every fifth packet is lost on every link, each topic has a writer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from psirp_sim.node import FabricNode
from psirp_sim.rendezvous.homes import homes
from psirp_sim.rendezvous.publishing import Publication
from psirp_sim.rendezvous.server import ROLE as RENDEZVOUS
from psirp_sim.rendezvous.settings import RendezvousSettings
from psirp_sim.rendezvous.traffic import Peer, Wish
from psirp_sim.rendezvous.writer import WriterLease
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
from psirp_sim.wire.rendezvous import Code, Side
from psirp_sim.wire.sealing import FabricKeys
from psirp_sim.zfilters import Scheme

SETTINGS = RendezvousSettings(
    lease=6 * SECOND,
    time_out=3 * SECOND,
    settle=2 * SECOND,
    writer_lease=3 * SECOND,
    gossip_interval=500 * MILLISECOND,
)
"""Shorter times than usual, so that a trial is short."""
LOOKING = 100 * MILLISECOND
"""Between two looks at whether everything has come right."""


@dataclass(slots=True, eq=False)
class Asked:
    """A request that was made in some life of a node, and has not ended."""

    peer: Peer
    wish: Wish
    deadline: int
    """By the clock of the node."""
    excused: int = 0
    """Until then, by the true time: the node stood still a moment ago."""


class RendezvousTrial:
    """One world and what its nodes wish for."""

    duration = 15 * SECOND
    patience = 30 * SECOND

    def __init__(self, seed: int, node: type[FabricNode]) -> None:
        self.node = node
        self.world = Simulator(seed)
        self._random = stream(seed, "rendezvous trial")
        self.wishes: dict[str, dict[Wish, None]] = {}
        self.candidates: dict[str, list[bytes]] = {}
        """Who competes for which topics."""
        self._outstanding: list[Asked] = []
        self._holders: dict[bytes, list[tuple[Peer, WriterLease]]] = {}
        self._fences: dict[bytes, int] = {}
        self._wrong: str | None = None
        self._looked = self._inspected = 0
        self._build()

    def _build(self) -> None:
        random = self._random
        count = random.choice([5, 6, 8, 10, 12, 16, 20, 30])
        names = [f"n{number:02}" for number in range(count)]
        servers = random.sample(names, min(random.choice([2, 2, 3, 3, 4, 6]), count - 2))
        later = [name for name in names[1:] if name not in servers]
        self._late = set(random.sample(later, min(len(later), count // 5)))
        self._added = next(iter(sorted(self._late)), None) if random.random() < 0.5 else None
        self._servers = {*servers} | ({self._added} if self._added else set())
        self._managers = set(random.sample([n for n in names if n not in self._late], 2))
        self._frail = random.choice(servers)
        """The server that may die for good, or lose its disk."""
        self.settings = FabricSettings(
            keys=FabricKeys("schedules"),
            link_seed=self.world.seed.to_bytes(8),
            scheme=Scheme(),
            hello_interval=500 * MILLISECOND,
            rendezvous=replace(
                SETTINGS,
                members=tuple(sorted(servers)),
                rate=(rate := random.choice([20, 5_000])),
                burst=rate,
            ),
        )
        self._lossy = lossy = random.choice([0.0, 0.02, 0.2])
        for index, name in enumerate(names):
            there = [other for other in names[:index] if other not in self._late]
            peers = random.sample(there, min(len(there), random.choice([1, 2, 2, 3])))
            moment = random.randrange(self.duration) if name in self._late else 0
            self.wishes[name] = {}
            self.world.engine.at(moment, self._join, name, peers, lossy)
        if len(servers) >= 3 and random.random() < 0.5:
            drained = random.choice([name for name in servers if name != self._frail])
            self.world.engine.at(random.randrange(self.duration), self._drain, drained)
        self._plan(names)
        self.world.run_for(0)

    def _join(self, name: str, peers: Sequence[str], lossy: float) -> None:
        random = self._random
        clock = Clock(random.randint(-SECOND, SECOND), random.randint(-50_000, 50_000))
        roles = ["topology"] if name in self._managers else []
        if name in self._servers:
            roles.append(RENDEZVOUS)
        node = self.world.add_node(name, lambda env: Peer(env, self, roles), clock)
        node.crash_cuts_power = stream(self.world.seed, f"power cuts {name}").random() < 0.3
        for peer in peers:
            self.world.add_link(
                name,
                peer,
                LinkProfile(
                    delay=Uniform(200 * MICROSECOND, random.randint(1, 10) * MILLISECOND),
                    loss=Independent(random.choice([0.0, lossy])),
                    duplicate=random.choice([0.0, 0.05]),
                    reorder=random.choice([0.0, 0.1]),
                    reorder_by=200 * MILLISECOND,
                ),
            )

    def _plan(self, names: Sequence[str]) -> None:
        """What nodes wish for, from when on, and when they change their minds."""
        random = self._random
        scopes = [bytes([number]) * 32 for number in range(1, 1 + random.choice([1, 2, 4]))]
        items = [bytes([number]) * 32 for number in range(11, 11 + random.choice([1, 2, 5]))]
        for _ in range(random.randint(4, 3 * len(names))):
            name, sid, rid = random.choice(names), random.choice(scopes), random.choice(items)
            wishes: list[Wish]
            kind = random.random()
            if kind < 0.45:
                wishes = [(Side.PUBLISHER, sid, b""), (Side.PUBLISHER, sid, rid)]
            elif kind < 0.85:
                wishes = [(Side.SUBSCRIBER, sid, rid)]
            else:
                wishes = [(Side.SUBSCRIBER, sid, b"")]
            begin = random.choice([0, random.randrange(self.duration)])
            self.world.engine.at(begin, self._wish, name, wishes, True)
            if random.random() < 0.3:
                end = random.randrange(begin, self.duration)
                self.world.engine.at(end, self._wish, name, wishes[-1:], False)
        for topic in [b"t" * 32, b"u" * 32][: random.choice([1, 2])]:
            competing = random.sample(names, random.randint(2, min(4, len(names))))
            self._holders[topic] = []
            for name in competing:
                self.candidates.setdefault(name, []).append(topic)
            self.world.engine.at(random.randrange(self.duration), self._hand_over, topic, competing)

    def _wish(self, name: str, wishes: Sequence[Wish], wanted: bool) -> None:
        for wish in wishes:
            if wanted:
                self.wishes[name][wish] = None
            else:
                self.wishes[name].pop(wish, None)

    def _drain(self, name: str) -> None:
        peer = self._peer(name)
        if peer is not None and peer.node.begun:
            with suppress(ValueError):  # all others are out of reach just now
                peer.node.drain()

    def _hand_over(self, topic: bytes, competing: Sequence[str]) -> None:
        for peer, lease in self._holders[topic]:
            if lease.held and self._peer(peer.env.node) is peer:
                lease.release(next(name for name in competing if name != peer.env.node))
                del peer.leases[topic]
                return

    def _peer(self, name: str) -> Peer | None:
        """The core of a node that is up."""
        node = self.world.nodes.get(name)
        core = None if node is None or not node.up else node.core
        return core if isinstance(core, Peer) else None

    # What the nodes tell the harness

    def asked(self, peer: Peer, wish: Wish, wanted: bool) -> Callable[[Code], None]:
        """A request is made; what to call when it ends."""
        asked = Asked(peer, wish, peer.env.now() + SETTINGS.time_out + SECOND)
        self._outstanding.append(asked)

        def done(code: Code) -> None:
            if asked not in self._outstanding:
                self._wrong = f"a request of {peer.env.node} ended twice"
                return
            self._outstanding.remove(asked)
            if wanted:
                peer.done[wish] = code
            else:
                del peer.done[wish]
            if code in (Code.NOT_ALLOWED, Code.EXISTS, Code.WRONG_KEY, Code.TOO_MANY):
                self._wrong = f"{peer.env.node} was told {code.name}"

        return done

    def refused(self, peer: Peer, wish: Wish, code: Code) -> None:
        self._wrong = f"{peer.env.node} was refused what it had: {code.name}"

    def lease_changed(self, peer: Peer, lease: WriterLease) -> None:
        if not lease.held:
            return
        if lease.fence <= self._fences.get(lease.sid, 0):
            self._wrong = f"{peer.env.node} got fencing epoch {lease.fence}, and that is not new"
        self._fences[lease.sid] = lease.fence
        if (peer, lease) not in self._holders[lease.sid]:
            self._holders[lease.sid].append((peer, lease))

    # What goes wrong

    def faults(self) -> Sequence[FaultKind]:
        crash, *other_ills = node_faults(self.world, self.world.nodes)
        on_the_net = network_faults(self.world, self.world.channels)
        others = sorted(set(self.world.nodes) - self._servers - self._managers)
        mortal = [*others[:2], *([self._frail] if self._frail not in self._managers else [])]
        return [
            crash,
            *other_ills,
            replace(
                crash,
                name="crash-of-a-server",
                targets=sorted(self._servers & set(self.world.nodes)),
            ),
            replace(crash, name="death", targets=mortal, end=lambda target: None),
            replace(
                crash,
                name="loss-of-disk",
                targets=[self._frail],
                begin=partial(self._lose_disk, crash.begin),
            ),
            *on_the_net,
        ]

    def _lose_disk(self, crash: Callable[[str], None], name: str) -> None:
        crash(name)
        self.world.wipe(name)

    # What must hold

    def check(self) -> None:
        if self._wrong is not None:
            raise InvariantViolated(self._wrong)
        if self.world.now >= self._inspected + LOOKING:
            self._inspected = self.world.now
            self._check_requests()
        for topic, holders in self._holders.items():
            if len(holders) > 1:
                holding = [each for each in holders if self._holds(*each)]
                if len(holding) > 1:
                    both = " and ".join(peer.env.node for peer, _ in holding)
                    raise InvariantViolated(f"{both} hold the same writer lease")
                self._holders[topic] = holding

    def _check_requests(self) -> None:
        for asked in self._outstanding:
            name = asked.peer.env.node
            if self.world.nodes[name].paused:
                asked.excused = self.world.now + SECOND
            overdue = asked.peer.env.now() > asked.deadline and self.world.now > asked.excused
            if overdue and self._peer(name) is asked.peer:
                raise InvariantViolated(f"a request of {name} never ended")
        self._outstanding = [
            asked for asked in self._outstanding if self._peer(asked.peer.env.node) is asked.peer
        ]

    def _holds(self, peer: Peer, lease: WriterLease) -> bool:
        return self._peer(peer.env.node) is peer and lease.held

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
        left = {name for name in self.wishes if self._peer(name) is not None}
        while left:
            together = self.world.connected(min(left))
            left -= together
            peers = {name: peer for name in sorted(together) if (peer := self._peer(name))}
            if self._served(peers):
                unsettled = self._unmatched(peers) or self._unkept(peers) or self._unwritten(peers)
                if unsettled is not None:
                    return unsettled
        return None

    def _served(self, peers: Mapping[str, Peer]) -> bool:
        servers = [name for name, peer in peers.items() if RENDEZVOUS in peer.node.roles]
        return bool(servers) and bool(self._managers & peers.keys())

    def _unmatched(self, peers: Mapping[str, Peer]) -> str | None:
        for name, peer in peers.items():
            for wish in self.wishes[name]:
                if peer.done.get(wish) is not Code.OK:
                    return f"{name} cannot get what it wishes for"
                side, sid, rid = wish
                unended = self._unended(peer, peers)
                if unended is not None:
                    return unended
                if side is Side.PUBLISHER and rid:
                    publication = peer.node.rendezvous.publishing.publications[sid, rid]
                    unmatched = self._unheard(publication, peer, peers)
                    if unmatched is not None:
                        return unmatched
        return None

    def _unended(self, peer: Peer, peers: Mapping[str, Peer]) -> str | None:
        for sid, rid, publisher in peer.node.rendezvous.subscribing.sources:
            wish = (Side.PUBLISHER, sid, rid)
            if publisher not in peers or wish not in self.wishes[publisher]:
                return f"{peer.env.node} still hears from {publisher}, which has ended"
        return None

    def _unheard(
        self, publication: Publication, peer: Peer, peers: Mapping[str, Peer]
    ) -> str | None:
        name, sid, rid = peer.env.node, publication.sid, publication.rid
        expected = {
            other
            for other in peers
            if (Side.SUBSCRIBER, sid, rid) in self.wishes[other]
            or (Side.SUBSCRIBER, sid, b"") in self.wishes[other]
        }
        if publication.listeners.keys() != expected:
            heard = ", ".join(sorted(publication.listeners)) or "nobody"
            return f"{name} has listeners {heard}, not {sorted(expected)}"
        for other in sorted(expected):
            if publication.listeners[other].epoch != peers[other].node.boot:
                return f"{name} knows {other} from an earlier life"
            source = peers[other].node.rendezvous.subscribing.sources.get((sid, rid, name))
            if source is None or not source.known or source.epoch != peer.node.boot:
                return f"{other} has not heard from its publisher {name}"
        if publication.announcements:
            return f"{name} does not know that its listeners have heard"
        return None

    def _unkept(self, peers: Mapping[str, Peer]) -> str | None:
        servers = {
            name: peer.node.server.registrations.clients
            for name, peer in peers.items()
            if RENDEZVOUS in peer.node.roles and peer.node.server is not None
        }
        for name in peers:
            for wish in self.wishes[name]:
                for home in homes(wish[1], list(servers)):
                    client = servers[home].get(name)
                    if client is None or wish not in client.entries:
                        return f"{home} does not know what {name} wishes for"
        return None

    def _unwritten(self, peers: Mapping[str, Peer]) -> str | None:
        if self._lossy > 0.1:
            return None  # all votes of a majority within a lease are luck then
        servers = [peer.node.server for peer in peers.values() if peer.node.server is not None]
        view = max((server.membership.view for server in servers), key=lambda view: view.number)
        complete = peers.keys() >= {*view.members, *view.before}
        voting = {
            server.node
            for server in servers
            # One that lost its disk may have to wait for one that is not there.
            if complete or not server.membership.forgetful
        }
        # Before a view that is settled there are none.
        for needed in (view.members, view.before or view.members):
            if 2 * len(voting.intersection(needed)) <= len(needed):
                return None
        for topic, holders in self._holders.items():
            competing = [name for name in peers if topic in self.candidates.get(name, ())]
            if competing and not any(self._holds(*each) for each in holders):
                return f"nobody holds the writer lease that {', '.join(competing)} want"
        return None


class RendezvousSuite:
    """The suite `rendezvous`; a test gives it nodes with planted bugs."""

    name = "rendezvous"
    summary = "publishers and subscribers find each other and one writes, whatever fails"
    most_faults = 12

    def __init__(self, node: type[FabricNode] = FabricNode) -> None:
        self._node = node

    def trial(self, seed: int) -> Trial:
        return RendezvousTrial(seed, self._node)
