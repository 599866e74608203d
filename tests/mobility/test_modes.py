"""The modes that are kept to compare, and ours, on a system whose messages are only bytes."""

from __future__ import annotations

from itertools import pairwise

import pytest

from identifiers import Position
from mobility import Message, Mode, Service
from mobility.suite.system import SimulatedAccessPoint, SimulatedPort, SimulatedTopic
from psirp_sim.runtime.durations import MILLISECOND
from tests.mobility.world import PUBLISHER, World


class _Stripped:
    """A listener that is not told any Position."""

    def __init__(self, listener):
        self._listener = listener

    def subscribed(self, topic, base):
        self._listener.subscribed(topic, None)

    def deliver(self, topic, position, message):
        self._listener.deliver(topic, None, message)


class _Plain:
    """Makes a port of the simulated system one of a system without Positions."""

    def subscribe(self, topic, after, listener):
        self._there(topic)
        return super().subscribe(topic, None, _Stripped(listener))

    def publish(self, topic, position, message, done):
        there = self._there(topic)
        number = len(there.streams.get(PUBLISHER, [])) + 1
        position = type(self).position(number) if position is None else position
        super().publish(topic, position, message, done)

    @staticmethod
    def position(number):
        return Position(PUBLISHER, 1, number)

    def _there(self, topic):
        system = getattr(self, "system", None) or self._system
        return system.topics.setdefault(topic, SimulatedTopic(topic, 0))


class _PlainPort(_Plain, SimulatedPort):
    pass


class _PlainAccessPoint(_Plain, SimulatedAccessPoint):
    pass


class _Hasty(_Stripped):
    """Nor when its subscriptions are really in effect."""

    def subscribed(self, topic, base):
        pass


class _HastyAccessPoint(_PlainAccessPoint):
    """Says at once that a subscription is in effect, as Siena does."""

    def subscribe(self, topic, after, listener):
        self._env.call_later(0, listener.subscribed, topic, None)
        return super().subscribe(topic, after, _Hasty(listener))


class PlainWorld(World):
    """Subscriptions take up to a second to be in effect."""

    def __init__(self, hasty=False, **kwargs):
        self._hasty = hasty
        super().__init__(history=0, slowest=1_000, **kwargs)

    def port(self, env):
        return _PlainPort(self.system, env)

    def access(self, env):
        kind = _HastyAccessPoint if self._hasty else _PlainAccessPoint
        return kind(self.system, env, lambda: None)

    def bodies(self):
        return [int(event.message.body) for event in self.events["client"]]


def walk(mode, seed):
    """One hand-over while something is published every 20 ms."""
    world = PlainWorld(seed=seed, hasty=mode is not Mode.POSITION)
    client = world.add(
        service=Service(mode=mode), delay=1_500 * MILLISECOND, ping=100 * MILLISECOND
    )
    client.move_in("a")
    world.run(3_000)
    assert client.stage == "live"
    world.publish(20, every=20)
    client.move_out()
    world.publish(100, every=20)
    assert client.stage == "detached"
    client.move_in("b")
    world.publish(200, every=20)
    world.run(3_000)
    assert client.stage == "live"
    return world


def lost_and_doubled(world):
    bodies = world.bodies()
    return 320 - len(set(bodies)), len(bodies) - len(set(bodies))


def test_without_the_service_all_of_the_time_away_is_lost():
    lost, doubled = lost_and_doubled(walk(Mode.NONE, 1))
    assert lost >= 100
    assert doubled == 0


def test_basic_loses_what_is_published_while_subscriptions_spread():
    losses = [lost_and_doubled(walk(Mode.BASIC, seed))[0] for seed in range(4)]
    assert any(0 < lost < 100 for lost in losses)


def test_basic_loses_nothing_where_a_subscription_is_in_effect_when_it_says_so():
    world = PlainWorld()
    client = world.add(service=Service(mode=Mode.BASIC))
    client.move_in("a")
    world.run(3_000)
    client.move_out()
    world.publish(100, every=20)
    client.move_in("b")
    world.publish(100, every=20)
    world.run(3_000)
    assert set(world.bodies()) == set(range(1, 201))


@pytest.mark.parametrize("mode", [Mode.PING, Mode.DELAY])
def test_synchronised_hand_overs_double_instead(mode):
    both = [lost_and_doubled(walk(mode, seed)) for seed in range(4)]
    basic = [lost_and_doubled(walk(Mode.BASIC, seed)) for seed in range(4)]
    assert sum(lost for lost, _ in both) < sum(lost for lost, _ in basic)
    assert sum(doubled for _, doubled in both) > 0


def test_ours_loses_nothing_on_a_plain_system_either():
    for seed in range(4):
        world = walk(Mode.POSITION, seed)
        lost, _ = lost_and_doubled(world)
        assert lost == 0


@pytest.mark.parametrize("mode", [Mode.BASIC, Mode.PING, Mode.DELAY])
def test_the_buffer_comes_before_what_came_directly(mode):
    world = walk(mode, 3)
    assert all(not world.proxy(name).handlers for name in "ac")
    bodies = world.bodies()
    steps_back = sum(later <= earlier for earlier, later in pairwise(bodies))
    # Once where the buffer overlaps what came before the move, once where the live flow does.
    assert steps_back <= 2
    assert bodies[-1] == 320


def test_a_message_of_the_application_is_not_taken_for_a_ping():
    world = PlainWorld()
    client = world.add(service=Service(mode=Mode.PING))
    client.move_in("a")
    world.run(2_500)
    client.publish("news", Message(b"1"))
    world.run(100)
    assert world.bodies() == [1]
