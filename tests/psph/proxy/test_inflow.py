"""Topics that are wanted here come out of the fabric, once it is clear where they come from."""

from __future__ import annotations

import pytest

from identifiers import identify
from psirp_sim.runtime.durations import SECOND
from psph.proxy.inflow import UNWANTED, State
from psph.proxy.mapping import Mapping
from psph.proxy.ports import Zone
from psph.proxy.proxy import Proxy
from tests.psph.proxy.world import FEED, OTHER, A, B, World, key_of

ITEM = (identify(FEED).sid.raw, identify(FEED).rid.raw)


def native(world, body, topic=FEED, key=None, node="native", item=ITEM):
    """Publish from a node without a hub."""
    client = world.node(node).client
    if item not in client.offers:
        client.offer(*item, key=key)
    client.publish(*item, body, {"topic": topic, "content-type": "text/plain"})


def test_updates_cross_as_they_are():
    world = World()
    world.told(world.want("a"))
    world.publish("b", b"\0\xff", b"two")
    world.until(lambda: len(world.bodies("a")) == 2)
    assert world.hub("a").updates[FEED] == world.hub("b").updates[FEED]


def test_the_first_update_is_not_lost_and_none_before_comes_late():
    world = World()
    world.publish("b", b"1", b"2", b"3")
    told = world.want("a")
    world.until(lambda: told)
    assert world.bodies("a") == [b"3"], "what was there came before it was ready"
    world.publish("b", b"4")
    world.until(lambda: world.bodies("a") == [b"3", b"4"])


def test_a_zone_without_a_fabric_is_plain():
    world = World()
    world.zones[B] = Zone(False, note="no records")
    assert world.told(world.want("a")) == (State.PLAIN, "no records")
    assert world.proxy("a").brings(identify(FEED)) is None
    assert not world.node("a").node.client.subscriber.subscriptions[2:]  # requests, and members


def test_a_zone_that_loses_its_fabric_and_gets_it_back():
    world = World()
    world.told(world.want("a"))
    world.publish("b", b"1")
    world.until(lambda: world.bodies("a") == [b"1"])
    fabric, world.zones[B] = world.zones[B], Zone(False)
    world.proxy("a").zone_changed(B)
    assert world.told(world.want("a", subscriber="another"))[0] is State.PLAIN
    world.publish("b", b"2")
    world.run(5)
    assert world.bodies("a") == [b"1"]
    world.zones[B] = fabric
    world.proxy("a").zone_changed(B)
    world.until(lambda: world.bodies("a") == [b"1", b"2"])


def test_a_directory_that_never_answers():
    world = World(dns_delay=3_600 * SECOND)
    told = world.want("a")
    world.run(5)
    assert not told
    assert world.proxy("a").inflow.topics[FEED].state is State.LOOKING
    world.leave("a")
    world.until(lambda: told)
    assert told == [(State.REFUSED, UNWANTED)]
    assert not world.proxy("a").inflow.topics


def test_who_is_back_soon_does_not_begin_anew():
    world = World()
    world.told(world.want("a"))
    subscription = world.proxy("a").inflow.topics[FEED].listener.subscription
    world.leave("a")
    world.run(0.3)
    world.want("a")
    world.run(3)
    assert world.proxy("a").inflow.topics[FEED].listener.subscription is subscription


def test_a_reader_who_leaves_before_the_hub_has_answered():
    world = World()
    world.told(world.want("a", OTHER))  # the zone is known
    world.want("a")
    world.proxy("a").inflow._release(world.proxy("a").inflow.topics[FEED])
    world.run(1)
    assert (
        len(world.node("a").node.client.subscriber.subscriptions) == 4
    )  # requests, members, answers, OTHER


def test_asking_to_be_told_before_the_beginning():
    class Impatient(Proxy):
        told = None

        def start(self):
            if self.told is None:
                self.told = []
                self.want(identify(FEED), "reader", None)
                self.when_ready(identify(FEED), lambda *what: self.told.append(what))
                self.when_ready(identify(OTHER), lambda *what: self.told.append(what))
                self.recorded(None)
                self.zone_changed(B)
                assert self.brings(identify(FEED)) is None
                assert self.status() == {"state": "starting"}
            super().start()

    world = World(kind=Impatient)
    world.until(lambda: len(world.proxy("a").told) == 2)
    assert set(world.proxy("a").told) == {(State.READY, ""), (State.REFUSED, UNWANTED)}


def test_what_was_resumed_is_there_before_it_is_ready():
    world = World()
    world.told(world.want("a"))
    world.publish("b", b"1")
    world.until(lambda: world.bodies("a") == [b"1"])
    world.leave("a")
    world.until(lambda: not world.proxy("a").inflow.topics)
    world.publish("b", *(bytes([number]) * 300_000 for number in range(2, 12)))
    told = world.want("a")
    world.until(lambda: told)
    assert len(world.bodies("a")) == 11, "who is confirmed now must not be pushed the past"


def test_a_crash_before_the_first_update_loses_none():
    world = World()
    assert world.told(world.want("a", until=10**19 // 2))[0] is State.READY
    world.world.crash("a")
    world.publish("b", b"1", b"2", b"3")
    world.world.restart("a")
    world.until(lambda: world.bodies("a")[-1:] == [b"3"])
    assert world.bodies("a") == [b"1", b"2", b"3"]


class TestForeigners:
    """Others than hubs publish, too."""

    @pytest.fixture
    def world(self):
        return World(natives=("native",))

    @pytest.mark.parametrize("reader", ["a", "b"])
    def test_native_publications_with_the_key_of_the_zone(self, world, reader):
        world.want(reader)
        native(world, b"native", key=key_of(B))
        world.until(lambda: world.bodies(reader) == [b"native"])
        # It is not ours, so it is not published again.
        world.publish("b", b"ours")
        world.until(lambda: len(world.bodies(reader)) > 1)
        world.run(3)
        assert sorted(world.bodies(reader)) == [b"native", b"ours"]
        assert not world.proxy("b").counters["not_published"]

    @pytest.mark.parametrize("key", [None, key_of(A)])
    def test_a_wrong_key(self, world, key):
        world.told(world.want("a"))
        native(world, b"forged", key=key)
        world.publish("b", b"true")
        world.until(lambda: world.bodies("a"))
        world.run(3)
        assert world.bodies("a") == [b"true"]

    @pytest.mark.parametrize("topic", [OTHER, "", f"http://news.{A}/feed"])
    def test_the_name_of_another_topic(self, world, topic):
        world.told(world.want("a"))
        native(world, b"forged", topic, key=key_of(B))
        counters = world.proxy("a").counters
        world.until(lambda: counters["wrong_topic"] + counters["no_topic"] == 1)
        world.publish("b", b"true")
        world.until(lambda: world.bodies("a") == [b"true"])

    def test_nobody_is_believed_before_the_keys_are_known(self, world):
        for name in ("a", "b"):
            directory = world.node(name).directory
            directory.delay = 3 * SECOND
            directory.forget(B)
            world.want(name)
        native(world, b"forged", key=key_of(A))
        native_topic = identify(OTHER)
        for name in ("a", "b"):
            world.want(name, OTHER)
        native(world, b"true", OTHER, key_of(B), item=(native_topic.sid.raw, native_topic.rid.raw))
        world.until(lambda: world.bodies("a", OTHER) == world.bodies("b", OTHER) == [b"true"])
        world.run(3)
        assert world.bodies("a") == world.bodies("b") == []

    def test_a_key_that_is_being_replaced(self, world):
        both = (*world.zones[B].keys, key_of("new").public_key().public_bytes_raw())
        world.zones[B] = Zone(True, both)
        for name in ("a", "b"):
            world.want(name)
        native(world, b"new key", key=key_of("new"))
        world.until(lambda: world.bodies("a") == world.bodies("b") == [b"new key"])


def test_the_same_topic_may_be_wanted_and_published_here():
    world = World()
    world.told(world.want("b"))
    world.told(world.want("a"))
    world.publish("b", b"1", b"2")
    world.until(lambda: world.bodies("a") == [b"1", b"2"])
    world.leave("a")
    world.until(lambda: not world.proxy("b").origin._wanted)
    world.run(5)
    assert world.bodies("b") == [b"1", b"2"]
    assert list(world.proxy("b").inflow.topics) == [FEED]
    assert isinstance(world.proxy("b").mapping, Mapping)
    assert len(world.proxy("b").mapping.active) == 1
