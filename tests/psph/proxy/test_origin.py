"""Topics of our hosts go into the fabric as the hub has them, whatever was missed on the way."""

from __future__ import annotations

from identifiers import identify
from psirp_sim.publications.events import Gap, Update
from psirp_sim.wire.publications import LARGEST
from psph.proxy.control import Side
from psph.proxy.inflow import State
from tests.psph.proxy.world import FEED, SECRET, A, B, World

ITEM = (identify(FEED).sid.raw, identify(FEED).rid.raw)


def own(world, name="b"):
    return world.proxy(name).origin.topics.get(FEED)


def opened(world, name="b"):
    world.until(lambda: own(world, name) is not None and own(world, name).open)


def test_news_are_offered_for_a_while_though_nobody_asked():
    world = World()
    world.publish("b", b"1")
    opened(world)
    events = []
    world.node("a").node.client.subscribe(*ITEM, events.append)
    world.until(lambda: [each.content for each in events if isinstance(each, Update)] == [b"1"])
    world.until(lambda: own(world) is None, 4)
    world.until(lambda: ITEM not in world.node("b").node.client.offers)
    assert not world.node("b").node.rendezvous.writers.leases


def test_news_while_it_closes_keep_it_open():
    world = World()
    world.publish("b", b"1")
    opened(world)
    world.until(lambda: own(world).closing is not None)
    world.publish("b", b"2")
    world.run(1)
    assert own(world) is not None
    assert own(world).closing is None
    world.until(lambda: own(world) is None, 4)


def test_only_so_many_are_offered():
    world = World()
    object.__setattr__(world.proxy("b").settings, "most_announced", 2)
    for number in range(4):
        world.publish("b", b"x", topic=f"http://news.{B}/{number}")
    world.run(1)
    assert sorted(world.proxy("b").origin.topics) == [f"http://news.{B}/{n}" for n in (2, 3)]


def test_what_is_not_ours_or_stays_at_home_is_not_offered():
    world = World()
    for topic in (SECRET, f"http://news.{A}/feed", f"http://not{B}/feed"):
        world.publish("b", b"x", topic=topic)
    world.run(1)
    assert not world.proxy("b").origin.topics
    assert not world.proxy("b").mapping.active


def test_the_history_of_the_hub_is_published_after_a_restart():
    world = World()
    world.told(world.want("a"))
    world.publish("b", b"1", b"2")
    world.until(lambda: world.bodies("a") == [b"1", b"2"])
    world.world.crash("a")
    bodies = [b"%d" % number for number in range(3, 40)]
    world.publish("b", *bodies[:20])
    world.restart("b")
    world.publish("b", *bodies[20:])
    world.world.restart("a")
    world.until(lambda: world.proxy("a").begun)
    world.want("a")
    world.until(lambda: world.bodies("a") == [b"1", b"2", *bodies])


def test_what_was_recorded_while_cut_off_is_published_afterwards():
    world = World()
    world.told(world.want("a"))
    world.publish("b", b"1")
    world.until(lambda: world.bodies("a") == [b"1"])
    world.world.cut("b", "hub")
    for number in range(20):
        world.publish("b", b"cut %d" % number)
        world.run(1)
    world.world.heal("b", "hub")
    world.until(lambda: world.bodies("a") == [b"1", *(b"cut %d" % n for n in range(20))], 60)


def test_what_the_hub_has_forgotten_is_a_gap():
    world = World({"a": (A,), "b": (B,), "c": (B,)})
    world.until(lambda: world.proxy("b").cluster.members)
    world.world.crash("c")  # which is known, so that a lease is needed
    world.told(world.want("a"))
    world.publish("b", b"1")
    world.until(lambda: world.bodies("a") == [b"1"])
    world.proxy("b").control.want(Side.FABRIC, FEED, "another", None)
    world.world.cut("b", "hub")
    world.run(20)
    world.publish("b", b"2", b"3", b"4", b"5")
    del world.hub("b").updates[FEED][:3]
    world.world.heal("b", "hub")
    world.until(lambda: world.bodies("a") == [b"1", b"4", b"5"], 60)
    assert world.proxy("a").counters["gaps"] == 1
    assert world.proxy("b").counters["history_exceeded"] == 1
    opened(world)


def test_a_stream_that_was_offered_empty_may_begin_anywhere():
    world = World()
    world.told(world.want("a"))
    world.hub("b")._last[FEED] = 50  # what was before is forgotten
    world.publish("b", b"51", b"52")
    world.until(lambda: world.bodies("a")[-1:] == [b"52"])
    opened(world)


def test_what_is_too_large_for_the_fabric_is_passed_over():
    world = World()
    world.told(world.want("a"))
    world.publish("b", b"1")
    world.until(lambda: world.bodies("a") == [b"1"])
    world.publish("b", bytes(LARGEST + 1), b"3", b"4")
    world.until(lambda: world.bodies("a") == [b"1", b"3", b"4"])
    assert world.proxy("b").counters["not_published"] == 1
    world.publish("b", b"5")
    world.until(lambda: world.bodies("a") == [b"1", b"3", b"4", b"5"])


def test_of_two_proxies_of_one_host_one_publishes():
    world = World({"a": (A,), "b": (B,), "c": (B,)})
    told = world.want("a")
    assert world.told(told)[0] is State.READY
    writers = [name for name in ("b", "c") if own(world, name).held]
    assert len(writers) == 1
    (standby,) = {"b", "c"} - set(writers)
    assert world.proxy(standby).origin.offered(FEED) is None
    world.publish(writers[0], b"1")
    world.until(lambda: world.bodies("a") == [b"1"])
    # It dies, and the other takes over.
    world.world.crash(writers[0])
    opened(world, standby)
    world.publish(standby, b"2")
    world.until(lambda: world.bodies("a") == [b"1", b"2"])


def test_a_wish_for_what_we_do_not_serve_any_more_is_nothing():
    world = World()
    proxy = world.proxy("b")
    proxy.control.want(Side.FABRIC, f"http://news.{A}/feed", "proxy", None)
    proxy.control.leave(Side.FABRIC, f"http://news.{A}/feed", "proxy")
    assert not proxy.origin.topics
    assert not proxy.origin._wanted


def test_a_reader_of_the_fabric_hears_of_the_gap():
    world = World()
    world.publish("b", b"1", b"2", b"3")
    opened(world)
    events = []
    first = world.hub("b").updates[FEED][0].position
    world.publish("b", bytes(LARGEST + 1), b"5")
    world.until(lambda: own(world).last is not None and own(world).last.version == 5)
    world.node("a").node.client.subscribe(*ITEM, events.append, after=first)
    world.until(lambda: any(isinstance(each, Update) for each in events))
    assert isinstance(events[0], Gap)
    assert events[0].last == 4
