"""What becomes of matches when servers die, lose their disks, come and go. Virtual time."""

from __future__ import annotations

import pytest

from psirp_sim.wire.rendezvous import Code
from tests.psirp_sim.rendezvous.world import ITEM, OTHER, SCOPE, SERVERS, Fabric

NOTICED = 4.0
"""Seconds in which a dead server is noticed: three hellos, and the time to spread the news."""
RESUMED = 5.0
"""Seconds in which service resumes whatever happens to servers; docs/operations.md states it."""


def matched_fabric(**options):
    fabric = Fabric(**options)
    fabric.offer("a")
    fabric.subscribe("b")
    fabric.until(fabric.matched, 1)
    return fabric


def serves_newcomers(fabric):
    """How long a new match in the same scope takes, from the first request on."""
    begin = fabric.world.now
    published, subscribed = [], []

    def again():
        if not published or published[-1] is not Code.OK:
            published[:] = fabric.publish("c", rid=OTHER)
        if not subscribed or subscribed[-1] is not Code.OK:
            subscribed[:] = fabric.subscribe("b", rid=OTHER)

    again()
    fabric.until(lambda: fabric.matched("c", "b", rid=OTHER), 30)
    return (fabric.world.now - begin) / 1e9


@pytest.mark.parametrize("which", [0, 1])
def test_a_home_dies(which):
    fabric = matched_fabric()
    fabric.publish_scope("c")
    fabric.run(1)
    fabric.world.crash(fabric.homes()[which])
    assert serves_newcomers(fabric) < RESUMED
    fabric.run(20)
    assert fabric.matched()
    left = [server for server in SERVERS if fabric.world.nodes[server].up]
    assert all(fabric.server(server).registrations.count == 6 for server in left)


def test_a_home_loses_its_disk():
    fabric = matched_fabric()
    fabric.publish_scope("c")
    fabric.run(1)
    home = fabric.homes()[0]
    before = fabric.server(home).registrations.count
    fabric.world.crash(home)
    fabric.world.wipe(home)
    fabric.world.restart(home)
    assert serves_newcomers(fabric) < RESUMED
    assert fabric.matched()
    fabric.until(lambda: fabric.server(home).registrations.count == before + 2, RESUMED)


def test_both_homes_die():
    fabric = matched_fabric()
    fabric.publish_scope("c")
    fabric.run(1)
    for home in fabric.homes():
        fabric.world.crash(home)
    fabric.run(NOTICED)
    assert serves_newcomers(fabric) < RESUMED
    fabric.run(20)
    assert fabric.matched()


def test_a_match_is_never_lost_while_servers_come_and_go():
    fabric = matched_fabric()
    unmatched = []
    for _ in range(3):
        for server in SERVERS:
            fabric.world.crash(server)
            for _ in range(20):
                fabric.run(0.3)
                unmatched.append(not fabric.matched())
            fabric.world.restart(server)
            fabric.run(6)
    assert not any(unmatched)


def test_a_listener_that_sees_the_fabric_heal_in_another_order_is_not_lost():
    """After a stall its links come back one by one, and for a moment it knows one server only."""
    fabric = matched_fabric()
    third = next(server for server in SERVERS if server not in fabric.homes())
    registrar = fabric.node("b").rendezvous.registrar
    live = registrar._live
    unmatched = []
    for only_third in (True, False):
        registrar._live = (lambda: {third: live()[third]}) if only_third else live
        registrar.look()
        for _ in range(40):
            fabric.run(0.1)
            unmatched.append(not fabric.matched())
    assert not any(unmatched)
    fabric.run(10)
    assert fabric.server(third).registrations.count == 0
    assert fabric.matched()


def test_all_restart_with_their_disks():
    fabric = matched_fabric()
    for server in SERVERS:
        fabric.world.crash(server)
    fabric.run(10)
    for server in SERVERS:
        fabric.world.restart(server)
    fabric.run(1.5)
    assert all(fabric.server(home).registrations.count == 3 for home in fabric.homes())
    fabric.until(lambda: fabric.server(fabric.homes()[0]).matching.untold == 0, RESUMED)
    assert fabric.matched()


def test_all_lose_everything():
    fabric = matched_fabric()
    for server in SERVERS:
        fabric.world.crash(server)
        fabric.world.wipe(server)
    fabric.run(10)
    for server in SERVERS:
        fabric.world.restart(server)
    fabric.until(
        lambda: all(
            fabric.server(h) and fabric.server(h).registrations.count == 3 for h in fabric.homes()
        ),
        2 * RESUMED,
    )
    fabric.run(10)
    assert fabric.matched()


def test_a_server_is_added():
    fabric = matched_fabric()
    fabric.add("r4", "rendezvous")
    fabric.run(5)
    every = (*SERVERS, "r4")
    scopes = [bytes([number]) * 32 for number in range(20)]
    for sid in scopes:
        fabric.publish_scope("a", sid)
    fabric.run(5)
    for sid in scopes:
        for home in fabric.homes(sid, every):
            assert sid in fabric.server(home).registrations.scopes
    assert fabric.matched()
    assert "r4" in fabric.server("r1").membership.view.members


def test_a_server_is_drained():
    fabric = matched_fabric()
    home, other = fabric.homes()
    fabric.node(home).drain()
    fabric.until(lambda: home not in fabric.server(other).membership.view.members, 10)
    fabric.until(lambda: fabric.server(home).registrations.count == 0, 5)
    assert fabric.matched()
    third = next(server for server in SERVERS if server not in (home, other))
    assert fabric.server(third).registrations.count == 3
    # A drained server stays drained when it is restarted.
    fabric.world.crash(home)
    fabric.world.restart(home)
    fabric.run(20)
    assert "draining" in fabric.node(home).roles
    assert fabric.server(home).registrations.count == 0
    assert fabric.matched()


def test_a_partition_heals():
    fabric = matched_fabric()
    fabric.world.cut("b", "hub")
    fabric.world.cut("hub", "b")
    fabric.run(100)
    assert fabric.listeners("a") == []
    fabric.world.heal("b", "hub")
    fabric.world.heal("hub", "b")
    assert fabric.until(fabric.matched, 30) < 2 * RESUMED


def test_status_shows_what_a_server_holds():
    fabric = matched_fabric()
    status = fabric.node(fabric.homes()[0]).status()["rendezvous"]
    assert status["registrations"] == 3
    assert (status["scopes"], status["items"], status["clients"]) == (1, 1, 2)
    assert status["servers"] == list(SERVERS)
    assert fabric.node("a").status()["rendezvous"] is None
    assert (SCOPE, ITEM) in fabric.client("a").publishing.publications
