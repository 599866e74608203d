"""The merge queue, against every order in which two sources may bring the same stream."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from identifiers import Position, PublisherId
from mobility import Gap, Message, Reset, Update
from mobility.merging import Flow, furthest

ONE, TWO = PublisherId(b"1" * 16), PublisherId(b"2" * 16)


def at(version, publisher=ONE, epoch=1):
    return Position(publisher, epoch, version)


def message(version):
    return Message(b"%d" % version)


@given(
    st.integers(0, 5),
    st.integers(6, 20),
    st.sets(st.integers(1, 25)),
    st.sets(st.integers(1, 25)),
    st.randoms(use_true_random=False),
)
def test_every_version_once_in_order_or_in_a_gap(start, base, buffered, live, random):
    """Whatever the buffer and the live flow bring, and in whatever order they take turns."""
    flow = Flow("news", (at(start),) if start else (), whole=True)
    flow.subscribed((at(base),), replays=False)
    sources = [sorted(buffered), sorted(live)]
    events = []
    while any(sources):
        source = random.choice([each for each in sources if each])
        version = source.pop(0)
        flow.offer(at(version), message(version), direct=source is sources[1])
        events += flow.take()
    assert not any(isinstance(event, Gap) for event in events), "others may have it"
    events += flow.flush("quota")
    upto = max([base, start, *live])
    while upto + 1 in buffered:
        upto += 1
    # What is newer than that comes directly, for certain; nothing of it may be called missing.
    for version in range(upto + 1, 30):
        flow.offer(at(version), message(version), direct=True)
        events += flow.take()
    there = {version for version in buffered | live if version > start} | set(range(upto + 1, 30))
    told = []
    for event in events:
        if isinstance(event, Gap):
            assert event.reason == "quota"
            missing = set(range(event.first, event.last + 1))
            assert not missing & there
            told += sorted(missing)
        else:
            assert event.message == message(event.position.version)
            assert event.position.version in there
            told.append(event.position.version)
    assert told == list(range(start + 1, 30))
    assert flow.held_bytes == 0
    assert not flow.lacking


def test_what_follows_does_not_wait():
    flow = Flow("news", (at(4),))
    flow.subscribed((at(6),), replays=False)
    flow.offer(at(7), message(7), direct=True)
    assert list(flow.take()) == []
    flow.offer(at(5), message(5), direct=False)
    assert [event.position.version for event in flow.take()] == [5]
    assert flow.lacking
    flow.offer(at(6), message(6), direct=False)
    assert [event.position.version for event in flow.take()] == [6, 7]
    assert not flow.lacking


def test_streams_do_not_wait_for_each_other():
    flow = Flow("news", (at(4), at(8, TWO)))
    flow.subscribed((at(6), at(8, TWO)), replays=False)
    flow.offer(at(9, TWO), message(9), direct=True)
    assert [event.position for event in flow.take()] == [at(9, TWO)]


def test_a_replaying_system_has_caught_up_when_it_says_so():
    flow = Flow("news", (at(4),))
    flow.subscribed((at(6),), replays=True)
    assert not flow.caught_up
    flow.offer(at(5), message(5), direct=True)
    assert not flow.caught_up
    flow.offer(at(6), message(6), direct=False)
    assert not flow.caught_up, "that came out of a buffer"
    flow.missing(at(6), at(6))
    assert flow.caught_up


def test_a_higher_epoch_is_a_reset_once_the_old_one_is_done():
    flow = Flow("news", (at(4),))
    flow.subscribed((at(2, epoch=2),), replays=False)
    flow.offer(at(3, epoch=2), message(3), direct=True)
    assert list(flow.take()) == [], "a buffer may have the rest of the old epoch"
    flow.offer(at(5), message(5), direct=False)
    first = list(flow.take())
    rest = list(flow.flush("history"))
    assert first == [Update("news", at(5), message(5))]
    assert rest == [Reset("news", ONE, 2, at(5)), Update("news", at(3, epoch=2), message(3))]


def test_an_excluded_message_gives_way_to_the_real_one():
    flow = Flow("news", (at(4),))
    flow.subscribed((at(6),), replays=False)
    flow.offer(at(6), None, direct=False)
    flow.offer(at(6), message(6), direct=True)
    flow.offer(at(5), None, direct=False)
    assert [event.position.version for event in flow.take()] == [6]


def test_a_stream_nobody_knew_of_begins_where_it_is_first_seen():
    flow = Flow("news", ())
    flow.subscribed(None, replays=False)
    assert flow.lacking, "nobody can say what lies between"
    flow.offer(at(37), message(37), direct=True)
    assert list(flow.take()) == []
    assert [event.position.version for event in flow.flush("history")] == [37]


def test_the_end_of_a_stream_nobody_knew_of_can_be_missing():
    flow = Flow("news", ())
    flow.subscribed(None, replays=False)
    flow.offer(at(37), message(37), direct=False)
    flow.aim(at(38))
    first, gap = flow.flush("quota")
    assert first.position == at(37)
    assert (gap.first, gap.last, gap.reason) == (38, 38, "quota")


@given(st.lists(st.tuples(st.sampled_from([ONE, TWO]), st.integers(1, 9)), max_size=12))
def test_the_furthest_of_each_publisher(pairs):
    positions = [at(version, publisher) for publisher, version in pairs]
    found = {each.publisher: each.version for each in furthest(positions[:6], positions[6:])}
    for publisher in {publisher for publisher, _ in pairs}:
        assert found[publisher] == max(v for p, v in pairs if p == publisher)


def test_a_hole_is_what_the_live_flow_has_passed():
    flow = Flow("topic", (at(4),))
    assert not flow.has_hole
    flow.subscribed((at(8),), replays=True)
    assert not flow.has_hole, "5 to 8 are on their way"
    flow.missing(at(5), at(6))
    assert flow.has_hole, "5 and 6 are not"
    for version in (5, 6):
        flow.offer(at(version), Message(b""), direct=False)
    list(flow.take())
    assert not flow.has_hole
    assert not flow.caught_up
    flow.restart()
    flow.subscribed((at(8),), replays=False)
    assert flow.has_hole, "nobody brings 7 and 8"


def test_a_subscription_that_has_not_begun_has_no_hole():
    flow = Flow("topic")
    flow.offer(at(7), Message(b""), direct=True)
    assert not flow.has_hole
