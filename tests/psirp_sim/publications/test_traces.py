"""What is written down about publications on their way."""

from __future__ import annotations

import pytest

from psirp_sim.publications.sending import SAMPLE
from psirp_sim.wire.data import SAMPLED
from tests.psirp_sim.publications.world import ITEM, SCOPE, World, numbered, packet_of
from traces import MemorySink, Stage, check, new_trace_id

TRACE = new_trace_id(b"t" * 16)
TOPIC = "http://news.a.test/feed.xml"


@pytest.fixture
def sink():
    return MemorySink()


def of(sink, stage):
    return [event for event in sink.events if event.stage is stage]


def test_an_update_is_published_and_delivered_under_the_trace_id_of_its_metadata(sink):
    world = World(("a", "b", "c"), trace=sink)
    world.begun("b", "c")
    position = world.write("a", b"content", metadata={"trace_id": TRACE, "topic": TOPIC})
    world.run(1)
    (published,) = of(sink, Stage.PUBLISHED)
    delivered = of(sink, Stage.DELIVERED)
    assert [event.node for event in delivered] == ["b", "c"]
    for event in [published, *delivered]:
        check(event)
        assert event.trace_id == TRACE
        assert (event.sid, event.rid, event.topic) == (SCOPE, ITEM, TOPIC)
        assert event.publisher == position.publisher.raw
        assert (event.epoch, event.version) == (position.epoch, position.version)
        assert event.bytes == len(b"content")
        assert event.domain == "d"
    assert published.node == "a"
    assert delivered[0].wall_ns - published.wall_ns == 2_000_000


def test_an_update_without_a_trace_id_gets_one_of_its_own(sink):
    world = World(trace=sink)
    (ear,) = world.begun("b")
    world.write("a", b"1", b"2")
    world.run(1)
    published = [event.trace_id for event in of(sink, Stage.PUBLISHED)]
    assert len({*published}) == 2
    assert [event.trace_id for event in of(sink, Stage.DELIVERED)] == published
    assert [event.metadata["trace_id"] for event in ear.events] == published


def test_every_subscription_is_named_in_what_was_delivered_to_it(sink):
    world = World(trace=sink)
    world.begun()
    world.listen("b", name="reader")
    world.listen("b", durable="kept")
    world.listen("b")
    world.run(1)
    world.write("a", b"1")
    world.run(1)
    assert sorted(event.subscriber for event in of(sink, Stage.DELIVERED)) == [
        "b",
        "kept",
        "reader",
    ]


def test_an_update_is_delivered_once_though_its_packets_come_twice(sink):
    world = World(trace=sink)
    world.begun("b")
    usual = world.node("b").handlers[2]
    world.node("b").handlers[2] = lambda payload: usual(payload) and usual(payload)
    world.write("a", *numbered(10))
    world.run(1)
    assert [event.version for event in of(sink, Stage.DELIVERED)] == [*range(1, 11)]


def test_a_durable_update_is_published_when_it_is_written_down(sink):
    world = World(trace=sink)
    world.begun(durable=True)
    world.write("a", b"1")
    assert of(sink, Stage.PUBLISHED) == []
    world.run(0.01)
    assert len(of(sink, Stage.PUBLISHED)) == 1


def test_an_event_that_a_listener_did_not_take_is_not_delivered(sink):
    world = World(trace=sink)
    world.begun()
    failures = [True]

    def listener(event):
        if failures:
            failures.pop()
            raise RuntimeError("not now")

    world.at("b").subscribe(SCOPE, ITEM, listener)
    world.run(1)
    world.write("a", b"1")
    world.run(0.5)
    assert of(sink, Stage.DELIVERED) == []
    world.run(1)
    assert len(of(sink, Stage.DELIVERED)) == 1


def test_what_is_dropped_says_why_and_which_update_it_was(sink):
    world = World(trace=sink)
    world.at("b").keys_of = lambda sid: (b"k" * 32,)
    world.begun("b")
    world.write("a", b"unsigned", metadata={"trace_id": TRACE, "topic": TOPIC})
    world.run(5)
    dropped = of(sink, Stage.DROPPED)
    assert dropped
    for event in dropped:
        check(event)
        assert (event.trace_id, event.topic, event.reason) == (TRACE, TOPIC, "no_signature")
        assert (event.node, event.bytes) == ("b", len(b"unsigned"))
    assert of(sink, Stage.DELIVERED) == []


def test_one_packet_in_so_many_is_traced_where_it_is_forwarded(sink):
    world = World(("a", "b", "c"), trace=sink)
    ears = world.begun("b", "c")
    sent, named = [], []

    def note(channel, packet):
        made = packet_of(packet)
        if made is not None:
            sent.append(packet)
            if packet[11] == SAMPLED:
                assert made.names == (SCOPE, ITEM)
                named.append(packet)
            else:
                assert made.names is None

    world.world.channels["a", "hub"].observer = note
    world.write("a", *[b"x" * 250_000] * 12)
    world.until(lambda: all(len(ear.events) == 12 for ear in ears))
    forwarded = of(sink, Stage.FORWARDED)
    assert len(sent) > 2_500
    assert len(named) == len(sent) // SAMPLE
    at_hub = [event for event in forwarded if event.node == "hub"]
    assert sorted(event.peer for event in at_hub) == sorted(["b", "c"] * len(named))
    assert sorted({event.bytes for event in at_hub}) == sorted({len(each) for each in named})
    for event in forwarded:
        check(event)
        assert (event.sid, event.rid, event.domain) == (SCOPE, ITEM, "d")


def test_a_publisher_of_lone_versions_is_sampled_too(sink):
    world = World(trace=sink)
    (ear,) = world.begun("b")
    for number in range(1, 2 * SAMPLE + 1):
        world.write("a", b"%d" % number)
        world.run(0.01)
    world.run(1)
    assert len(ear.events) == 2 * SAMPLE
    at_hub = [event for event in of(sink, Stage.FORWARDED) if event.node == "hub"]
    assert len(at_hub) == 2
    assert {event.peer for event in at_hub} == {"b"}


def test_everything_that_is_written_down_keeps_the_contract_of_traces(sink):
    world = World(("a", "b", "c"), trace=sink)
    world.begun("b", "c", durable=True)
    for content in [b"", b"x", b"x" * 400_000]:
        world.write("a", content)
        world.run(1)
    world.restart("a")
    world.write("a", b"anew")
    world.run(10)
    assert {Stage.PUBLISHED, Stage.DELIVERED, Stage.FORWARDED} <= {e.stage for e in sink.events}
    for event in sink.events:
        check(event)
