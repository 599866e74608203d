"""Writer leases: one holder at a time, growing fences, whatever fails; and each rule on its own.

Sixteen seconds of virtual time after the last fault somebody must hold each topic, that is eight
writer leases: to find out where one was, to let old promises end, and to settle a view or two.

First the fault schedules, in a small world of servers and clients that are all linked to each
other, without a fabric in between. Then cores with a planted bug, which the schedules must find.
Then the rules of voters and clients one by one.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from psirp_sim.rendezvous import voting
from psirp_sim.rendezvous.membership import Membership
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
from tests.sizes import size

SEEDS = size(20, 50)
NOTICED = 200
"""The number of seeds within which a planted bug is found."""
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
        power = stream(world.seed, "power cuts")
        for node in world.nodes.values():
            node.crash_cuts_power = power.random() < 0.5
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


class VotesInAnyView(Voting):
    """Majorities of views that are far apart do not meet."""

    def _vote(self, topic, ask):
        view = self._membership.view
        self._membership.view = ask.view
        try:
            return super()._vote(topic, ask)
        finally:
            self._membership.view = view

    def _answer(self, ask, back, code):
        view = self._membership.view
        if code is not Code.STALE and ask.view.number:
            self._membership.view = ask.view
        super()._answer(ask, back, code)
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


class _NeverSyncs:
    """An environment whose storage loses what a power cut can take."""

    def __init__(self, env):
        self.env, self.storage = env, self

    def __getattr__(self, name):
        return getattr(self.env if hasattr(self.env, name) else self.env.storage, name)

    def write(self, changes, done=None, *, sync=False):
        self.env.storage.write(changes, done)


class VotesBeforeTheDiskHasIt(Voting):
    """A fencing epoch is durable, and a power cut takes it."""

    def __init__(self, env, *args, **options):
        super().__init__(_NeverSyncs(env), *args, **options)


class MovesBeforeTheDiskHasIt(Membership):
    """A view is durable, and a power cut takes the server back to the one before."""

    def __init__(self, env, *args, **options):
        super().__init__(_NeverSyncs(env), *args, **options)


PLANTED = [
    ({"voting": VotesBeforeTheDiskHasIt, "skew": 20 * SECOND, "calm_servers": True}, 253),
    ({"membership": MovesBeforeTheDiskHasIt}, 816),
    ({"voting": PromisesRightAfterAStart}, 0),
    ({"voting": VotesInAnyView}, 25),
    ({"voting": PromisesForTooShort}, 1),
    ({"voting": FreesOnOldReleases}, 233),
    ({"voting": ForgetsFences, "skew": 20 * SECOND, "calm_servers": True}, 52),
    ({"membership": SettledAtOnce}, 94),
    ({"membership": ChangesAtOnce}, 576),
    ({"leases": HoldsWithoutConfirmation}, 0),
    ({"leases": CountsFromTheVotes}, 76),
    ({"leases": CountsVotesTwice}, 0),
    ({"leases": NeverLetsGo}, 0),
    ({"leases": NeverRepeats}, 0),
]
"""What is planted, and the first seed to try: one that finds it, so that the test is quick."""


@pytest.mark.parametrize(
    ("bug", "first"), PLANTED, ids=[next(iter(bug.values())).__name__ for bug, _ in PLANTED]
)
def test_a_planted_bug_is_found(bug, first):
    summary = run_suite(LeaseSuite(**bug), range(first, first + NOTICED))
    assert summary.failure is not None, f"{bug} was not noticed by {NOTICED} seeds"
    print(f"seed {summary.failure.seed}: {summary.failure.failure}")


# The rules one by one

SID, RID = b"s" * 32, b"r" * 32
MEMBERS = ("a", "b", "c")
FIRST = View(1, MEMBERS)


class Idle:
    def start(self):
        """Everything is done by the test."""


def environment(world, name):
    """The environment of a node whose core does nothing; of its next life, if it has one."""
    environments = []
    if name in world.nodes:
        world.crash(name)
        world.nodes[name].factory = lambda env: environments.append(env) or Idle()
        world.restart(name)
    else:
        world.add_node(name, lambda env: environments.append(env) or Idle())
        world.run_for(0)
    return environments[0]


class KnownView:
    """A membership that does not change by itself."""

    def __init__(self):
        self.view = FIRST
        self.settled_at = 0


class Voter:
    """A voting server that has been there for a while."""

    def __init__(self, seed=1):
        self.world = Simulator(seed)
        self.membership = KnownView()
        self.votes = []
        self.start()
        self.world.run_for(LEASE)

    def start(self):
        env = environment(self.world, "a")
        self.voting = Voting(env, SETTINGS, self.membership, send=self.sent)

    def sent(self, client, filters, vote):
        assert client == vote.client
        self.votes.append(vote)

    def ask(self, client="x", epoch=1, request=1, fence=0, view=FIRST, **more):
        """The code of the vote."""
        self.votes.clear()
        ask = LeaseAsk("a", client, epoch, [], request, view, SID, RID, fence, **more)
        self.voting.receive(ask)
        self.world.run_for(MILLISECOND)
        (vote,) = self.votes
        assert (vote.epoch, vote.request, vote.sid, vote.rid) == (epoch, request, SID, RID)
        return vote.code

    @property
    def fence(self):
        return self.votes[-1].fence


def test_a_promise_keeps_others_out_until_it_expires():
    voter = Voter()
    assert voter.ask("x") is Code.OK
    assert voter.ask("y") is Code.HELD
    assert voter.votes[0].holder == "x"
    assert 0 < voter.votes[0].left_ms <= LEASE // MILLISECOND
    voter.world.run_for(LEASE)
    assert voter.ask("y") is Code.OK
    assert len(voter.voting.promises) == 1


def test_a_renewal_makes_it_longer():
    voter = Voter()
    voter.ask("x", request=1)
    voter.ask("x", request=2, fence=5)
    voter.world.run_for(LEASE * 2 // 3)
    assert voter.ask("x", request=3, fence=5) is Code.OK
    voter.world.run_for(LEASE * 2 // 3)
    assert voter.ask("y") is Code.HELD


def test_fences_grow_and_belong_to_one_client():
    voter = Voter()
    assert voter.ask("x", request=1, fence=5) is Code.OK
    assert voter.fence == 5
    assert voter.ask("x", request=2, release=True) is Code.OK
    assert voter.ask("y", request=1) is Code.OK
    assert voter.fence == 5
    assert voter.ask("y", request=2, fence=4) is Code.STALE
    assert voter.ask("y", request=2, fence=5) is Code.STALE
    assert voter.ask("y", request=2, fence=6) is Code.OK


def test_a_fence_is_durable_before_it_is_voted_for():
    voter = Voter()
    for request in (1, 2):
        voter.voting.receive(LeaseAsk("a", "x", 1, [], request, FIRST, SID, RID, 5))
    assert voter.votes == []
    voter.world.run_for(MILLISECOND)
    assert [(vote.request, vote.code, vote.fence) for vote in voter.votes] == [
        (1, Code.OK, 5),
        (2, Code.OK, 5),
    ]


def test_a_later_life_takes_over_and_an_earlier_one_is_refused():
    voter = Voter()
    assert voter.ask("x", epoch=2, request=9) is Code.OK
    assert voter.ask("x", epoch=1, request=10) is Code.STALE
    assert voter.ask("x", epoch=3, request=1) is Code.OK
    assert voter.ask("x", epoch=2, request=10, release=True) is Code.OK
    assert voter.ask("y") is Code.HELD


def test_only_the_view_it_is_in_and_only_when_it_is_settled():
    voter = Voter()
    assert voter.ask(view=View(2, MEMBERS)) is Code.STALE
    assert voter.votes[0].view == FIRST
    assert voter.ask(view=View(0, ())) is Code.STALE
    voter.membership.settled_at = None
    assert voter.ask() is Code.NOT_READY
    assert voter.votes[0].left_ms == SETTINGS.retry_interval // MILLISECOND
    voter.membership.settled_at = 0
    voter.membership.view = View(2, ("b", "c"))
    assert voter.ask(view=View(2, ("b", "c"))) is Code.NOT_READY


def test_a_restarted_voter_takes_only_what_it_took_before():
    voter = Voter()
    voter.ask("x", request=1, fence=5)
    voter.start()
    assert voter.ask("x", request=2, fence=5) is Code.OK
    assert voter.ask("y", request=1) is Code.HELD
    voter.start()
    assert voter.ask("y", request=1) is Code.NOT_READY
    assert voter.votes[0].left_ms == LEASE // MILLISECOND
    assert voter.ask("y", request=1, fence=5) is Code.NOT_READY
    # A late confirmation with a higher fence could break the forgotten promise to x.
    assert voter.ask("y", request=1, fence=6) is Code.NOT_READY
    assert voter.ask("x", request=3) is Code.NOT_READY
    voter.world.run_for(LEASE)
    assert voter.ask("y", request=1, fence=6) is Code.OK


def test_old_requests_do_not_count_after_a_release():
    voter = Voter()
    voter.ask("x", request=1, fence=5)
    assert voter.ask("x", request=3, release=True) is Code.OK
    assert voter.ask("x", request=2, fence=5) is Code.STALE
    assert voter.ask("y") is Code.OK


def test_an_old_release_frees_nothing():
    voter = Voter()
    voter.ask("x", request=3, fence=5)
    assert voter.ask("x", request=2, release=True) is Code.OK
    assert voter.ask("z", request=9, release=True) is Code.OK
    assert voter.ask("y") is Code.HELD


def test_a_successor_comes_first():
    voter = Voter()
    voter.ask("x", request=1, fence=5)
    voter.ask("x", request=2, release=True, successor="y")
    assert voter.ask("z") is Code.HELD
    assert voter.ask("x", request=3) is Code.HELD
    assert voter.ask("y", epoch=7) is Code.OK
    assert voter.ask("x", request=2, release=True, successor="z") is Code.OK
    assert voter.ask("z") is Code.HELD


def test_a_successor_that_does_not_come_is_not_waited_for():
    voter = Voter()
    voter.ask("x", request=1, fence=5)
    voter.ask("x", request=2, release=True, successor="y")
    voter.world.run_for(LEASE)
    assert voter.ask("z") is Code.OK


def test_memory_is_bounded(monkeypatch):
    voter = Voter()
    monkeypatch.setattr(voting, "MOST_TOPICS", 4)
    monkeypatch.setattr(voting, "MOST_TOPICS_PER_CLIENT", 3)

    def ask(client, topic):
        topic = bytes((topic,)) * 32
        voter.voting.receive(LeaseAsk("a", client, 1, [], 1, FIRST, topic, topic))
        return voter.votes[-1].code

    assert [ask("x", each) for each in range(4)] == [Code.OK, Code.OK, Code.OK, Code.TOO_MANY]
    assert [ask("y", each) for each in range(5, 7)] == [Code.OK, Code.OVERLOADED]
    voter.world.run_for(LEASE)
    assert ask("x", 7) is Code.OK
    assert len(voter.voting.promises) == 1


class Client:
    """Leases, and servers that the test plays."""

    def __init__(self):
        self.world = Simulator(2)
        self.env = environment(self.world, "x")
        self.asks = []
        self.epoch = 7
        self.events = []
        self.writers = WriterLeases(
            self.env,
            SETTINGS,
            epoch=lambda: self.epoch,
            servers=lambda: ["a", "d"],
            send=lambda server, ask: self.asks.append(ask),
        )
        self.writers.view = FIRST

    def acquire(self) -> WriterLease:
        return self.writers.acquire(SID, RID, lambda lease: self.events.append(lease.held))

    def vote(self, ask, code=Code.OK, fence=0, view=FIRST, **more):
        self.writers.receive(
            LeaseVote("x", ask.epoch, ask.server, ask.request, SID, RID, code, fence, view, **more)
        )

    def all_vote(self, code=Code.OK, fence=0):
        asks, self.asks = self.asks, []
        for ask in asks:
            self.vote(ask, code, fence)

    def held(self):
        lease = self.acquire()
        self.all_vote()
        self.all_vote()
        assert lease.held
        self.asks.clear()
        return lease

    @property
    def timers(self):
        return self.writers._timer is not None


def test_a_majority_promises_and_a_majority_confirms():
    client = Client()
    lease = client.acquire()
    first = client.asks[:]
    assert [(ask.server, ask.fence) for ask in first] == [("a", 0), ("b", 0), ("c", 0)]
    client.vote(first[0], fence=10**15)
    client.vote(first[0], fence=10**15)
    assert len(client.asks) == 3, "one server has one vote"
    client.vote(first[1])
    confirming = client.asks[3:]
    assert {ask.fence for ask in confirming} == {10**15 + 1}
    client.vote(first[2])
    client.vote(confirming[0])
    assert not lease.held, "a vote of the round before is none"
    client.vote(msgspec.structs.replace(confirming[1], epoch=6))
    client.vote(msgspec.structs.replace(confirming[1], server="d"))
    assert not lease.held
    client.vote(confirming[1])
    assert lease.held
    assert lease.fence == 10**15 + 1
    assert client.events == [True]


def test_fences_begin_with_the_clock():
    client = Client()
    lease = client.held()
    assert lease.fence == client.env.wall() // MILLISECOND


def test_it_counts_from_when_it_asked():
    client = Client()
    lease = client.acquire()
    client.all_vote()
    began = client.env.now()
    client.world.run_for(LEASE // 20)
    client.all_vote()
    assert lease.until == began + LEASE * 9 // 10


def test_it_is_over_by_the_clock_even_when_no_timer_has_run():
    client = Client()
    lease = client.held()
    client.world.pause("x")
    client.world.run_for(LEASE)
    assert not lease.held
    assert client.events == [True]
    client.world.resume("x")
    client.world.run_for(0)
    assert client.events == [True, False]


def test_votes_that_come_too_late_do_not_count():
    client = Client()
    lease = client.acquire()
    client.all_vote()
    late = client.asks[:]
    client.world.pause("x")
    client.world.run_for(LEASE)
    for ask in late:
        client.vote(ask)
    assert not lease.held


def test_it_renews_with_the_same_fence_and_loses_what_it_cannot_renew():
    client = Client()
    lease = client.held()
    until = lease.until
    client.world.run_for(LEASE // 3 + MILLISECOND)
    assert {(ask.fence, ask.release) for ask in client.asks} == {(lease.fence, False)}
    client.all_vote()
    assert lease.until > until
    client.world.run_for(LEASE)
    assert not lease.held
    assert client.events == [True, False]
    assert client.asks[-1].fence == 0


def test_what_is_not_answered_is_asked_again():
    client = Client()
    client.acquire()
    client.vote(client.asks[0])
    client.asks.clear()
    client.world.run_for(SETTINGS.retry_interval + MILLISECOND)
    assert {ask.server for ask in client.asks} == {"b", "c"}
    assert {ask.request for ask in client.asks} == {1}


def test_a_candidate_that_fails_gives_back_what_it_got_and_tries_again():
    client = Client()
    lease = client.acquire()
    first = client.asks[:]
    client.asks.clear()
    client.vote(first[0])
    client.vote(first[1], Code.HELD, holder="y")
    client.vote(first[2], Code.HELD, holder="y")
    assert lease.holder == "y"
    assert [(ask.server, ask.release) for ask in client.asks] == [("a", True)]
    client.world.run_for(LEASE // 4)
    assert [ask.server for ask in client.asks if not ask.release][:4] == ["a", "b", "c", "d"]


def asked_after(client):
    """How long it takes until it asks again."""
    begun = client.env.now()
    while not any(not ask.release for ask in client.asks):
        client.world.run_for(MILLISECOND)
        assert client.env.now() < begun + LEASE
    return client.env.now() - begun


@pytest.mark.parametrize("code", [Code.NOT_READY, Code.HELD])
def test_it_asks_again_when_a_majority_may_vote(code):
    client = Client()
    client.acquire()
    first, client.asks[:] = client.asks[:], []
    for ask, left_ms in zip(first, (1, 60, 300), strict=True):
        client.vote(ask, code, left_ms=left_ms)
    assert 60 * MILLISECOND <= asked_after(client) <= 75 * MILLISECOND


def test_it_asks_at_once_when_there_is_something_to_write():
    client = Client()
    lease = client.acquire()
    for _ in range(8):  # the pauses grow
        client.all_vote(Code.HELD)
        asked_after(client)
    client.all_vote(Code.HELD)
    client.asks.clear()
    lease.hurry()
    assert asked_after(client) <= SETTINGS.retry_interval // 4
    client.asks.clear()
    lease.hurry()
    client.world.run_for(MILLISECOND)
    assert not client.asks, "it has asked already"


def test_who_holds_it_has_no_reason_to_hurry():
    client = Client()
    lease = client.held()
    lease.hurry()
    client.world.run_for(MILLISECOND)
    assert not client.asks


def test_it_learns_settled_views_from_votes():
    client = Client()
    client.writers.view = View(0, ())
    client.acquire()
    assert [ask.server for ask in client.asks] == ["a", "d"]
    client.vote(client.asks[0], Code.NOT_READY, view=View(3, ("c",), ("b", "c")))
    assert client.writers.view == View(0, ())
    client.vote(client.asks[0], Code.STALE, view=FIRST)
    assert [ask.server for ask in client.asks[2:]] == ["a", "b", "c"]
    client.vote(client.asks[2], Code.STALE, view=View(2, ("a", "b")))
    assert [ask.view.number for ask in client.asks[5:]] == [2, 2]
    client.vote(client.asks[5], Code.STALE, view=FIRST)
    assert client.writers.view.number == 2


def test_a_holder_renews_at_once_in_another_view():
    client = Client()
    lease = client.held()
    client.world.run_for(LEASE // 3 + MILLISECOND)
    client.vote(client.asks[0], Code.STALE, view=View(2, ("a", "b")))
    asks = [ask for ask in client.asks if ask.view.number == 2]
    assert [ask.fence for ask in asks] == [lease.fence] * 2
    until = lease.until
    for ask in asks:
        client.vote(ask, view=View(2, ("a", "b")))
    assert lease.until > until
    assert client.events == [True]


def test_a_release_is_repeated_and_then_there_is_no_timer():
    client = Client()
    lease = client.held()
    lease.release("y")
    lease.release()
    assert not lease.held
    assert [(ask.release, ask.successor) for ask in client.asks] == [(True, "y")] * 3
    client.vote(client.asks[0])
    client.world.run_for(SETTINGS.retry_interval + MILLISECOND)
    assert [ask.server for ask in client.asks[3:5]] == ["b", "c"]
    assert client.timers
    client.vote(client.asks[1])
    client.vote(client.asks[2])
    assert not client.timers
    assert client.events == [True]


def test_nobody_is_asked_for_ever_about_a_release():
    client = Client()
    client.held().release()
    client.world.run_for(10 * LEASE)
    assert len(client.asks) == 5 * 3
    assert not client.timers


def test_who_names_a_successor_lets_it_go_first():
    client = Client()
    client.held().release("y")
    with_release = client.asks[:]
    lease = client.acquire()
    with pytest.raises(ValueError, match="already"):
        client.acquire()
    assert client.asks == with_release
    for ask in with_release:
        client.vote(ask)
    client.world.run_for(MILLISECOND)
    assert not client.asks[-1].release
    assert client.asks[-1].request > with_release[0].request
    assert not lease.held


def test_who_waits_for_its_successor_may_change_its_mind():
    client = Client()
    client.held().release("y")
    sent = len(client.asks)
    client.acquire().release()
    assert len(client.asks) == sent
    client.world.run_for(10 * LEASE)
    assert {ask.successor for ask in client.asks} == {"y"}
    assert not client.timers


def test_a_node_whose_life_gets_another_number_goes_on():
    client = Client()
    lease = client.held()
    client.epoch = 8
    client.world.run_for(LEASE // 3 + MILLISECOND)
    until = lease.until
    assert {ask.epoch for ask in client.asks} == {8}
    client.all_vote()
    assert lease.until > until
