"""Two proxies for the same host: who writes what, and what becomes of the rest."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest

from identifiers import Position, identify, members_item_id, scope_id
from psirp_sim.publications.publisher import publisher_of
from psirp_sim.runtime.durations import SECOND
from psph.proxy.cluster import Cluster, Member
from psph.proxy.inflow import ELSEWHERE
from psph.proxy.messages import MalformedMessage, Membership, read_membership
from psph.proxy.settings import ProxySettings
from tests.psph.proxy.world import FEED, OTHER, A, B, World, environment

PAIR = {"a": (A,), "b": (B,), "c": (B,)}


@pytest.fixture
def world():
    world = World(PAIR, sites=(FEED, OTHER))
    world.until(lambda: world.proxy("b").cluster.members and world.proxy("c").cluster.members)
    return world


def roles(world, topic=FEED):
    """Who writes a topic, and who stands by."""

    def settled():
        owns = {name: world.proxy(name).origin.topics.get(topic) for name in ("b", "c")}
        open_ = [name for name, own in owns.items() if own is not None and own.open]
        stands = [name for name, own in owns.items() if own is not None and own.turn.elsewhere]
        return (open_[0], stands[0]) if open_ and stands else None

    world.until(lambda: settled() is not None)
    return settled()


def test_they_find_each_other_and_agree(world):
    for topic in map(identify, (FEED, OTHER, f"http://{B}/third")):
        first, second = (world.proxy(name).cluster.belongs_to(topic) for name in ("b", "c"))
        assert first == second


def test_who_is_not_heard_of_is_forgotten_and_remembered(world):
    world.world.crash("c")
    world.until(lambda: not world.proxy("b").cluster.members)
    assert world.proxy("b").cluster.belongs_to(identify(FEED)) == "b"
    assert world.proxy("b").cluster.has_others(f"news.{B}")
    assert not world.proxy("b").cluster.has_others(f"news.{A}")


def test_the_topic_is_written_where_it_belongs(world):
    world.told(world.want("a"))
    writer, _ = roles(world)
    assert writer == world.proxy("b").cluster.belongs_to(identify(FEED))


def test_content_sent_to_the_one_that_stands_by_crosses_too(world):
    world.told(world.want("a"))
    writer, standby = roles(world)
    world.publish(writer, b"1")
    world.until(lambda: world.bodies("a") == [b"1"])
    world.hub(standby).publish(FEED, b"2", direct=True)
    world.until(lambda: world.bodies("a") == [b"1", b"2"])
    assert roles(world) == (standby, writer)
    world.hub(writer).publish(FEED, b"3", direct=True)
    world.until(lambda: world.bodies("a") == [b"1", b"2", b"3"])


def test_who_stands_by_has_what_the_other_wrote(world):
    world.told(world.want("a"))
    writer, standby = roles(world)
    world.publish(writer, b"1", b"2")
    world.until(lambda: world.bodies(standby) == [b"1", b"2"])
    positions = [each.position for each in world.hub(standby).updates[FEED]]
    assert positions == [each.position for each in world.hub(writer).updates[FEED]]
    assert world.proxy(standby).brings(identify(FEED)) == ELSEWHERE
    assert world.proxy(writer).brings(identify(FEED)) is None


def test_a_ping_at_the_one_that_stands_by_is_passed_on(world):
    world.told(world.want("a"))
    writer, standby = roles(world)
    world.sites[0].content = b"news"
    done = []
    hub = world.hub(standby)
    hub.brings, hub.pass_on = world.proxy(standby).brings, world.proxy(standby).pinged
    hub.ping(identify(FEED), lambda: done.append(True))
    world.until(lambda: world.bodies("a") == [b"news"])
    assert done
    assert world.hub(writer).updates[FEED][0].position.publisher == world.hub(writer).publisher


def test_what_is_fetched_while_the_writer_is_not_known_crosses(world):
    """Although a version that the writer published before comes after the fetch."""
    world.told(world.want("a"))
    writer, standby = roles(world)
    world.publish(writer, b"1")
    world.until(lambda: world.bodies("a") == world.bodies(standby) == [b"1"])
    world.run(2)  # the standby pinged the writer once it knew it
    world.sites[0].content = b"news"
    hub, proxy = world.hub(standby), world.proxy(standby)
    hub.brings = proxy.brings

    def recorded(update):
        proxy.recorded(update)
        if update.body == b"news":
            proxy.recorded(hub.updates[FEED][0])

    hub.listener = recorded
    proxy.origin.topics[FEED].turn.lease.holder = ""  # as after votes that were split
    hub.ping(identify(FEED), lambda: None)
    world.until(lambda: world.bodies("a") == [b"1", b"news"])


def test_a_turn_that_was_over_before_anybody_heard_of_it_is_not_lost(world):
    world.told(world.want("a"))
    writer, standby = roles(world)
    world.publish(writer, b"1")
    world.until(lambda: world.bodies("a") == [b"1"])
    world.world.cut("a", "hub")
    for number in range(2, 5):
        world.hub(standby).publish(FEED, b"%d" % number, direct=True)
    world.until(lambda: roles(world) == (standby, writer))
    world.hub(writer).publish(FEED, b"5", direct=True)
    world.until(lambda: roles(world) == (writer, standby))
    world.world.heal("a", "hub")
    world.until(lambda: sorted(world.bodies("a")) == [b"1", b"2", b"3", b"4", b"5"])
    of_standby = [body for body in world.bodies("a") if body in (b"2", b"3", b"4")]
    assert of_standby == [b"2", b"3", b"4"]


@pytest.mark.parametrize("heard", [0, 1, 2, 3])
def test_another_one_takes_over_within_a_lease(world, heard):
    """However long ago the one that died was heard of: the topic is not given back to it."""
    world.told(world.want("a"))
    writer, standby = roles(world)
    hub = world.hub(standby)
    hub.brings, hub.pass_on = world.proxy(standby).brings, world.proxy(standby).pinged
    world.publish(writer, b"1")
    world.until(lambda: world.bodies("a") == [b"1"])
    world.run(heard)
    world.world.crash(writer)
    world.sites[0].content = b"news"
    hub.ping(identify(FEED), lambda: None)
    lease = world.settings.rendezvous.writer_lease / SECOND
    assert world.until(lambda: world.bodies("a") == [b"1", b"news"]) < lease + 0.5


def test_who_comes_later_is_not_told_what_was_before(world):
    first = world.told(world.want("b", FEED))
    assert first is not None
    world.publish("b", b"1", b"2")
    world.run(1)
    world.hub("c").publish(FEED, b"3", direct=True)
    world.until(lambda: world.bodies("b") == [b"1", b"2", b"3"])
    world.told(world.want("a"))
    assert world.bodies("a") == [b"3"]
    world.publish("b", b"4")
    world.until(lambda: world.bodies("a") == [b"3", b"4"])


def test_versions_can_be_recalled_from_who_published_them(world):
    world.told(world.want("a"))
    writer, _ = roles(world)
    world.publish(writer, b"1", b"2", b"3", b"4")
    world.until(lambda: len(world.bodies("a")) == 4)
    positions = [each.position for each in world.hub(writer).updates[FEED]]
    found = []
    ask = world.proxy("a").recall
    ask(identify(FEED), positions[0], positions[3], found.append)
    ask(identify(FEED), positions[0], positions[3], found.append)
    assert len(world.proxy("a").recalling.under_way) == 1
    ask(identify(FEED), positions[1], None, found.append)
    world.until(lambda: len(found) == 3)
    assert [[each.body for each in each_found] for each_found in sorted(found, key=str)] == [
        [b"2", b"3"], [b"2", b"3"], [b"3", b"4"],
    ]  # fmt: skip
    assert not world.proxy("a").recalling.under_way


def test_nothing_is_recalled_of_who_is_not_there(world):
    world.told(world.want("a"))
    nobody = world.hub("a").publisher
    found = []
    world.publish("b", b"1")
    world.until(lambda: bool(world.bodies("a")))
    world.proxy("a").recall(identify(FEED), Position(nobody, 1, 1), None, found.append)
    world.until(lambda: found == [[]])


def cluster(settings, members):
    """One that knows these members."""
    _, env = environment()
    client = SimpleNamespace()
    made = Cluster(
        env, settings, client, Counter(), publisher_of("n"), changed=lambda: None,
        pinged=lambda topic, done: None,
    )  # fmt: skip
    for name, priority, weight in members:
        said = Membership(name, "0" * 32, [B], 10.0, priority, weight)
        made.members[name] = Member(said, env.call_later(SECOND, lambda: None), env.now())
    return made


def shares(made):
    topics = [identify(f"http://{B}/{number}") for number in range(2_000)]
    return Counter(made.belongs_to(topic) for topic in topics)


def test_topics_are_shared_by_weight():
    found = shares(cluster(ProxySettings((B,), weight=1), [("x", 0, 1), ("y", 0, 2)]))
    assert 400 < found["n"] < 600
    assert 400 < found["x"] < 600
    assert 900 < found["y"] < 1_100


def test_who_has_a_higher_priority_number_gets_none_while_others_are_there():
    assert shares(cluster(ProxySettings((B,), priority=1), [("x", 0, 1)])) == {"x": 2_000}
    assert shares(cluster(ProxySettings((B,), weight=0), [("x", 0, 1)])) == {"x": 2_000}
    assert shares(cluster(ProxySettings((B,), weight=0), [])) == {"n": 2_000}


def test_only_the_topics_of_who_left_move():
    settings = ProxySettings((B,))
    three, two = cluster(settings, [("x", 0, 1), ("y", 0, 1)]), cluster(settings, [("x", 0, 1)])
    for number in range(500):
        topic = identify(f"http://{B}/{number}")
        if three.belongs_to(topic) != "y":
            assert two.belongs_to(topic) == three.belongs_to(topic)


def test_more_news_and_pings_than_a_message_has_room_for(world):
    """Pings are said once: those that have no room come with the next message."""
    proxy = world.proxy("b")
    heard = []
    world.proxy("c").cluster._pinged = lambda topic, done: (heard.append(topic), done())
    topics = [identify(f"http://news.{B}/{number}/{'x' * 1_900}") for number in range(1_200)]
    for topic in topics:
        proxy.cluster.ping(topic)
        proxy.cluster.claim(topic)
    world.until(lambda: len(heard) == len(topics))
    assert heard == [each.canonical for each in topics]
    assert 0 < len(world.proxy("c").cluster.members["b"].said.news) < len(topics)
    assert not world.proxy("c").counters["malformed_memberships"]


def test_what_is_no_membership_is_counted(world):
    node = world.node("a").node
    item = (scope_id(B).raw, members_item_id(scope_id(B)).raw)
    node.client.offer(*item)
    node.client.publish(*item, b"{}", {})
    world.run(2)
    # It has no key of the zone: nobody hears of it.
    assert not world.proxy("b").counters["malformed_memberships"]
    own = world.node("c").node.client
    own.publish(*item, b"{}", {})
    world.until(lambda: world.proxy("b").counters["malformed_memberships"] == 1)


@pytest.mark.parametrize(
    "text",
    [
        b"", b"[]", b'{"node": ""}',
        b'{"node": "n", "publisher": "zz", "hosts": [], "lease": 1}',
        b'{"node": "n", "publisher": "' + b"0" * 32 + b'", "hosts": [], "lease": 0}',
    ],
)  # fmt: skip
def test_memberships_are_checked(text):
    with pytest.raises(MalformedMessage):
        read_membership(text)
