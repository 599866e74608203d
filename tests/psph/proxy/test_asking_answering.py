"""Proxies ask each other on the channels of zones, and answer for their own hosts only."""

from __future__ import annotations

import pytest

from identifiers import identify, zone_channel
from psirp_sim.publications.publisher import publisher_of
from psirp_sim.runtime.durations import MILLISECOND, SECOND
from psph.proxy.control import Side
from psph.proxy.inflow import State
from psph.proxy.messages import Answer, Answers, Requests, encode
from tests.psph.proxy.world import FEED, OTHER, SECRET, A, B, World

CHANNEL = zone_channel(B)
REPLY = b"r" * 32


def ask(world, node="native", topics=(FEED,), lease=60.0, reply=REPLY, number=1, content=None):
    """Say on the channel of site B what somebody wants, or something else."""
    requests = Requests(reply.hex(), lease, dict.fromkeys(topics, number))
    world.node(node).client.publish(
        CHANNEL.sid.raw, CHANNEL.rid.raw, encode(requests) if content is None else content
    )
    world.run(0.5)


def wanted(world, name="b"):
    return sorted(world.proxy(name).control.topics(Side.FABRIC))


def test_a_request_is_granted_and_released():
    world = World()
    told = world.want("a")
    assert world.told(told) == (State.READY, "")
    assert wanted(world) == [FEED]
    assert world.hub("b").kept == {FEED}
    assert world.proxy("a").brings(identify(FEED)) == f"the fabric brings it: {B}"
    world.leave("a")
    world.until(lambda: not wanted(world))
    world.until(lambda: not world.proxy("b").origin.topics)
    assert world.hub("b").kept == set()
    assert world.proxy("a").brings(identify(FEED)) is None
    # The channel is given up, too.
    world.until(lambda: not world.proxy("a").asking._zones)


def test_what_stays_at_home_is_refused():
    world = World()
    state, reason = world.told(world.want("a", SECRET))
    assert (state, reason) == (State.REFUSED, "this topic stays at home")
    assert world.hub("a").denied == {SECRET: reason}
    assert not world.hub("b").kept
    # Who comes later is refused at once.
    assert world.told(world.want("a", SECRET, "another"))[0] is State.REFUSED


def test_who_comes_back_before_the_other_side_has_noticed():
    world = World()
    world.told(world.want("a"))
    world.told(world.want("a", SECRET))
    inflow = world.proxy("a").inflow
    inflow._release(inflow.topics[SECRET])
    told = []
    inflow.want(SECRET)
    inflow.when_ready(SECRET, lambda *what: told.append(what))
    assert world.told(told)[0] is State.REFUSED


def test_an_answer_to_an_earlier_request_does_not_count():
    """It does not cover what was published since, so that would be pushed to a new subscriber."""
    world = World()
    world.told(world.want("a"))
    world.leave("a")
    world.until(lambda: not world.proxy("b").origin.topics)
    world.publish("b", b"missed")
    told, asking = world.want("a"), world.proxy("a").asking
    assert asking._zones[B].answers, "the earlier answer is still known"
    assert asking.answer(identify(FEED)) is None
    assert world.told(told) == (State.READY, "")
    assert asking.answer(identify(FEED)).version == 1


def test_requests_are_renewed_for_as_long_as_somebody_wants_the_topic():
    world = World()
    world.told(world.want("a"))
    world.run(10)  # three leases
    assert wanted(world) == [FEED]
    world.publish("b", b"late")
    world.until(lambda: world.bodies("a") == [b"late"])


def test_a_proxy_that_is_not_heard_of_is_not_served_for_ever():
    world = World()
    world.told(world.want("a"))
    world.world.crash("a")
    world.run(1)
    assert wanted(world) == [FEED]
    world.until(lambda: not wanted(world), 5)
    world.until(lambda: not world.proxy("b").origin.topics)


def test_the_lease_of_a_dead_proxy_ends_though_we_restarted():
    world = World()
    world.told(world.want("a"))
    world.world.crash("a")
    world.restart("b")
    assert wanted(world) == [FEED], "it is written down"
    world.until(lambda: not wanted(world), 6)


def test_a_proxy_that_comes_later_is_told_what_is_wanted():
    world = World()
    world.world.crash("b")
    told = world.want("a")
    world.run(5)
    assert not told
    world.world.restart("b")
    assert world.told(told) == (State.READY, "")


def test_three_proxies_of_a_zone_answer_for_their_own_hosts():
    hosts = {f"b{number}": (f"{name}.{B}",) for number, name in enumerate(("news", "blog", "shop"))}
    world = World({"a": (A,), **hosts})
    told = {name: world.want("a", f"http://{host}/feed") for name, (host,) in hosts.items()}
    for name, (host,) in hosts.items():
        assert world.told(told[name]) == (State.READY, "")
        assert wanted(world, name) == [f"http://{host}/feed"]


def test_proxies_of_one_zone_ask_each_other():
    world = World({"b0": (f"news.{B}",), "b1": (f"blog.{B}",)})
    assert world.told(world.want("b1")) == (State.READY, "")
    assert wanted(world, "b0") == [FEED]
    assert wanted(world, "b1") == []


def test_its_own_topics_are_not_asked_for():
    world = World()
    assert world.told(world.want("b")) == (State.READY, "")
    world.run(1)
    assert wanted(world) == []
    assert world.proxy("b").brings(identify(FEED)) is None


def test_there_is_a_limit_to_what_is_asked_for():
    world = World()
    told = [world.want("a", f"http://news.{B}/{number}") for number in range(5)]
    world.until(lambda: sum(map(bool, told)) == 3)
    world.run(1)
    assert sum(map(bool, told)) == 3
    # Those that are asked for stay as they are, whatever is looked at again.
    world.proxy("a").zone_changed(B)
    states = [each.state for each in world.proxy("a").inflow.topics.values()]
    assert states.count(State.READY) == 3


def test_wishes_without_a_pause_do_not_put_off_the_request():
    world = World()
    begin = world.world.now
    for number in range(1_000):
        world.want("a", f"http://news.{B}/feed", f"reader {number}")
        world.leave("a", f"http://news.{B}/feed", f"reader {number}")
        world.proxy("a").asking.add(identify(OTHER))
        world.proxy("a").asking.remove(identify(OTHER))
        world.world.run_for(MILLISECOND)
        if wanted(world):
            break
    assert world.world.now - begin < SECOND


class TestStrangers:
    """Whoever has the fabric's key can say anything on a channel."""

    @pytest.fixture
    def world(self):
        return World(natives=("native", "second"))

    def test_other_hosts_and_nonsense_are_left_alone(self, world):
        ask(world, topics=[FEED, f"http://news.{A}/feed", "nonsense", "", f"http://{B}.evil.test/"])
        assert wanted(world) == [FEED]

    @pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b"[" * 10_000, b"null"])
    def test_malformed_requests_are_counted(self, world, content):
        ask(world, content=content)
        assert world.proxy("b").counters["malformed_requests"] == 1
        assert world.told(world.want("a")) == (State.READY, "")

    def test_one_proxy_may_not_ask_for_everything(self, world):
        for topic in (f"http://news.{B}/%d", f"xmpp:somebody%d@{B}"):
            ask(world, topics=[topic % number for number in range(50)])
            assert wanted(world) == [topic % number for number in range(3)]

    def test_many_proxies_may_not_either(self, world):
        object.__setattr__(world.proxy("b").settings, "most_proxies", 1)
        ask(world)
        ask(world, "second", [OTHER])
        assert wanted(world) == [FEED]
        assert world.proxy("b").counters["proxies_left_out"] == 1
        # When one is gone there is room for another.
        ask(world, topics=[])
        ask(world, "second", [OTHER])
        assert wanted(world) == [OTHER]

    def test_all_together_have_a_limit(self, world):
        object.__setattr__(world.proxy("b").settings, "most_wanted", 1)
        ask(world)
        ask(world, "second", [FEED, OTHER])
        assert wanted(world) == [FEED]

    def test_a_short_lease_is_short(self, world):
        ask(world, lease=0.000_000_001)
        world.run(2)
        assert wanted(world) == []
        assert not world.proxy("b").answering._askers

    def test_an_answer_that_says_nothing_is_none(self, world):
        object.__setattr__(world.proxy("b").settings, "hosts", ("elsewhere.test",))
        told = world.want("a")
        world.run(0.5)
        (asked,) = world.proxy("a").asking._zones.values()
        for answer in (Answer(1), Answer(1, "ab" * 16, refused="both"), Answer(1, refused="no")):
            content = encode(Answers({FEED: answer}))
            world.node("native").client.publish(asked.channel.sid.raw, asked.reply, content)
            world.run(1)
        assert told == [(State.REFUSED, "no")]
        assert asked.answers == {publisher_of("native"): {FEED: Answer(1, refused="no")}}

    def test_the_latest_of_two_publishers_is_believed(self, world):
        object.__setattr__(world.proxy("b").settings, "hosts", ("elsewhere.test",))
        world.want("a")
        world.run(0.5)
        (asked,) = world.proxy("a").asking._zones.values()
        for node, publisher in (("native", "ab" * 16), ("second", "cd" * 16)):
            content = encode(Answers({FEED: Answer(1, publisher)}))
            world.node(node).client.publish(asked.channel.sid.raw, asked.reply, content)
            world.run(1)
        assert world.proxy("a").asking.answer(identify(FEED)) == Answer(1, "cd" * 16)


def test_topics_without_a_channel_cannot_be_asked_for():
    world = World()
    asking = world.proxy("a").asking
    assert not asking.add(identify("http://10.0.0.1/feed"))
    assert not asking.add(identify("http://intranet/feed"))
    assert not asking._zones
    # Nobody says that they have a fabric, so they are plain.
    assert world.told(world.want("a", "http://10.0.0.1/feed"))[0] is State.PLAIN
