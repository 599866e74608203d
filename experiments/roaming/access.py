"""Mobility's port to a stand-in: for a proxy, on the node's own host, and for a client, by its link.

A publication that matches several subscriptions of one listener is delivered once, under the first
of them that it made. Positions are those of the publisher; a listener hears them only where the
mode uses them, since the source's systems have none. No stand-in replays, or tells a base.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from experiments.roaming.lines import Channel, Line
from experiments.roaming.routers import (
    Leave,
    Publish,
    Router,
    Subscriber,
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
        return 0

    def subscribe(self, topic: str, after: After, listener: Listener) -> _Subscription:
        session, subscriber = self._session(listener)
        session.topics[topic] = None

        def effective() -> None:
            if topic in session.topics:
                listener.subscribed(topic, None)

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
        self._session: _Session | None = None
        self._waiting: deque[tuple[_Session, str]] = deque()
        """For a connection of their own, one after the other; the first is at it."""

    def attach(self, place: str) -> None:
        self._place = place

    def detach(self) -> None:
        if self._place:
            self._send(encode(Leave()))
        self._place = ""
        self._session = None

    def history(self, topic: str) -> int:
        return 0

    def subscribe(self, topic: str, after: After, listener: Listener) -> _Subscription:
        if self._session is None:
            self._session = _Session(listener, self._with_positions)
        session = self._session
        assert session.listener is listener, "a client listens with one ear"
        session.topics[topic] = None
        if self._system.keeps_connections:
            request = subscription(topic, self._system.subscription_bytes)
            line = self._line(self._place)
            line.send(Channel.PUBSUB, request, lambda: self._subscribed(session, topic))
        else:
            self._waiting.append((session, topic))
            if len(self._waiting) == 1:
                self._connect()
        return _Subscription(lambda: session.topics.pop(topic, None) and None)

    def publish(
        self, topic: str, position: Position | None, message: Message, done: Callable[[], None]
    ) -> None:
        text = None if position is None else str(position)
        self._send(encode(Publish(topic, text, message.body)))
        self._env.call_later(0, done)

    def receive(self, place: str, content: bytes) -> None:
        """What a node sends."""
        said = decode(content)
        if place == self._place and self._session is not None and isinstance(said, Publish):
            self._session.deliver(said)

    def _send(self, content: bytes) -> None:
        line = self._line(self._place)
        if self._system.keeps_connections:
            line.send(Channel.PUBSUB, content)
        else:
            line.send_alone(Channel.PUBSUB, content)

    def _connect(self) -> None:
        session, topic = self._waiting[0]
        if session is not self._session:
            self._connected()
            return
        request = subscription(topic, self._system.subscription_bytes)
        line = self._line(self._place)
        line.send_alone(
            Channel.PUBSUB,
            request,
            lambda: self._env.call_later(self._system.handling, self._connected) and None,
        )

    def _connected(self) -> None:
        session, topic = self._waiting.popleft()
        if self._waiting:
            self._connect()
        self._subscribed(session, topic)

    def _subscribed(self, session: _Session, topic: str) -> None:
        if session is self._session and topic in session.topics:
            session.listener.subscribed(topic, None)
