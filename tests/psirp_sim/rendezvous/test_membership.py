"""The view of the servers: who is in it, when it is settled, and what an empty disk may say."""

from __future__ import annotations

import msgspec
import pytest

from psirp_sim.rendezvous.membership import DRAINED, VIEW, Membership, blocking, majority
from psirp_sim.rendezvous.settings import RendezvousSettings
from psirp_sim.runtime.durations import MILLISECOND, SECOND
from psirp_sim.runtime.simulator import Simulator
from psirp_sim.wire.rendezvous import View, ViewChange, ViewIs

MEMBERS = ("a", "b", "c")
LEASE = 2 * SECOND
FIRST = View(1, MEMBERS)
A_WHILE = 300 * MILLISECOND


class Core:
    def __init__(self, env, net):
        self.env = env
        self.net = net
        self.membership = Membership(
            env,
            net.settings,
            live=lambda: net.live(env.node),
            send=lambda to, message: net.send(env.node, to, message),
            changed=lambda: net.changes.append((env.node, self.membership.view)),
        )

    def start(self):
        self.membership.start()


class Net:
    """Servers that talk to each other at once, unless they are apart."""

    def __init__(self, *names, members=MEMBERS, gossip=200 * MILLISECOND):
        self.world = Simulator(1)
        self.settings = RendezvousSettings(
            members=members,
            writer_lease=LEASE,
            gossip_interval=gossip,
            retry_interval=100 * MILLISECOND,
        )
        self.apart = set()
        self.changes = []
        self.sent = []
        for name in names:
            self.add(name)

    def add(self, name):
        self.world.add_node(name, lambda env: Core(env, self))
        self.world.run_for(0)

    def live(self, node):
        return [n for n in sorted(self.world.nodes) if n == node or self.reaches(node, n)]

    def reaches(self, one, other):
        return self.world.nodes[other].up and not {(one, other), (other, one)} & self.apart

    def send(self, sender, to, message):
        self.sent.append((sender, to, message))
        self.world.engine.at(self.world.now + MILLISECOND, self.deliver, sender, to, message)

    def deliver(self, sender, to, message):
        node = self.world.nodes[to]
        if node.up and self.reaches(sender, to):
            node.core.membership.receive(message)

    def part(self, *pairs):
        self.apart = set(pairs)

    def run(self, time):
        self.world.run_for(time)

    def __getitem__(self, name):
        return self.world.nodes[name].core.membership

    def views(self, names):
        return [self[name].view for name in names]

    def founded(self):
        """After the quiet time at the beginning; changes are allowed at once."""
        self.run(LEASE + A_WHILE)
        return self


def test_numbers():
    assert [majority("x" * n) for n in range(1, 7)] == [1, 2, 2, 3, 3, 4]
    assert [blocking("x" * n) for n in range(1, 7)] == [1, 1, 2, 2, 3, 3]


def test_the_first_view_is_the_configured_one_after_a_quiet_time():
    net = Net("a", "b", "c")
    net.run(LEASE - MILLISECOND)
    assert [net[name].settled_at for name in MEMBERS] == [None] * 3
    assert all(message.view == View(0, ()) for _, _, message in net.sent)
    net.run(A_WHILE)
    assert net.views(MEMBERS) == [FIRST] * 3
    assert None not in [net[name].settled_at for name in MEMBERS]
    assert net["a"].status() == {
        "number": 1,
        "members": ["a", "b", "c"],
        "member": True,
        "settled": True,
        "drained": False,
        "waits_for": "",
        "leaving": [],
    }


def test_without_settings_there_is_no_view():
    net = Net("a", "b", members=())
    net.run(3 * LEASE)
    assert net.views("ab") == [View(0, ())] * 2
    assert net["a"].status()["waits_for"] == "a server that is in a view"


def test_a_stored_view_needs_no_quiet_time():
    net = Net("a", "b", "c").founded()
    for name in MEMBERS:
        net.world.crash(name)
    net.world.restart("a")
    assert net["a"].view == FIRST
    assert net["a"].settled_at == net["a"].started


def test_a_server_is_taken_in_and_one_goes():
    net = Net("a", "b", "c").founded()
    net.add("d")
    net.run(LEASE + A_WHILE)
    assert net.views("abcd") == [View(2, ("a", "b", "c", "d"))] * 4
    assert net["d"].settled_at is not None
    net["b"].leave()
    net["b"].leave()
    assert net["b"].drained
    net.run(2 * LEASE)
    assert net.views("abcd") == [View(3, ("a", "c", "d"))] * 4
    net.world.crash("b")
    net.world.restart("b")
    assert net["b"].drained
    net.run(2 * LEASE)
    assert net["b"].view.members == ("a", "c", "d")
    assert net["b"].status()["member"] is False
    net["b"].rejoin()
    net.run(2 * LEASE)
    assert net["a"].view == View(4, ("a", "b", "c", "d"))


def test_views_follow_each_other_no_faster_than_leases_end():
    net = Net("a", "b", "c").founded()
    net["b"].leave()
    net["c"].leave()
    net.run(A_WHILE)
    assert [view.number for view in net.views(MEMBERS)] == [2] * 3
    net.run(LEASE - 2 * A_WHILE)
    assert [view.number for view in net.views(MEMBERS)] == [2] * 3
    net.run(3 * A_WHILE)
    assert net.views(MEMBERS) == [View(3, ("a",))] * 3
    net["a"].leave()
    net.run(2 * LEASE)
    assert net["a"].view == View(3, ("a",)), "somebody has to be there"


def test_a_view_is_on_the_disk_before_anybody_hears_of_it():
    net = Net("a", "b", "c").founded()
    net.sent.clear()
    net["c"].receive(ViewIs("c", "b", View(2, ("a", "b"), MEMBERS), True))
    assert net["c"].view.number == 2
    assert net.sent == []
    net.run(MILLISECOND // 2)
    assert msgspec.msgpack.decode(net.world.nodes["c"].storage._durable[VIEW])[0] == 2
    assert {message.view.number for sender, _, message in net.sent if sender == "c"} == {2}


def test_a_power_cut_takes_no_server_back_to_an_earlier_view():
    net = Net("a", "b", "c").founded()
    net["c"].leave()
    net.run(A_WHILE)
    for name in MEMBERS:
        disk = net.world.nodes[name].storage._disk  # what a power cut leaves for certain
        assert msgspec.msgpack.decode(disk[VIEW])[0] == 2
    assert DRAINED in disk


def test_it_is_settled_when_a_majority_of_those_before_is_there():
    net = Net("a", "b", "c", "d", "e", members=tuple("abcde")).founded()
    net.part(*[(one, other) for one in "abcde" for other in "abcde" if one < other])
    view = View(2, ("a", "b", "c", "d"), tuple("abcde"))
    a = net["a"]
    a.receive(ViewIs("a", "b", view))
    net.run(MILLISECOND)
    assert a.view == view
    assert a.settled_at is None
    assert "majority" in a.status()["waits_for"]
    a.receive(ViewIs("a", "b", view))
    a.receive(ViewIs("a", "f", view))
    net.run(MILLISECOND)
    assert a.settled_at is None, "the server itself and one more are no majority of five"
    a.receive(ViewIs("a", "c", view))
    net.run(MILLISECOND)
    assert a.view == View(2, ("a", "b", "c", "d"))
    assert a.settled_at is not None


def test_what_was_said_long_ago_does_not_count():
    net = Net("a", "b", "c", "d", "e", members=tuple("abcde")).founded()
    net.part(*[(one, other) for one in "abcde" for other in "abcde" if one < other])
    view = View(2, ("a", "b", "c", "d"), tuple("abcde"))
    net["a"].receive(ViewIs("a", "b", view))
    net.run(LEASE // 2 + MILLISECOND)
    net["a"].receive(ViewIs("a", "c", view))
    net.run(MILLISECOND)
    assert net["a"].settled_at is None


def test_somebody_who_knows_that_it_is_settled_is_believed():
    net = Net("a", "b", "c").founded()
    net.part(("a", "b"), ("a", "c"))
    net["a"].receive(ViewIs("a", "d", View(5, ("a", "d"))))
    net.run(MILLISECOND)
    assert net["a"].view == View(5, ("a", "d"))
    assert net["a"].settled_at is not None


def alone_in(view, members=MEMBERS):
    """A member of the view before that has moved to this one, and hears nobody by itself."""
    net = Net(*members, members=members).founded()
    net.part(*[(one, other) for one in members for other in members if one < other])
    net.run(LEASE)
    net["a"].receive(ViewIs("a", "x", view))
    net.run(MILLISECOND)
    assert net["a"].view == view
    return net


def test_of_two_views_of_one_number_it_takes_another_only_when_its_own_is_hopeless():
    lesser, greater = View(2, ("a", "b"), MEMBERS), View(2, ("b", "c"), MEMBERS)
    net = alone_in(lesser)
    a = net["a"]
    a.receive(ViewIs("a", "b", greater))
    a.receive(ViewIs("a", "b", greater))
    assert a.view == lesser, "c may be in ours"
    a.receive(ViewIs("a", "c", greater))
    assert a.view == greater


def test_a_greater_one_is_not_left_but_for_one_that_is_settled():
    lesser, greater = View(2, ("a", "b"), MEMBERS), View(2, ("b", "c"), MEMBERS)
    net = alone_in(greater)
    a = net["a"]
    a.receive(ViewIs("a", "b", lesser))
    a.receive(ViewIs("a", "c", lesser))
    assert a.view == greater
    a.receive(ViewIs("a", "c", View(2, ("a", "b"))))
    assert a.view == View(2, ("a", "b"))
    a.receive(ViewIs("a", "c", FIRST))
    assert a.view.number == 2, "never back"


def test_two_who_change_at_once_agree_in_the_end():
    net = Net("a", "b", "c", "d", members=tuple("abcd")).founded()
    net.part(("a", "c"), ("a", "d"), ("b", "c"), ("b", "d"))
    net["a"].remove("d")
    net["c"].remove("a")
    net.run(MILLISECOND)
    assert net["a"].view.members == ("a", "b", "c")
    assert net["c"].view.members == ("b", "c", "d")
    net.run(2 * LEASE)
    assert [net[name].settled_at for name in "abcd"] == [None] * 4
    net.part()
    net.run(4 * LEASE)
    assert len(set(net.views("abcd"))) == 1
    assert None not in [net[name].settled_at for name in "abcd"]


def test_only_the_lowest_live_member_changes_the_view():
    net = Net("a", "b", "c").founded()
    net.sent.clear()
    net["b"].receive(ViewChange("b", "c", False))
    assert net["b"].view == FIRST
    assert net.sent == [("b", "a", ViewChange("a", "c", False))]
    net["a"].receive(ViewChange("a", "x", True))
    assert net["a"].view == FIRST, "x cannot be reached"


def test_a_dead_server_is_removed():
    net = Net("a", "b", "c").founded()
    net.world.crash("a")
    net["c"].remove("a")
    net.run(LEASE)
    assert net.views("bc") == [View(2, ("b", "c"))] * 2
    assert net["c"].status()["leaving"] == []


@pytest.mark.parametrize(
    ("by", "gone", "why"),
    [
        ("a", "x", "x is not in the view"),
        ("d", "a", "d is not in the view itself"),
    ],
)
def test_what_cannot_be_removed(by, gone, why):
    net = Net("a", "b", "c").founded()
    net.add("d")
    net["d"].leave()
    net.run(2 * LEASE)
    with pytest.raises(ValueError, match=why):
        net[by].remove(gone)


def test_a_minority_removes_nobody():
    net = Net("a", "b", "c")
    with pytest.raises(ValueError, match="does not know yet"):
        net["a"].remove("b")
    net.founded()
    net.world.crash("b")
    net.world.crash("c")
    net.run(LEASE)
    with pytest.raises(ValueError, match="fewer than half"):
        net["a"].remove("b")


def test_the_last_one_stays():
    net = Net("a", members=("a",)).founded()
    with pytest.raises(ValueError, match="only server"):
        net["a"].remove("a")


# Empty disks


def lose_disk(net, name):
    net.world.crash(name)
    net.world.wipe(name)
    net.world.restart(name)


def test_a_server_with_an_empty_disk_finds_its_view_again():
    net = Net("a", "b", "c").founded()
    net.add("d")
    net.run(LEASE + A_WHILE)
    lose_disk(net, "b")
    net.sent.clear()
    net.run(LEASE - MILLISECOND)
    assert net["b"].settled_at is None
    assert {m.view for s, _, m in net.sent if s == "b" and isinstance(m, ViewIs)} == {View(0, ())}
    net.run(A_WHILE)
    assert net["b"].view == View(2, ("a", "b", "c", "d"))
    assert net["b"].settled_at is not None


def test_an_empty_disk_is_not_trusted_with_one_who_knows_no_more():
    """b helped to settle views that c, cut off, has never heard of."""
    net = Net("a", "b", "c").founded()
    net.part(("a", "c"), ("b", "c"), ("c", "d"), ("c", "e"))
    net.add("d")
    net.run(2 * LEASE)
    net.add("e")
    net.run(2 * LEASE)
    assert net["a"].view.number == 3
    net.part(("a", "c"), ("c", "d"), ("c", "e"), ("a", "b"), ("b", "d"), ("b", "e"))
    lose_disk(net, "b")
    net.run(5 * LEASE)
    assert net["c"].view == net["b"].view == FIRST
    assert net["b"].settled_at is None, "b and c would be a majority of three"
    assert "empty" in net["b"].status()["waits_for"]
    net.part()
    net.run(LEASE)
    assert net["b"].view.number == 3
    assert net["b"].settled_at is not None


def test_a_crash_before_it_has_found_its_view_makes_no_difference():
    net = Net("a", "b", "c").founded()
    lose_disk(net, "b")
    net.run(LEASE // 2)
    net.world.crash("b")
    net.world.restart("b")
    net.run(LEASE - MILLISECOND)
    assert net["b"].forgetful


def test_a_server_that_was_alone_at_first_asks_those_it_sees():
    net = Net("a", members=("a",)).founded()
    net.add("b")
    net.run(2 * LEASE)
    assert net["a"].view == View(2, ("a", "b"))
    lose_disk(net, "a")
    net.run(LEASE + A_WHILE)
    assert net["a"].view == View(2, ("a", "b"))


def test_what_is_remembered_is_bounded():
    net = Net("a", "b", "c").founded()
    for number in range(1_000):
        net["a"].receive(ViewIs("a", f"x{number}", FIRST))
    assert len(net["a"]._reports) <= 256
    net.run(LEASE)
    assert len(net["a"]._reports) == 2
