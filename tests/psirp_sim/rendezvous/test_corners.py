"""What once went wrong, or would: late answers, callbacks that act, floods, wild numbers."""

from __future__ import annotations

import pytest

from psirp_sim.runtime.durations import MILLISECOND, SECOND
from psirp_sim.runtime.simulator import Constant, LinkProfile, Uniform
from psirp_sim.wire.rendezvous import (
    Code,
    LeaseAsk,
    Refresh,
    Register,
    Registration,
    Side,
    Subscribed,
    View,
    ViewIs,
)
from tests.psirp_sim.rendezvous.world import ITEM, OTHER, SCOPE, SERVERS, Fabric


def number(count):
    return count.to_bytes(32)


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_late_refusal_does_not_undo_what_was_taken(seed):
    fabric = Fabric(servers=("r1", "r2"), seed=seed, rate=20, burst=20, lease=30 * SECOND)
    jitter = LinkProfile(delay=Uniform(5 * MILLISECOND, 250 * MILLISECOND))
    calm = LinkProfile(delay=Constant(MILLISECOND))
    for ends in (("b", "hub"), ("hub", "b")):
        fabric.world.reshape(*ends, jitter)
    for count in range(1, 41):
        fabric.subscribe("b", rid=number(count))
    fabric.run(30)
    for ends in (("b", "hub"), ("hub", "b")):
        fabric.world.reshape(*ends, calm)
    fabric.run(60)
    for server in ("r1", "r2"):
        held = fabric.server(server).registrations.clients["b"].entries
        assert len(held) == len(fabric.client("b").registrar.wants) == 40


def test_subscribing_again_as_soon_as_the_withdrawal_has_ended():
    fabric = Fabric(servers=("r1",))
    fabric.offer("a")
    assert fabric.done(fabric.subscribe("b")) is Code.OK
    again = []
    fabric.client("b").unsubscribe(SCOPE, ITEM, lambda code: again.append(fabric.subscribe("b")))
    fabric.run(1)
    assert again == [[Code.OK]]
    assert (Side.SUBSCRIBER, SCOPE, ITEM) in fabric.client("b").registrar.wants
    assert fabric.matched()


def test_retrying_everything_when_one_request_times_out():
    fabric = Fabric()
    for server in SERVERS:
        fabric.world.pause(server)
    second = []

    def retry(code):
        for server in SERVERS:
            fabric.world.resume(server)
        second.extend(fabric.subscribe("b", rid=rid) for rid in (ITEM, OTHER))

    client = fabric.client("b")
    client.subscribe(SCOPE, ITEM, retry, changed=lambda source: None)
    client.subscribe(SCOPE, OTHER, lambda code: None, changed=lambda source: None)
    fabric.run(12)
    assert second == [[Code.OK], [Code.OK]]


def test_whoever_is_told_of_an_end_may_unsubscribe():
    fabric = Fabric(lease=6 * SECOND)
    for publisher in "ac":
        fabric.offer(publisher)
    heard = []

    def changed(source):
        if source.ended and not heard:
            heard.append(source)
            fabric.client("b").unsubscribe(SCOPE, b"", lambda code: None)

    fabric.client("b").subscribe(SCOPE, b"", lambda code: None, changed=changed)
    fabric.until(lambda: fabric.matched("a") and fabric.matched("c"), 2)
    for publisher in "ac":
        fabric.world.crash(publisher)
    fabric.run(60)
    assert heard
    fabric.world.restart("a")
    fabric.run(5)
    fabric.offer("a")
    fabric.subscribe("b")
    fabric.until(fabric.matched, 5)


def test_a_lost_farewell_is_said_again():
    fabric = Fabric(lease=6 * SECOND)
    fabric.offer("a")
    fabric.subscribe("b")
    fabric.until(fabric.matched, 1)
    fabric.world.cut("a", "hub")
    fabric.client("a").unpublish(SCOPE, ITEM, lambda code: None)
    fabric.run(0.5)
    fabric.world.heal("a", "hub")
    fabric.until(lambda: not fabric.client("b").subscribing.sources, 20)


def test_what_was_said_of_an_earlier_registration_does_not_count():
    fabric = Fabric(servers=("r1",))
    fabric.offer("a")
    fabric.subscribe("b")
    fabric.until(fabric.matched, 1)
    publication = fabric.client("a").publishing.publications[SCOPE, ITEM]
    old = publication.said["r1"].match
    fabric.client("a").unpublish(SCOPE, ITEM, lambda code: None)
    fabric.client("b").unsubscribe(SCOPE, ITEM, lambda code: None)
    fabric.run(1)
    fabric.publish("a")
    fabric.run(1)
    server = fabric.server("r1")
    server.matching._send_batch(server.registrations.clients["a"], [old])
    fabric.run(5)
    assert fabric.listeners("a") == []


def test_a_server_whose_life_is_renumbered_tells_everybody_again():
    fabric = Fabric(servers=("r1",))
    fabric.offer("a")
    fabric.subscribe("b")
    fabric.until(fabric.matched, 1)
    node = fabric.node("r1")
    node._outlived(node.boot + 5)
    node._links_changed()
    fabric.run(90)
    assert fabric.listeners("a") == ["b"]


def test_invented_clients_and_entries_leave_nothing_behind():
    fabric = Fabric(most_clients=50, most_per_client=10)
    server = fabric.server("r1")
    for count in range(200):
        server.receive(Refresh("r1", f"x{count}", 1, [], 0, bytes(8)))
    assert len(server.registrations.clients) <= 50
    entries = [Registration(n, Side.PUBLISHER, SCOPE, number(n)) for n in range(1, 60)]
    gone = [Registration(n, Side.PUBLISHER, SCOPE, number(n), False) for n in range(60, 120)]
    server.receive(Refresh("r1", "x0", 1, [], 5, bytes(8)))
    for batch in (entries, gone):
        server.receive(Register("r1", "x0", 1, [], batch))
    client = server.registrations.clients["x0"]
    assert not client.repeated
    assert len(client.withdrawn) <= 10


def test_numbers_at_the_end_of_their_range_poison_nothing():
    fabric = Fabric()
    fabric.run(15)
    server = fabric.server("r1")
    view = server.membership.view
    server.receive(LeaseAsk("r1", "a", fabric.node("a").boot, [], 1, view, SCOPE, ITEM, 2**63 - 1))
    for sender in ("a", "r2"):
        server.receive(ViewIs("r1", sender, View(2**62, ())))
    server.receive(ViewIs("r1", "a", View(2**62, ("a",))))
    fabric.run(1)
    assert server.membership.view == view
    lease = fabric.client("b").writers.acquire(SCOPE, ITEM, lambda lease: None)
    fabric.until(lambda: lease.held, 30)


def test_a_publisher_that_has_published_nothing_yet_says_so():
    fabric = Fabric()
    fabric.offer("a")
    fabric.subscribe("b")
    fabric.until(fabric.matched, 1)
    listener = fabric.client("a").publishing.publications[SCOPE, ITEM].listeners["b"]
    fabric.client("b").receive(
        Subscribed("a", fabric.node("a").boot, 99, SCOPE, ITEM, (bytes(16), 1, 0), (listener,))
    )
    (source,) = fabric.client("b").subscribing.sources.values()
    assert source.base.version == 0


def test_the_only_server_is_not_drained():
    fabric = Fabric(servers=("r1",))
    with pytest.raises(ValueError, match="only rendezvous server"):
        fabric.node("r1").drain()
