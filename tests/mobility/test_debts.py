"""A stay is a debt until everything that it may have kept was consumed."""

from __future__ import annotations

from mobility import MovedIn, MovedOut
from psirp_sim.runtime.durations import MILLISECOND
from tests.mobility.world import World


def test_who_leaves_before_the_welcome_still_owes_what_it_did_not_consume():
    """It hears a stream for the first time then, and cannot tell whether that is its beginning."""
    world = World(history=0)
    world.system.topics["news"].tells_base = False
    client = world.add()

    def move_in(place, own, of_proxy):
        """Subscriptions take effect so many milliseconds after they are made, at most."""
        world.system.slowest = own * MILLISECOND
        client.move_in(place)
        while client.stage != "moving in":
            world.sim.engine.step()
        world.system.slowest = of_proxy * MILLISECOND

    move_in("a", own=10_000, of_proxy=20)
    world.run(100)
    client.move_out()
    world.run(100)
    assert world.notices["client"] == [MovedOut("a")], "before its own subscription"
    move_in("b", own=20, of_proxy=10_000)
    world.run(100)
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
