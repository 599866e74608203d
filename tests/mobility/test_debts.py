"""A stay is a debt until everything that it may have kept was consumed.

Of a system that can say nothing of a stream (neither history nor base), what a client heard itself
is never lost in silence.
"""

from __future__ import annotations

import pytest

from mobility import MovedIn, MovedOut
from psirp_sim.runtime.durations import MILLISECOND
from tests.mobility.world import World

NEVER = 100_000
"""Milliseconds until a subscription is in effect that is not to be, in these tests."""


class SilentWorld(World):
    """Neither history nor base."""

    def __init__(self, topics=("news",)):
        super().__init__(history=0, topics=topics)
        for topic in topics:
            self.system.topics[topic].tells_base = False

    def move_in(self, place, own, of_proxy):
        """Subscriptions take effect so many milliseconds after they are made, at most."""
        client = self.client()
        self.system.slowest = own * MILLISECOND
        client.move_in(place)
        while client.stage != "moving in":
            self.sim.engine.step()
        self.system.slowest = of_proxy * MILLISECOND
        self.run(100)

    def restart(self, *places):
        """From now on subscriptions take effect soon, and theirs are made again."""
        self.system.slowest = 20 * MILLISECOND
        for place in places:
            self.sim.crash(place)
            self.sim.restart(place)


def test_who_leaves_before_the_welcome_still_owes_what_it_did_not_consume():
    world = SilentWorld()
    client = world.add()
    world.move_in("a", own=NEVER, of_proxy=20)
    client.move_out()
    world.run(100)
    assert world.notices["client"] == [MovedOut("a")], "before its own subscription"
    world.move_in("b", own=20, of_proxy=10_000)
    assert client.stage == "live"
    client.move_out()
    world.publish()
    world.run(100)
    assert world.notices["client"][-1] == MovedIn("b", 0, ""), "b has not taken over yet"
    world.run(10_000)
    assert world.notices["client"][-1] == MovedOut("b")
    world.publish()
    world.system.slowest = 20 * MILLISECOND
    world.arrive("c")
    assert world.versions() == [1, 2]
    assert not world.proxy("a").handlers


@pytest.mark.parametrize("goes", ["move_out", "connection_lost"])
def test_what_is_heard_where_a_subscription_began_is_its_beginning(goes):
    """The first proxy has not taken over, and another topic keeps the client from being live."""
    world = SilentWorld(topics=("news", "slow"))
    client = world.add(topics=())
    client.subscribe("slow")
    world.move_in("a", own=NEVER, of_proxy=NEVER)
    world.system.slowest = 20 * MILLISECOND
    client.subscribe("news")
    world.run(100)
    assert client.stage == "moving in"
    if goes == "move_out":
        client.move_out()
    world.publish()
    world.run(100)
    client.connection_lost()
    world.restart("a")
    world.arrive("b")
    world.publish()
    world.run(100)
    assert world.versions() == [1, 2]


def test_who_is_live_consumes_while_it_leaves():
    world = SilentWorld()
    client = world.add()
    world.move_in("a", own=20, of_proxy=20)
    world.move_in("b", own=20, of_proxy=NEVER)
    world.run(31_000)
    assert client.stage == "live", "its patience with b is over"
    client.move_out()
    world.publish()
    world.run(100)
    assert world.versions() == [1], "it heard of the stream for the first time"


def test_what_was_heard_is_noted_although_a_buffer_had_something_earlier():
    """That is known already when the client hears for itself, and was not written then."""
    world = SilentWorld()
    client = world.add()
    world.move_in("a", own=20, of_proxy=20)
    client.connection_lost()
    world.publish()
    world.run(100)
    world.move_in("b", own=20, of_proxy=NEVER)
    assert client.flows["news"].heard, "the buffer of a had it"
    world.publish()
    world.run(100)
    assert client.stage == "moving in"
    world.sim.crash("client")
    world.sim.restart("client")
    world.run(10)
    (flow,) = world.client().flows.values()
    assert [each.version for each in flow.heard.values()] == [1]


@pytest.mark.parametrize("crashes", [False, True])
def test_what_was_heard_and_could_not_be_placed_is_told_as_missing(crashes):
    """No proxy had taken over, and the first might have had something earlier."""
    world = SilentWorld()
    client = world.add()
    world.move_in("a", own=20, of_proxy=NEVER)
    world.move_in("b", own=20, of_proxy=NEVER)
    assert client.stage == "moving in"
    world.publish()
    world.run(100)
    assert world.versions() == [], "that of a may come before it"
    if crashes:
        world.sim.crash("client")
        world.sim.restart("client")
        world.run(10)
    world.client().connection_lost()
    world.publish(2)
    world.restart("a", "b")
    world.arrive("c")
    world.publish()
    world.run(100)
    assert world.versions() == [(1, 1), (2, 3), 4]
