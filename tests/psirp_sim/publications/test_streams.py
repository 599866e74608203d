"""The life of a stream: numbering, restarts, epochs, withdrawal."""

from __future__ import annotations

import pytest

from identifiers import Position, PublisherId
from psirp_sim.publications.errors import HistoryFull, NotPublished
from psirp_sim.publications.events import Gap, Reset
from psirp_sim.runtime.durations import SECOND
from psirp_sim.runtime.simulator import Clock
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

X = PublisherId(b"X" * 16)


# Restarts


def test_a_publisher_that_comes_back_with_its_state_goes_on():
    world = World()
    (ear,) = world.begun("b", durable=True)
    before = world.write("a", *numbered(3))
    world.run(1)
    world.restart("a")
    world.at("a").offer(SCOPE, ITEM, durable=True)
    after = world.write("a", b"4")
    assert after == Position(before.publisher, before.epoch, 4)
    world.run(10)
    assert ear.told == [1, 2, 3, 4]


def test_a_publisher_that_comes_back_with_its_state_has_its_history():
    world = World()
    world.begun(durable=True)
    first = world.write("a", b"1")
    world.write("a", *numbered(4, 2))
    world.run(1)
    world.restart("a")
    world.at("a").offer(SCOPE, ITEM, durable=True)
    ear = world.listen("b", after=first)
    world.run(10)
    assert ear.contents == numbered(4, 2)


@pytest.mark.parametrize("wait", [0.0, 0.0001, 0.0002, 0.0004, 0.001])
def test_a_version_that_was_told_is_never_given_again_to_another_content(wait):
    """Whenever a publisher crashes: who has got a version sees it numbered once."""
    world = World(seed=int(wait * 10_000))
    (ear,) = world.begun("b", durable=True)
    world.write("a", *numbered(5))
    world.run(wait)
    world.restart("a")
    world.at("a").offer(SCOPE, ITEM, durable=True)
    world.write("a", b"after", b"and more")
    world.run(10)
    assert ear.versions == [*range(1, len(ear.events) + 1)]
    assert ear.contents == [*numbered(len(ear.events) - 2), b"after", b"and more"]


def test_a_publisher_that_comes_back_without_its_state_has_a_new_epoch_and_subscribers_are_told():
    world = World()
    (ear,) = world.begun("b")
    before = world.write("a", *numbered(3))
    world.run(1)
    world.restart("a")
    after = world.write("a", b"anew")
    assert after.epoch > before.epoch
    assert after.version == 1
    world.run(10)
    assert ear.told == [1, 2, 3, "reset", 1]
    assert ear.of(Reset) == [Reset(SCOPE, ITEM, before.publisher, after.epoch, previous=before)]
    assert ear.contents[-1] == b"anew"


def test_a_durable_publisher_that_lost_its_disk_has_a_new_epoch():
    world = World()
    (ear,) = world.begun("b", durable=True)
    before = world.write("a", *numbered(3))
    world.run(1)
    world.restart("a", wiped=True)
    world.at("a").offer(SCOPE, ITEM, durable=True)
    after = world.write("a", b"anew")
    assert after.epoch > before.epoch
    world.run(10)
    assert ear.told == [1, 2, 3, "reset", 1]


def test_the_first_version_of_a_new_epoch_is_not_lost_when_there_are_several():
    world = World()
    (ear,) = world.begun("b")
    world.write("a", *numbered(3))
    world.run(1)
    world.restart("a")
    world.at("a").offer(SCOPE, ITEM)
    world.write("a", *numbered(6))
    world.run(10)
    assert ear.told == [1, 2, 3, "reset", 1, 2, 3, 4, 5, 6]


def test_a_durable_subscriber_that_was_away_is_told_of_the_reset_and_where_it_was():
    world = World()
    world.begun()
    ear = world.listen("b", durable="reader")
    world.run(1)
    before = world.write("a", *numbered(3))
    world.run(1)
    world.world.crash("b")
    world.run(1)
    world.restart("a")
    world.write("a", b"anew")
    world.world.restart("b")
    world.until(lambda: world.node("b").begun)
    again = world.listen("b", durable="reader")
    world.run(10)
    assert ear.told == [1, 2, 3]
    assert again.told == ["reset", 1]
    assert again.events[0].previous == before


def test_who_resumes_after_a_position_of_an_earlier_epoch_is_told_of_the_reset():
    world = World()
    world.begun()
    before = world.write("a", *numbered(3))
    world.restart("a")
    world.write("a", b"anew")
    ear = world.listen("b", after=before)
    world.run(10)
    assert ear.told == ["reset", 1]
    assert ear.events[0].previous == before


def test_who_subscribed_to_an_empty_stream_is_told_of_no_previous_position():
    world = World()
    (ear,) = world.begun("b")
    world.restart("a")
    world.write("a", b"anew")
    world.run(10)
    assert ear.contents == [b"anew"]
    assert [event.previous for event in ear.of(Reset)] in ([], [None])


def test_several_resets_before_anything_comes_are_told_as_one():
    world = World()
    (ear,) = world.begun("b", listen={"by_hand": True})
    before = world.write("a", *numbered(3))
    world.run(1)
    for _ in range(3):
        world.restart("a", after=0.3)
    world.write("a", b"anew")
    world.run(10)
    assert ear.told == [1, 2, 3, "reset", 1]
    assert ear.of(Reset)[0].previous == before


def test_durable_then_not_then_durable_never_goes_back():
    world = World()
    ear = world.listen("b")
    contents = []
    positions = []
    for round_, durable in enumerate((True, False, True)):
        world.at("a").offer(SCOPE, ITEM, durable=durable)
        world.run(2)
        for number in range(3):
            contents.append(b"%d %d" % (round_, number))
            positions.append(world.write("a", contents[-1]))
        world.run(3)
        world.restart("a")
    assert positions == sorted(positions, key=lambda each: (each.epoch, each.version))
    assert len(set(positions)) == 9
    assert ear.contents == contents
    assert ear.told == [1, 2, 3, "reset", 1, 2, 3, "reset", 1, 2, 3]


def test_a_withdrawn_and_offered_stream_has_a_new_epoch():
    world = World()
    (ear,) = world.begun("b", durable=True)
    before = world.write("a", *numbered(2))
    world.run(1)
    world.at("a").withdraw(SCOPE, ITEM)
    world.run(3)
    world.at("a").offer(SCOPE, ITEM, durable=True)
    after = world.write("a", b"anew")
    assert after.epoch > before.epoch
    world.run(5)
    assert ear.contents == [b"1", b"2", b"anew"]


@pytest.mark.parametrize("durable", [False, True])
def test_a_node_that_lost_its_disk_and_whose_clock_was_set_back_still_reaches_its_subscribers(
    durable,
):
    world = World()
    (ear,) = world.begun("b", durable=durable)
    before = world.write("a", b"1")
    world.run(2)
    world.world.crash("a")
    world.world.wipe("a")
    world.world.nodes["a"].clock = Clock(-3_600 * SECOND, 0)
    world.run(1)
    world.world.restart("a")
    world.until(lambda: world.node("a").begun)
    life = world.node("a").boot
    world.at("a").offer(SCOPE, ITEM, durable=durable)
    early = world.write("a", b"2")
    world.run(5)
    world.write("a", b"3")
    world.run(40)
    assert early.epoch < before.epoch  # it did not know better
    assert world.node("a").boot > life
    assert ear.contents == [b"1", b"2", b"3"]
    assert ear.told == [1, "reset", 1, 2]
    world.write("a", b"4")
    world.run(1)
    assert ear.told[-1] == 3


def test_a_node_that_is_renumbered_while_a_withdrawal_lingers_goes_on():
    """Streams begin again in `renew`; one that is being withdrawn takes no more."""
    world = World()
    (ear,) = world.begun("b")
    world.write("a", b"1")
    world.run(2)
    world.world.crash("a")
    world.world.wipe("a")
    world.world.nodes["a"].clock = Clock(-3_600 * SECOND, 0)
    world.run(1)
    world.world.restart("a")
    world.until(lambda: world.node("a").begun)
    world.write("a", b"2")
    world.at("a").withdraw(SCOPE, ITEM)
    world.run(30)
    assert (SCOPE, ITEM) not in world.at("a").offers
    world.write("a", b"3", rid=OTHER)
    other = world.listen("b", rid=OTHER)
    world.run(10)
    assert other.contents == [b"3"]
    assert ear.contents[0] == b"1"


# Numbered by somebody else


def test_versions_may_be_numbered_elsewhere():
    world = World()
    ear = world.listen("b")
    world.at("a").offer(SCOPE, ITEM, publisher=X, epoch=7, latest=10)
    world.run(3)
    for version in (11, 12, 13):
        given = Position(X, 7, version)
        assert world.write("a", b"%d" % version, position=given) == given
    world.run(1)
    # The latest there was is not here to be had, and that is said.
    assert ear.told == [("gap", 10, 10), 11, 12, 13]
    assert [event.position for event in ear.updates] == [Position(X, 7, n) for n in (11, 12, 13)]


def test_who_goes_on_after_the_latest_that_was_numbered_elsewhere_is_told_no_gap():
    world = World()
    ear = world.listen("b", after=Position(X, 7, 10))
    world.at("a").offer(SCOPE, ITEM, publisher=X, epoch=7, latest=10)
    world.run(3)
    world.write("a", b"11", position=Position(X, 7, 11))
    world.run(1)
    assert ear.told == [11]


def test_a_first_publication_with_a_position_begins_there_and_is_no_gap():
    world = World()
    ear = world.listen("b")
    world.run(1)
    world.write("a", b"100", position=Position(X, 7, 100))
    world.run(2)
    world.write("a", b"101", position=Position(X, 7, 101))
    world.write("a", b"102")
    world.run(2)
    assert ear.told == [100, 101, 102]
    assert ear.of(Gap) == []


def test_positions_that_do_not_follow_are_refused_and_nothing_is_lost():
    world = World()
    ear = world.listen("b")
    world.at("a").offer(SCOPE, ITEM, publisher=X, epoch=7, latest=10)
    world.run(2)
    first = world.write("a", b"11", position=Position(X, 7, 11))
    wrong = [
        Position(X, 7, 11),
        Position(X, 7, 10),
        Position(X, 7, 13),
        Position(X, 6, 12),
        Position(X, 6, 1),
        Position(X, 8, 2),
        Position(publisher_of("a"), 7, 12),
    ]
    for position in wrong:
        with pytest.raises(NotPublished):
            world.write("a", b"wrong", position=position)
    world.write("a", b"12", position=Position(X, 7, 12))
    world.run(2)
    again = world.listen("b", after=Position(X, 7, first.version - 1))
    world.run(2)
    assert ear.contents == again.contents == [b"11", b"12"]


def test_a_higher_epoch_may_begin_with_its_first_version():
    world = World()
    ear = world.listen("b")
    world.at("a").offer(SCOPE, ITEM, publisher=X, epoch=7, latest=0)
    world.run(2)
    before = world.write("a", b"1", position=Position(X, 7, 1))
    world.run(1)
    world.write("a", b"new 1", position=Position(X, 9, 1))
    world.write("a", b"new 2", position=Position(X, 9, 2))
    world.run(2)
    assert ear.told == [1, "reset", 1, 2]
    assert ear.of(Reset)[0].previous == before
    assert ear.of(Reset)[0].epoch == 9


def test_a_new_epoch_is_heard_of_though_the_word_of_it_was_lost():
    world = World()
    ear = world.listen("b")
    world.at("a").offer(SCOPE, ITEM, publisher=X, epoch=7)
    world.run(2)
    world.write("a", b"1", position=Position(X, 7, 1))
    world.run(1)
    subscriber = world.at("b").subscriber
    usual, heard = subscriber.said, []
    subscriber.said = lambda message: heard.append(message) or len(heard) <= 2 or usual(message)
    for version in (1, 2, 3):
        world.write("a", b"new", position=Position(X, 8, version))
    world.run(10)
    assert ear.told == [1, "reset", 1, 2, 3]


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("wait", [0.0, 0.0003, 0.002, 0.01])
def test_a_new_epoch_may_begin_while_much_of_the_old_one_is_still_to_be_sent(durable, wait):
    world = World()
    (ear,) = world.begun("b", durable=durable)
    last = world.write("a", *[b"x" * 9_000] * 150)
    world.run(wait)
    for version in (1, 2):
        world.write("a", b"new", position=Position(last.publisher, last.epoch + 1, version))
    world.run(3)
    assert ear.told[-3:] == ["reset", 1, 2]
    assert ear.contents[-2:] == [b"new", b"new"]
    assert world.sending().complete


def test_a_publication_for_which_there_is_no_room_leaves_the_stream_as_it_was():
    world = World(all_history_bytes=100_000, largest=90_000)
    (ear,) = world.begun("b")
    world.write("a", b"z" * 60_000, rid=OTHER)
    last = world.write("a", *[b"x" * 5_000] * 3)
    world.run(1)
    with pytest.raises(HistoryFull):
        world.write("a", b"x" * 80_000, position=Position(last.publisher, last.epoch + 1, 1))
    with pytest.raises(HistoryFull):
        world.write("a", b"x" * 80_000)
    late = world.listen("b")
    world.run(2)
    assert world.write("a", b"next").version == 4
    world.run(1)
    assert ear.told == [1, 2, 3, 4]
    assert late.told == [3, 4]


def test_a_numbered_stream_that_is_offered_again_with_its_latest_version_repeats_nothing():
    """As a hub does after a restart: it has the number, and the content of the last."""
    world = World()
    ear = world.listen("b")
    for version in (1, 2, 3):
        world.write("a", b"%d" % version, position=Position(X, 7, version))
        world.run(1)
    world.restart("a")
    world.at("a").offer(SCOPE, ITEM, publisher=X, epoch=7, latest=2)
    world.write("a", b"3", position=Position(X, 7, 3))
    world.run(3)
    world.write("a", b"4", position=Position(X, 7, 4))
    late = world.listen("r1")
    world.run(5)
    assert ear.told == [1, 2, 3, 4]
    assert late.told == [4]


def test_a_standby_that_goes_on_with_the_stream_of_another_node_repeats_and_loses_nothing():
    world = World(("a", "b", "c"))
    ear = world.listen("b")
    world.at("a").offer(SCOPE, ITEM, publisher=X, epoch=7)
    world.run(2)
    for version in (1, 2, 3):
        world.write("a", b"%d" % version, position=Position(X, 7, version))
    world.run(1)
    world.at("c").offer(SCOPE, ITEM, publisher=X, epoch=7, latest=3)
    world.run(2)
    world.write("c", b"4", position=Position(X, 7, 4))
    world.run(1)
    left = [True]
    world.lose("hub", "b", lambda packet: bool(left) and left.pop())
    world.write("c", b"5", position=Position(X, 7, 5))
    world.run(2)
    assert ear.told == [1, 2, 3, 4, 5]
    world.world.crash("a")
    world.run(60)
    world.write("c", b"6", position=Position(X, 7, 6))
    world.run(1)
    assert ear.told == [1, 2, 3, 4, 5, 6]


def test_a_node_whose_stream_another_has_taken_over_in_a_higher_epoch_is_not_listened_to():
    world = World(("a", "b", "c"))
    ear = world.listen("b")
    world.at("a").offer(SCOPE, ITEM, publisher=X, epoch=7)
    world.run(2)
    world.write("a", b"1", position=Position(X, 7, 1))
    world.run(1)
    world.at("c").offer(SCOPE, ITEM, publisher=X, epoch=8)
    world.run(2)
    world.write("c", b"new", position=Position(X, 8, 1))
    world.run(1)
    world.write("a", b"stale", position=Position(X, 7, 2))
    world.run(3)
    assert ear.contents == [b"1", b"new"]
    assert ear.told == [1, "reset", 1]
    assert world.at("b").counters["outdated_epoch"] >= 1


def test_an_item_cannot_be_offered_twice():
    world = World()
    world.begun()
    with pytest.raises(ValueError, match="offered already"):
        world.at("a").offer(SCOPE, ITEM)


# Withdrawal


def test_a_withdrawal_waits_until_the_listeners_have_everything():
    world = World()
    (ear,) = world.begun("b")
    dropping = True
    world.lose("hub", "b", lambda packet: dropping)
    world.write("a", *numbered(5))
    codes = []
    world.at("a").withdraw(SCOPE, ITEM, codes.append)
    world.run(1)
    assert codes == []
    dropping = False
    world.until(lambda: codes)
    assert codes == [Code.OK]
    assert ear.told == [1, 2, 3, 4, 5]
    assert (SCOPE, ITEM) not in world.at("a").offers


@pytest.mark.parametrize("durable", [False, True])
def test_a_withdrawal_waits_for_what_was_published_just_before(durable):
    """Of a durable stream that is still being written down."""
    world = World()
    (ear,) = world.begun("b", durable=durable)
    world.write("a", b"1")
    world.run(1)
    kept, codes = [], []
    world.write("a", b"2", done=lambda: kept.append(2))
    world.at("a").withdraw(SCOPE, ITEM, codes.append)
    took = world.until(lambda: codes)
    assert kept == [2]
    assert ear.told == [1, 2]
    assert took < 1


def test_nothing_can_be_published_while_an_item_is_being_withdrawn():
    world = World()
    world.begun("b")
    world.write("a", b"1")
    world.at("a").withdraw(SCOPE, ITEM)
    with pytest.raises(NotPublished, match="withdrawn"):
        world.write("a", b"2")
    codes = []
    world.at("a").withdraw(SCOPE, ITEM, codes.append)
    world.run(0)
    assert codes == [Code.NOT_REGISTERED]


def test_a_withdrawal_with_keep_leaves_a_durable_stream_for_an_offer_to_come():
    world = World()
    (ear,) = world.begun("b", durable=True)
    before = world.write("a", *numbered(3))
    world.run(1)
    world.at("a").withdraw(SCOPE, ITEM, keep=True)
    world.run(3)
    world.at("a").offer(SCOPE, ITEM, durable=True)
    assert world.write("a", b"4") == Position(before.publisher, before.epoch, 4)
    back = world.listen("r1", after=Position(before.publisher, before.epoch, 1))
    world.run(5)
    assert ear.told == [1, 2, 3, 4]
    assert back.told == [2, 3, 4]


def test_a_withdrawal_leaves_nothing_on_the_disk():
    world = World()
    world.begun("b", durable=True)
    storage = world.world.nodes["a"].storage
    world.write("a", *numbered(3))
    world.run(1)
    assert storage.scan(b"publication ")
    world.at("a").withdraw(SCOPE, ITEM)
    world.run(3)
    assert storage.scan(b"publication ") == []


def test_who_lags_when_the_time_of_a_withdrawal_is_up_is_told_a_gap():
    world = World(unfinished_events=1, waiting_bytes=1 << 20, linger=2 * SECOND)
    (ear,) = world.begun("b", listen={"by_hand": True})
    world.write("a", *[b"x" * 50_000] * 40)
    world.run(1)
    codes = []
    world.at("a").withdraw(SCOPE, ITEM, codes.append)
    took = world.until(lambda: codes)
    assert 1.9 < took < 2.5
    for number in range(60):
        if number < len(ear.events):
            ear.subscription.done(ear.events[number])
            world.run(0.3)
    world.run(5)  # it might have been offered anew
    *got, gap = ear.told
    assert got == [*range(1, len(got) + 1)]
    assert gap == ("gap", len(got) + 1, 40)


def test_a_listener_that_raises_at_the_gap_of_a_withdrawal_gets_it_again():
    world = World(linger=SECOND)

    class Moody(Ear):
        def __call__(self, event):
            super().__call__(event)
            if len(self.events) == 1:
                raise RuntimeError("not now")

    world.begun()
    ear = world.listen("b", ear=Moody(world.world))
    world.run(1)
    world.lose("hub", "b", lambda packet: True)
    world.write("a", *numbered(5))
    world.at("a").withdraw(SCOPE, ITEM)
    world.run(10)
    assert ear.told == [("gap", 1, 5), ("gap", 1, 5)]


def test_what_is_published_and_withdrawn_before_it_is_registered_reaches_who_listened_before():
    world = World()
    ear = world.listen("b")
    world.run(2)
    codes = []
    world.write("a", b"1")
    world.at("a").withdraw(SCOPE, ITEM, codes.append)
    world.until(lambda: codes)
    assert ear.contents == [b"1"]
    assert codes == [Code.OK]


def test_a_withdrawal_without_listeners_ends_at_once():
    world = World()
    world.begun()
    world.write("a", b"1")
    codes = []
    world.at("a").withdraw(SCOPE, ITEM, codes.append)
    assert world.until(lambda: codes) < 0.2


def test_a_withdrawal_ends_though_no_rendezvous_can_be_reached():
    world = World()
    world.world.crash("r1")
    world.run(5)
    codes = []
    world.write("a", b"1")
    world.at("a").withdraw(SCOPE, ITEM, codes.append)
    world.run(30)
    assert len(codes) == 1
    assert not world.at("a").offers
    world.world.restart("r1")
    ear = world.listen("b")
    world.run(10)
    world.write("a", b"2")
    world.run(3)
    assert ear.contents == [b"2"]


def test_publishing_and_withdrawing_again_and_again_leaves_nothing_behind():
    world = World()
    ear = world.listen("b")
    for number in range(10):
        world.write("a", b"%d" % number)
        world.run(0.5)
        world.at("a").withdraw(SCOPE, ITEM)
        world.run(2)
    assert ear.contents == [b"%d" % number for number in range(10)]
    assert world.at("a").status()["published"] == 0
    assert world.at("a").status()["history_bytes"] == 0


# Scopes


def test_a_scope_lives_as_long_as_anybody_publishes_in_it():
    world = World(("a", "b", "c", "d"))
    world.write("a", b"made it", rid=OTHER)
    world.run(1)
    world.write("b", b"1")
    ear = world.listen("c")
    world.run(2)
    world.world.crash("a")
    for number in range(2, 12):
        world.run(20)
        world.write("b", b"%d" % number)
    late = world.listen("d")
    world.run(3)
    assert ear.told == [*range(1, 12)]
    assert late.told == [11]


def test_a_scope_whose_maker_withdraws_goes_on_for_the_others():
    world = World(("a", "b", "c"))
    world.write("a", b"made it", rid=OTHER)
    world.run(1)
    world.write("b", b"1")
    ear = world.listen("c")
    world.run(2)
    world.at("a").withdraw(SCOPE, OTHER)
    world.run(10)
    world.write("b", b"2")
    late = world.listen("a")
    world.run(3)
    assert ear.told == [1, 2]
    assert late.told == [2]


def test_many_items_of_a_new_scope_are_registered_soon():
    world = World()
    codes = []
    for number in range(100):
        world.at("a").offer(SCOPE, number.to_bytes(32), codes.append)
    assert world.until(lambda: len(codes) == 100) < 3
    assert set(codes) == {Code.OK}
