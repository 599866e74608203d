"""Quality of service: what is kept, what goes first, what is left alone; and that it is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from identifiers import Position
from mobility import Quota, Sacrifice, Service
from mobility.buffer import Buffer, size_of
from mobility.messages import Item
from tests.mobility.world import PUBLISHER, World


def away(service, topics=("news",), count=10, kinds=("",)):
    """A client that was away while so many were published of each topic."""
    world = World(history=0, topics=topics)
    client = world.add(topics=topics, service=service)
    world.arrive("a")
    client.move_out()
    world.run(200)
    for number in range(count):
        for topic in topics:
            world.publish(1, topic, kinds[number % len(kinds)])
    world.run(50)
    return world


def test_the_oldest_go_first():
    world = away(Service(topic=Quota(4)))
    world.arrive("b")
    assert world.versions() == [(1, 6), 7, 8, 9, 10]
    assert world.events["client"][0].reason == "quota"
    assert world.notices["client"][-1].missing == "quota"


def test_the_newest_go_first():
    world = away(Service(topic=Quota(4), first=Sacrifice.NEWEST))
    world.arrive("b")
    assert world.versions() == [1, 2, 3, 4, (5, 10)], "told although nothing came after it"


def test_the_unimportant_topic_goes_first():
    service = Service(client=Quota(12), first=Sacrifice.TOPIC, unimportant=("chatter",))
    world = away(service, topics=("news", "chatter"))
    world.arrive("b")
    assert world.versions(topic="news") == list(range(1, 11))
    assert world.versions(topic="chatter") == [(1, 8), 9, 10]


def test_a_quota_in_bytes():
    item = size_of(Item("news", None, b"1"))
    world = away(Service(topic=Quota(1_000, 3 * item)), count=9)
    world.arrive("b")
    assert world.versions() == [(1, 6), 7, 8, 9]


def test_drops_are_still_known_after_a_crash():
    world = away(Service(topic=Quota(4), first=Sacrifice.NEWEST))
    world.sim.crash("a")
    world.sim.restart("a")
    world.run(100)
    (handler,) = world.proxy("a").handlers.values()
    assert handler.drops() == {"news": 6}
    world.arrive("b")
    assert world.versions() == [1, 2, 3, 4, (5, 10)]


def test_a_proxy_gives_no_more_than_it_has():
    world = World(history=0, most=Service(topic=Quota(2)))
    client = world.add(service=Service(topic=Quota(50)))
    world.arrive("a")
    client.move_out()
    world.run(200)
    world.publish(5)
    world.run(50)
    world.arrive("b")
    assert world.versions() == [(1, 3), 4, 5]


def test_an_excluded_topic_begins_anew():
    service = Service(exclude=("weather*",))
    world = away(service, topics=("news", "weather/oslo"), count=5)
    world.arrive("b")
    world.publish(1, "weather/oslo")
    world.run(50)
    assert world.versions(topic="news") == [1, 2, 3, 4, 5]
    assert world.versions(topic="weather/oslo") == [6], "and no gap is told"


def test_excluded_kinds_leave_no_gap():
    world = away(Service(exclude_kinds=("presence",)), count=6, kinds=("", "presence"))
    world.arrive("b")
    assert world.versions() == [1, 3, 5]
    world.publish(1, kind="presence")
    world.run(50)
    assert world.versions() == [1, 3, 5, 7], "live, it is a message as any"


def test_limits_of_a_proxy():
    world = World(handlers=1)
    world.add("one", b"1" * 32)
    world.add("two", b"2" * 32)
    world.arrive("a", "one")
    two = world.client("two")
    two.move_in("a")
    world.run(500)
    world.publish(3)
    world.run(50)
    assert world.proxy("a").counters["refused"] > 0
    assert len(world.proxy("a").handlers) == 1
    assert world.versions("two") == [1, 2, 3], "without the service messages still come"
    assert two.debts, "and nothing that may be kept elsewhere is forgotten"


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 200)), max_size=60),
    st.integers(0, 9),
    st.integers(0, 900),
    st.sampled_from(Sacrifice),
)
def test_a_buffer_never_exceeds_its_quotas(messages, most, most_bytes, first):
    service = Service(
        topic=Quota(most, most_bytes),
        client=Quota(2 * most, 2 * most_bytes),
        first=first,
        unimportant=("b",),
    )
    buffer = Buffer(service)
    kept = {}
    for version, (topic, size) in enumerate(messages, 1):
        item = Item(topic, str(Position(PUBLISHER, 1, version)), bytes(size))
        serial, gone = buffer.add(item)
        kept[serial] = item
        for each in gone:
            del kept[each]
        assert buffer.items == kept
        assert buffer.bytes == sum(map(size_of, kept.values())) <= 2 * most_bytes
        assert len(kept) <= 2 * most
        for name in "abc":
            sizes = [size_of(each) for each in kept.values() if each.topic == name]
            assert len(sizes) <= most
            assert sum(sizes) <= most_bytes
    dropped = sum(buffer.dropped(topic) for topic in "abc")
    assert dropped == len(messages) - len(kept)


@pytest.mark.parametrize("first", list(Sacrifice))
def test_a_single_message_beyond_the_quota_is_dropped(first):
    buffer = Buffer(Service(topic=Quota(5, 10), first=first))
    buffer.add(Item("a", None, bytes(100)))
    assert len(buffer) == 0
    assert buffer.dropped("a") == 1
