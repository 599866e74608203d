"""The fabric as a pub/sub system that replays: for topics that no hub has, `psirp:SID/RID`.

A subscription begins with the version that is current, and goes on after Positions as far back as
the publisher's history reaches (`fabric_base` knows when it is whole).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial

from identifiers import InvalidTopic, Position, identify
from mobility import After, Listener, Message
from mobility.service import LONGEST_KIND
from psirp_sim.node import FabricNode
from psirp_sim.publications.errors import NotPublished
from psirp_sim.publications.events import Event, Gap, Update
from psph.mobility.fabric_base import Beginning
from psph.mobility.native_topics import ANY_SCOPE, NativeScopes, native_ids
from traces import LogEvent

_log = logging.getLogger(__name__)

_KIND = "kind"
_CONTENT_TYPE = "content_type"
_AGAIN = 200_000_000
"""Nanoseconds after which a publication that cannot be taken yet is tried again."""


def ids_of(topic: str) -> tuple[bytes, bytes] | None:
    """Scope and rendezvous id of a native topic, or of a URL; None for what is neither."""
    native = native_ids(topic)
    if native is not None:
        return native
    try:
        named = identify(topic)
    except InvalidTopic:
        return None
    return named.sid.raw, named.rid.raw


def kind_of(metadata: Mapping[str, str]) -> str:
    """What a client may exclude a publication by: what its publisher called it."""
    return (metadata.get(_KIND) or metadata.get(_CONTENT_TYPE, ""))[:LONGEST_KIND]


class FabricPort:
    """Implements `mobility.port.PubSub` at a node that has begun."""

    def __init__(self, node: FabricNode, scopes: NativeScopes | None = None) -> None:
        """Topics of other scopes than these are none: nothing ever comes of them."""
        self._node = node
        self._scopes = NativeScopes([ANY_SCOPE]) if scopes is None else scopes

    def history(self, topic: str) -> int:
        return self._node.settings.publications.history_versions

    def subscribe(self, topic: str, after: After, listener: Listener) -> FabricSubscription:
        return FabricSubscription(self._node, self._ids(topic), topic, after, listener)

    def _ids(self, topic: str) -> tuple[bytes, bytes] | None:
        ids = ids_of(topic)
        return ids if ids is not None and ids[0] in self._scopes else None

    def publish(
        self, topic: str, position: Position | None, message: Message, done: Callable[[], None]
    ) -> None:
        ids, client = self._ids(topic), self._node.client
        if ids is None:
            _log.warning(LogEvent("publication.refused", topic=topic[:100], reason="not a topic"))
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
            _log.info(LogEvent("publication.postponed", reason=error))
            again = partial(self.publish, topic, position, message, done)
            self._node.env.call_later(_AGAIN, again)

    def _later(self, done: Callable[[], None]) -> None:
        # A stream that is not durable has taken a version at once, inside the call.
        self._node.env.call_later(0, done)


class FabricSubscription:
    """One topic for one listener."""

    def __init__(
        self,
        node: FabricNode,
        ids: tuple[bytes, bytes] | None,
        topic: str,
        after: After,
        listener: Listener,
    ) -> None:
        self._node = node
        self._topic = topic
        self._listener = listener
        self._over = False
        self._beginning = Beginning(node.env, after, self._begun)
        if ids is None:
            node.env.call_later(0, self._begun, None)
            return
        self._beginning.subscription = node.client.subscribe(
            *ids,
            self._came,
            self._beginning.answered,
            after=[(ids[1], each) for each in after or ()],
            others_from_first=after is not None,
            name="mobility",
            began=self._beginning.look,
        )

    def cancel(self) -> None:
        if not self._over:
            self._over = True
            subscription, self._beginning.subscription = self._beginning.subscription, None
            if subscription is not None:
                self._node.client.unsubscribe(subscription)

    def _begun(self, base: After) -> None:
        if not self._over:
            self._listener.subscribed(self._topic, base)

    def _came(self, event: Event) -> None:
        if self._over:
            return
        if isinstance(event, Update):
            message = Message(event.content, kind_of(event.metadata))
            self._listener.deliver(self._topic, event.position, message)
        elif isinstance(event, Gap):
            first = Position(event.publisher, event.epoch, event.first)
            last = Position(event.publisher, event.epoch, event.last)
            self._listener.gap(self._topic, first, last)
        # The subscription is done with the event when this returns.
        self._node.env.call_later(0, self._beginning.look)
