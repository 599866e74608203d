"""Topics that come and go while a client moves: an unsubscription ends what is owed, and who
subscribes again begins anew."""

from __future__ import annotations

import pytest

from mobility import Service
from mobility.messages import Alive, encode
from psirp_sim.runtime.durations import MILLISECOND, SECOND
from tests.mobility.world import World

TOPICS = ("news", "other")


def silent_world():
    """Of a stream that is new nobody can say what is before it: neither history nor base."""
    world = World(history=0, topics=TOPICS)
    for topic in world.system.topics.values():
        topic.tells_base = False
    return world


@pytest.mark.parametrize("told", ["at once", "with the move-out", "when it is elsewhere"])
def test_who_subscribes_again_gets_nothing_twice(told):
    """The proxy kept messages for the first subscription that were consumed."""
    world = silent_world()
    client = world.add(alive=10 * SECOND, topics=TOPICS)
    world.arrive("a")
    world.publish(5)
    world.run(50)
    assert world.versions() == [1, 2, 3, 4, 5]
    (handler,) = world.proxy("a").handlers.values()
    assert len(handler.buffer) == 5, "of which the proxy does not know yet"
    if told == "at once":
        client.unsubscribe("news")
        client.subscribe("news")
        world.run(100)
        client.connection_lost()
    elif told == "with the move-out":
        client.unsubscribe("news")
        client.subscribe("news")
        client._attendance._alive_call = client.calls.drop(client._attendance._alive_call)
        client.move_out()
        world.run(200)
        assert client.stage == "detached"
    else:
        client.connection_lost()
        client.unsubscribe("news")
        client.subscribe("news")
    go_on_before_it_is_over(world, "b")
    world.arrive("c")
    world.publish(2)
    world.run(100)
    assert world.versions() == [1, 2, 3, 4, 5, 6, 7]
    assert not world.proxy("a").handlers


def go_on_before_it_is_over(world, place):
    """Be there just until the topic has begun, or goes on."""
    world.client().move_in(place)
    world.run(1)
    while not world.client().flows["news"].ready:
        world.run(1)
    world.client().connection_lost()


@pytest.mark.parametrize("crashes", [False, True])
def test_who_subscribes_again_in_one_stay_gets_nothing_twice(crashes):
    """Its proxy was never told, and keeps what the first subscription consumed."""
    world = silent_world()
    client = world.add(alive=10 * SECOND, topics=TOPICS)
    world.arrive("a")
    world.publish(5)
    world.run(50)
    world.sim.cut("client", "a")
    client.unsubscribe("news")
    client.subscribe("news")
    client._attendance._alive_call = client.calls.drop(client._attendance._alive_call)
    world.sim.heal("client", "a")
    world.run(100)
    if crashes:
        world.sim.crash("client")
        world.sim.restart("client")
        world.run(1)
    world.client().move_in("b")
    world.run(100)
    world.publish(2)
    world.run(3_000)
    assert world.client().stage == "live"
    assert world.versions() == [1, 2, 3, 4, 5, 6, 7]


def test_what_an_earlier_stay_kept_is_not_of_a_later_subscription():
    """The client moves on before anybody is told to forget it, and collects once more."""
    world = silent_world()
    client = world.add(topics=TOPICS)
    world.arrive("a")
    client.move_out()
    world.run(200)
    world.publish(5)
    client.unsubscribe("news")
    client.subscribe("news")
    go_on_before_it_is_over(world, "b")
    world.arrive("c")
    assert world.versions() == []


def test_a_list_of_topics_that_is_late_undoes_nothing():
    world = World(history=0, topics=TOPICS)
    client = world.add(topics=TOPICS)
    world.arrive("a")
    (handler,) = world.proxy("a").handlers.values()
    late = encode(
        Alive(**client.who, call=handler.record.asked, gone={"news": handler.record.asked})
    )
    client.unsubscribe("news")
    client.subscribe("news")
    world.run(500)
    world.proxy("a").receive("client", late)
    client.connection_lost()
    world.publish(3)
    world.arrive("b")
    assert world.versions() == [1, 2, 3]


def test_an_unsubscription_that_is_said_again_ends_nothing():
    """Its answer was lost, so the next sign of life says it, too; the topic is wanted again."""
    world = World(history=0, topics=TOPICS)
    client = world.add(topics=TOPICS)
    world.arrive("a")
    (handler,) = world.proxy("a").handlers.values()
    client.unsubscribe("news")
    client.subscribe("news")
    world.run(500)
    client.connection_lost()
    world.publish(3)
    said = handler.record.asked
    again = Alive(**client.who, call=said + 1, topics={"news": None}, gone={"news": said})
    world.proxy("a").receive("client", encode(again))
    world.arrive("b")
    assert world.versions() == [1, 2, 3]


def test_a_topic_subscribed_to_while_leaving_is_kept():
    world = World(history=0, topics=TOPICS)
    client = world.add(topics=("other",))
    world.arrive("a")
    client.move_out()
    client.subscribe("news")
    world.run(200)
    assert client.stage == "detached"
    world.publish(3)
    world.arrive("b")
    assert world.versions() == [1, 2, 3]


def test_a_topic_is_kept_from_the_next_sign_of_life_on():
    world = World(history=0, topics=TOPICS)
    client = world.add(topics=())
    world.arrive("a")
    client.subscribe("news")
    world.run(100)
    client.connection_lost()
    world.publish(3)
    world.arrive("b")
    assert world.versions() == [1, 2, 3]


def test_who_unsubscribed_is_told_nothing_more():
    world = World(history=0, topics=TOPICS)
    client = world.add(topics=TOPICS)
    world.arrive("a")
    client.move_out()
    world.run(200)
    world.publish(3)
    client.unsubscribe("news")
    world.arrive("b")
    world.publish(3)
    assert world.versions() == []
    assert [*world.client().flows] == ["other"]


def test_an_unsubscription_in_the_midst_of_consuming_lasts():
    world = World(history=0)
    client = world.add()
    world.arrive("a")
    client._consume = lambda event: client.unsubscribe(event.topic) or {}
    world.publish()
    world.run(50)
    world.sim.crash("client")
    world.sim.restart("client")
    world.run(10)
    assert not world.client().flows


def test_a_stay_that_expired_and_is_taken_up_again_has_the_topics_of_today():
    """The client is still there, and does not know that it was taken for vanished."""
    world = World(history=0, topics=TOPICS)
    client = world.add(service=Service(keep=1.0), alive=10 * SECOND, topics=("other",))
    world.arrive("a")
    world.proxy("a").connection_lost(client.id, "client")
    world.run(1_500)
    (handler,) = world.proxy("a").handlers.values()
    assert handler.state == "expired"
    world.system.slowest = SECOND
    client.subscribe("news")
    world.system.slowest = 20 * MILLISECOND
    while not client._attendance.welcomed or handler.state != "here":
        world.run(1)
    assert not client.flows["news"].ready, "the proxy is not told again where it began"
    world.run(1_000)
    client.connection_lost()
    world.publish(3)
    world.arrive("b")
    assert world.versions() == [1, 2, 3]
