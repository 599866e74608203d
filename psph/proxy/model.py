"""Websites, hubs, readers and DNS as the fault schedules have them: the smallest that keep what a
real one promises. A hub is durable as the environment's storage is; everything else is told what it
does by the trial."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec

from identifiers import Position, PublisherId, RendezvousId, ScopeId, Topic, identify
from psirp_sim.publications.publisher import publisher_of
from psirp_sim.runtime.durations import MILLISECOND
from psirp_sim.runtime.environment import Environment
from psph.proxy.ports import WebUpdate, Zone

PREFIX = b"hub "
PINGED = b"pinged "
LOOK = 20 * MILLISECOND
PAGE = 8


@dataclass(slots=True, eq=False)
class Site:
    """A website's topic: what it says now, and whether it pings its hub."""

    topic: str
    pings: bool
    content: bytes = b""


class ModelRegistry:
    """Nobody has to remember what can be computed."""

    def add(self, topic: str) -> Topic:
        return identify(topic)

    def topic_of(self, sid: ScopeId, rid: RendezvousId) -> str | None:
        return None


@dataclass(slots=True, eq=False)
class ModelDirectory:
    """What DNS says of zones, to whoever can reach it."""

    env: Environment
    zones: dict[str, Zone]
    delay: int
    changed: Callable[[str], None] = lambda zone: None
    known: set[str] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)

    def look_up(self, zone: str) -> Zone | None:
        if zone in self.known:
            return self.zones.get(zone, Zone(False))
        if zone not in self.asked:
            self.asked.add(zone)
            self.env.call_later(self.delay, self._answer, zone)
        return None

    def forget(self, zone: str) -> None:
        self.known.discard(zone)
        self.asked.discard(zone)

    def _answer(self, zone: str) -> None:
        if zone in self.asked:
            self.known.add(zone)
            self.changed(zone)


def publisher_of_hub(node: str) -> PublisherId:
    """Who numbers updates at the hub of a node."""
    return publisher_of(f"hub at {node}")


class ModelHub:
    """Implements `ports.Web`."""

    def __init__(
        self, env: Environment, sites: Sequence[Site], recorded: Callable[[WebUpdate], None]
    ) -> None:
        """`recorded` hears of everything the hub has for good, in order."""
        self._env = env
        self._sites = {site.topic: site for site in sites}
        self._recorded = recorded
        self.listener: Callable[[WebUpdate], None] = lambda update: None
        self.publisher = publisher_of_hub(env.node)
        self.epoch = 1
        self.updates: dict[str, list[WebUpdate]] = {}
        self._under_way: set[tuple[str, Position]] = set()
        self._last: dict[str, int] = {}
        self.brings: Callable[[Topic], str | None] = lambda topic: None
        """What the hub asks its carrier."""
        self.pass_on: Callable[[Topic], None] = lambda topic: None
        """A ping for a topic that the carrier brings."""
        self.kept: set[str] = set()
        self.denied: dict[str, str] = {}
        for _, value in env.storage.scan(PREFIX):
            update = _unpack(value)
            self.updates.setdefault(update.topic, []).append(update)
        for updates in self.updates.values():
            own = [u.position.version for u in updates if u.position.publisher == self.publisher]
            if own:
                self._last[updates[0].topic] = max(own)
        for key, _ in env.storage.scan(PINGED):
            env.call_later(LOOK, self._fetch, key[len(PINGED) :].decode())

    # What websites do

    def publish(self, topic: str, content: bytes, *, direct: bool) -> None:
        """A new version, numbered here."""
        version = self._last[topic] = self._last.get(topic, 0) + 1
        position = Position(self.publisher, self.epoch, version)
        trace = self._env.random.randbytes(16).hex()
        now = self._env.wall() // MILLISECOND
        self._record(WebUpdate(topic, position, "text/plain", content, trace, direct, now))

    def ping(self, topic: Topic, done: Callable[[], None]) -> None:
        """There is something new: fetched soon, after a crash too."""
        if self.brings(topic) is not None:
            self.pass_on(topic)
            self._env.call_later(0, done)
            return
        key = PINGED + topic.canonical.encode()

        def noted() -> None:
            self._env.call_later(LOOK, self._fetch, topic.canonical)
            done()

        self._env.storage.write({key: b""}, noted)

    def _fetch(self, topic: str) -> None:
        site = self._sites.get(topic)
        if site is not None and self.brings(identify(topic)) is None and not self._see(site):
            self._env.call_later(LOOK, self._fetch, topic)
            return
        self._env.storage.write({PINGED + topic.encode(): None})

    def _record(self, update: WebUpdate, done: Callable[[], None] = lambda: None) -> None:
        self._under_way.add((update.topic, update.position))
        order = sum(len(each) for each in self.updates.values()) + len(self._under_way)
        key = PREFIX + update.topic.encode() + b"\0" + order.to_bytes(8)
        self._env.storage.write({key: _pack(update)}, partial(self._written, update, done))

    def _written(self, update: WebUpdate, done: Callable[[], None]) -> None:
        self._under_way.discard((update.topic, update.position))
        self.updates.setdefault(update.topic, []).append(update)
        self._recorded(update)
        self.listener(update)
        done()

    def is_beginning(self, topic: str) -> bool:
        """Whether the first that came of a topic is not durable yet."""
        return topic not in self.updates and any(
            known == topic and position.publisher != self.publisher
            for known, position in self._under_way
        )

    # What the proxy asks for

    def keep(self, topic: Topic, looked: Callable[[], None]) -> None:
        self.kept.add(topic.canonical)
        self._env.call_later(LOOK, self._look, topic.canonical, looked)

    def _look(self, topic: str, looked: Callable[[], None]) -> None:
        self.look(topic)
        self._env.call_later(LOOK, looked)

    def look(self, topic: str) -> None:
        """Fetch a topic that does not ping."""
        site = self._sites.get(topic)
        if site is not None and not site.pings and self.brings(identify(topic)) is None:
            self._see(site)

    def _see(self, site: Site) -> bool:
        """Record what is new; whether that could be told."""
        latest = self.updates.get(site.topic, [])
        known = latest[-1].body if latest else b""
        pending = self._last.get(site.topic, 0) > sum(
            1 for each in latest if each.position.publisher == self.publisher
        )
        if site.content and site.content != known and not pending:
            self.publish(site.topic, site.content, direct=False)
        return not pending

    def let_go(self, topic: Topic) -> None:
        self.kept.discard(topic.canonical)

    def adopt(self, topic: Topic, numbered: Callable[[PublisherId], bool]) -> None:
        latest = self.updates.get(topic.canonical, [])[-1:]
        if latest and not latest[0].published and numbered(latest[0].position.publisher):
            self.publish(topic.canonical, latest[0].body, direct=False)

    def backlog(
        self, topic: Topic, after: Position | None, reply: Callable[[Sequence[WebUpdate]], None]
    ) -> None:
        found = [
            each
            for each in self.updates.get(topic.canonical, ())
            if each.position.publisher == self.publisher
            and (after is None or each.position > after)
        ]
        self._env.call_later(MILLISECOND, reply, found[:PAGE])

    def positions(self, topic: Topic, reply: Callable[[Sequence[Position]], None]) -> None:
        last: dict[PublisherId, Position] = {}
        for each in self.updates.get(topic.canonical, ()):
            last[each.position.publisher] = each.position
        self._env.call_later(MILLISECOND, reply, list(last.values()))

    def deliver(self, topic: Topic, update: WebUpdate, done: Callable[[], None]) -> None:
        known = [each.position for each in self.updates.get(update.topic, ())]
        if update.position in known or (update.topic, update.position) in self._under_way:
            self._env.call_later(0, done)
        else:
            self._record(update, done)

    def deny(self, topic: Topic, reason: str) -> None:
        self.denied[topic.canonical] = reason

    def carried(self, topic: Topic) -> None:
        """Who brought it does not any more: it may have changed meanwhile."""
        if self.brings(topic) is None and topic.canonical in self._sites:
            self.ping(topic, lambda: None)


def _pack(update: WebUpdate) -> bytes:
    return msgspec.msgpack.encode(
        (
            update.topic, str(update.position), update.content_type, update.body, update.trace_id,
            update.published, update.recorded_ms,
        )
    )  # fmt: skip


def _unpack(value: bytes) -> WebUpdate:
    topic, position, kind, body, trace, published, recorded = msgspec.msgpack.decode(
        value, type=tuple[str, str, str, bytes, str, bool, int]
    )
    return WebUpdate(topic, Position.parse(position), kind, body, trace, published, recorded)
