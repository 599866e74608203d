"""Publishers and subscribers that find each other, and what they are told when they cannot."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from psirp_sim.runtime.durations import SECOND
from psirp_sim.runtime.simulator import Independent
from psirp_sim.wire.rendezvous import Access, Code, Open, Side
from tests.psirp_sim.rendezvous.world import BASE, ITEM, OTHER, SCOPE, SERVERS, Fabric

# Matching


def test_a_subscriber_finds_a_publisher():
    fabric = Fabric()
    fabric.offer("a")
    assert fabric.done(fabric.subscribe("b")) is Code.OK
    fabric.until(fabric.matched, 1)
    (source,) = fabric.client("b").subscribing.sources.values()
    assert (source.publisher, source.base, source.epoch) == ("a", BASE, fabric.node("a").boot)
    assert source.filters


def test_who_subscribes_first_waits():
    fabric = Fabric()
    assert fabric.done(fabric.subscribe("b")) is Code.OK
    fabric.run(2)
    fabric.offer("a")
    fabric.until(fabric.matched, 1)


def test_start_and_stop_are_told_to_the_publisher():
    fabric = Fabric()
    events = []
    assert fabric.done(fabric.publish_scope("a")) is Code.OK
    codes = []
    fabric.client("a").publish(
        SCOPE,
        ITEM,
        codes.append,
        base=lambda: None,
        changed=lambda p: events.append((sorted(p.listeners), bool(p.filters))),
    )
    fabric.run(1)
    assert events == []
    fabric.subscribe("b")
    fabric.run(1)
    assert events[-1] == (["b"], True)
    fabric.subscribe("c")
    fabric.run(1)
    assert events[-1] == (["b", "c"], True)
    for name in "bc":
        fabric.client(name).unsubscribe(SCOPE, ITEM, codes.append)
    fabric.run(1)
    assert events[-1] == ([], False)
    assert codes == [Code.OK] * 3


def test_a_scope_is_subscribed_to_as_a_whole():
    fabric = Fabric()
    fabric.offer("a")
    fabric.subscribe("b", rid=b"")
    fabric.until(fabric.matched, 1)
    fabric.offer("c", rid=OTHER)
    fabric.until(lambda: fabric.matched("c", rid=OTHER), 1)
    codes = []
    fabric.client("b").unsubscribe(SCOPE, b"", codes.append)
    fabric.until(lambda: not fabric.listeners("a") and not fabric.listeners("c", rid=OTHER), 1)
    assert not fabric.client("b").subscribing.sources


def test_subscribers_learn_that_a_publisher_has_ended():
    fabric = Fabric()
    fabric.offer("a")
    heard = []
    fabric.client("b").subscribe(
        SCOPE, ITEM, lambda code: None, changed=lambda source: heard.append(source.ended)
    )
    fabric.until(fabric.matched, 1)
    fabric.client("a").unpublish(SCOPE, ITEM, lambda code: None)
    fabric.run(1)
    assert heard == [False, True]
    assert not fabric.client("b").subscribing.sources


def test_publisher_and_subscriber_on_one_node():
    fabric = Fabric()
    fabric.offer("a")
    fabric.subscribe("a")
    fabric.until(lambda: fabric.listeners("a") == ["a"], 1)
    fabric.run(0.1)
    (source,) = fabric.client("a").subscribing.sources.values()
    assert source.known
    assert not fabric.client("a").publishing.publications[SCOPE, ITEM].announcements


def test_several_publishers_of_an_item():
    fabric = Fabric()
    fabric.offer("a")
    fabric.offer("c")
    fabric.subscribe("b")
    fabric.until(lambda: fabric.matched("a") and fabric.matched("c"), 1)


def test_base_is_what_the_publisher_had_when_it_learned_of_the_subscriber():
    fabric = Fabric()
    assert fabric.done(fabric.publish_scope("a")) is Code.OK
    bases = [None, BASE]
    assert fabric.done(fabric.publish("a", base=lambda: bases[0])) is Code.OK
    fabric.subscribe("b")
    fabric.until(fabric.matched, 1)
    bases.pop(0)
    fabric.subscribe("c")
    fabric.until(lambda: fabric.matched(subscriber="c"), 1)
    assert [next(iter(fabric.client(n).subscribing.sources.values())).base for n in "bc"] == [
        None,
        BASE,
    ]


def test_each_registration_is_kept_by_two_servers():
    fabric = Fabric()
    fabric.offer("a")
    fabric.run(1)
    holding = [name for name in SERVERS if fabric.server(name).registrations.count == 2]
    assert sorted(holding) == sorted(fabric.homes())


# Answers


def test_no_such_scope():
    fabric = Fabric()
    fabric.run(5)
    assert fabric.done(fabric.publish("a")) is Code.NO_SUCH_SCOPE
    assert not fabric.client("a").publishing.publications


def test_a_scope_that_exists_with_other_rules():
    fabric = Fabric()
    assert fabric.done(fabric.publish_scope("a")) is Code.OK
    assert fabric.done(fabric.publish_scope("b")) is Code.OK
    other = fabric.publish_scope("c", access=Access(Open.FABRIC, Open.ANYONE))
    assert fabric.done(other) is Code.EXISTS
    # Whoever is alone in it may change the rules.
    codes = []
    fabric.client("a").unpublish_scope(SCOPE, codes.append)
    assert fabric.done(codes) is Code.OK
    assert fabric.done(fabric.publish_scope("b", access=Access(subscribe=Open.ANYONE))) is Code.OK


def test_two_that_make_a_scope_at_once_with_different_rules_do_not_both_succeed():
    fabric = Fabric()
    one = fabric.publish_scope("a")
    two = fabric.publish_scope("b", access=Access(subscribe=Open.ANYONE))
    fabric.run(6)
    assert sorted(one + two) in ([Code.OK, Code.EXISTS], [Code.EXISTS, Code.EXISTS])


def test_guests_are_let_in_where_anyone_is():
    fabric = Fabric()
    assert (
        fabric.done(fabric.publish_scope("a", access=Access(Open.FABRIC, Open.ANYONE))) is Code.OK
    )
    assert fabric.done(fabric.publish("b", guest=True)) is Code.NOT_ALLOWED
    assert fabric.done(fabric.subscribe("b", guest=True)) is Code.OK
    assert fabric.done(fabric.publish_scope("a", OTHER)) is Code.OK
    assert fabric.done(fabric.subscribe("b", OTHER, guest=True)) is Code.NOT_ALLOWED


def test_named_keys():
    fabric = Fabric()
    writer, stranger = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    access = Access((writer.public_key().public_bytes_raw(),), Open.FABRIC)
    assert fabric.done(fabric.publish_scope("a", access=access)) is Code.NOT_ALLOWED
    assert fabric.done(fabric.publish_scope("a", access=access, key=writer)) is Code.OK
    assert fabric.done(fabric.publish("b")) is Code.NOT_ALLOWED
    assert fabric.done(fabric.publish("b", key=stranger)) is Code.NOT_ALLOWED
    assert fabric.done(fabric.publish("b", key=writer)) is Code.OK
    fabric.subscribe("c")
    fabric.until(lambda: fabric.matched("b", "c"), 1)


def test_who_waited_is_told_when_the_scope_turns_out_to_be_closed():
    fabric = Fabric()
    refused = []
    assert fabric.done(fabric.subscribe("b", guest=True, refused=refused.append)) is Code.OK
    fabric.offer("a")
    fabric.run(1)
    assert refused == [Code.NOT_ALLOWED]
    assert not fabric.client("b").subscribing.subscriptions
    assert fabric.listeners("a") == []


def test_no_path():
    fabric = Fabric(servers=(), members=("r1",))
    assert fabric.done(fabric.subscribe("a")) is Code.NO_PATH
    assert not fabric.client("a").subscribing.subscriptions


def test_time_out():
    fabric = Fabric()
    for server in SERVERS:
        fabric.world.pause(server)
    codes = fabric.subscribe("a")
    assert fabric.until(lambda: codes) == pytest.approx(5, abs=0.5)
    assert codes == [Code.TIMED_OUT] or codes == [Code.NO_PATH]


def test_unsubscribing_from_what_one_is_not_subscribed_to():
    fabric = Fabric()
    codes = []
    fabric.client("a").unsubscribe(SCOPE, ITEM, codes.append)
    fabric.client("a").unpublish(SCOPE, ITEM, codes.append)
    fabric.client("a").unpublish_scope(SCOPE, codes.append)
    fabric.run(0.1)
    assert codes == [Code.NOT_REGISTERED] * 3


def test_a_flood_is_refused_with_an_error():
    fabric = Fabric(most_per_client=50)
    codes = [fabric.subscribe("a", rid=number.to_bytes(32)) for number in range(80)]
    fabric.run(6)
    ended = [code for (code,) in codes]
    assert ended.count(Code.OK) == 50
    assert ended.count(Code.TOO_MANY) == 30


def test_more_than_a_server_takes_at_once_is_taken_later():
    fabric = Fabric(rate=20, burst=20)
    codes = [fabric.subscribe("a", rid=number.to_bytes(32)) for number in range(60)]
    fabric.run(6)
    assert [code for (code,) in codes].count(Code.OK) == 60
    assert any(fabric.server(name).counters["overloaded"] for name in SERVERS)


def test_a_server_that_is_full_says_so():
    fabric = Fabric(most_registrations=10)
    codes = [fabric.subscribe("a", rid=number.to_bytes(32)) for number in range(12)]
    fabric.run(6)
    assert [code for (code,) in codes].count(Code.OVERLOADED) == 2


def test_requests_get_through_a_lossy_network_once():
    fabric = Fabric(loss=Independent(0.2), seed=5)
    fabric.run(10)
    fabric.offer("a")
    assert fabric.done(fabric.subscribe("b")) is Code.OK
    fabric.until(fabric.matched, 60)
    fabric.until(
        lambda: all(fabric.server(home).registrations.count == 3 for home in fabric.homes()), 60
    )


def test_a_belated_copy_does_not_bring_back_what_was_withdrawn():
    fabric = Fabric()
    fabric.offer("a")
    fabric.subscribe("b")
    fabric.until(fabric.matched, 1)
    entry = fabric.client("b").registrar.wants[Side.SUBSCRIBER, SCOPE, ITEM].entry
    fabric.client("b").unsubscribe(SCOPE, ITEM, lambda code: None)
    fabric.run(1)
    server = fabric.server(fabric.homes()[0])
    client = server.registrations.clients["b"]
    assert server.registrations.take(client, entry, {}) is Code.OK
    fabric.run(1)
    assert fabric.listeners("a") == []


# Leases


def test_a_client_that_vanishes_is_forgotten():
    fabric = Fabric()
    fabric.offer("a")
    fabric.subscribe("b")
    fabric.until(fabric.matched, 1)
    fabric.world.crash("b")
    took = fabric.until(lambda: not fabric.listeners("a"), 100)
    lease = fabric.settings.rendezvous.lease / SECOND
    assert lease * 2 / 3 <= took <= lease * 7 / 6 + 1


def test_a_client_that_stays_is_not():
    fabric = Fabric()
    fabric.offer("a")
    fabric.subscribe("b")
    fabric.run(300)
    assert fabric.matched()
    written = fabric.world.nodes[fabric.homes()[0]].storage
    before = sum(1 for _ in written.scan(b"rendezvous "))
    assert before == 3


def test_a_client_that_restarts_replaces_its_earlier_life():
    fabric = Fabric()
    fabric.offer("a")
    fabric.subscribe("b")
    fabric.until(fabric.matched, 1)
    fabric.world.crash("b")
    fabric.world.restart("b")
    fabric.run(5)
    fabric.subscribe("b", rid=OTHER)
    fabric.run(1)
    assert fabric.listeners("a") == []
    fabric.subscribe("b")
    fabric.until(fabric.matched, 1)


# Summaries


def test_a_client_can_tell_that_nobody_wants_a_topic():
    fabric = Fabric()
    told = []
    client = fabric.client("a")
    client.summaries_changed = lambda: told.append(True)
    client.summaries.watch()
    assert client.summaries.may_be_wanted(SCOPE, ITEM)  # nothing is known yet
    fabric.run(10)
    assert not client.summaries.may_be_wanted(SCOPE, ITEM)
    told.clear()
    fabric.subscribe("b")
    fabric.until(lambda: client.summaries.may_be_wanted(SCOPE, ITEM), 3)
    assert told
    assert not client.summaries.may_be_wanted(SCOPE, OTHER)
    fabric.subscribe("c", rid=b"")
    fabric.until(lambda: client.summaries.may_be_wanted(SCOPE, OTHER), 3)
