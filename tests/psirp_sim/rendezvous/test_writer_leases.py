"""Writer leases: one holder at a time, growing fences, whatever fails; and each rule on its own.

First the fault schedules, in a small world of servers and clients that are all linked to each
other, without a fabric in between. Then cores with a planted bug, which the schedules must find.
Then the rules of voters and clients one by one.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from psirp_sim.rendezvous import voting
from psirp_sim.rendezvous.membership import VIEW, Membership
from psirp_sim.rendezvous.settings import RendezvousSettings
from psirp_sim.rendezvous.voting import FENCE, Voting
from psirp_sim.rendezvous.writer import WriterLease, WriterLeases
from psirp_sim.runtime.durations import MICROSECOND, MILLISECOND, SECOND
from psirp_sim.runtime.schedules import (
    FaultKind,
    InvariantViolated,
    network_faults,
    node_faults,
    run_suite,
)
from psirp_sim.runtime.simulator import Clock, Independent, LinkProfile, Simulator, Uniform, stream
from psirp_sim.wire.rendezvous import MESSAGES, Code, LeaseAsk, LeaseVote, View

SEEDS = 50
SETTINGS = RendezvousSettings(
    writer_lease=2 * SECOND,
    gossip_interval=300 * MILLISECOND,
    retry_interval=100 * MILLISECOND,
)
LEASE = SETTINGS.writer_lease
BOOT = b"boot"
TYPES = {each.type: each for each in MESSAGES}


def encode(message):
    return bytes((message.type,)) + msgspec.msgpack.encode(message)


def decode(packet):
    return msgspec.msgpack.decode(packet[1:], type=TYPES[packet[0]])


class Core:
    """Sends messages to neighbours by name."""

    def __init__(self, env, trial):
        self.env = env
        self.trial = trial

    def send(self, name, message):
        if name in self.env.links:
            self.env.links[name].send(encode(message))

    def stop(self):
        """Leaves without a word."""


class Server(Core):
    """Membership and votes."""

    def start(self):
        self.membership = None
        self.begin()

    def begin(self):
        """When its time has come."""
        if self.membership is None and self.trial.world.now >= self.trial.born[self.env.node]:
            self.membership = self.trial.membership(
                self.env,
                self.trial.settings,
                live=self.live,
                send=self.send,
                changed=self.changed,
            )
            self.voting = self.trial.voting(
                self.env, self.trial.settings, self.membership, send=self.to_client
            )
            self.membership.start()

    def live(self):
        return [
            name for name in self.trial.servers_up() if name == self.env.node or self.sees(name)
        ]

    def sees(self, name):
        channels = self.trial.world.channels
        there, back = channels[self.env.node, name], channels[name, self.env.node]
        return not there.blocked and not back.blocked

    def to_client(self, client, filters, message):
        self.send(client, message)

    def changed(self):
        view = self.membership.view
        self.env.log("view", number=view.number, members=view.members, before=view.before)

    def receive(self, link, packet):
        if self.membership is not None:
            message = decode(packet)
            to = self.voting if isinstance(message, LeaseAsk) else self.membership
            to.receive(message)


class Candidate(Core):
    """Somebody who wants to write."""

    def start(self):
        self.writers = None
        self.leases = {}
        stored = int.from_bytes(self.env.storage.get(BOOT) or b"")
        self.boot = max(stored + 1, self.env.wall() // MILLISECOND)
        self.env.storage.write({BOOT: self.boot.to_bytes(8)}, self.begin)

    def begin(self):
        self.writers = self.trial.leases(
            self.env,
            self.trial.settings,
            epoch=lambda: self.boot,
            servers=self.trial.servers_up,
            send=self.send,
        )
        for topic in self.trial.topics:
            self.want(topic)

    def want(self, topic):
        if topic not in self.leases:
            self.leases[topic] = self.writers.acquire(topic, topic, self.changed)

    def give_up(self, topic, successor, pause):
        lease = self.leases.get(topic)
        if lease is not None:
            del self.leases[topic]
            lease.release(successor)
            self.env.call_later(pause, self.want, topic)

    def changed(self, lease):
        self.env.log("lease", held=lease.held, fence=lease.fence, until=lease.until)
        if lease.held:
            self.trial.gained(self, lease)

    def receive(self, link, packet):
        message = decode(packet)
        if self.writers is not None and isinstance(message, LeaseVote):
            self.writers.receive(message)


class LeaseTrial:
    """Servers that come and go, and clients that compete."""

    duration = 16 * SECOND
    patience = 8 * LEASE

    def __init__(self, seed, membership, voting, leases, skew, calm_servers):
        self.membership, self.voting, self.leases = membership, voting, leases
        self.calm_servers = calm_servers
        self.world = Simulator(seed)
        self.random = random = stream(seed, "lease trial")
        first = [f"s{index}" for index in range(random.randint(2, 5))]
        late = [f"t{index}" for index in range(random.choice([0, 1, 2]))]
        late = [] if calm_servers else late
        self.servers = sorted(first + late)
        self.clients = [f"c{index}" for index in range(random.randint(3, 6))]
        self.topics = [bytes((index,)) * 32 for index in range(random.choice([1, 1, 2]))]
        self.settings = replace(SETTINGS, members=tuple(first))
        self.frail = random.choice(first)
        self.born = {name: random.randrange(self.duration) if name in late else 0
                     for name in self.servers}  # fmt: skip
        self.gains = {topic: [] for topic in self.topics}
        self.fences = dict.fromkeys(self.topics, 0)
        self.quarrelsome = random.random() < 0.3
        self.wrong = None
        self.tenures = 0
        self.build(skew)
        self.plan()
        names = [*self.servers, *self.clients]
        groups = [random.sample(names, random.randint(1, len(names) - 1)) for _ in range(6)]
        self.groups = {",".join(sorted(group)): set(group) for group in groups}

    def build(self, skew):
        random, world = self.random, self.world
        for names, core in ((self.servers, Server), (self.clients, Candidate)):
            for name in names:
                clock = Clock(random.randint(-skew, skew), random.randint(-10_000_000, 10_000_000))
                world.add_node(name, lambda env, core=core: core(env, self), clock)
        loss = random.choice([0.0, 0.02, 0.2])
        slow = random.choice([2, 10, 60])
        for index, one in enumerate([*self.servers, *self.clients]):
            for other in [*self.servers, *self.clients][index + 1 :]:
                if one in self.servers:
                    profile = LinkProfile(
                        delay=Uniform(200 * MICROSECOND, slow * MILLISECOND),
                        loss=Independent(loss),
                        duplicate=random.choice([0.0, 0.05, 0.2]),
                        reorder=random.choice([0.0, 0.1]),
                        reorder_by=random.choice([20, 1_000]) * MILLISECOND,
                    )
                    world.add_link(one, other, profile)

    def plan(self):
        """What people do meanwhile."""
        random, at = self.random, self.world.engine.at
        for name in self.servers:
            at(self.born[name], self.on, name, Server.begin)
        for _ in range(random.randint(4, 24)):
            pause = random.choice([0, 0, random.randrange(SECOND)])
            successor = random.choice(["", *self.clients])
            topic = random.choice(self.topics)
            at(random.randrange(self.duration), self.hand_over, topic, successor, pause)
        if self.calm_servers:
            return
        moment = random.randrange(self.duration)
        for name in random.sample(self.servers, random.choice([0, 1, 1, len(self.servers) - 1])):
            at(moment, self.on, name, lambda core: core.membership.leave())
            moment += random.choice([0, random.randrange(self.duration)])
        for _ in range(random.choice([0, 0, 3])):
            by, gone = random.sample(self.servers, 2)
            at(random.randrange(self.duration), self.on, by, remove(gone))
        if self.quarrelsome:
            at(random.randrange(self.duration), self.quarrel)

    def quarrel(self):
        """Two halves of the servers lose each other, and each throws one of the others out."""
        random = self.random
        shuffled = random.sample(self.servers, len(self.servers))
        halves = shuffled[: len(shuffled) // 2], shuffled[len(shuffled) // 2 :]
        moment = self.world.now
        for here, there in (halves, halves[::-1]):
            for sender in here:
                for link in there:
                    self.block(sender, link, random.choice([LEASE // 2, 3 * LEASE]))
            for name in here:
                self.world.engine.at(moment + MILLISECOND, self.on, name, remove(there[0]))

    def block(self, sender, link, length):
        self.world.cut(sender, link)
        self.world.engine.at(self.world.now + length, self.world.heal, sender, link)

    def on(self, name, action):
        node = self.world.nodes[name]
        if node.up and not node.paused:
            if isinstance(node.core, Server) and node.core.membership is None:
                node.core.begin()
                if node.core.membership is None:
                    return
            action(node.core)

    def hand_over(self, topic, successor, pause):
        for core, lease in self.gains[topic]:
            if self.holds(core, lease) and not self.world.nodes[core.env.node].paused:
                core.give_up(topic, successor, pause)
                return

    def servers_up(self):
        now = self.world.now
        return [n for n in self.servers if self.world.nodes[n].up and now >= self.born[n]]

    def gained(self, core, lease):
        self.tenures += 1
        if lease.fence <= self.fences[lease.sid]:
            self.wrong = f"{core.env.node} got fence {lease.fence} after {self.fences[lease.sid]}"
        self.fences[lease.sid] = lease.fence
        others = [each for each in self.gains[lease.sid] if each[1] is not lease]
        holding = [each for each in others if self.holds(*each)]
        if holding:
            self.wrong = f"{core.env.node} got what {holding[0][0].env.node} holds"
        self.gains[lease.sid] = [*holding, (core, lease)]

    def holds(self, core, lease):
        return self.world.nodes[core.env.node].core is core and lease.held

    # Faults

    def faults(self):
        crash, in_write, pause = node_faults(self.world, [*self.servers, *self.clients])
        kinds = [
            crash,
            in_write,
            pause,
            replace(crash, name="crash-of-a-server", targets=self.servers),
            replace(pause, name="pause-of-a-client", targets=self.clients),
            *network_faults(self.world, self.world.channels),
            self.split(),
            self.outage(crash, "outage"),
            self.outage(crash, "outage-in-write", aimed=True),
            self.numbness(pause),
            self.solitude(),
        ]
        if not self.calm_servers:
            kinds += [
                replace(crash, name="wipe", targets=[self.frail], begin=self.wipe(crash.begin)),
            ]
        if not self.calm_servers and not self.quarrelsome:
            # A quarrel may have to wait for the dead (`membership`).
            kinds.append(replace(crash, name="death", targets=[self.frail], end=lambda name: None))
        return kinds

    def wipe(self, crash):
        def begin(name):
            crash(name)
            self.world.wipe(name)

        return begin

    def outage(self, crash, name, aimed=False):
        """All servers crash at once; when most of them are in a write, if it is aimed."""

        def each(action):
            def on_all(target):
                for server in self.servers:
                    action(server)

            return on_all

        def at_stake(target):
            writing = sum(self.world.nodes[name].storage.pending > 0 for name in self.servers)
            return int(2 * writing > len(self.servers))

        return FaultKind(
            name, ["servers"], each(crash.begin), each(crash.end), at_stake, lambda t: 1, aimed
        )

    def numbness(self, pause):
        """A client stands still while votes are on their way to it, and then cannot ask."""

        def end(name):
            pause.end(name)
            for server in self.servers:
                self.block(name, server, LEASE)

        def at_stake(name):
            return sum(channel.in_flight for channel in self.world.channels_to(name))

        return FaultKind(
            "numbness", self.clients, pause.begin, end, at_stake, lambda t: 1, aimed=True
        )

    def solitude(self):
        """Whoever holds a topic loses some of the servers, and gets them back in the end."""
        cut = {}

        def begin(target):
            for core, lease in self.gains[self.topics[0]]:
                if self.holds(core, lease):
                    lost = self.random.sample(self.servers, len(self.servers) // 2)
                    cut[target] = [(core.env.node, server) for server in lost]
            for client, server in cut.get(target, ()):
                self.world.cut(client, server)
                self.world.cut(server, client)

        def end(target):
            for client, server in cut.pop(target, ()):
                self.world.heal(client, server)
                self.world.heal(server, client)

        return FaultKind("solitude", ["1", "2", "3"], begin, end, lambda t: 1, lambda t: 1)

    def split(self):
        """Some nodes are cut off from the others."""
        groups = self.groups
        cuts = network_faults(self.world, self.world.channels)[0]

        def each(action):
            def on_all(target):
                for sender, link in self.world.channels:
                    if (sender in groups[target]) != (link in groups[target]):
                        action(f"{sender}>{link}")

            return on_all

        return FaultKind(
            "split", list(groups), each(cuts.begin), each(cuts.end), lambda t: 1, lambda t: 1
        )

    # What must hold

    def check(self):
        if self.wrong is not None:
            raise InvariantViolated(self.wrong)

    def settled(self):
        return self.unsettled() is None

    def unsettled(self):
        """What is amiss once all faults but a death are over."""
        cores = {name: self.world.nodes[name].core for name in self.servers_up()}
        members = {name: core.membership for name, core in cores.items() if core.membership}
        if any(each.forgetful for each in members.values()) and self.frail not in cores:
            return None  # it died before all had met
        view = max((each.view for each in members.values()), key=lambda view: view.number)
        for group in (view.members, view.before):
            if group and 2 * sum(name in members for name in group) <= len(group):
                return None  # too many of those are dead who must vote, or settle the view
        for topic, gains in self.gains.items():
            if not any(self.holds(*each) for each in gains):
                views = {name: each.view for name, each in members.items()}
                return f"nobody holds topic {topic[0]} with views {views}"
        return None

    def finish(self):
        unsettled = self.unsettled()
        if unsettled is not None:
            raise InvariantViolated(f"{unsettled}, and the faults are long over")


def remove(gone):
    def by(core):
        try:
            core.membership.remove(gone)
        except ValueError as error:
            core.env.log(str(error))

    return by


class LeaseSuite:
    """The suite, with planted bugs when it is given any."""

    name = "writer leases"
    summary = "one writer at a time"
    most_faults = 20

    def __init__(
        self,
        membership=Membership,
        voting=Voting,
        leases=WriterLeases,
        skew=LEASE * 2 // 5,
        calm_servers=False,
    ):
        self.made_of = (membership, voting, leases, skew, calm_servers)
        self.tenures = 0

    def trial(self, seed):
        trial = LeaseTrial(seed, *self.made_of)
        self.last = trial
        return trial


def test_there_is_one_writer_whatever_fails(capsys):
    suite = LeaseSuite()
    tenures = []
    summary = run_suite(
        suite, range(SEEDS), lambda outcome: tenures.append(suite.last.tenures) or True
    )
    with capsys.disabled():
        print(f"\n{summary}, {sum(tenures)} writers")
    assert summary.failure is None, f"seed {summary.failure.seed}: {summary.failure.failure}"
    assert summary.hits > summary.faults / 3
    assert sum(tenures) > 5 * SEEDS


# Planted bugs


class PromisesRightAfterAStart(Voting):
    """What was promised before a crash is promised to others."""

    def _waiting(self):
        return False


class TakesHigherFencesRightAfterAStart(Voting):
    """A late confirmation is taken although the promise that forbids it was forgotten."""

    def _waiting(self):
        return self._confirming is False and super()._waiting()

    def _vote(self, topic, ask):
        self._confirming = ask.fence > 0
        return super()._vote(topic, ask)


class VotesInAnyView(Voting):
    """Majorities of views that are far apart do not meet."""

    def _vote(self, topic, ask):
        view = self._membership.view
        self._membership.view = ask.view
        try:
            return super()._vote(topic, ask)
        finally:
            self._membership.view = view

    def _answer(self, ask, code):
        view = self._membership.view
        if code is not Code.STALE and ask.view.number:
            self._membership.view = ask.view
        super()._answer(ask, code)
        self._membership.view = view


class PromisesForTooShort(Voting):
    """The next one gets it while the holder still counts on it."""

    def _promise(self, topic, client, epoch, request):
        code = super()._promise(topic, client, epoch, request)
        if code is Code.OK:
            self.promises[topic].expires -= LEASE // 2
        return code


class FreesOnOldReleases(Voting):
    """A release that was held back frees what the client has got again since."""

    def _release(self, topic, ask):
        return super()._release(topic, msgspec.structs.replace(ask, request=2**62))


class ForgetsFences(Voting):
    """After a restart, fences begin with whatever the clock of the next client says."""

    def __init__(self, env, settings, membership, *, send):
        super().__init__(env, settings, membership, send=send)
        for key, _ in list(env.storage.scan(FENCE)):
            env.storage.write({key: None})


class VotesBeforeTheFenceIsDurable(Voting):
    """A crash in the write loses the fence of a holder."""

    def _written(self, topic, ask):
        self._writing[topic] -= 1

    def _vote(self, topic, ask):
        code = super()._vote(topic, ask)
        if code is Code.OK and ask.fence > self._fence(topic)[0]:
            self._answer(ask, code)
        return code


class SettledAtOnce(Membership):
    """Two views of one number are voted in."""

    def _move(self, view):
        super()._move(View(view.number, view.members))


class ChangesAtOnce(Membership):
    """Views follow each other so fast that leases of one are still held in the next but one."""

    def _asked_to_change(self, server, present):
        if self.settled_at is not None:
            self.settled_at -= LEASE
        super()._asked_to_change(server, present)


class TrustsItsEmptyDisk(Membership):
    """A server that lost its disk is back in the first view, and votes there."""

    def _recover(self):
        if self.view.members:
            self.forgetful = False
            self.view, self.settled_at = View(1, self._settings.members), None
            self._keep(self.view)


class HoldsWithoutConfirmation(WriterLeases):
    """Nobody knows the fence."""

    def _begin(self, lease, fence):
        if fence and not lease.mine and lease.round is not None:
            self._hold(lease, fence, lease.round.sent + self.length)
        else:
            super()._begin(lease, fence)


class CountsFromTheVotes(WriterLeases):
    """A lease that took long to get is held for too long."""

    def _hold(self, lease, fence, until):
        super()._hold(lease, fence, self._env.now() + self.length)


class CountsOldVotes(WriterLeases):
    """Votes for a round that was given up count for the next."""

    def receive(self, vote):
        lease = self.leases.get((vote.sid, vote.rid))
        if lease is not None and lease.round is not None:
            vote = msgspec.structs.replace(vote, request=lease.round.request)
        super().receive(vote)


class CountsVotesTwice(WriterLeases):
    """One server makes a majority."""

    def _count(self, lease, round):
        twice = [name for name in round.view.members if round.votes.get(name) is Code.OK]
        if twice:
            for name in round.view.members:
                round.votes[name] = Code.OK
        super()._count(lease, round)


class NeverLetsGo(WriterLeases):
    """A lease that could not be renewed is held all the same."""

    def _hold(self, lease, fence, until):
        super()._hold(lease, fence, until)
        lease.until += 10 * LEASE


class NeverRepeats(WriterLeases):
    """A lost packet is a lost vote, and the first refusal the last."""

    def _look(self, lease):
        if lease.mine:
            super()._look(lease)


PLANTED = [
    {"voting": PromisesRightAfterAStart},
    {"voting": TakesHigherFencesRightAfterAStart},
    {"voting": VotesInAnyView},
    {"voting": PromisesForTooShort},
    {"voting": FreesOnOldReleases},
    {"voting": ForgetsFences, "skew": 20 * SECOND, "calm_servers": True},
    {"voting": VotesBeforeTheFenceIsDurable, "skew": 20 * SECOND, "calm_servers": True},
    {"membership": SettledAtOnce},
    {"membership": ChangesAtOnce},
    {"membership": TrustsItsEmptyDisk},
    {"leases": HoldsWithoutConfirmation},
    {"leases": CountsFromTheVotes},
    {"leases": CountsOldVotes},
    {"leases": CountsVotesTwice},
    {"leases": NeverLetsGo},
    {"leases": NeverRepeats},
]


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: next(iter(bug.values())).__name__)
def test_a_planted_bug_is_found(bug):
    summary = run_suite(LeaseSuite(**bug), range(SEEDS))
    assert summary.failure is not None, f"{bug} was not noticed by {SEEDS} seeds"
    print(f"seed {summary.failure.seed}: {summary.failure.failure}")
