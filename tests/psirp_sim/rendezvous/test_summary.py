"""Summaries: what is wanted is never ruled out, whatever comes, goes, is lost or is nonsense."""

from __future__ import annotations

import zlib
from itertools import pairwise
from random import Random
from struct import pack

import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from psirp_sim.rendezvous import summary
from psirp_sim.rendezvous.homes import homes
from psirp_sim.rendezvous.settings import RendezvousSettings
from psirp_sim.rendezvous.summary import (
    INTERVAL,
    MOST_BITS,
    WITNESSES,
    KnownSummaries,
    Summaries,
    contains,
    new_filter,
    put,
    read_filter,
    write_filter,
)
from psirp_sim.runtime.durations import MILLISECOND, SECOND
from psirp_sim.runtime.simulator import Simulator
from psirp_sim.wire.data import MalformedPacket
from psirp_sim.wire.rendezvous import SummaryAsk, SummaryIs
from psirp_sim.wire.sealing import LONGEST, FabricKeys

SETTINGS = RendezvousSettings()
SETTLED = SETTINGS.settle + 4 * INTERVAL


def pair(number, items=True):
    random = Random(number)
    return random.randbytes(32), random.randbytes(32) if items else b""


class Idle:
    def start(self):
        """Everything is done by the test."""


def environment(world, name):
    """The environment of a node whose core does nothing."""
    environments = []
    world.add_node(name, lambda env: environments.append(env) or Idle())
    world.run_for(0)
    return environments[0]


class Server:
    """Subscriptions and their summary, as a rendezvous server keeps them."""

    def __init__(self, world, name="s", pairs=()):
        self.world, self.boot = world, 1
        self.pairs = dict.fromkeys(pairs)
        self.begin(environment(world, name))

    def begin(self, env):
        self.env = env
        self.summaries = Summaries(env, wanted=lambda: self.pairs, boot=lambda: self.boot)

    def add(self, *pairs):
        for each in pairs:
            if each not in self.pairs:
                self.pairs[each] = None
                self.summaries.added(*each)

    def remove(self, *pairs):
        for each in pairs:
            if each in self.pairs:
                del self.pairs[each]
                self.summaries.removed(*each)

    def ask(self, known=(0, 0)):
        return self.summaries.answer(SummaryAsk(self.env.node, "c", [], known))

    def ask_after(self, pause, known=(0, 0)):
        self.world.run_for(pause)
        return self.ask(known)


def begun(pairs=()):
    server = Server(Simulator(1), pairs=pairs)
    server.ask()
    server.world.run_for(0)
    return server


# The bytes


@pytest.mark.parametrize("count", [0, 1, 500, 3_000])
def test_a_filter_survives_the_wire(count):
    bloom = new_filter(count)
    for number in range(count):
        put(bloom, *pair(number))
    data = write_filter(bloom)
    again = read_filter(data)
    assert again.bitarray[: again.num_bits] == bloom.bitarray
    assert all(contains(again, *pair(number)) for number in range(count))
    assert write_filter(again) == data
    false = sum(contains(again, *pair(number)) for number in range(10_000, 12_000))
    assert false < 40  # twice as many as when it is full


def test_a_scope_stands_for_its_items():
    bloom = new_filter(1)
    sid, rid = pair(1)
    put(bloom, sid, b"")
    assert contains(bloom, sid, rid)
    assert contains(bloom, sid, b"")
    assert not contains(bloom, *pair(2))


def test_what_a_filter_means_is_the_same_at_every_node():
    bloom = new_filter(2)
    put(bloom, bytes(32), b"")
    put(bloom, bytes(32), bytes(range(32)))
    plain = zlib.decompress(write_filter(bloom)[1:])
    assert plain[:40] == pack("<dQQQQ", 0.01, 7, 1403, 1024, 10)
    assert blake3(plain[40:]).hexdigest(length=8) == "ccb2a724347130d3"
    large = new_filter(20_000)  # hashed by another function
    put(large, bytes(32), bytes(range(32)))
    assert blake3(large.bitarray.tobytes()).hexdigest(length=8) == "c66149ec1475f4c0"


@pytest.mark.parametrize(
    ("count", "rate"),
    [(104_851, 0.01), (104_852, 0.1), (209_709, 0.1), (209_710, 0.5), (838_854, 0.5)],
)
def test_it_fits_a_message_however_much_is_subscribed_to(count, rate):
    bloom = new_filter(count)
    assert bloom.error_rate == rate
    assert bloom.num_bits <= MOST_BITS
    assert new_filter(10 * count + 10**6).num_bits <= MOST_BITS
    bloom.bitarray.clear()
    bloom.bitarray.frombytes(Random(1).randbytes(-(-bloom.num_bits // 8)))  # not to be compressed
    sealed = FabricKeys("k").seal(SummaryIs("c" * 63, "s" * 63, 2**62, 2**62, write_filter(bloom)))
    assert len(sealed) < LONGEST - 40_000


@given(st.binary(max_size=200))
def test_nonsense_is_malformed(data):
    with pytest.raises(MalformedPacket):
        read_filter(data)
    with pytest.raises(MalformedPacket):
        read_filter(b"\1" + zlib.compress(data))


@given(
    st.floats(),
    st.integers(0, 20) | st.integers(0, 2**64 - 1),
    st.integers(0, 300) | st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
    st.binary(max_size=300),
)
def test_a_header_that_lies_is_malformed(rate, slices, bits, number, rest):
    try:
        bloom = read_filter(b"\0" + pack("<dQQQQ", rate, slices, bits, number, number) + rest)
    except MalformedPacket:
        return
    assert all(witness in bloom for witness in WITNESSES)


@pytest.mark.parametrize("slices", [0, 1, 17, 2**63])
@pytest.mark.parametrize("bits", [0, MOST_BITS + 1, 2**63])
def test_sizes_are_looked_at_before_anything_is_made_of_them(slices, bits):
    with pytest.raises(MalformedPacket, match="slices of"):
        read_filter(b"\0" + pack("<dQQQQ", 0.01, slices, bits, 1, 1))


@given(st.data())
@settings(max_examples=50)
def test_damage_is_malformed_or_harmless(data):
    good = write_filter(begun([pair(1)]).summaries._bloom)
    plain = bytearray(b"\0" + zlib.decompress(good[1:]))
    for damaged in (bytearray(good), plain):
        for _ in range(data.draw(st.integers(1, 3))):
            damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
        try:
            read_filter(bytes(damaged))
        except MalformedPacket:
            continue


def test_what_unpacks_to_more_than_a_filter_is_not_unpacked():
    bomb = b"\1" + zlib.compress(bytes(50_000_000))
    with pytest.raises(MalformedPacket, match="does not end"):
        read_filter(bomb)


def test_a_stranger_that_hashes_otherwise_is_found_out():
    bloom = new_filter(100)
    bloom.bitarray.setall(0)
    for number in range(100):
        put(bloom, *pair(number))
    with pytest.raises(MalformedPacket, match="not ours"):
        read_filter(write_filter(bloom))


# A server's side


def test_a_server_says_nothing_before_it_can():
    server = Server(Simulator(1), pairs=[pair(1)])
    early = server.ask()
    assert (early.version, early.bits) == (0, b"")
    server.add(pair(2))  # while nothing has been built
    answer = server.ask_after(0)
    assert (answer.client, answer.server, answer.boot, answer.version) == ("c", "s", 1, 1)
    bloom = read_filter(answer.bits)
    assert contains(bloom, *pair(1))
    assert contains(bloom, *pair(2))
    assert server.ask(known=(1, 1)).bits == b""
    assert server.ask(known=(2, 1)).bits == answer.bits
    assert server.ask(known=(1, 0)).bits == answer.bits


def test_at_most_one_version_a_second():
    server = begun()
    versions, number = {server.ask().version}, 0
    for _ in range(100):
        server.add(pair(number))
        number += 1
        versions.add(server.ask_after(100 * MILLISECOND).version)
    assert versions == set(range(1, 12))
    # What waited is told when the second is over, without anything new.
    server.add(pair(number))
    assert not contains(read_filter(server.ask().bits), *pair(number))
    answer = server.ask_after(SECOND)
    assert contains(read_filter(answer.bits), *pair(number))
    assert server.ask_after(60 * SECOND, (1, answer.version)).bits == b""
    # After a quiet time news is told at once.
    server.add(pair(number + 1))
    assert contains(read_filter(server.ask().bits), *pair(number + 1))


def test_removals_are_told_when_a_quarter_is_stale():
    server = begun([pair(number) for number in range(100)])
    version = server.ask().version
    server.remove(*(pair(number) for number in range(25)))
    assert server.ask_after(2 * SECOND, (1, version)).bits == b""
    server.remove(pair(25))
    bloom = read_filter(server.ask_after(2 * SECOND, (1, version)).bits)
    assert sum(contains(bloom, *pair(number)) for number in range(26)) < 3
    assert all(contains(bloom, *pair(number)) for number in range(26, 100))


def test_the_last_one_to_go_leaves_it_empty():
    server = begun([pair(1)])
    server.ask()
    server.remove(pair(1))
    assert not contains(read_filter(server.ask_after(2 * SECOND).bits), *pair(1))


def test_a_filter_grows_with_what_is_in_it_and_shrinks_again():
    server = begun()
    pairs = [pair(number) for number in range(5_000)]
    for each in pairs:
        server.add(each)
        server.world.run_for(0)
    server.world.run_for(SECOND)
    bloom = server.summaries._bloom
    assert bloom.capacity == 8_192
    assert all(contains(bloom, *each) for each in pairs)
    server.remove(*pairs[:4_900])
    server.world.run_for(SECOND)
    assert server.summaries._bloom.capacity == 1_024
    assert all(contains(server.summaries._bloom, *each) for each in pairs[4_900:])


def test_a_large_filter_is_built_in_slices():
    server = begun([pair(number) for number in range(7_000)])
    old = server.summaries._bloom
    before = server.world.steps
    server.remove(*(pair(number) for number in range(2_000)))  # more than a quarter
    server.world.run_for(0)
    assert server.summaries._bloom is not old
    assert server.world.steps - before == 3  # of 2,000, 2,000 and 1,000


def test_what_comes_while_a_filter_is_built_is_in_it():
    server = begun([pair(number) for number in range(7_000)])
    old = server.summaries._bloom
    server.remove(*(pair(number) for number in range(2_000)))
    server.world.engine.step()  # the first slice
    server.add(pair(9_000), pair(0))
    assert server.summaries._bloom is old
    assert contains(old, *pair(9_000))
    server.world.run_for(0)
    assert server.summaries._bloom is not old
    assert contains(server.summaries._bloom, *pair(9_000))
    assert contains(server.summaries._bloom, *pair(0))


def test_churn_in_a_full_filter_does_not_build_it_over_and_over():
    server = begun([pair(number) for number in range(1_015)])
    before = server.world.steps
    for number in range(1_015, 3_015):
        server.add(pair(number))
        server.remove(pair(number - 1_015))
        server.world.run_for(0)
    assert server.world.steps - before < 40


operations = st.lists(
    st.tuples(st.sampled_from(["add", "remove", "run", "ask"]), st.integers(0, 60)), max_size=200
)


@given(st.sets(st.integers(0, 60)), operations)
@settings(deadline=None)
def test_nothing_that_is_wanted_is_ever_missing(first, steps):
    least, slice_ = summary.LEAST_CAPACITY, summary.SLICE
    summary.LEAST_CAPACITY, summary.SLICE = 16, 3  # so that much is built in many slices
    try:
        server = begun([pair(number, number % 5) for number in first])
        for what, number in steps:
            each = pair(number, number % 5)
            if what == "add":
                server.add(each)
            elif what == "remove":
                server.remove(each)
            elif what == "run":
                for _ in range(number % 4):  # some of the slices, not all
                    if server.world.engine.next_time is not None:
                        server.world.engine.step()
            else:
                server.ask()
            if server.summaries._bloom is not None:
                assert all(contains(server.summaries._bloom, *each) for each in server.pairs)
        told = read_filter(server.ask_after(2 * SECOND).bits)
        assert all(contains(told, *each) for each in server.pairs)
    finally:
        summary.LEAST_CAPACITY, summary.SLICE = least, slice_


# A client's side


class Fabric:
    """Servers and a client that asks them; what is in `silent` neither hears nor answers."""

    def __init__(self, *names):
        self.world = Simulator(3)
        self.servers = {name: Server(self.world, name) for name in names}
        self.live = list(names)
        self.silent = set()
        self.changes = 0
        self.asked = []
        self.env = environment(self.world, "c")
        self.known = KnownSummaries(
            self.env,
            SETTINGS,
            servers=lambda: self.live,
            send=self.send,
            changed=self.changed,
        )

    def send(self, server, message):
        self.asked.append((self.world.now, message))
        if server not in self.silent:
            self.env.call_later(10 * MILLISECOND, self.arrive, server, message)

    def arrive(self, server, message):
        answer = self.servers[server].summaries.answer(message)
        self.env.call_later(10 * MILLISECOND, self.known.receive, answer)

    def changed(self):
        self.changes += 1

    def homes(self, sid):
        return [self.servers[name] for name in homes(sid, self.live)]


def test_everything_may_be_wanted_until_every_home_has_said_no():
    fabric = Fabric("a", "b", "c1")
    assert fabric.known.may_be_wanted(*pair(1))
    fabric.world.run_for(SETTLED)
    assert not fabric.asked  # nobody watches
    fabric.silent = {fabric.homes(pair(1)[0])[0].env.node}
    fabric.known.watch()
    fabric.world.run_for(SETTLED)
    assert fabric.known.may_be_wanted(*pair(1))
    fabric.silent = set()
    fabric.world.run_for(SETTLED)
    assert not fabric.known.may_be_wanted(*pair(1))
    fabric.known.unwatch()
    assert fabric.known.may_be_wanted(*pair(1))
    asked = len(fabric.asked)
    fabric.world.run_for(SETTLED)
    assert len(fabric.asked) == asked
    assert fabric.known.may_be_wanted(*pair(1))


def test_a_server_that_is_no_home_does_not_matter():
    fabric = Fabric("a", "b", "c1")
    sid, rid = pair(1)
    (other,) = set(fabric.live) - {home.env.node for home in fabric.homes(sid)}
    fabric.silent = {other}
    fabric.known.watch()
    fabric.world.run_for(SETTLED)
    assert not fabric.known.may_be_wanted(sid, rid)


def test_no_servers_know_nothing():
    fabric = Fabric()
    fabric.known.watch()
    fabric.world.run_for(SETTLED)
    assert fabric.known.may_be_wanted(*pair(1))


@pytest.mark.parametrize("home", [0, 1])
@pytest.mark.parametrize("whole", [False, True])
def test_a_subscription_at_either_home_is_known_within_two_seconds(home, whole):
    fabric = Fabric("a", "b", "c1")
    fabric.known.watch()
    fabric.known.watch()
    fabric.world.run_for(SETTLED)
    sid, rid = pair(1)
    assert not fabric.known.may_be_wanted(sid, rid)
    changes = fabric.changes
    fabric.world.run_for(3 * SECOND)
    assert fabric.changes == changes
    fabric.homes(sid)[home].add((sid, b"" if whole else rid))
    fabric.world.run_for(2 * SECOND + 50 * MILLISECOND)
    assert fabric.known.may_be_wanted(sid, rid)
    assert fabric.changes == changes + 1
    assert fabric.known.may_be_wanted(sid, pair(2)[1]) == whole
    # Once a second each, with what is known.
    times = [time for time, message in fabric.asked if message.server == "a"]
    assert {after - before for before, after in pairwise(times)} == {INTERVAL}
    assert fabric.asked[-1][1].known[0] == 1


def test_a_server_that_falls_silent_is_no_longer_believed():
    fabric = Fabric("a", "b")
    fabric.known.watch()
    fabric.world.run_for(SETTLED)
    assert not fabric.known.may_be_wanted(*pair(1))
    fabric.silent, changes = {"a"}, fabric.changes
    fabric.world.run_for(SETTINGS.time_out + 2 * INTERVAL)
    assert fabric.known.may_be_wanted(*pair(1))
    assert fabric.changes == changes + 1
    fabric.servers["a"].boot = 0  # another life, whose disk was lost
    fabric.silent = set()
    fabric.world.run_for(SETTLED)
    assert not fabric.known.may_be_wanted(*pair(1))
    assert fabric.changes == changes + 2


def test_a_change_of_the_servers_must_settle():
    fabric = Fabric("a", "b", "c1")
    fabric.live.remove("c1")
    fabric.known.watch()
    fabric.world.run_for(SETTLED)
    assert not fabric.known.may_be_wanted(*pair(1))
    changes = fabric.changes
    fabric.live.append("c1")
    assert fabric.known.may_be_wanted(*pair(1))
    fabric.world.run_for(SETTLED)
    assert not fabric.known.may_be_wanted(*pair(1))
    assert fabric.changes == changes + 3  # nobody counts, then the two, then the third as well
    fabric.live.remove("a")
    fabric.world.run_for(INTERVAL)
    assert "a" not in fabric.known._known
    assert fabric.known.may_be_wanted(*pair(1))
    fabric.world.run_for(SETTLED)
    assert not fabric.known.may_be_wanted(*pair(1))


def test_a_later_life_of_a_server_must_settle():
    fabric = Fabric("a")
    fabric.known.watch()
    fabric.world.run_for(SETTLED)
    server = fabric.servers["a"]
    server.boot = 2
    server.begin(server.env)
    fabric.world.run_for(INTERVAL)
    assert fabric.known.may_be_wanted(*pair(1))
    fabric.world.run_for(SETTLED)
    assert not fabric.known.may_be_wanted(*pair(1))


def test_late_answers_answers_to_others_and_nonsense_change_nothing():
    fabric = Fabric("a")
    known, server = fabric.known, fabric.servers["a"]
    known.watch()
    fabric.world.run_for(SETTLED)
    old = server.ask()
    server.add(pair(1))
    fabric.world.run_for(SETTLED)
    new = server.ask()
    assert (old.boot, old.version) < (new.boot, new.version)
    assert known.receive(old)
    assert known.may_be_wanted(*pair(1))
    assert not known.receive(SummaryIs("another", "a", 9, 9, old.bits))
    assert known.receive(SummaryIs("c", "gone", 9, 9, old.bits))
    with pytest.raises(MalformedPacket):
        known.receive(SummaryIs("c", "a", 9, 9, b"nonsense"))
    assert known.may_be_wanted(*pair(1))
    assert not known.may_be_wanted(*pair(2))


@given(st.lists(st.tuples(st.sampled_from(["add", "remove", "silent"]), st.integers(0, 7))))
@settings(max_examples=25, deadline=None)
def test_what_was_wanted_for_two_seconds_may_be_wanted(steps):
    fabric = Fabric("a", "b", "d")
    fabric.known.watch()
    fabric.world.run_for(SETTLED)
    since = {}
    for what, number in steps:
        each = pair(number)
        if what == "add":
            for home in fabric.homes(each[0]):
                home.add(each)
            since.setdefault(each, fabric.world.now)
        elif what == "remove":
            for home in fabric.homes(each[0]):
                home.remove(each)
            since.pop(each, None)
        else:
            fabric.silent ^= {fabric.live[number % 3]}
        fabric.world.run_for(number * 300 * MILLISECOND)
        # A lost answer is made up for by the next, or the server is not believed any more.
        patience = SETTINGS.time_out + 2 * INTERVAL if fabric.silent else 3 * SECOND
        for wanted, time in since.items():
            if fabric.world.now - time > patience:
                assert fabric.known.may_be_wanted(*wanted)
