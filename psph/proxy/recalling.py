"""Versions that a reader misses and our hub does not have: asked for in the fabric, once more.

A reader that comes from another proxy knows a Position that may be older than anything our hub has
recorded of the topic. What lies in between is still in the history of who published it. It is
handed to that reader only: the hub does not record what is older than what it has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from identifiers import Position, Topic
from psirp_sim.client import Client
from psirp_sim.publications.delivery import Subscription
from psirp_sim.publications.events import Event, Update
from psirp_sim.runtime.durations import SECOND
from psirp_sim.runtime.environment import Environment
from psph.proxy.mapping import Mapping
from psph.proxy.ports import WebUpdate
from psph.proxy.settings import ProxySettings

PATIENCE = 15 * SECOND
MOST_VERSIONS = 4_096
MOST_BYTES = 32 << 20
MOST_AT_ONCE = 64

Reply = Callable[[Sequence[WebUpdate]], None]


class Recall:
    """One question."""

    def __init__(
        self, recalling: Recalling, topic: Topic, after: Position, before: Position | None
    ) -> None:
        self._recalling = recalling
        self.topic, self.after, self.before = topic, after, before
        self.found: list[WebUpdate] = []
        self.replies: list[Reply] = []
        self.subscription: Subscription | None = None
        self._bytes = 0

    def heard(self, event: Event) -> None:
        """One event of the topic, of whatever stream."""
        if event.publisher != self.after.publisher:
            return
        if not isinstance(event, Update) or (
            self.before is not None and event.position >= self.before
        ):
            self._recalling.end_soon(self)  # the rest cannot be had, or is known
            return
        update = self._recalling.mapping.convert(event)
        if update is not None:
            self.found.append(update)
            self._bytes += len(update.body)
        full = len(self.found) >= MOST_VERSIONS or self._bytes >= MOST_BYTES
        if full or (self.before is not None and self.before.directly_follows(event.position)):
            self._recalling.end_soon(self)

    def began(self) -> None:
        """A publisher knows of us."""
        if self.before is None and self.is_complete:
            self._recalling.end_soon(self)

    @property
    def is_complete(self) -> bool:
        """Whether everything that was there when we asked has come."""
        subscription = self.subscription
        return subscription is not None and subscription.has_begun(
            self.topic.rid.raw, self.after.publisher.raw
        )


class Recalling:
    """All of them. Who asks the same while it is under way gets the same answer."""

    def __init__(
        self, env: Environment, settings: ProxySettings, client: Client, mapping: Mapping
    ) -> None:
        self._env = env
        self._client = client
        self.mapping = mapping
        self.under_way: dict[tuple[str, Position, Position | None], Recall] = {}

    def recall(self, topic: Topic, after: Position, before: Position | None, reply: Reply) -> None:
        """Call back with the versions between two Positions of a stream, oldest first, or as many
        as can be had; without the second, with all there are."""
        key = (topic.canonical, after, before)
        recall = self.under_way.get(key)
        if recall is None:
            if len(self.under_way) >= MOST_AT_ONCE:
                self._env.call_later(0, reply, ())
                return
            recall = self.under_way[key] = Recall(self, topic, after, before)
            self.mapping.activate(topic.canonical)
            recall.subscription = self._client.subscribe(
                topic.sid.raw,
                topic.rid.raw,
                recall.heard,
                after=after,
                name="recall",
                began=recall.began,
            )
            self._env.call_later(PATIENCE, self._end, recall)
        recall.replies.append(reply)

    def end_soon(self, recall: Recall) -> None:
        """Later: the fabric has not returned from handing an event over."""
        self._env.call_later(0, self._end, recall)

    def _end(self, recall: Recall) -> None:
        key = (recall.topic.canonical, recall.after, recall.before)
        if self.under_way.get(key) is not recall:
            return
        del self.under_way[key]
        assert recall.subscription is not None
        self._client.unsubscribe(recall.subscription)
        self.mapping.deactivate(recall.topic)
        for reply in recall.replies:
            reply(recall.found)
