"""A proxy that knows no other one of its host: it needs no votes, until another one comes."""

from __future__ import annotations

import pytest

from identifiers import identify
from psirp_sim.runtime.durations import SECOND
from psph.proxy.cluster import Standing
from psph.proxy.control import Side
from tests.psph.proxy.world import FEED, B, World

TOPIC = identify(FEED)


def turn(world, name):
    return world.proxy(name).origin.topics[FEED].turn


def keep_open(world, *names):
    """A subscriber on the fabric keeps the topic open."""
    for name in names:
        world.proxy(name).control.want(Side.FABRIC, FEED, "another", None)


def standing(world, name):
    return world.proxy(name).cluster.standing(TOPIC)


def test_it_publishes_before_there_are_votes():
    world = World(votes=False)
    world.told(world.want("a"))
    world.publish("b", b"1")
    world.until(lambda: world.bodies("a") == [b"1"])
    assert world.world.now < 8 * SECOND
    assert not world.server("r1").voting.promises
    assert turn(world, "b").is_alone
    assert world.proxy("b").status()["alone"]


def test_it_waits_until_its_own_announcement_has_come_back():
    world = World(votes=False)
    world.cut("r1")
    world.join("c", ("site-c.test",))
    world.run(5)
    assert world.proxy("c").cluster.standing(identify("http://site-c.test/")) is Standing.PROBING
    world.heal("r1")
    world.zones["site-c.test"] = world.zone("site-c.test")
    world.until(lambda: world.proxy("c").cluster.is_alone)


def test_those_who_stand_by_ask_for_the_lease_however_often_others_say_something():
    world = World({"a": ("site-a.test",), "b": (B,), "c": (B,)})
    world.until(lambda: standing(world, "b") is standing(world, "c") is Standing.SHARED)
    owner = world.proxy("b").cluster.belongs_to(TOPIC)
    other = "c" if owner == "b" else "b"
    world.run(1)
    world.proxy(other).control.want(Side.FABRIC, FEED, "another", None)
    for _ in range(40):  # two seconds, and the standby takes one
        world.run(0.05)
        world.proxy(other)._members_changed()
    assert turn(world, other).lease is not None


def test_it_asks_for_leases_while_it_cannot_know():
    """The keys of its zone are not answered, so it hears no announcement of it."""
    world = World(dns_delay=1_000 * SECOND)
    keep_open(world, "b")
    world.until(lambda: turn(world, "b").held)
    assert standing(world, "b") is Standing.PROBING
    assert not turn(world, "b").is_alone
    assert world.proxy("b").is_ready


def test_a_second_one_joins():
    world = World()
    world.told(world.want("a"))
    world.publish("b", b"1", b"2")
    world.until(lambda: world.bodies("a") == [b"1", b"2"])
    world.join("c", (B,))
    world.until(lambda: standing(world, "b") is standing(world, "c") is Standing.SHARED)
    assert not turn(world, "b").is_alone
    world.publish("b", b"3")
    world.until(lambda: world.bodies("a") == [b"1", b"2", b"3"])
    world.publish("c", b"4")
    world.until(lambda: world.bodies("a") == [b"1", b"2", b"3", b"4"])
    world.run(5)
    assert world.bodies("a") == [b"1", b"2", b"3", b"4"]
    assert (TOPIC.sid.raw + TOPIC.rid.raw) in world.server("r1").voting.promises


def test_the_second_one_asks_for_no_lease_before_the_first_knows_it():
    world = World()
    world.told(world.want("a"))
    cluster = world.proxy("b").cluster
    note, cluster._note = cluster._note, lambda zone, update: []
    world.join("c", (B,))
    world.until(lambda: standing(world, "c") is Standing.SHARED)
    keep_open(world, "c")
    world.publish("c", b"c")
    world.publish("b", b"b")
    world.run(3)
    assert turn(world, "b").is_alone
    assert turn(world, "c").lease is None
    assert world.bodies("a") == [b"b"]
    cluster._note = note
    world.until(lambda: world.bodies("a") == [b"b", b"c"])
    assert not turn(world, "b").is_alone


def test_it_remembers_the_others_when_it_restarts():
    world = World({"a": ("site-a.test",), "b": (B,), "c": (B,)})
    world.until(lambda: standing(world, "b") is Standing.SHARED)
    world.world.crash("c")
    world.restart("b")
    assert standing(world, "b") is Standing.SHARED
    world.run(5)
    assert standing(world, "b") is Standing.SHARED


def test_it_is_alone_again_after_a_restart():
    world = World()
    world.told(world.want("a"))
    world.publish("b", b"1")
    world.until(lambda: world.bodies("a") == [b"1"])
    world.restart("b")
    world.publish("b", b"2")
    world.until(lambda: world.bodies("a") == [b"1", b"2"])
    assert turn(world, "b").is_alone


@pytest.mark.parametrize("before", [1, 60])
def test_two_that_do_not_hear_each_other(before):
    """A reader that one of them promised completeness also gets the versions of the other."""
    world = World()
    keep_open(world, "b")
    world.run(before)
    world.cut("b")
    world.join("c", (B,))
    world.until(lambda: standing(world, "c") is Standing.ALONE)
    world.told(world.want("a"))
    assert standing(world, "b") is Standing.ALONE
    world.publish("b", b"from b")
    world.publish("c", b"from c")
    world.until(lambda: world.bodies("a") == [b"from c"])
    world.heal("b")
    world.until(lambda: world.bodies("a") == [b"from c", b"from b"])
    world.until(lambda: standing(world, "b") is standing(world, "c") is Standing.SHARED)


def test_one_that_does_not_hear_those_with_a_lease():
    """What is written in a turn that began long before a reader came counts for it."""
    world = World({"a": ("site-a.test",), "b": (B,), "c": (B,)})
    keep_open(world, "b", "c")
    world.run(60)
    writer = next(name for name in ("b", "c") if turn(world, name).held)
    world.cut("b", "c")
    world.join("d", (B,))
    world.until(lambda: standing(world, "d") is Standing.ALONE)
    world.told(world.want("a"))
    assert turn(world, writer).held
    world.publish(writer, b"leased")
    assert world.proxy(writer).counters["published"] == 1
    world.heal("b", "c")
    world.until(lambda: world.bodies("a") == [b"leased"])
