"""Loss is made good, and no more is sent than that takes."""

from __future__ import annotations

from collections import Counter

import pytest

from psirp_sim.publications.events import Gap
from psirp_sim.runtime.durations import MILLISECOND
from psirp_sim.runtime.simulator import Constant, Independent, LinkProfile
from psirp_sim.wire.data import LARGEST_PACKET
from psirp_sim.wire.publications import records_of
from tests.psirp_sim.publications.world import (
    ITEM,
    OTHER,
    SCOPE,
    World,
    numbered,
    packet_of,
    versions_in,
)

PATH = 0.002
"""Seconds from one end of the star to another."""
IN_A_PACKET = LARGEST_PACKET - 120
"""Bytes of an envelope that a full packet holds at least: whole units, in a small fabric."""


def first_time(*versions):
    """True for the first packet with each of these versions."""
    left = set(versions)

    def which(packet):
        found = left & {*versions_in(packet)}
        left.difference_update(found)
        return bool(found)

    return which


def copies(seen):
    """How many packets each version was in."""
    return Counter(version for _, packet in seen for version in {*versions_in(packet)})


def sent_bytes(seen):
    return sum(len(record.piece) for _, packet in seen for record in records_of(packet.records))


def knows_the_ways(world, *names):
    """Each listener alone has missed something, so the publisher has asked for the way to it."""
    for name in names:
        position = world.write("a", b"x")
        world.run(0.5)
        world.lose("hub", name, first_time(position.version + 1))
        world.write("a", b"lost")
        world.run(2)


# What was lost comes


def test_what_was_lost_is_sent_again_soon_after_the_next_packet_has_come():
    world = World()
    (ear,) = world.begun("b")
    world.write("a", b"1")
    world.run(1)
    world.lose("hub", "b", first_time(2))
    world.write("a", b"2")
    world.run(0.001)
    world.write("a", b"3")
    took = world.until(lambda: len(ear.events) == 3)
    assert took < 0.03
    assert ear.told == [1, 2, 3]


def test_a_last_version_that_was_lost_is_noticed_without_another_to_follow_it():
    world = World()
    (ear,) = world.begun("b")
    world.write("a", b"1")
    world.run(1)
    world.lose("hub", "b", first_time(2))
    world.write("a", b"2")
    took = world.until(lambda: len(ear.events) == 2)
    assert took < 0.1


def test_a_version_of_which_every_packet_is_lost_ten_times_still_comes():
    world = World()
    (ear,) = world.begun("b")
    lost = Counter()

    def stubborn(packet):
        for version in versions_in(packet):
            lost[version] += 1
        return any(lost[version] <= 10 for version in versions_in(packet))

    world.lose("hub", "b", stubborn)
    world.write("a", b"1")
    world.until(lambda: ear.events, at_most=25)
    assert ear.told == [1]


def test_only_the_missing_part_of_a_large_version_is_sent_again():
    world = World()
    (ear,) = world.begun("b")
    world.write("a", b"1")
    world.run(1)
    seen = world.watch("a", "hub")
    left = [3]

    def some(packet):
        left[0] -= packet.sequence % 20 == 0
        return packet.sequence % 20 == 0 and left[0] >= 0

    world.lose("hub", "b", some)
    world.write("a", b"x" * 100_000)
    world.until(lambda: len(ear.events) == 2)
    again = sent_bytes(seen) - 100_000
    assert 3 * 1_000 < again <= 3 * LARGEST_PACKET + 1_000
    assert ear.contents[1] == b"x" * 100_000


# One copy for all who miss it


def test_what_all_listeners_miss_is_sent_again_once_for_all():
    world = World(("a", "b", "c", "d"))
    ears = world.begun("b", "c", "d")
    seen = world.watch("a", "hub")
    world.lose("a", "hub", first_time(3))
    for content in numbered(5):
        world.write("a", content)
        world.run(0.01)
    world.run(2)
    assert [ear.told for ear in ears] == [[1, 2, 3, 4, 5]] * 3
    assert copies(seen)[3] == 2


def test_what_all_listeners_miss_is_sent_again_once_for_all_where_their_own_ways_are_known():
    world = World(("a", "b", "c", "d"))
    ears = world.begun("b", "c", "d")
    knows_the_ways(world, "b", "c", "d")
    seen = world.watch("a", "hub")
    lost = world.write("a", b"before").version + 1
    world.run(1)
    world.lose("a", "hub", first_time(lost))
    for content in numbered(5):
        world.write("a", content)
        world.run(0.01)
    world.run(2)
    assert all(ear.told == [*range(1, lost + 5)] for ear in ears)
    assert copies(seen)[lost] <= 3  # one listener may have been faster than the others


def test_a_packet_that_twenty_listeners_miss_is_made_good_for_all_of_them_soon():
    names = [f"l{number:02}" for number in range(20)]
    world = World(("a", *names))
    ears = world.begun(*names)
    knows_the_ways(world, *names)
    lost = world.write("a", b"before").version + 1
    world.run(1)
    seen = world.watch("a", "hub")
    world.lose("a", "hub", first_time(lost))
    world.write("a", b"lost")
    world.run(0.02)
    world.write("a", b"next")
    took = world.until(lambda: all(ear.told[-1] == lost + 1 for ear in ears))
    assert took < 0.3
    assert copies(seen)[lost] <= 5


def test_what_one_listener_misses_is_sent_to_it_alone_once_the_way_to_it_is_known():
    world = World(("a", "b", "c"))
    ears = world.begun("b", "c")
    knows_the_ways(world, "b")
    lost = world.write("a", b"before").version + 1
    world.run(1)
    to_b, to_c = world.watch("hub", "b"), world.watch("hub", "c")
    world.lose("hub", "b", first_time(lost))
    for content in numbered(3):
        world.write("a", content)
        world.run(0.05)
    world.run(1)
    assert [ear.told for ear in ears] == [[*range(1, lost + 3)]] * 2
    assert copies(to_b)[lost] == 2
    assert copies(to_c)[lost] == 1


def test_a_way_that_was_asked_for_is_given_back_when_its_listener_leaves():
    world = World(("a", "b", "c"))
    ears = world.begun("b", "c")
    knows_the_ways(world, "b")
    trees = len(world.client("a").trees)
    world.at("b").unsubscribe(ears[0].subscription)
    world.run(3)
    assert len(world.client("a").trees) < trees


# No more than that


@pytest.mark.parametrize("size", [10_000, 500_000])
def test_without_loss_nothing_is_sent_twice(size):
    world = World(("a", "b", "c"))
    ears = world.begun("b", "c")
    seen = world.watch("a", "hub")
    for _ in range(4):
        world.write("a", b"x" * size)
        world.run(0.01)
    world.until(lambda: all(len(ear.events) == 4 for ear in ears))
    world.run(3)
    needed = 4 * size
    assert sent_bytes(seen) <= 1.01 * needed + 4 * 600
    assert len(seen) <= 1.03 * needed / IN_A_PACKET + 8


def test_without_loss_nothing_is_sent_twice_to_listeners_at_different_distances():
    far = LinkProfile(delay=Constant(40 * MILLISECOND))
    world = World(("a", "b", "c"), links={"c": far})
    ears = world.begun("b", "c")
    seen = world.watch("a", "hub")
    for _ in range(3):
        world.write("a", b"x" * 200_000)
        world.run(0.05)
    world.until(lambda: all(len(ear.events) == 3 for ear in ears))
    world.run(3)
    assert sent_bytes(seen) <= 1.01 * 600_000 + 3 * 600


def test_with_loss_little_more_is_sent_than_was_lost():
    lossy = LinkProfile(loss=Independent(0.05))
    world = World(links={"b": lossy})
    (ear,) = world.begun("b")
    seen = world.watch("a", "hub")
    world.write("a", *[b"x" * 100_000] * 10)
    world.until(lambda: len(ear.events) == 10)
    world.run(2)
    assert sent_bytes(seen) < 1.1 * 1_000_000


def test_reordering_within_the_time_a_listener_waits_is_not_taken_for_loss():
    mixed = LinkProfile(reorder=0.1, reorder_by=3 * MILLISECOND)
    world = World(links={"b": mixed})
    (ear,) = world.begun("b")
    seen = world.watch("a", "hub")
    world.write("a", *[b"x" * 50_000] * 10)
    world.until(lambda: len(ear.events) == 10)
    world.run(2)
    assert sent_bytes(seen) < 1.05 * 500_000


def test_a_stream_whose_listeners_have_everything_is_silent():
    world = World(("a", "b", "c"))
    ears = world.begun("b", "c")
    world.write("a", *numbered(20), b"x" * 100_000)
    world.run(2)
    assert [len(ear.events) for ear in ears] == [21, 21]
    directions = [("a", "hub"), ("hub", "a"), ("b", "hub"), ("hub", "b"), ("c", "hub")]
    packets = [world.watch(*direction) for direction in directions[:2]]
    words = [world.talk(*direction) for direction in directions[2:]]
    world.run(30)
    assert packets == [[], []]
    assert words == [[], [], []]


def test_a_lone_version_costs_one_packet_and_few_words():
    world = World()
    (ear,) = world.begun("b")
    world.write("a", b"1")
    world.run(2)
    words, packets = world.talk("b", "hub"), world.watch("a", "hub")
    world.write("a", b"2")
    world.run(5)
    assert ear.told == [1, 2]
    assert len(packets) == 1
    assert len(words) <= 2


# Pace


def test_a_lone_small_publication_takes_as_long_as_its_way():
    world = World()
    (ear,) = world.begun("b")
    for _ in range(5):
        begin = world.world.now
        world.write("a", b"small")
        world.run(3)
        assert (ear.times[-1] - begin) / 1e9 == PATH


def test_many_small_publications_of_one_turn_share_packets():
    world = World()
    (ear,) = world.begun("b")
    seen = world.watch("a", "hub")
    begin = world.world.now
    world.write("a", *numbered(200))
    world.run(1)
    assert len(ear.events) == 200
    assert len(seen) <= 200 / 3
    assert (ear.times[0] - begin) / 1e9 == PATH  # the first did not wait for the others
    assert (ear.times[-1] - begin) / 1e9 < 0.05


def test_a_slow_link_is_not_flooded():
    """Two megabits a second, and a queue of 26 packets."""
    slow = LinkProfile(bandwidth=2_000_000, queue=32_000)
    world = World(links={"b": slow})
    (ear,) = world.begun("b")
    counters = world.world.channels["hub", "b"].counters
    world.write("a", *[b"x" * 100_000] * 20)
    begin = world.world.now
    world.run(1)
    # It has to find out how slow the link is.
    found, before = counters.overflowed, counters.sent
    assert found < 300
    world.until(lambda: len(ear.events) == 20, at_most=60)
    assert counters.overflowed - found <= 0.2 * (counters.sent - before)
    assert world.seconds_since(begin) < 1.3 * 2_000_000 * 8 / 2_000_000


def test_a_slow_link_with_a_long_queue_is_hardly_overflown():
    slow = LinkProfile(bandwidth=2_000_000, queue=128_000)
    world = World(links={"b": slow})
    (ear,) = world.begun("b")
    world.write("a", *[b"x" * 100_000] * 10)
    world.until(lambda: len(ear.events) == 10, at_most=60)
    counters = world.world.channels["hub", "b"].counters
    assert counters.overflowed <= 0.05 * counters.sent


def test_a_slow_link_stays_open_for_hellos():
    slow = LinkProfile(bandwidth=1_000_000, queue=24_000)
    world = World(links={"b": slow})
    (ear,) = world.begun("b")
    world.write("a", *[b"x" * 100_000] * 20)
    states = []
    while len(ear.events) < 20:
        world.run(0.5)
        states.append("b" in world.node("hub").database.graph.reachable("hub"))
        assert len(states) < 120
    assert all(states)


@pytest.mark.parametrize("delay", [10, 40])
def test_a_long_way_is_filled(delay):
    far = LinkProfile(delay=Constant(delay * MILLISECOND))
    world = World(links={"a": far, "b": far})
    (ear,) = world.begun("b")
    for _ in range(3):
        world.write("a", b"x")
        world.run(2)
    world.write("a", b"x" * 2_000_000)
    took = world.until(lambda: len(ear.events) == 4, at_most=60)
    # Slow start: six doublings from 64 packets are enough for 1,700.
    assert took < 10 * 4 * delay / 1_000 + 0.5


def test_a_listener_that_is_down_does_not_hold_up_the_others():
    world = World(("a", "b", "c"))
    ears = world.begun("b", "c")
    world.write("a", b"1")
    world.run(2)
    world.world.crash("c")
    world.write("a", b"x" * 1_000_000)
    took = world.until(lambda: len(ears[0].events) == 2)
    assert took < 1.5
    begin = world.world.now
    world.write("a", b"small")
    world.until(lambda: len(ears[0].events) == 3)
    assert ears[0].times[-1] - begin < 20 * MILLISECOND


def test_a_listener_on_a_slow_link_costs_the_others_no_version():
    slow = LinkProfile(bandwidth=1_000_000, queue=64_000)
    world = World(("a", "b", "c"), links={"c": slow}, history_bytes=1_000_000)
    quick, lame = world.begun("b", "c")
    for _ in range(30):
        world.write("a", b"x" * 100_000)
        world.run(0.25)
    world.run(10)
    assert quick.told == [*range(1, 31)]
    assert lame.told[-1] == 30


def test_a_listener_that_stood_still_catches_up():
    world = World(("a", "b", "c"))
    ears = world.begun("b", "c")
    world.write("a", b"1")
    world.run(1)
    world.world.pause("c")
    for _ in range(50):
        world.write("a", b"x" * 5_000)
        world.run(0.02)
    assert len(ears[0].events) == 51
    world.run(3)
    world.world.resume("c")
    world.run(3)
    assert ears[1].told == [*range(1, 52)]


def test_reports_that_are_lost_cost_little():
    world = World()
    (ear,) = world.begun("b")
    world.world.reshape("b", "hub", LinkProfile(loss=Independent(0.5)))
    seen = world.watch("a", "hub")
    world.write("a", b"x" * 1_000_000)
    took = world.until(lambda: ear.events)
    world.run(3)
    assert took < 0.5
    assert sent_bytes(seen) < 1.05 * 1_000_000


# Bounds at the listener


def test_the_waiting_room_is_bounded_and_a_stalled_listener_causes_no_storm():
    world = World(waiting_bytes=640_000, unfinished_bytes=320_000)
    (ear,) = world.begun("b", listen={"by_hand": True})
    seen = world.watch("a", "hub")
    world.write("a", *[b"x" * 50_000] * 20)
    most = 0
    for _ in range(100):
        world.run(0.1)
        most = max(most, world.at("b").subscriber.waiting_bytes)
    assert most <= 640_000
    assert ear.told == [1, 2, 3, 4, 5, 6, 7]
    assert sent_bytes(seen) < 2.5 * 1_000_000
    before = len(seen)
    world.run(20)
    assert len(seen) - before <= 20
    done = 0
    while done < len(ear.events):
        ear.subscription.done(ear.events[done])
        done += 1
        world.run(0.3)
    assert ear.told == [*range(1, 21)]
    assert sent_bytes(seen) < 4 * 1_000_000


def test_a_stalled_listener_of_large_versions_causes_no_storm():
    world = World(waiting_bytes=1 << 20, unfinished_events=1)
    (ear,) = world.begun("b", listen={"by_hand": True})
    seen = world.watch("a", "hub")
    world.write("a", *[b"x" * 400_000] * 4)
    world.run(10)
    before = len(seen)
    world.run(20)
    assert ear.told == [1]
    assert len(seen) - before <= 40
    for done in range(4):
        ear.subscription.done(ear.events[done])
        world.run(3)
    assert ear.told == [1, 2, 3, 4]


def test_many_streams_share_a_small_waiting_room_and_all_arrive():
    world = World(waiting_bytes=256_000)
    ear = world.listen("b", rid=b"")
    items = [number.to_bytes(32) for number in range(6)]
    for item in items:
        world.at("a").offer(SCOPE, item)
    world.run(3)
    seen = world.watch("a", "hub")
    for _ in range(4):
        for item in items:
            world.write("a", b"x" * 60_000, rid=item)
    world.until(lambda: len(ear.events) >= 24, at_most=60)
    assert ear.of(Gap) == []
    for item in items:
        assert [e.position.version for e in ear.updates if e.rid == item] == [1, 2, 3, 4]
    assert sent_bytes(seen) < 4 * 24 * 60_000


def test_what_is_left_of_a_publisher_that_has_died_is_let_go():
    world = World()
    (ear,) = world.begun("b")
    world.write("a", b"1")
    world.run(1)
    world.write("a", b"x" * 2_000_000)
    world.until(lambda: world.reception().held)
    world.world.crash("a")
    world.run(120)
    assert ear.told == [1]
    assert world.at("b").subscriber.waiting_bytes == 0
    assert not world.receptions("b")


def test_streams_that_a_listener_has_left_keep_nothing():
    world = World()
    (ear,) = world.begun("b", listen={"by_hand": True})
    world.listen("b", rid=OTHER)
    world.write("a", *[b"x" * 100_000] * 3)
    world.run(0.01)
    world.at("b").unsubscribe(ear.subscription)
    world.run(1)
    assert world.at("b").subscriber.waiting_bytes == 0
    assert (SCOPE, ITEM) not in world.receptions("b")


# Size


def test_a_mebibyte_arrives_through_loss():
    lossy = LinkProfile(loss=Independent(0.02))
    world = World(links={"b": lossy})
    (ear,) = world.begun("b")
    content = bytes(range(256)) * 4_096
    world.write("a", content)
    took = world.until(lambda: ear.events)
    assert ear.contents == [content]
    assert took < 2


def test_sixteen_mebibytes_arrive():
    world = World()
    (ear,) = world.begun("b")
    content = bytes(range(256)) * 65_536
    seen = []
    world.world.channels["a", "hub"].observer = lambda _, sent: seen.append(packet_of(sent))
    world.write("a", content)
    took = world.until(lambda: ear.events)
    assert ear.contents == [content]
    assert took < 3
    assert len([packet for packet in seen if packet]) < 1.03 * len(content) / IN_A_PACKET
