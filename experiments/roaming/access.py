"""Mobility's port to a stand-in: for a proxy, on the host of a node, and for a client, by its link.

A publication that matches several subscriptions of one listener is delivered once, under the first
of them that it made. Positions are those of the publisher; a listener hears them only where the
mode uses them, since the source's systems have none. Only the stand-in with a history replays, and
tells a base.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from experiments.roaming.lines import Channel, Line
from experiments.roaming.routers import (
    Leave,
    Publish,
    Router,
    Subscribed,
    Subscriber,
    Unsubscribe,
    decode,
    encode,
    subscription,
    wanted,
)
from experiments.roaming.systems import System
from identifiers import Position
from mobility import After, Listener, Message
from psirp_sim.runtime.environment import Environment


class _Session:
    """The subscriptions of one listener, in the order they were made."""

    def __init__(self, listener: Listener, with_positions: bool) -> None:
        self.listener = listener
        self.topics: dict[str, None] = {}
        self._with_positions = with_positions

    def deliver(self, publication: Publish) -> None:
        topic = wanted(self.topics, publication.topic)
        if topic is not None:
            text = publication.position if self._with_positions else None
            position = None if text is None else Position.parse(text)
            self.listener.deliver(topic, position, Message(publication.body))


class _Subscription:
    def __init__(self, cancel: Callable[[], None]) -> None:
        self.cancel = cancel


def _texts(after: After) -> tuple[str, ...] | None:
    return None if after is None else tuple(map(str, after))


class ProxyPort:
    """A `PubSub`."""

    def __init__(
        self, env: Environment, system: System, router: Router, with_positions: bool
    ) -> None:
        self._env = env
        self._system = system
        self._router = router
        self._with_positions = with_positions
        self._sessions: dict[int, tuple[_Session, Subscriber]] = {}
        """By the identity of their listener."""
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def idle(self) -> bool:
        return not self._waiting

    def history(self, topic: str) -> int:
        return self._system.history if self._with_positions else 0

    def subscribe(self, topic: str, after: After, listener: Listener) -> _Subscription:
        session, subscriber = self._session(listener)
        session.topics[topic] = None

        def effective() -> None:
            if topic not in session.topics:
                return
            if not self.history(topic):
                listener.subscribed(topic, None)
                return
            base, again = self._router.replay(subscriber, topic, _texts(after))
            listener.subscribed(topic, tuple(map(Position.parse, base)))
            for publication in again:
                session.deliver(publication)

        def ask() -> None:
            if topic in session.topics:
                self._router.subscribe(subscriber, topic, effective)

        def cancel() -> None:
            if session.topics.pop(topic, topic) is None:
                self._router.unsubscribe(subscriber, topic)
            if not session.topics:
                self._sessions.pop(id(listener), None)
                self._router.remove(subscriber)

        self._waiting.append(ask)
        if len(self._waiting) == 1:
            self._env.call_later(self._system.handling, self._next)
        return _Subscription(cancel)

    def publish(
        self, topic: str, position: Position | None, message: Message, done: Callable[[], None]
    ) -> None:
        text = None if position is None else str(position)
        self._env.call_later(0, self._router.publish, Publish(topic, text, message.body))
        self._env.call_later(0, done)

    def _session(self, listener: Listener) -> tuple[_Session, Subscriber]:
        if id(listener) not in self._sessions:
            session = _Session(listener, self._with_positions)
            subscriber = Subscriber(session.deliver)
            self._router.add(subscriber)
            self._sessions[id(listener)] = session, subscriber
        return self._sessions[id(listener)]

    def _next(self) -> None:
        self._waiting.popleft()()
        if self._waiting:
            self._env.call_later(self._system.handling, self._next)


class ClientAccess:
    """An `AccessPoint`."""

    def __init__(
        self,
        env: Environment,
        system: System,
        line: Callable[[str], Line],
        with_positions: bool,
    ) -> None:
        self._env = env
        self._system = system
        self._line = line
        self._with_positions = with_positions
        self._place = ""
        self._sessions: dict[int, _Session] = {}
        """By the identity of their listener."""
        self._waiting: deque[tuple[_Session, str]] = deque()
        """For a connection of their own, one after the other; the first is at it."""

    def attach(self, place: str) -> None:
        self._place = place

    def detach(self) -> None:
        if self._place:
            self._send(encode(Leave()))
        self._place = ""
        self._sessions.clear()

    def history(self, topic: str) -> int:
        return self._system.history if self._with_positions else 0

    def subscribe(self, topic: str, after: After, listener: Listener) -> _Subscription:
        new = _Session(listener, self._with_positions)
        session = self._sessions.setdefault(id(listener), new)
        session.topics[topic] = None
        if self.history(topic):
            request = subscription(topic, self._system.subscription_bytes, _texts(after))
            self._send(request)
        elif self._system.keeps_connections:
            request = subscription(topic, self._system.subscription_bytes)
            line = self._line(self._place)
            line.send(Channel.PUBSUB, request, lambda: self._subscribed(session, topic))
        else:
            self._waiting.append((session, topic))
            if len(self._waiting) == 1:
                self._connect()

        def cancel() -> None:
            if self._wants(session, topic):
                self._send(encode(Unsubscribe(topic)))
            session.topics.pop(topic, None)

        return _Subscription(cancel)

    def publish(
        self, topic: str, position: Position | None, message: Message, done: Callable[[], None]
    ) -> None:
        text = None if position is None else str(position)
        self._send(encode(Publish(topic, text, message.body)))
        self._env.call_later(0, done)

    def receive(self, place: str, content: bytes) -> None:
        """What a node sends."""
        said = decode(content)
        if place != self._place:
            return
        for session in list(self._sessions.values()):
            if isinstance(said, Publish):
                session.deliver(said)
            elif isinstance(said, Subscribed) and self.history(said.filter):
                self._subscribed(session, said.filter, tuple(map(Position.parse, said.base)))

    def _send(self, content: bytes) -> None:
        line = self._line(self._place)
        if self._system.keeps_connections:
            line.send(Channel.PUBSUB, content)
        else:
            line.send_alone(Channel.PUBSUB, content)

    def _connect(self) -> None:
        session, topic = self._waiting[0]
        if not self._wants(session, topic):
            self._connected()
            return
        request = subscription(topic, self._system.subscription_bytes)
        self._line(self._place).send_alone(Channel.PUBSUB, request, self._handle)

    def _handle(self) -> None:
        self._env.call_later(self._system.handling, self._connected)

    def _connected(self) -> None:
        session, topic = self._waiting.popleft()
        if self._waiting:
            self._connect()
        self._subscribed(session, topic)

    def _subscribed(self, session: _Session, topic: str, base: After = None) -> None:
        if self._wants(session, topic):
            session.listener.subscribed(topic, base)

    def _wants(self, session: _Session, topic: str) -> bool:
        """Whether the client is still where it subscribed, and has not cancelled."""
        return session in self._sessions.values() and topic in session.topics
