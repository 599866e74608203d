"""The stand-ins for pub/sub systems: connections, routing, and what was fitted of them."""

from __future__ import annotations

import pytest

from experiments.mobility_table3 import PAPER, slope
from experiments.roaming.lines import HEADER_BYTES, Channel, Line
from experiments.roaming.parameters import measure
from experiments.roaming.routers import Publish, Router, Subscriber, subscription
from experiments.roaming.scene import Case, play
from experiments.roaming.systems import ELVIN, REPLAYING, SIENA, System
from psirp_sim.runtime.durations import MILLISECOND, SECOND
from psirp_sim.runtime.simulator import PRESETS, Simulator

ROUND_TRIP = 450 * MILLISECOND


class End:
    """A core: one end of a line."""

    def __init__(self, env):
        self.env = env
        self.got = []
        self.line = None

    def start(self):
        (link,) = self.env.links
        self.line = Line(self.env, link, lambda channel, message: self.note(channel, message))

    def note(self, channel, message):
        self.got.append((self.env.now() - self.began, channel, message))

    def receive(self, link, packet):
        self.line.receive(packet)

    def stop(self):
        pass


@pytest.fixture
def gprs():
    """Two ends of a GPRS link; the first is the mobile one."""
    world = Simulator(1)
    for name in ("mobile", "fixed"):
        world.add_node(name, End)
    world.add_link("mobile", "fixed", PRESETS["gprs"])
    world.run_for(0)
    ends = [world.nodes[name].core for name in ("mobile", "fixed")]
    for end in ends:
        end.began = end.env.now()
    return world, *ends


def test_a_long_message_comes_whole_and_takes_what_its_bytes_take(gprs):
    world, mobile, fixed = gprs
    message = bytes(range(250)) * 200
    mobile.line.send(Channel.MOBILITY, message)
    world.run_for(60 * SECOND)
    ((at, channel, got),) = fixed.got
    assert (channel, got) == (Channel.MOBILITY, message)
    bits = 8 * (len(message) + 35 * HEADER_BYTES)
    assert at >= ROUND_TRIP + 225 * MILLISECOND + bits * SECOND // 26_800


def test_a_kept_connection_is_opened_once_and_serves_both_ways(gprs):
    world, mobile, fixed = gprs
    received = []
    mobile.line.send(
        Channel.PUBSUB, b"one", lambda: received.append(mobile.env.now() - mobile.began)
    )
    world.run_for(5 * SECOND)
    assert fixed.got[0][0] > ROUND_TRIP + 225 * MILLISECOND
    assert received[0] > 2 * ROUND_TRIP
    fixed.began = mobile.began = mobile.env.now()
    mobile.line.send(Channel.PUBSUB, b"two")
    fixed.began = fixed.env.now()
    fixed.line.send(Channel.PUBSUB, b"three")
    world.run_for(5 * SECOND)
    assert fixed.got[1][0] < ROUND_TRIP
    assert mobile.got[0][0] < ROUND_TRIP


def test_a_message_alone_costs_a_connection_each_time(gprs):
    world, mobile, fixed = gprs
    for _ in range(2):
        fixed.got.clear()
        fixed.began = fixed.env.now()
        mobile.line.send_alone(Channel.PUBSUB, b"one")
        # Both ends number their own connections: neither is taken for the other's.
        fixed.line.send_alone(Channel.PUBSUB, b"another")
        world.run_for(5 * SECOND)
        assert [message for _, _, message in fixed.got] == [b"one"]
        assert fixed.got[0][0] > ROUND_TRIP + 225 * MILLISECOND
    assert [message for _, _, message in mobile.got] == [b"another", b"another"]


def test_a_subscription_has_the_size_that_was_fitted():
    for size in (31, 60):
        assert len(subscription("news/99", size)) in (size, size + 1)


class Site:
    """A core: a node of a system."""

    def __init__(self, env, system):
        self.env = env
        self.lines = {}
        above = None if env.node == "middle" else "middle"
        below = ("old", "new") if above is None else ()
        self.router = Router(env, system, self.line, below, above)
        self.heard = []
        self.subscriber = Subscriber(self.heard.append)
        self.router.add(self.subscriber)

    def line(self, name):
        if name not in self.lines:
            self.lines[name] = Line(
                self.env, name, lambda channel, message: self.router.receive(name, message)
            )
        return self.lines[name]

    def start(self):
        pass

    def receive(self, link, packet):
        self.line(link).receive(packet)

    def stop(self):
        pass


def sites(system: System):
    world = Simulator(1)
    for name in ("middle", "old", "new"):
        world.add_node(name, lambda env: Site(env, system))
    for name in ("old", "new"):
        world.add_link(name, "middle", PRESETS["lan"])
    world.run_for(0)
    return world, *(world.nodes[name].core for name in ("middle", "old", "new"))


def test_siena_routes_by_subscription_and_only_once_it_has_taken_in_all_of_them():
    world, middle, old, new = sites(SIENA)
    publication = Publish("news", None, b"")
    for number in range(4):
        new.router.subscribe(new.subscriber, f"news/{number}")
    world.run_for(3 * SIENA.accept + SIENA.install)
    middle.router.publish(publication)
    world.run_for(MILLISECOND)
    assert new.heard == []
    world.run_for(SIENA.accept)
    middle.router.publish(publication)
    world.run_for(MILLISECOND)
    assert new.heard == [publication]
    assert old.heard == []
    for number in range(4):
        new.router.unsubscribe(new.subscriber, f"news/{number}")
    # What it takes to install comes first; then the routes go.
    world.run_for(5 * SIENA.install)
    sent = world.channels["middle", "new"].counters.sent
    middle.router.publish(publication)
    world.run_for(MILLISECOND)
    assert world.channels["middle", "new"].counters.sent == sent


def test_the_others_broadcast_and_keep_subscriptions_where_they_are():
    world, middle, old, new = sites(ELVIN)
    new.router.subscribe(new.subscriber, "news/1")
    world.run_for(MILLISECOND)
    assert world.channels["new", "middle"].counters.sent == 0
    middle.router.publish(Publish("news", None, b""))
    world.run_for(MILLISECOND)
    assert len(new.heard) == 1
    assert old.heard == []
    assert world.channels["middle", "old"].counters.delivered > 0


def test_a_history_is_brought_again_after_a_position_and_under_the_first_filter():
    world, middle, _, new = sites(REPLAYING)
    positions = [f"{'ab' * 16}.1.{version}" for version in (1, 2, 3)]
    sent = [Publish("news", position, b"") for position in positions]
    for publication in sent:
        middle.router.publish(publication)
    world.run_for(MILLISECOND)
    for filter in ("news/0", "news/1"):
        new.router.subscribe(new.subscriber, filter)
    world.run_for(MILLISECOND)
    replay = new.router.replay
    assert replay(new.subscriber, "news/0", (positions[0],)) == ((positions[2],), sent[1:])
    assert replay(new.subscriber, "news/0", ()) == ((positions[2],), sent)
    assert replay(new.subscriber, "news/0", None) == ((positions[2],), [])
    assert replay(new.subscriber, "news/1", ()) == ((), [])


def test_with_a_history_a_move_in_is_soon_over():
    trace = play(Case("replaying", "gprs", "ours", 3, 2), seed=1)
    assert trace.lost == trace.duplicated == trace.duplicated_by_move_out == 0
    assert trace.moved_in_ms < 3_000


@pytest.mark.parametrize(
    ("system", "mode"),
    [("elvin", "basic"), ("fioranomq", "basic"), ("siena", "basic"), ("siena", "ping")],
)
def test_slopes_are_those_of_the_source(system, mode):
    rows = [measure(Case(system, "gprs", mode, s, 2), seed=3) for s in (10, 100)]
    paper = [row for row in PAPER if (row["system"], row["mode"]) == (system, mode)]
    theirs = slope(paper, "moved_in_ms")
    assert slope(rows, "moved_in_ms") == pytest.approx(theirs, rel=0.1, abs=10)


def test_a_run_can_be_repeated():
    case = Case("siena", "gprs", "ours", 3, 2)
    one, other = play(case, 7), play(case, 7)
    assert one.received == other.received
    assert play(case, 8).received != one.received
