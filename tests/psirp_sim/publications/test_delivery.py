"""What a subscriber is told: every version once and in order, from where it began."""

from __future__ import annotations

import pytest

from identifiers import Position
from psirp_sim.publications.events import Gap, Update
from psirp_sim.runtime.durations import MILLISECOND, SECOND
from psirp_sim.runtime.simulator import Independent, LinkProfile, Uniform
from psirp_sim.wire.rendezvous import Code
from tests.psirp_sim.publications.world import (
    ITEM,
    OTHER,
    SCOPE,
    Ear,
    World,
    numbered,
    publisher_of,
)

# Where a subscription begins


def test_a_late_joiner_gets_the_last_version_at_once():
    world = World()
    world.write("a", b"1", b"2", b"3")
    world.run(2)
    ear = world.listen("b")
    took = world.until(lambda: ear.events)
    assert ear.told == [3]
    assert took < 0.2
    world.run(5)
    assert ear.told == [3]


def test_a_late_joiner_of_an_item_without_versions_gets_the_first_one():
    world = World()
    (ear,) = world.begun("b")
    assert ear.told == []
    world.write("a", b"1")
    world.run(1)
    assert ear.told == [1]


def test_who_subscribes_before_anybody_publishes_gets_everything():
    world = World()
    ear = world.listen("b")
    world.run(3)
    world.write("a", b"1")
    world.run(1)
    world.write("a", *numbered(4, 2))
    world.run(2)
    assert ear.told == [1, 2, 3, 4, 5]


def test_what_was_published_before_the_publisher_learned_of_a_subscriber_comes_as_its_latest():
    world = World()
    ear = world.listen("b")
    world.run(3)
    world.write("a", *numbered(5))  # the item is not registered yet
    world.run(2)
    assert ear.told == [5]


def test_who_subscribes_on_the_publisher_s_own_node_gets_everything():
    world = World()
    (ear,) = world.begun("a")
    world.write("a", b"1", b"x" * 200_000, b"3")
    world.run(3)
    assert ear.told == [1, 2, 3]
    assert ear.contents[1] == b"x" * 200_000


@pytest.mark.parametrize("wait", [0.0, 0.001, 0.003, 0.005, 0.01, 0.05, 0.3])
def test_the_first_update_after_a_subscription_is_never_lost(wait):
    """Subscribed is who was told so; what is published from then on arrives."""
    world = World(loss=Independent(0.1), seed=int(wait * 1_000))
    world.write("a", b"old")
    world.run(2)
    ear = world.listen("b")
    world.until(lambda: world.knows("a", "b"))
    world.run(wait)
    world.write("a", b"new")
    world.run(5)
    assert ear.told in ([1, 2], [2])
    assert world.reception().latest == 2


def test_a_second_subscription_begins_with_the_latest_and_not_with_what_the_first_has_had():
    world = World()
    (first,) = world.begun("b")
    world.write("a", *numbered(100))
    world.run(2)
    second = world.listen("b")
    world.run(1)
    assert second.told == [100]
    assert second.codes == [Code.OK]
    world.write("a", b"101")
    world.run(1)
    assert first.told == [*range(1, 102)]
    assert second.told == [100, 101]


# Going on


def test_after_a_position_an_item_goes_on_where_it_was():
    world = World()
    position = world.write("a", *numbered(3))
    world.write("a", *numbered(4, 4))
    ear = world.listen("b", after=position)
    world.run(3)
    assert ear.told == [4, 5, 6, 7]
    assert ear.contents == numbered(4, 4)


def test_from_the_first_version_on_comes_what_was_published_before():
    world = World()
    world.begun()
    last = world.write("a", *numbered(5))
    world.run(1)
    first = [(ITEM, last.publisher, last.epoch)]
    whole, latest = world.listen("b", from_first=first), world.listen("b")
    world.run(5)
    world.write("a", b"6")
    world.run(5)
    assert whole.told == [1, 2, 3, 4, 5, 6]
    assert latest.told == [5, 6]


def test_from_the_first_version_on_it_is_told_what_is_not_kept():
    world = World(history_versions=3)
    world.begun()
    last = world.write("a", *numbered(5))
    world.run(1)
    ear = world.listen("b", from_first=[(ITEM, last.publisher, last.epoch)])
    world.run(5)
    assert ear.told == [("gap", 1, 2), 3, 4, 5]


def test_after_the_latest_position_nothing_comes_twice():
    world = World()
    position = world.write("a", *numbered(3))
    world.run(2)
    ear = world.listen("b", after=position)
    world.run(3)
    assert ear.told == []
    world.write("a", b"4")
    world.run(1)
    assert ear.told == [4]


def test_after_positions_a_scope_goes_on_where_it_was_in_each_item():
    world = World()
    one = world.write("a", *numbered(3), rid=ITEM)
    world.write("a", *numbered(3, 4), rid=ITEM)
    two = world.write("a", *numbered(1), rid=OTHER)
    world.write("a", *numbered(1, 2), rid=OTHER)
    ear = world.listen("b", rid=b"", after=[(ITEM, one), (OTHER, two)])
    world.run(3)
    told = [(event.rid, event.position.version) for event in ear.updates]
    assert sorted(told) == [(ITEM, 4), (ITEM, 5), (ITEM, 6), (OTHER, 2)]


def test_in_a_scope_a_position_without_its_item_is_refused():
    world = World()
    with pytest.raises(ValueError, match="which item"):
        world.listen("b", rid=b"", after=Position(publisher_of("a"), 1, 1))


def test_after_a_position_that_the_history_has_lost_a_gap_is_told_and_then_the_rest():
    world = World(history_versions=4)
    position = world.write("a", b"1")
    world.write("a", *numbered(9, 2))
    ear = world.listen("b", after=position)
    world.run(3)
    assert ear.told == [("gap", 2, 6), 7, 8, 9, 10]
    (gap,) = ear.of(Gap)
    assert (gap.sid, gap.rid, gap.publisher) == (SCOPE, ITEM, position.publisher)
    assert gap.epoch == position.epoch


def test_a_subscriber_that_was_cut_off_for_too_long_is_told_a_gap():
    world = World(history_versions=4)
    (ear,) = world.begun("b")
    world.write("a", b"1")
    world.run(1)
    world.lose("hub", "b", lambda packet: cut)
    cut = True
    world.write("a", *numbered(9, 2))
    world.run(1)
    cut = False
    world.run(5)
    assert ear.told == [1, ("gap", 2, 6), 7, 8, 9, 10]


def test_a_durable_subscription_goes_on_where_an_earlier_life_was_done():
    world = World()
    world.begun()
    ear = world.listen("b", durable="reader", by_hand=True)
    world.run(1)
    world.write("a", *numbered(5))
    world.run(1)
    assert ear.told == [1, 2, 3, 4, 5]
    for event in ear.events[:3]:
        ear.subscription.done(event)
    world.run(0.1)
    world.restart("b")
    world.write("a", b"6")
    again = world.listen("b", durable="reader")
    world.run(10)
    assert again.told == [4, 5, 6]


def test_who_says_where_it_is_knows_better_than_what_was_written_down():
    world = World()
    world.begun()
    ear = world.listen("b", durable="reader")
    world.run(1)
    world.write("a", *numbered(5))
    world.run(1)
    assert ear.told == [1, 2, 3, 4, 5]
    world.restart("b")
    again = world.listen("b", durable="reader", after=ear.events[1].position)
    world.run(10)
    assert again.told == [3, 4, 5]


def test_a_durable_cursor_does_not_pass_over_an_event_that_is_still_in_hand():
    world = World()
    world.begun()
    ear = world.listen("b", durable="reader", by_hand=True)
    world.run(1)
    world.write("a", *numbered(4))
    world.run(1)
    for number in (0, 2, 3):
        ear.subscription.done(ear.events[number])
    world.run(0.1)
    world.restart("b")
    again = world.listen("b", durable="reader")
    world.run(10)
    assert again.told == [2, 3, 4]


def test_a_durable_subscription_that_has_crashed_before_it_was_done_with_anything_loses_nothing():
    world = World()
    world.write("a", b"1")
    world.run(2)
    ear = world.listen("b", durable="reader", by_hand=True)
    world.until(lambda: ear.events)
    world.world.crash("b")
    world.write("a", *numbered(3, 2))
    world.run(1)
    world.world.restart("b")
    world.until(lambda: world.node("b").begun)
    again = world.listen("b", durable="reader")
    world.run(10)
    assert again.told == [1, 2, 3, 4]


def test_what_was_in_hand_when_a_durable_subscription_ended_comes_again_in_the_next():
    world = World()
    world.begun()
    ear = world.listen("b", durable="reader", by_hand=True)
    world.run(1)
    world.write("a", *numbered(3))
    world.run(1)
    ear.subscription.done(ear.events[0])
    world.at("b").unsubscribe(ear.subscription)
    world.run(1)
    again = world.listen("b", durable="reader")
    world.run(2)
    assert ear.told == [1, 2, 3]
    assert again.told == [2, 3]


def test_a_durable_subscription_to_a_scope_goes_on_in_every_item():
    world = World()
    items = [bytes([number]) * 32 for number in range(3)]
    for item in items:
        world.at("a").offer(SCOPE, item)
    ear = world.listen("b", rid=b"", durable="reader")
    world.run(3)
    for item in items:
        world.write("a", b"1", b"2", rid=item)
    world.run(1)
    world.world.crash("b")
    for item in items:
        world.write("a", b"3", rid=item)
    world.run(1)
    world.world.restart("b")
    world.until(lambda: world.node("b").begun)
    again = world.listen("b", rid=b"", durable="reader")
    world.run(8)
    assert sorted(ear.versions) == [1, 1, 1, 2, 2, 2]
    assert again.told == [3, 3, 3]
    assert {event.rid for event in again.events} == {*items}


def test_the_name_of_a_durable_subscription_is_taken_once():
    world = World()
    world.listen("b", durable="reader")
    with pytest.raises(ValueError, match="already"):
        world.listen("b", durable="reader")
    with pytest.raises(ValueError, match="already"):
        world.listen("b", rid=b"", durable="reader")


# Each once and in order


@pytest.mark.parametrize("seed", range(4))
def test_every_version_comes_once_and_in_order_over_links_that_lose_double_and_reorder(seed):
    bad = LinkProfile(
        delay=Uniform(MILLISECOND // 5, 5 * MILLISECOND),
        loss=Independent(0.2),
        duplicate=0.1,
        reorder=0.2,
        reorder_by=50 * MILLISECOND,
    )
    world = World(("a", "b", "c", "d"), links={"a": bad, "b": bad, "c": bad}, seed=seed)
    ears = world.begun("b", "c", "d")
    contents = [bytes([number]) * (number * number * 7) for number in range(60)]
    for content in contents:
        world.write("a", content)
        world.run(0.02)
    world.until(lambda: all(len(ear.events) == 60 for ear in ears))
    world.until(lambda: world.sending().complete)
    for ear in ears:
        assert ear.told == [*range(1, 61)]
        assert ear.contents == contents


@pytest.mark.parametrize("seed", range(2))
def test_a_stream_of_many_versions_at_once_comes_in_order_through_loss(seed):
    bad = LinkProfile(loss=Independent(0.1), reorder=0.1, duplicate=0.05)
    world = World(links={"b": bad}, seed=seed)
    (ear,) = world.begun("b")
    for number in range(1_000):
        world.write("a", b"%d" % number)
        if number % 100 == 99:
            world.run(0.1)
    world.until(lambda: len(ear.events) >= 1_000)
    assert ear.contents == [b"%d" % number for number in range(1_000)]


def test_metadata_and_position_come_as_they_were_given():
    world = World()
    (ear,) = world.begun("b")
    position = world.write("a", b"content", metadata={"topic": "http://a.test/", "type": "x"})
    world.run(1)
    (event,) = ear.events
    assert event.position == position
    assert event.publisher == publisher_of("a")
    assert (event.sid, event.rid, event.signed) == (SCOPE, ITEM, False)
    assert event.metadata["topic"] == "http://a.test/"
    assert event.metadata["type"] == "x"


def test_an_empty_publication_is_one():
    world = World()
    (ear,) = world.begun("b")
    world.write("a", b"", b"after")
    world.run(1)
    assert ear.contents == [b"", b"after"]


# Several subscriptions on one node


def test_subscriptions_of_one_node_have_cursors_of_their_own():
    world = World()
    positions = [world.write("a", content) for content in numbered(6)]
    world.run(1)
    ears = [world.listen("b", after=positions[begin]) for begin in (4, 0, 2)]
    anew = world.listen("b")
    world.run(3)
    world.write("a", b"7")
    world.run(1)
    assert [ear.told for ear in ears] == [[6, 7], [2, 3, 4, 5, 6, 7], [4, 5, 6, 7]]
    assert anew.told == [6, 7]


def test_a_subscription_that_goes_back_does_not_disturb_one_that_is_up_to_date():
    world = World()
    (ear,) = world.begun("b")
    positions = [world.write("a", content) for content in numbered(50)]
    world.run(2)
    back = world.listen("b", after=positions[9])
    world.write("a", b"51")
    world.run(2)
    assert ear.told == [*range(1, 52)]
    assert back.told == [*range(11, 52)]


def test_an_item_and_its_scope_can_be_listened_to_side_by_side():
    world = World()
    scope, item = world.listen("b", rid=b""), world.listen("b", rid=ITEM)
    world.begun()
    world.run(2)
    world.write("a", b"1", b"2", rid=ITEM)
    world.write("a", b"3", rid=OTHER)
    world.run(4)
    assert item.contents == [b"1", b"2"]
    assert sorted(scope.contents) == [b"1", b"2", b"3"]
    world.at("b").unsubscribe(scope.subscription)
    world.run(1)
    world.write("a", b"4", rid=ITEM)
    world.write("a", b"5", rid=OTHER)
    world.run(2)
    assert item.contents == [b"1", b"2", b"4"]
    assert len(scope.events) == 3


def test_the_item_may_leave_and_the_scope_goes_on():
    world = World()
    scope, item = world.listen("b", rid=b""), world.listen("b", rid=ITEM)
    world.run(2)
    world.write("a", b"1")
    world.run(3)
    world.at("b").unsubscribe(item.subscription)
    world.run(2)
    world.write("a", b"2")
    world.run(2)
    assert item.contents == [b"1"]
    assert scope.contents == [b"1", b"2"]


def test_two_publishers_of_one_item_are_two_streams():
    world = World(("a", "b", "c"))
    ear = world.listen("c")
    world.run(1)
    for number in range(5):
        world.write("a", b"a%d" % number)
        world.write("b", b"b%d" % number)
        world.run(0.5)
    world.run(3)
    assert [each for each in ear.contents if each[:1] == b"a"] == [b"a%d" % n for n in range(5)]
    assert [each for each in ear.contents if each[:1] == b"b"] == [b"b%d" % n for n in range(5)]


def test_who_has_unsubscribed_gets_nothing_and_the_publisher_forgets_it():
    world = World()
    (ear,) = world.begun("b")
    world.write("a", b"1")
    world.run(1)
    codes = []
    world.at("b").unsubscribe(ear.subscription, codes.append)
    world.run(2)
    world.write("a", b"2")
    world.run(2)
    assert ear.told == [1]
    assert codes == [Code.OK]
    assert not world.sending().followers
    assert not world.receptions("b")
    world.at("b").unsubscribe(ear.subscription, codes.append)
    world.run(0)
    assert codes[1:] == [Code.NOT_REGISTERED]


@pytest.mark.parametrize("wait", [0, 0.001, 0.003, 0.01])
def test_who_leaves_and_comes_back_at_once_is_heard(wait):
    world = World()
    (ear,) = world.begun("b")
    world.write("a", b"1")
    world.run(1)
    world.at("b").unsubscribe(ear.subscription)
    world.run(wait)
    again = world.listen("b")
    world.run(2)
    world.write("a", b"2")
    world.run(1)
    assert ear.told == [1]
    assert again.told == [1, 2]


def test_coming_and_going_leaves_nothing_behind():
    world = World()
    world.begun()
    world.write("a", b"1")
    for _ in range(20):
        ear = world.listen("b")
        world.run(0.2)
        world.at("b").unsubscribe(ear.subscription)
        world.run(0.1)
        assert ear.told == [1]
    world.run(3)
    assert world.at("b").status()["subscriptions"] == 0
    assert world.at("b").status()["streams"] == 0
    assert not world.sending().followers
    assert len(world.client("a").trees) == len(world.client("b").trees) == 0


def test_who_know_each_other_need_no_rendezvous_for_a_while():
    world = World()
    (ear,) = world.begun("b")
    world.write("a", b"1")
    world.run(1)
    world.world.crash("r1")
    for content in numbered(5, 2):
        world.run(4)
        world.write("a", content)
    world.run(1)
    assert ear.told == [1, 2, 3, 4, 5, 6]
    world.run(120)
    world.write("a", b"7")
    world.world.restart("r1")
    world.run(20)
    assert ear.told == [1, 2, 3, 4, 5, 6, 7]


# Back-pressure


def test_a_listener_gets_no_more_than_it_may_have_in_hand():
    world = World(unfinished_events=4)
    (ear,) = world.begun("b", listen={"by_hand": True})
    world.write("a", *numbered(20))
    world.run(2)
    assert ear.told == [1, 2, 3, 4]
    assert ear.subscription.in_hand == 4
    ear.subscription.done(ear.events[0])
    world.run(0.1)
    assert ear.told == [1, 2, 3, 4, 5]
    while len(ear.events) < 20:
        ear.subscription.done(ear.events[len(ear.events) - ear.subscription.in_hand])
        world.run(0.1)
    assert ear.told == [*range(1, 21)]


def test_a_listener_gets_no_more_bytes_than_it_may_have_in_hand():
    world = World(unfinished_bytes=10_000)
    (ear,) = world.begun("b", listen={"by_hand": True})
    world.write("a", *[b"x" * 4_000] * 10)
    world.run(2)
    assert ear.told == [1, 2, 3]  # the last may go beyond


def test_what_a_listener_has_done_out_of_order_makes_no_room_before_the_oldest_is_done():
    world = World(unfinished_events=3)
    (ear,) = world.begun("b", listen={"by_hand": True})
    world.write("a", *numbered(6))
    world.run(1)
    ear.subscription.done(ear.events[1])
    ear.subscription.done(ear.events[2])
    world.run(1)
    assert ear.told == [1, 2, 3]
    ear.subscription.done(ear.events[0])
    world.run(1)
    assert ear.told == [1, 2, 3, 4, 5, 6]


def test_a_listener_that_takes_nothing_does_not_starve_another_on_its_node():
    world = World(unfinished_events=16, history_versions=512)
    world.begun()
    stuck = world.listen("b", by_hand=True)
    quick = world.listen("b")
    world.run(1)
    for number in range(1, 3_001):
        world.write("a", b"%d" % number)
        if not number % 50:
            world.run(0.02)
    world.run(5)
    assert stuck.told == [*range(1, 17)]
    assert quick.told == [*range(1, 3_001)]


def test_who_was_stuck_goes_on_or_is_told_a_gap():
    world = World(unfinished_events=16, history_versions=64)
    world.begun()
    stuck = world.listen("b", by_hand=True)
    quick = world.listen("b")
    world.run(1)
    for number in range(1, 301):
        world.write("a", b"%d" % number)
        if not number % 20:
            world.run(0.02)
    world.run(2)
    done = 0
    while done < len(stuck.events):
        stuck.subscription.done(stuck.events[done])
        done += 1
        world.run(0.05)
    assert quick.told == [*range(1, 301)]
    assert stuck.told[-1] == 300
    follows = 1
    for event in stuck.events:
        if isinstance(event, Update):
            assert event.position.version == follows
            follows += 1
        else:
            assert event.first == follows
            assert event.last <= 300 - 64
            follows = event.last + 1


def test_a_listener_is_not_called_before_subscribe_has_given_its_subscription():
    """It could not say that it is done with the event."""
    world = World(unfinished_events=1)
    world.begun("b", listen={"by_hand": True})
    world.write("a", *numbered(5))
    world.run(1)
    ear = Ear(world.world)
    world.at("b").subscribe(SCOPE, ITEM, ear, by_hand=True)
    called_within = list(ear.told)
    world.run(1)
    assert ear.told == [5]
    assert called_within == []


# Listeners that do unusual things


class Moody(Ear):
    """Raises an exception as often as it is told to."""

    failures = 1

    def __call__(self, event):
        super().__call__(event)
        if self.failures:
            self.failures -= 1
            raise RuntimeError("not now")


def test_a_listener_that_raises_gets_the_event_again():
    world = World()
    world.begun()
    ear = world.listen("b", ear=Moody(world.world))
    world.run(1)
    world.write("a", b"1", b"2")
    world.run(5)
    assert ear.told == [1, 1, 2]
    assert ear.times[1] - ear.times[0] == SECOND


def test_a_listener_that_always_raises_is_called_once_a_second_however_much_comes():
    world = World()
    world.begun()
    ear = Moody(world.world)
    ear.failures = 10**9
    world.listen("b", ear=ear)
    world.run(1)
    for _ in range(200):
        world.write("a", b"x")
        world.run(0.05)
    before = len(ear.events)
    world.run(10)
    assert 9 <= len(ear.events) - before <= 10
    assert set(ear.versions) == {1}


def test_a_listener_that_raises_does_not_hold_up_another():
    world = World()
    world.begun()
    bad = Moody(world.world)
    bad.failures = 10**9
    world.listen("b", ear=bad)
    good = world.listen("b")
    world.run(1)
    world.write("a", *numbered(10))
    took = world.until(lambda: len(good.events) == 10)
    assert took < 0.05


def test_an_exception_that_goes_through_everything_leaves_nothing_in_hand():
    """Not an Exception: a task that is cancelled, an interrupt."""
    world = World()
    world.begun()

    class Interrupted(Ear):
        def __call__(self, event):
            super().__call__(event)
            if len(self.events) == 1:
                raise KeyboardInterrupt

    ear = world.listen("b", ear=Interrupted(world.world), durable="reader")
    world.run(1)
    world.write("a", b"1")
    with pytest.raises(KeyboardInterrupt):
        world.run(1)
    for content in numbered(3, 2):
        world.write("a", content)
        world.run(1)
    assert ear.told == [1, 1, 2, 3, 4]
    assert ear.subscription.in_hand == 0
    world.restart("b")
    again = world.listen("b", durable="reader")
    world.run(10)
    assert again.told == []


def test_done_and_then_an_exception_counts_as_done():
    world = World()
    world.begun()

    class Hasty(Moody):
        def __call__(self, event):
            self.subscription.done(event)
            super().__call__(event)

    ear = world.listen("b", ear=Hasty(world.world), by_hand=True)
    world.run(1)
    for content in numbered(5):
        world.write("a", content)
        world.run(1)
    assert ear.told == [1, 2, 3, 4, 5]
    assert ear.subscription.in_hand == 0


def test_a_listener_may_publish_to_the_stream_it_listens_to():
    world = World()

    class Echo(Ear):
        def __call__(self, event):
            super().__call__(event)
            if len(self.events) < 5:
                world.write("a", b"again")

    ear = world.listen("a", ear=Echo(world.world))
    other = world.listen("b")
    world.run(1)
    world.write("a", b"first")
    world.run(4)
    assert ear.told == [1, 2, 3, 4, 5]
    assert other.told == [1, 2, 3, 4, 5]


def test_a_listener_may_answer_on_another_item():
    world = World()

    class Answering(Ear):
        def __call__(self, event):
            super().__call__(event)
            world.write("b", b"re: " + event.content, rid=OTHER)

    world.listen("b", ear=Answering(world.world))
    answers = world.listen("a", rid=OTHER)
    world.begun()
    world.at("b").offer(SCOPE, OTHER)
    world.run(2)
    world.write("a", b"1", b"2", b"3")
    world.run(5)
    assert answers.contents == [b"re: 1", b"re: 2", b"re: 3"]


def test_a_listener_may_subscribe_others():
    world = World()
    world.begun()
    others = []

    class Inviting(Ear):
        def __call__(self, event):
            super().__call__(event)
            if len(others) < 3:
                others.append(world.listen("b"))

    ear = world.listen("b", ear=Inviting(world.world))
    world.run(1)
    for content in numbered(5):
        world.write("a", content)
        world.run(0.5)
    assert ear.told == [1, 2, 3, 4, 5]
    assert [other.told[-1] for other in others] == [5, 5, 5]
    for other, first in zip(others, (1, 2, 3), strict=True):
        assert other.told == [*range(first, 6)]


def test_a_listener_may_unsubscribe_itself_and_others():
    world = World()
    world.begun()

    class Leaving(Ear):
        def __call__(self, event):
            super().__call__(event)
            world.at("b").unsubscribe(other.subscription)
            world.at("b").unsubscribe(self.subscription)

    ear = world.listen("b", ear=Leaving(world.world))
    other = world.listen("b")
    stays = world.listen("b")
    world.run(1)
    world.write("a", b"1", b"2")
    world.run(2)
    assert ear.told == [1]
    assert other.told == []
    assert stays.told == [1, 2]


def test_the_last_listener_may_unsubscribe_itself():
    world = World()
    world.begun()

    class Leaving(Ear):
        def __call__(self, event):
            super().__call__(event)
            world.at("b").unsubscribe(self.subscription)

    ear = world.listen("b", ear=Leaving(world.world))
    world.run(1)
    world.write("a", b"1", b"2")
    world.run(3)
    assert ear.told == [1]
    assert not world.receptions("b")
    assert not world.sending().followers
    again = world.listen("b")
    world.run(2)
    assert again.told == [2]


@pytest.mark.parametrize("by_hand", [False, True])
def test_who_leaves_from_inside_its_durable_listener_does_not_get_that_event_again(by_hand):
    world = World()
    world.write("a", b"1")
    world.run(2)

    class Leaving(Ear):
        def __call__(self, event):
            super().__call__(event)
            if by_hand:
                self.subscription.done(event)
            world.at("b").unsubscribe(self.subscription)

    ear = Leaving(world.world)
    for _ in range(3):
        world.listen("b", ear=ear, durable="reader", by_hand=by_hand)
        world.run(3)
        world.at("b").unsubscribe(ear.subscription)
        world.run(1)
    assert ear.told == [1]
    world.write("a", b"2")
    world.listen("b", ear=ear, durable="reader", by_hand=by_hand)
    world.run(3)
    assert ear.told == [1, 2]


def test_a_listener_may_be_done_with_earlier_events_from_inside():
    world = World(unfinished_events=2)

    class Lagging(Ear):
        def __call__(self, event):
            super().__call__(event)
            if len(self.events) > 1:
                self.subscription.done(self.events[-2])

    world.begun()
    ear = world.listen("b", ear=Lagging(world.world), by_hand=True)
    world.run(1)
    world.write("a", *numbered(10))
    world.run(2)
    assert ear.told == [*range(1, 11)]
    assert ear.subscription.in_hand == 1


def test_being_done_twice_or_with_something_strange_is_harmless():
    world = World(unfinished_events=2)
    (ear,) = world.begun("b", listen={"by_hand": True})
    world.write("a", *numbered(3))
    world.run(1)
    first = ear.events[0]
    for _ in range(3):
        ear.subscription.done(first)
    ear.subscription.done(Gap(SCOPE, OTHER, first.publisher, 1, 1, 1))
    world.run(1)
    assert ear.told == [1, 2, 3]
    assert ear.subscription.in_hand == 2


def test_publishing_from_inside_the_done_of_a_publication_works():
    world = World()
    world.begun("b", durable=True)
    ear = world.listen("b")
    left = [3]

    def more():
        if left[0]:
            left[0] -= 1
            world.write("a", b"more", done=more)

    world.write("a", b"1", done=more)
    world.run(3)
    assert ear.told == [1, 2, 3, 4]


def test_what_is_too_large_is_refused_and_the_stream_goes_on():
    world = World(largest=1_000)
    (ear,) = world.begun("b")
    with pytest.raises(ValueError, match="at most 1000 bytes"):
        world.write("a", b"x" * 1_001)
    world.write("a", b"x" * 1_000)
    world.run(1)
    assert ear.told == [1]
