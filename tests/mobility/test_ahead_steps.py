"""The eight steps of preparation, one after the other; docs/proactive.md numbers them."""

from __future__ import annotations

import pytest

from mobility import Quota, Service
from mobility.ahead import AheadSettings
from psirp_sim.runtime.durations import MILLISECOND, SECOND
from tests.mobility.world import World

SHORT = Service(topic=Quota(100))
HISTORIES = pytest.mark.parametrize("history", [0, 3], ids=["none", "short"])


def prepared_world(history=0, proxies="abc", **ahead):
    quick = {"retry_first": 60 * MILLISECOND, "retry_most": 400 * MILLISECOND, "lapse": 30 * SECOND}
    settings = AheadSettings(on=True, **{**quick, **ahead})
    return World(history=history, proxies=proxies, ahead=settings)


def walked(world, places="ab", name="client"):
    """A client that went that way, so that the proxies know each other."""
    found = world.add(name, secret=name.ljust(32).encode(), service=SHORT)
    for place in places:
        world.arrive(place, name)
    return found


def context(world, name, client="client"):
    return world.proxy(name).ahead.contexts.kept.get(world.client(client).id)


def buffered(world, name):
    return [item.body for item in context(world, name).waiting.buffer.items.values()]


def leave(world, name="client"):
    world.client(name).move_out()
    world.run(200)


def count(world, what):
    return sum(world.proxy(name).ahead.counters[what] for name in world.names)


def test_neighbours_are_learned_at_both_ends_by_a_client_that_moves():
    world = prepared_world()
    world.add()
    world.arrive("a")
    assert not any(world.proxy(name).ahead.neighbours.known for name in world.names)
    world.arrive("b")
    (seen_by_b,) = world.proxy("b").ahead.neighbours.known.values()
    (seen_by_a,) = world.proxy("a").ahead.neighbours.known.values()
    assert (seen_by_b.name, seen_by_b.came, seen_by_b.went) == ("a", 1, 0)
    assert (seen_by_a.name, seen_by_a.came, seen_by_a.went) == ("b", 0, 1)
    assert seen_by_a.neighbours == ("a",), "tables are exchanged"
    assert not world.proxy("c").ahead.neighbours.known


def test_step_1_a_client_that_came_is_known_to_every_neighbour():
    world = prepared_world()
    walked(world, "abca")
    assert set(world.proxy("a").ahead.neighbours.known) == {"b", "c"}
    for name in "bc":
        assert context(world, name).owner == "a"
        assert context(world, name).waiting is None, "passive"
        assert context(world, name).copy.topics == {"news": None}


@HISTORIES
def test_step_2_a_client_that_left_is_buffered_for_from_its_position_on(history):
    world = prepared_world(history)
    walked(world)
    world.publish(2)
    world.run(400)
    leave(world)
    ((position,),) = context(world, "a").copy.topics.values()
    assert position.endswith(".2"), "with what it consumed"
    world.publish(5)
    world.run(50)
    assert buffered(world, "a") == [b"3", b"4", b"5", b"6", b"7"]
    (handler,) = world.proxy("b").handlers.values()
    assert len(handler.buffer) == 5, "the proxy it left buffers, too"


def test_step_2_a_client_that_vanished_is_buffered_for_as_well():
    world = prepared_world()
    client = walked(world)
    client.connection_lost()
    world.run(2_000)
    world.publish(3)
    world.run(50)
    assert buffered(world, "a") == [b"1", b"2", b"3"]


def test_step_3_a_client_that_comes_back_frees_the_buffers_at_neighbours():
    world = prepared_world()
    walked(world)
    leave(world)
    world.publish(5)
    world.run(50)
    world.arrive("b")
    assert context(world, "a").waiting is None
    assert world.proxy("a").ahead.counters["bytes_in_vain"] > 0
    assert not list(world.sim.nodes["a"].storage.scan(b"mobility/ahead/item/"))
    assert world.versions() == [1, 2, 3, 4, 5]


@HISTORIES
def test_step_4_a_neighbour_has_what_the_client_missed_though_its_proxy_is_down(history):
    world = prepared_world(history)
    walked(world)
    leave(world)
    world.publish(20)
    world.run(50)
    world.sim.crash("b")
    world.arrive("a")
    assert world.versions() == list(range(1, 21))
    assert world.proxy("a").ahead.counters["prepared"] == 1


def test_step_4_what_activation_missed_comes_from_the_proxy_before():
    world = prepared_world()
    walked(world)
    world.partition("a", "b")
    leave(world)
    world.publish(5)
    world.heal("a", "b")
    world.run(600)
    world.publish(5)
    world.run(50)
    assert buffered(world, "a") == [b"6", b"7", b"8", b"9", b"10"]
    world.arrive("a")
    assert world.versions() == list(range(1, 11))
    assert count(world, "prepared") == 1


def test_step_4_a_neighbour_of_both_is_deactivated_and_others_forget():
    world = prepared_world(proxies="abcd")
    walked(world, "abcabd", name="other")  # all of a, b and c are neighbours; d is b's
    walked(world, "b")
    leave(world)
    assert all(context(world, name).waiting is not None for name in "acd")
    world.arrive("a")
    assert context(world, "c").owner == "a", "a neighbour of both has another proxy's context"
    assert context(world, "c").waiting is None
    assert world.proxy("b").ahead.counters["deactivated"] == 1
    assert context(world, "d") is None, "one of the proxy before only has none"
    assert context(world, "b").owner == "a"


def test_step_5_without_preparation_the_hand_over_is_as_ever_and_then_prepared():
    world = prepared_world()
    walked(world, "a")
    leave(world)
    world.publish(5)
    world.arrive("c")
    assert world.versions() == [1, 2, 3, 4, 5]
    assert (count(world, "prepared"), count(world, "unprepared")) == (0, 1)
    assert context(world, "a").owner == "c", "then it is propagated"


def test_step_6_a_topic_that_is_unsubscribed_goes_at_neighbours():
    world = World(
        history=0, topics=("news", "talk"), ahead=AheadSettings(on=True, lapse=30 * SECOND)
    )
    client = world.add(topics=("news", "talk"))
    world.arrive("a")
    world.arrive("b")
    assert set(context(world, "a").copy.topics) == {"news", "talk"}
    client.unsubscribe("talk")
    world.run(200)
    assert set(context(world, "a").copy.topics) == {"news"}
    client.unsubscribe("news")
    world.run(200)
    assert context(world, "a") is None


@pytest.mark.parametrize("active", [False, True])
def test_step_7_a_context_survives_a_crash(active):
    world = prepared_world()
    walked(world)
    if active:
        leave(world)
        world.publish(5)
        world.run(50)
    world.sim.crash("a")
    world.run(50)
    world.sim.restart("a")
    world.run(100)
    assert context(world, "a").owner == "b"
    if active:
        world.publish(2)
        world.run(50)
        assert buffered(world, "a") == [b"1", b"2", b"3", b"4", b"5", b"6", b"7"]


def test_step_8_a_client_that_is_gone_too_long_is_forgotten_everywhere():
    world = prepared_world()
    found = world.add(service=Service(keep=2.0, topic=Quota(100)))
    world.arrive("a")
    world.arrive("b")
    found.connection_lost()
    world.run(1_500)
    assert context(world, "a").waiting is not None
    world.run(2_500)
    assert context(world, "a") is None
    assert not world.proxy("b").ahead.preparing.clients


def test_step_8_a_context_lapses_when_its_proxy_is_never_heard_of_again():
    world = prepared_world(lapse=3 * SECOND)
    walked(world)
    leave(world)
    world.publish(3)
    world.sim.crash("b")
    world.run(2_000)
    assert context(world, "a") is not None
    world.run(3_000)
    assert context(world, "a") is None
    assert world.proxy("a").ahead.counters["lapsed"] == 1
    assert not list(world.sim.nodes["a"].storage.scan(b"mobility/ahead/item/"))


def test_a_context_does_not_lapse_while_its_proxy_lives():
    world = prepared_world(lapse=3 * SECOND)
    walked(world)
    leave(world)
    world.run(20_000)
    assert context(world, "a").waiting is not None


def test_where_history_has_everything_subscriptions_are_kept_warm_and_nothing_is_buffered():
    world = prepared_world(history=1_000)
    walked(world)
    leave(world)
    world.publish(5)
    world.run(50)
    warmth = world.proxy("a").ahead.contexts.warmth
    assert len(warmth) == 1
    assert len(context(world, "a").waiting.buffer) == 0
    world.arrive("a")
    assert world.versions() == [1, 2, 3, 4, 5]
    assert len(warmth) == 0, "the client is subscribed itself"


def test_a_topic_is_kept_warm_once_however_many_clients_want_it():
    world = prepared_world(history=1_000)
    for name in ("client", "other"):
        walked(world, name=name)
        leave(world, name)
    warmth = world.proxy("a").ahead.contexts.warmth
    assert [len(context(world, "a", name).waiting.warm) for name in ("client", "other")] == [1, 1]
    assert len(warmth) == 1
    world.arrive("a")
    assert len(warmth) == 1, "the other one may still come"
    world.arrive("a", "other")
    assert len(warmth) == 0


def test_no_more_topics_are_buffered_for_others_than_the_bound():
    """A proxy that runs into its bound loses time only."""
    world = prepared_world(topics=1)
    for name in ("client", "other"):
        walked(world, name=name)
        leave(world, name)
    contexts = world.proxy("a").ahead.contexts
    assert (contexts.topics, contexts.active) == (1, 1)
    assert world.proxy("a").ahead.counters["refusals"] > 0
    world.publish(3)
    for name in ("client", "other"):
        world.arrive("a", name)
        assert world.versions(name) == [1, 2, 3]


@pytest.mark.parametrize("limit", [{"contexts": 1}, {"share": 1}, {"bytes": 300}])
def test_a_proxy_with_too_much_to_do_refuses_and_nobody_notices(limit):
    world = prepared_world(**limit)
    walked(world, "ab", name="first")
    walked(world, "ab")
    assert len(world.proxy("a").ahead.contexts) == 1
    assert world.proxy("a").ahead.counters["refusals"] > 0
    assert world.proxy("b").ahead.counters["contexts_refused"] > 0
    leave(world)
    world.publish(5)
    world.arrive("a")
    assert world.versions() == [1, 2, 3, 4, 5]


def test_under_pressure_buffers_go_and_come_back_with_the_next_departure():
    world = prepared_world()
    walked(world)
    leave(world)
    world.publish(5)
    world.run(50)
    world.proxy("a").ahead.under_pressure(True)
    assert context(world, "a").waiting is None
    world.arrive("a")
    assert world.versions() == [1, 2, 3, 4, 5]
    assert world.proxy("a").ahead.counters["shed"] == 1
    world.proxy("a").ahead.under_pressure(False)
    world.arrive("b")
    leave(world)
    assert context(world, "a").waiting is not None


def test_buffers_stay_within_their_bytes_the_first_one_goes():
    world = prepared_world(bytes=1_000)
    walked(world, "ab", name="first")
    walked(world, "ab")
    leave(world, "first")
    leave(world)
    world.publish(6)
    world.run(50)
    ahead = world.proxy("a").ahead
    assert ahead.contexts.bytes <= 1_000
    assert ahead.counters["shed"] >= 1
    assert context(world, "a", "first").waiting is None


def test_degree_is_bounded_and_the_edge_used_longest_ago_goes():
    world = prepared_world(proxies="abcd", neighbours=2)
    walked(world, "abacad")
    assert list(world.proxy("a").ahead.neighbours.known) == ["c", "d"]
    assert context(world, "b") is None, "who is no neighbour any more keeps nothing"


def test_an_edge_that_nobody_uses_is_forgotten():
    world = prepared_world(age=5 * SECOND, lapse=3 * SECOND)
    walked(world)
    assert context(world, "a") is not None
    world.run(8_000)
    assert not world.proxy("a").ahead.neighbours.known
    assert not world.proxy("b").ahead.neighbours.known
    assert context(world, "a") is None


def test_neighbours_survive_a_crash():
    world = prepared_world()
    walked(world, "abc")
    for name in world.names:
        world.sim.crash(name)
        world.sim.restart(name)
    world.run(100)
    assert list(world.proxy("b").ahead.neighbours.known) == ["a", "c"]
    assert context(world, "b").owner == "c"


def test_off_nothing_is_said_kept_or_left_of_an_earlier_life():
    world = prepared_world()
    walked(world)
    leave(world)
    world.publish(2)
    world.run(50)
    for name in world.names:
        world.sim.crash(name)
    world.proxy_settings = type(world.proxy_settings)()
    for name in world.names:
        world.sim.restart(name)
    world.run(100)
    assert not list(world.sim.nodes["a"].storage.scan(b"mobility/ahead/"))
    world.arrive("a")
    leave(world)
    world.arrive("b")
    assert world.versions() == [1, 2]
    assert count(world, "words_sent") == 0


def test_hand_offs_that_were_prepared_are_traced_so():
    world = prepared_world()
    client = walked(world)
    leave(world)
    world.publish(3)
    world.run(50)
    world.arrive("a")
    events = [each for each in world.trace.events if each.subscriber == client.id]
    begins = [each.peer for each in events if each.stage == "move_in_begin"]
    assert begins == [None, None, "b"], "by which proxy"
    assert events[-1].stage == "move_in_end"
    assert events[-1].peer == "a", "and it waited here"
    assert events[-1].bytes >= 3


@pytest.mark.parametrize("first", ["oldest", "newest"])
def test_what_was_prepared_gives_way_to_what_the_proxy_promised(first):
    world = prepared_world()
    client = world.add(service=Service(topic=Quota(4), first=first))
    world.arrive("a")
    world.arrive("b")
    leave(world)
    world.publish(4)
    world.run(50)
    for name in "bc":
        world.partition("client", name)
    world.sim.crash("b")
    client.move_in("a")
    world.run(30)
    (handler,) = (each for each in world.proxy("a").handlers.values() if each.record.extra)
    world.partition("client", "a")
    client.connection_lost()
    world.proxy("a").connection_lost(client.id, "client")
    world.publish(3)
    world.run(50)
    kept = [item.body for item in handler.buffer.items.values()]
    assert kept[-3:] == [b"5", b"6", b"7"], "what came after the Welcome is all there"
    assert not handler.drops(), "what went was kept by the proxy before, too"


def test_another_copy_of_a_client_does_not_inherit_what_it_has_not_consumed_up_to():
    world = prepared_world(history=3)
    walked(world)
    world.publish(5)
    world.run(400)
    leave(world)
    world.publish(2)
    world.run(50)
    copy = world.add("copy", secret=b"client".ljust(32), service=SHORT)
    copy._debts.exceed(world.client().claim.epoch)
    copy.move_in("a")
    world.run(1_000)
    (handler,) = (each for each in world.proxy("a").handlers.values() if each.claim == copy.claim)
    assert len(handler.buffer) == 0
