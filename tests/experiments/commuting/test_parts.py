"""The parts of the commuting crowd: itineraries, wires, the store, the ledger."""

from __future__ import annotations

from statistics import fmean

import pytest

from experiments.commuting.itinerary import RANGE, SELECTORS, Absence, Itinerary, draw
from experiments.commuting.ledger import Ledger, percentile
from experiments.commuting.neighbours import Neighbours
from experiments.commuting.store import Holder, Store
from experiments.commuting.wires import Wire
from psirp_sim.runtime.durations import SECOND
from psirp_sim.runtime.simulator import PRESETS, Simulator, stream


def test_itineraries_have_the_sources_means():
    all_of = [draw(stream(1, f"{n}"), n, 2, 0, 3_000 * SECOND) for n in range(200)]
    connected, absent, moves = [], {True: [], False: []}, 0
    for itinerary in all_of:
        at, place = 0, itinerary.place
        assert 0 <= itinerary.first <= SELECTORS - RANGE
        for absence in itinerary.absences:
            connected.append((absence.begins - at) / SECOND)
            absent[absence.hand_off].append((absence.ends - absence.begins) / SECOND)
            assert absence.hand_off == (absence.place != place)
            at, place = absence.ends, absence.place
            moves += absence.hand_off
    assert {itinerary.place for itinerary in all_of} == {0, 1}
    assert fmean(connected) == pytest.approx(60, rel=0.05)
    # Half go at once; of the other half one in two goes after all, and takes both times.
    assert moves / len(connected) == pytest.approx(0.75, abs=0.02)
    assert fmean(absent[False]) == pytest.approx(10, rel=0.1)
    assert fmean(absent[True]) == pytest.approx((2 * 10 + 20) / 3, rel=0.05)


class End:
    """A core: one end of a wire."""

    patience = 0

    def __init__(self, env):
        self.env, self.got, self.acknowledged, self.broken = env, [], [], 0

    def start(self):
        (link,) = self.env.links
        self.wire = Wire(
            self.env, link, self.got.append, self.patience, self.acknowledged.append, self.breaks
        )

    def breaks(self):
        self.broken += 1

    def receive(self, link, packet):
        self.wire.receive(packet)

    def stop(self):
        pass


class Patient(End):
    patience = SECOND


@pytest.fixture
def ends():
    world = Simulator(1)
    world.add_node("mobile", End)
    world.add_node("fixed", Patient)
    world.add_link("mobile", "fixed", PRESETS["wifi-b"])
    world.run_for(0)
    return world, world.nodes["mobile"].core, world.nodes["fixed"].core


def blocked(world, is_so):
    for way in (("mobile", "fixed"), ("fixed", "mobile")):
        world.channels[way].blocked = is_so


def test_a_long_message_comes_whole_and_is_acknowledged(ends):
    world, mobile, fixed = ends
    message = bytes(range(256)) * 40
    number = fixed.wire.send(message)
    mobile.wire.send(b"")
    world.run_for(3 * SECOND)
    assert mobile.got == [message]
    assert fixed.got == [b""]
    assert fixed.acknowledged == [number]
    assert fixed.broken == 0
    assert mobile.acknowledged == []  # it did not ask for it


def test_a_wire_breaks_when_nothing_is_acknowledged(ends):
    world, mobile, fixed = ends
    blocked(world, True)
    fixed.wire.send(b"into the void")
    world.run_for(SECOND // 2)
    assert fixed.broken == 0
    world.run_for(SECOND)
    assert fixed.broken == 1
    blocked(world, False)
    fixed.wire.send(b"again")
    world.run_for(3 * SECOND)
    assert mobile.got == [b"again"]
    assert fixed.broken == 1


def test_a_new_connection_is_not_broken_by_what_the_old_one_lost(ends):
    world, mobile, fixed = ends
    blocked(world, True)
    fixed.wire.send(b"lost")
    world.run_for(SECOND // 2)
    blocked(world, False)
    mobile.wire.renew()
    mobile.wire.send(b"here again")
    world.run_for(3 * SECOND)
    assert fixed.got == [b"here again"]
    assert fixed.broken == 0


def test_what_the_connection_before_left_under_way_is_dropped(ends):
    world, mobile, fixed = ends
    fixed.wire.send(b"under way")
    mobile.wire.renew()
    mobile.wire.send(b"here again")
    world.run_for(SECOND // 10)
    assert mobile.got == []
    fixed.wire.send(b"welcome")
    world.run_for(SECOND)
    assert mobile.got == [b"welcome"]


def test_a_message_that_lost_a_part_is_dropped(ends):
    world, mobile, fixed = ends
    fixed.wire.send(bytes(5_000))
    world.run_for(5_000_000)  # some of it has arrived
    blocked(world, True)
    world.run_for(20_000_000)
    blocked(world, False)
    fixed.wire.send(b"whole")
    world.run_for(SECOND)
    assert mobile.got == [b"whole"]


def test_a_store_overwrites_the_oldest_copy_of_anybody():
    store, one, other = Store(100), Holder("one"), Holder("other")
    for id in range(1, 6):
        store.add(one, id, bytes(20), id)
    store.add(other, 6, bytes(30), 6)
    assert list(one.copies) == [3, 4, 5]
    assert (store.bytes, one.bytes, other.bytes, store.overwritten) == (90, 60, 30, 2)
    store.expire(5)
    assert [*one.copies, *other.copies] == [5, 6]
    assert store.purge(other) == 30
    assert (store.bytes, other.copies) == (20, {})


def test_a_store_that_is_not_shared_overwrites_ones_own():
    store, one, other = Store(100, shared=False), Holder("one"), Holder("other")
    store.add(one, 1, bytes(90), 1)
    for id in range(2, 9):
        store.add(other, id, bytes(20), id)
    assert list(one.copies) == [1]
    assert list(other.copies) == [4, 5, 6, 7, 8]


def test_neighbours_are_bounded_and_grow_old():
    world = Simulator(1)
    world.add_node("a", End)
    world.add_node("b", Patient)
    world.add_link("a", "b", PRESETS["lan"])
    world.run_for(0)
    neighbours = Neighbours(world.nodes["a"].core.env, age=10 * SECOND, degree=2)
    for name in ("x", "y", "x", "z"):
        neighbours.learn(name)
        world.run_for(SECOND)
    assert neighbours.names == ("x", "z")
    world.run_for(9 * SECOND)
    assert neighbours.names == ("z",)


def ledger_of(*absences, until=100):
    """One message a second, all of them wanted; none received yet."""
    now = [0]
    ledger = Ledger(lambda: now[0], {"s": Itinerary(0, 0, absences)})
    for second in range(until):
        now[0] = second * SECOND
        ledger.publish(3)
    return ledger, now


def test_a_loss_is_excused_only_where_more_waited_than_the_quota():
    absence = Absence(30 * SECOND, 40 * SECOND, 1, True)
    ledger, _ = ledger_of(absence)
    for id in range(1, 101):
        if id not in (33, 34, 80):
            ledger.receive("s", id)
    # 31 messages fall into the absence and what belongs to it.
    assert ledger.lost_within_quota(10, 310) == (3, 0)
    assert ledger.lost_within_quota(10, 309) == (1, 1)
    assert (ledger.expected, ledger.unique) == (100, 97)


def test_absences_without_time_to_collect_between_them_add_up():
    absences = [Absence(n * SECOND, (n + 5) * SECOND, 1, True) for n in (30, 50)]
    ledger, _ = ledger_of(*absences)
    assert ledger.lost_within_quota(1, 46) == (100, 0)
    assert ledger.lost_within_quota(1, 30)[1] == 1


def test_hand_offs_are_timed_to_the_first_message_and_to_the_first_new_one():
    ledger, now = ledger_of()
    ledger.receive("s", 1)
    ledger.reconnects("s")
    now[0] += 2_000_000
    ledger.receive("s", 1)
    now[0] += 3_000_000
    ledger.receive("s", 2)
    assert (ledger.latencies, ledger.fresh_latencies) == ([2.0], [5.0])
    assert (ledger.unique, ledger.total) == (2, 3)
    ledger.reconnects("s")
    ledger.departs("s")
    ledger.receive("s", 3)
    assert (ledger.hand_offs, ledger.unserved, ledger.latencies) == (2, 1, [2.0])
    ledger.receive("s", 9)
    ledger.receive("s", 8)
    assert ledger.out_of_order == 1


def test_percentiles():
    values = [float(n) for n in range(10, 0, -1)]
    assert [percentile(values, share) for share in (0.1, 0.5, 0.8, 0.99)] == [1, 5, 8, 10]
    assert percentile([], 0.5) is None
