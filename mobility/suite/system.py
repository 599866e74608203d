"""A pub/sub system in virtual time, for the fault schedules: topics with histories of some length,
and subscriptions that take time to be in effect.

It is reliable where its users are up: what a node misses, it misses because it was down, or because
its subscription was not in effect. A client reaches it through the proxy's node that it is at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from identifiers import Position, PublisherId
from mobility.port import After, Listener, Message
from psirp_sim.runtime.durations import MILLISECOND
from psirp_sim.runtime.environment import Environment
from psirp_sim.runtime.schedules import InvariantViolated
from psirp_sim.runtime.simulator import Simulator, stream

BROKEN_AFTER = 150 * MILLISECOND
"""Until a client learns that its access point is gone."""


@dataclass(slots=True)
class Published:
    """One message of a stream, and when it was published."""

    position: Position
    message: Message
    at: int


@dataclass(slots=True)
class SimulatedTopic:
    """Its streams, all of them for ever: the harness compares with them."""

    name: str
    history: int
    """How many of the latest of each stream can be had again."""
    tells_base: bool = True
    lag: int = 0
    """How much longer a client's subscription takes to be in effect: its link is narrow."""
    streams: dict[PublisherId, list[Published]] = field(default_factory=dict)
    subscriptions: list[SimulatedSubscription] = field(default_factory=list)

    @property
    def latest(self) -> tuple[Position, ...]:
        return tuple(published[-1].position for published in self.streams.values())


class SimulatedSubscription:
    """Delivers in order, each message a little later, for as long as the port it is of lives."""

    def __init__(
        self, port: SimulatedPort, topic: SimulatedTopic, after: After, listener: Listener
    ) -> None:
        self._port = port
        self._topic = topic
        self._after = after
        self.listener = listener
        self._due = 0
        self._over = False
        delay = port.system.delay(port.system.slowest) + port.lag(topic)
        port.env.call_later(delay, self._take_effect)

    def cancel(self) -> None:
        self._over = True
        if self in self._topic.subscriptions:
            self._topic.subscriptions.remove(self)

    @property
    def lives(self) -> bool:
        """Whether the core that made it has not died since."""
        return bool(getattr(self._port.env, "alive", True))

    def push(self, published: Published) -> None:
        """The topic has a new message."""
        self._soon(self._deliver, published)

    def _take_effect(self) -> None:
        if self._over or not self._port.reachable:
            return
        topic = self._topic
        topic.subscriptions.append(self)
        self._port.took_effect(topic, self._after)
        base = topic.latest if topic.tells_base else None
        self._soon(self.listener.subscribed, topic.name, base)
        if self._after is not None and topic.history:
            after = {position.publisher: position.version for position in self._after}
            for publisher, published in topic.streams.items():
                self._replay(published, after.get(publisher, 0))

    def _replay(self, published: list[Published], version: int) -> None:
        oldest = max(0, len(published) - self._topic.history)
        if version < oldest:
            first, last = published[version].position, published[oldest - 1].position
            self._soon(self.listener.gap, self._topic.name, first, last)
        for each in published[max(version, oldest) :]:
            self.push(each)

    def _soon(self, callback: Callable[..., None], *args: object) -> None:
        env = self._port.env
        self._due = max(self._due + 1, env.now() + self._port.system.delay(10 * MILLISECOND))
        env.call_later(self._due - env.now(), self._run, callback, args)

    def _run(self, callback: Callable[..., None], args: tuple[object, ...]) -> None:
        if not self._over and self._port.reachable:
            callback(*args)

    def _deliver(self, published: Published) -> None:
        self._port.delivers(self._topic, published.position)
        self.listener.deliver(self._topic.name, published.position, published.message)


class SimulatedSystem:
    """All topics, and every way to them."""

    def __init__(self, world: Simulator, slowest: int) -> None:
        self.world = world
        self.slowest = slowest
        """How long a subscription takes at most to be in effect."""
        self.topics: dict[str, SimulatedTopic] = {}
        self._random = stream(world.seed, "system")

    def delay(self, most: int) -> int:
        return self._random.randint(most // 10, most)

    def publish(self, topic: str, position: Position, message: Message) -> bool:
        """Whether it was new: what is published again under its Position is known."""
        there = self.topics[topic]
        published = there.streams.setdefault(position.publisher, [])
        if position.version <= len(published):
            if published[position.version - 1].message != message:
                raise InvariantViolated(f"{position} was published again as something else")
            return False
        if position.version != len(published) + 1:
            raise InvariantViolated(f"{position} was published out of order")
        each = Published(position, message, self.world.now)
        published.append(each)
        for subscription in list(there.subscriptions):
            subscription.push(each)
        return True


class SimulatedPort:
    """The system as a proxy sees it, in one of its lives."""

    def __init__(self, system: SimulatedSystem, env: Environment) -> None:
        self.system = system
        self.env = env
        self._due = 0

    @property
    def reachable(self) -> bool:
        return True

    def lag(self, topic: SimulatedTopic) -> int:
        """What is special to subscriptions that are made here."""
        return 0

    def took_effect(self, topic: SimulatedTopic, after: After) -> None:
        """A subscription did."""

    def delivers(self, topic: SimulatedTopic, position: Position) -> None:
        """A message comes out here."""

    def history(self, topic: str) -> int:
        there = self.system.topics.get(topic)
        return 0 if there is None else there.history

    def subscribe(self, topic: str, after: After, listener: Listener) -> SimulatedSubscription:
        return SimulatedSubscription(self, self.system.topics[topic], after, listener)

    def publish(
        self, topic: str, position: Position | None, message: Message, done: Callable[[], None]
    ) -> None:
        assert position is not None
        now = self.env.now()
        self._due = max(self._due + 1, now + self.system.delay(5 * MILLISECOND))
        self.env.call_later(self._due - now, self._publish, topic, position, message, done)

    def _publish(
        self, topic: str, position: Position, message: Message, done: Callable[[], None]
    ) -> None:
        if self.reachable:
            self.system.publish(topic, position, message)
            self.env.call_later(self.system.delay(5 * MILLISECOND), self._done, done)

    def _done(self, done: Callable[[], None]) -> None:
        if self.reachable:
            done()


class Account(Protocol):
    """Somebody who notes what the system did for a client."""

    def attached(self) -> None:
        """The client is at another place; no subscription is in effect there."""

    def took_effect(self, topic: SimulatedTopic, anew: bool, now: int) -> None:
        """A subscription did; `anew` if it was to begin just then."""

    def came(self, topic: str, position: Position, now: int) -> None:
        """The client gets a message."""


class SimulatedAccessPoint:
    """The system as a client sees it: through the node it is at, while that is up and in reach."""

    def __init__(
        self,
        system: SimulatedSystem,
        env: Environment,
        broken: Callable[[], None],
        account: Account | None = None,
    ) -> None:
        self._system = system
        self._env = env
        self._broken = broken
        self._port: _AttachedPort | None = None
        self._account = account

    def attach(self, place: str) -> None:
        if self._account is not None:
            self._account.attached()
        self._port = _AttachedPort(self._system, self._env, place, self._account)
        self._env.call_later(BROKEN_AFTER, self._look, self._port)

    def detach(self) -> None:
        if self._port is not None:
            self._port.leave()
            self._port = None

    def history(self, topic: str) -> int:
        there = self._system.topics.get(topic)
        return 0 if there is None else there.history

    def subscribe(self, topic: str, after: After, listener: Listener) -> SimulatedSubscription:
        assert self._port is not None
        return self._port.subscribe(topic, after, listener)

    def publish(
        self, topic: str, position: Position | None, message: Message, done: Callable[[], None]
    ) -> None:
        assert self._port is not None
        self._port.publish(topic, position, message, done)

    def _look(self, port: _AttachedPort) -> None:
        if port is not self._port:
            return
        if port.reachable:
            self._env.call_later(BROKEN_AFTER, self._look, port)
        else:
            self._broken()


class _AttachedPort(SimulatedPort):
    """One stay at one place. Once it broke it stays broken, as a connection does."""

    def __init__(
        self, system: SimulatedSystem, env: Environment, place: str, account: Account | None
    ) -> None:
        super().__init__(system, env)
        self._left = False
        self._place = place
        self._account = account
        self._subscriptions: list[SimulatedSubscription] = []

    def subscribe(self, topic: str, after: After, listener: Listener) -> SimulatedSubscription:
        self._subscriptions.append(super().subscribe(topic, after, listener))
        return self._subscriptions[-1]

    def leave(self) -> None:
        self._left = True
        for subscription in self._subscriptions:
            subscription.cancel()

    @property
    def reachable(self) -> bool:
        world, here = self.system.world, self.env.node
        ways = (world.channels[here, self._place], world.channels[self._place, here])
        node = world.nodes[self._place]
        if not node.up or node.paused or any(way.blocked for way in ways):
            self._left = True
        return not self._left

    def lag(self, topic: SimulatedTopic) -> int:
        return topic.lag

    def took_effect(self, topic: SimulatedTopic, after: After) -> None:
        if self._account is not None:
            self._account.took_effect(topic, after is None, self.system.world.now)

    def delivers(self, topic: SimulatedTopic, position: Position) -> None:
        if self._account is not None:
            self._account.came(topic.name, position, self.system.world.now)
