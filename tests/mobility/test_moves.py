"""The hard cases: each is one way for a hand-over to go wrong that loses and doubles nothing."""

from __future__ import annotations

import pytest

from mobility import Gap, Message, MovedIn, MovedOut, Quota, Service, Superseded
from mobility.messages import Alive, encode
from psirp_sim.runtime.durations import SECOND
from tests.mobility.world import World
from traces import Stage, check


def moved_out(seed=1, history=1_000_000, slowest=20, **settings):
    """A world, and its client, which has been at a and is nowhere."""
    world = World(seed=seed, history=history, slowest=slowest)
    client = world.add(**settings)
    world.arrive("a")
    client.move_out()
    world.run(200)
    assert client.stage == "detached"
    return world, client


HISTORIES = pytest.mark.parametrize("history", [0, 3, 1_000_000], ids=["none", "short", "long"])


@HISTORIES
def test_a_move_between_two_proxies(history):
    world = World(history=history)
    client = world.add()
    world.arrive("a")
    world.publish(5)
    client.move_out()
    world.run(200)
    assert world.notices["client"][-1] == MovedOut("a")
    world.publish(20)
    client.move_in("b")
    world.publish(20)
    world.run(2_000)
    assert world.versions() == list(range(1, 46))
    assert client.stage == "live"
    assert not world.proxy("a").handlers, "what was collected is not kept"


def test_what_the_history_has_is_not_buffered():
    world, _ = moved_out(history=1_000, service=Service(topic=Quota(1_000)))
    world.publish(50)
    assert world.proxy("a").buffered_bytes == 0
    world.arrive("b")
    assert world.versions() == list(range(1, 51))


@HISTORIES
def test_the_same_proxy_again(history):
    world, _ = moved_out(history=history)
    world.publish(20)
    world.arrive("a")
    assert world.versions() == list(range(1, 21))
    assert world.proxy("a").counters["relayed"] == 0, "no transfer between proxies"
    assert len(world.proxy("a").handlers) == 1


@HISTORIES
@pytest.mark.parametrize("noticed", ["by silence", "by the transport"])
def test_a_client_that_vanishes(history, noticed):
    world = World(history=history)
    client = world.add()
    world.arrive("a")
    world.publish(5)
    world.run(50)
    world.sim.pause("client")  # no FIN, no word
    for name in world.names:
        world.partition("client", name)
    world.publish(3)
    if noticed == "by silence":
        world.run(2_000)
    else:
        world.proxy("a").connection_lost(client.id, "client")
        world.run(100)
    (handler,) = world.proxy("a").handlers.values()
    assert handler.state == "away"
    world.publish(20)
    world.sim.crash("client")
    for name in world.names:
        world.heal("client", name)
    world.sim.restart("client")
    world.arrive("b")
    assert world.versions() == list(range(1, 29))


@HISTORIES
def test_a_move_out_during_a_move_in(history):
    world, client = moved_out(history=history)
    world.publish(20)
    world.partition("a", "b")
    client.move_in("b")
    world.run(100)
    client.move_out()
    world.publish(10)
    world.run(300)
    assert client.stage == "detached"
    world.publish(10)
    world.heal("a", "b")
    world.arrive("c")
    assert world.versions() == list(range(1, 41))
    assert not world.proxy("a").handlers
    assert not world.proxy("b").handlers


@HISTORIES
def test_a_third_proxy_before_the_second_finished(history):
    world, client = moved_out(history=history)
    world.publish(20)
    world.partition("a", "b")
    client.move_in("b")
    world.run(150)
    world.publish(5)
    client.move_in("c")
    world.publish(5)
    world.run(2_000)
    assert world.versions() == list(range(1, 31))
    assert client.stage == "live"


def test_two_move_ins_with_the_same_id():
    world = World(history=0)
    first = world.add("first")
    world.arrive("a", "first")
    second = world.add("second")  # the same secret: a copy of the same client
    second.move_in("b")
    world.run(200)
    assert second.stage == "live", "nobody at b knows of the other"
    second.move_in("a")
    world.run(500)
    assert first.stage == "superseded"
    assert world.notices["first"][-1] == Superseded(2)
    assert second.stage == "live"
    world.publish(3)
    world.run(50)
    assert world.versions("second") == [1, 2, 3]
    assert world.versions("first") == []
    first.move_in("a")  # on purpose: now it is the later one
    world.run(500)
    assert first.stage == "live"
    assert second.stage == "superseded"


def test_nobody_collects_with_another_secret():
    world, client = moved_out(history=0)
    world.publish(5)
    thief = world.add("thief", secret=b"t" * 32)
    thief._debts.claimed = client._debts.claimed  # knows everything but the secret
    thief.move_in("b")
    world.run(1_500)
    assert world.versions("thief") == []
    assert world.proxy("a").handlers, "and cannot have it forgotten"
    world.arrive("b")
    assert world.versions() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("history", [0, 3])
def test_a_proxy_that_crashes_with_buffers(history):
    world, _ = moved_out(history=history)
    world.publish(20)
    world.run(50)
    world.sim.crash("a")
    world.run(500)
    world.sim.restart("a")
    world.run(200)
    world.publish(5)
    world.arrive("b")
    assert world.versions() == list(range(1, 26))


def test_a_proxy_that_was_down_tells_what_it_missed():
    world, _ = moved_out(history=0)
    world.publish(4)
    world.run(50)
    world.sim.crash("a")
    world.publish(3)
    world.sim.restart("a")
    world.run(200)
    world.publish(2)
    world.arrive("b")
    assert world.versions() == [1, 2, 3, 4, (5, 7), 8, 9]


@pytest.mark.parametrize("history", [0, 3])
def test_a_proxy_that_cannot_be_reached_at_move_in(history):
    world, client = moved_out(history=history)
    world.publish(20)
    for other in ("b", "c"):
        world.partition("a", other)
    client.move_in("b")
    world.run(3_000)
    world.publish(5)
    assert world.versions() == [], "in order: what came directly waits"
    for other in ("b", "c"):
        world.heal("a", other)
    world.run(3_000)
    assert world.versions() == list(range(1, 26))


def test_a_proxy_that_is_never_reached_again():
    world, client = moved_out(history=3, patience=2 * SECOND)
    world.publish(20)
    world.sim.crash("a")
    client.move_in("b")
    world.run(6_000)
    assert world.versions() == [(1, 17), 18, 19, 20]
    (gap,) = [event for event in world.events["client"] if isinstance(event, Gap)]
    assert (gap.reason, gap.missed) == ("unreachable", 17)
    assert client.counters["missed"] == 17
    assert world.notices["client"][-1] == MovedIn("b", 0, "unreachable")


def test_an_unreachable_proxy_does_not_matter_where_the_history_has_everything():
    world, client = moved_out()
    world.publish(20)
    world.sim.crash("a")
    client.move_in("b")
    world.run(300)
    assert world.versions() == list(range(1, 21))
    assert client.stage == "live"


def test_a_client_away_past_its_time_to_keep():
    world = World(history=3)
    client = world.add(service=Service(keep=2.0))
    world.arrive("a")
    world.publish(2)
    client.move_out()
    world.run(200)
    world.publish(10)
    world.run(3_000)
    assert world.proxy("a").counters["expired"] == 1
    assert world.proxy("a").buffered_bytes == 0
    world.sim.crash("a")  # the note of what was lost is durable, too
    world.sim.restart("a")
    world.run(50)
    world.arrive("b")
    assert world.versions() == [1, 2, (3, 9), 10, 11, 12]
    assert world.notices["client"][-1].missing == "time to keep"


def test_the_time_to_keep_goes_on_while_a_proxy_is_down():
    world = World(history=0)
    client = world.add(service=Service(keep=5.0))
    world.arrive("c")  # whose clock is an hour ahead of a true one
    client.move_out()
    world.run(200)
    world.publish(2)
    world.sim.crash("c")
    world.run(4_000)
    world.sim.restart("c")
    world.run(100)
    assert world.proxy("c").counters["expired"] == 0
    world.run(2_000)
    assert world.proxy("c").counters["expired"] == 1


def test_a_client_that_crashes_goes_on_where_it_was():
    world = World(history=0)
    world.add()
    world.arrive("a")
    world.publish(5)
    world.run(50)
    world.sim.crash("client")
    world.publish(5)
    world.sim.restart("client")
    world.run(10)
    world.arrive("b")
    assert world.versions() == list(range(1, 11))


def test_what_a_moving_client_publishes_is_sent_once_and_in_order():
    world = World(topics=("news", "mine"))
    client = world.add()
    client.publish("mine", Message(b"1"))
    world.run(100)
    assert not world.system.topics["mine"].streams, "kept: the client is nowhere"
    world.arrive("a")
    for body in (b"2", b"3", b"4"):
        client.publish("mine", Message(body))
    client.move_in("b")  # while they are under way
    client.publish("mine", Message(b"5"))
    world.run(500)
    client.connection_lost()
    client.publish("mine", Message(b"6"))
    world.run(50)
    world.sim.crash("client")
    world.sim.restart("client")
    world.run(10)
    world.arrive("c")
    (stream,) = world.system.topics["mine"].streams.values()
    assert [each.message.body for each in stream] == [b"1", b"2", b"3", b"4", b"5", b"6"]
    assert len(world.client().outgoing) == 0


def test_hand_offs_are_traced():
    world, client = moved_out(history=0)
    world.publish(3)
    world.arrive("b")
    for event in world.trace.events:
        check(event)
    stages = [(event.node, event.stage) for event in world.trace.events]
    assert stages == [
        ("a", Stage.MOVE_IN_BEGIN),
        ("a", Stage.MOVE_IN_END),
        ("a", Stage.MOVE_OUT),
        ("b", Stage.MOVE_IN_BEGIN),
        ("b", Stage.MOVE_IN_END),
    ]
    begin, end = world.trace.events[-2:]
    assert begin.trace_id == end.trace_id
    assert (end.subscriber, end.peer, end.bytes, end.reason) == (client.id, "a", 3, None)


def test_a_sign_of_life_that_is_late_brings_nobody_back():
    world = World(history=3)
    client = world.add()
    world.arrive("a")
    late = encode(Alive(**client.who, call=1))
    client.move_out()
    world.run(200)
    world.proxy("a").receive("client", late)
    world.publish(20)
    world.arrive("b")
    assert world.versions() == list(range(1, 21))


def test_a_client_that_vanishes_before_it_reported_where_it_began():
    world = World(history=4)
    world.publish(2)
    client = world.add(alive=10 * SECOND)
    world.arrive("a")
    world.proxy("a").connection_lost(client.id, "client")
    client.connection_lost()
    world.publish(4)
    world.run(200)
    world.publish(20)
    world.arrive("b")
    assert world.versions() == list(range(3, 27))


def test_what_only_the_new_proxy_heard_is_collected_from_it():
    """The old proxy was down when it was published, the client not subscribed yet."""
    world, client = moved_out(seed=4, history=0, slowest=400)
    world.sim.crash("a")
    client.move_in("b")
    while not client._attendance.welcomed:
        world.run(1)
    early = not client.flows["news"].ready
    world.publish(1)
    world.sim.restart("a")
    world.run(3_000)
    assert early, "the seed of this world lets the proxy be first"
    assert world.versions() == [1]


def slow_topic(history=0):
    """A client has arrived at b, and of its two topics one takes long to be in effect there."""
    world = World(history=history, topics=("news", "slow"), slowest=200)
    client = world.add(topics=("news", "slow"))
    world.arrive("a")
    client.move_out()
    world.run(300)
    world.publish(5)
    world.system.topics["slow"].lag = 20 * SECOND
    client.move_in("b")
    return world, client


@pytest.mark.parametrize("tells_base", [False, True])
def test_what_is_behind_a_gap_does_not_wait_for_other_topics(tells_base):
    world, client = slow_topic()
    for topic in world.system.topics.values():
        topic.tells_base = tells_base
    world.run(15)
    assert world.versions() == [1, 2, 3, 4, 5], "the old proxy had these"
    world.publish()  # only the old proxy is subscribed
    world.run(200)
    assert (6 in world.versions()) == tells_base, "without a base only the next message shows it"
    world.publish()  # this one comes directly
    world.run(150)
    assert world.versions() == [1, 2, 3, 4, 5, 6, 7]
    assert client.stage == "moving in"
    world.run(21_000)
    assert client.stage == "live"


def test_an_old_proxy_is_not_asked_while_nothing_is_known_to_be_missing():
    world, client = slow_topic()
    world.run(300)
    asked = world.proxy("b").counters["relayed"]
    world.run(5_000)
    assert client.stage == "moving in"
    assert world.proxy("b").counters["relayed"] == asked


def test_what_was_consumed_meanwhile_is_not_sent_again():
    world, client = slow_topic()
    for topic in world.system.topics.values():
        topic.tells_base = False  # so that the old proxy is asked before the move is over
    world.run(300)
    world.publish(50, every=100)
    world.run(30_000)
    assert client.stage == "live"
    assert world.versions() == list(range(1, 56))
    assert world.notices["client"][-1] == MovedIn("b", len(b"12345"), "")
