"""The fabric as a pub/sub system that replays: for topics that no hub has, `psirp:SID/RID`.

A subscription begins with the version that is current, and goes on after Positions as far back as
the publisher's history reaches. The rendezvous knows who publishes, not how far they are, so the
fabric cannot tell a base.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from functools import partial

from identifiers import InvalidTopic, Position, identify
from mobility import After, Listener, Message
from mobility.service import LONGEST_KIND
from psirp_sim.node import FabricNode
from psirp_sim.publications.errors import NotPublished
from psirp_sim.publications.events import Event, Gap, Update
from psirp_sim.wire.rendezvous import Code

_log = logging.getLogger(__name__)

_IDS = re.compile(r"psirp:([0-9a-f]{64})/([0-9a-f]{64})")
_KIND = "kind"
_AGAIN = 200_000_000
"""Nanoseconds after which a publication that cannot be taken yet is tried again."""


def ids_of(topic: str) -> tuple[bytes, bytes] | None:
    """Scope and rendezvous id of a native topic, or of a URL; None for what is neither."""
    found = _IDS.fullmatch(topic)
    if found is not None:
        return bytes.fromhex(found[1]), bytes.fromhex(found[2])
    try:
        named = identify(topic)
    except InvalidTopic:
        return None
    return named.sid.raw, named.rid.raw


class FabricPort:
    """Implements `mobility.port.PubSub` at a node that has begun."""

    def __init__(self, node: FabricNode) -> None:
        self._node = node

    def history(self, topic: str) -> int:
        return self._node.settings.publications.history_versions

    def subscribe(self, topic: str, after: After, listener: Listener) -> FabricSubscription:
        return FabricSubscription(self._node, topic, after, listener)

    def publish(
        self, topic: str, position: Position | None, message: Message, done: Callable[[], None]
    ) -> None:
        ids, client = ids_of(topic), self._node.client
        if ids is None:
            _log.warning("%r is published to, and is no topic", topic[:100])
            return
        later = partial(self._later, done)
        offer = client.offers.get(ids)
        if offer is not None and position is not None:
            history = offer.history
            known = (position.publisher.raw, position.epoch) == (history.publisher, history.epoch)
            if known and position.version <= history.latest:
                later()  # it was taken before
                return
        try:
            metadata = {_KIND: message.kind} if message.kind else None
            client.publish(*ids, message.body, metadata, position=position, done=later)
        except NotPublished as error:
            _log.info("a publication waits: %s", error)
            again = partial(self.publish, topic, position, message, done)
            self._node.env.call_later(_AGAIN, again)

    def _later(self, done: Callable[[], None]) -> None:
        # A stream that is not durable has taken a version at once, inside the call.
        self._node.env.call_later(0, done)


class FabricSubscription:
    """One topic for one listener."""

    def __init__(self, node: FabricNode, topic: str, after: After, listener: Listener) -> None:
        self._node = node
        self._topic = topic
        self._listener = listener
        self._over = False
        self._subscription = None
        ids = ids_of(topic)
        if ids is None:
            node.env.call_later(0, self._registered, Code.OK)
            return
        self._subscription = node.client.subscribe(
            *ids,
            self._came,
            self._answered,
            after=[(ids[1], each) for each in after or ()],
            name="mobility",
        )

    def cancel(self) -> None:
        if not self._over:
            self._over = True
            if self._subscription is not None:
                self._node.client.unsubscribe(self._subscription)

    def _answered(self, code: Code) -> None:
        # Later: the answer may be known while `subscribe` is still being called.
        self._node.env.call_later(0, self._registered, code)

    def _registered(self, code: Code) -> None:
        if not self._over and code is Code.OK:
            self._listener.subscribed(self._topic, None)

    def _came(self, event: Event) -> None:
        if self._over:
            return
        if isinstance(event, Update):
            kind = event.metadata.get(_KIND, "")[:LONGEST_KIND]
            self._listener.deliver(self._topic, event.position, Message(event.content, kind))
        elif isinstance(event, Gap):
            first = Position(event.publisher, event.epoch, event.first)
            last = Position(event.publisher, event.epoch, event.last)
            self._listener.gap(self._topic, first, last)
