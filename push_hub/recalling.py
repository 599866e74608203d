"""Versions that streams have missed, had once more: from the history, or through the carrier.

Many streams come from a hub that died with nearly the same Positions: one question answers all who
miss the same, while it is under way and for a few seconds after.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Sequence
from itertools import islice

from identifiers import Position, Topic
from push_hub.carrier import Recalled
from push_hub.context import Context, Tasks
from push_hub.event_stream import Event, update_event
from push_hub.news import find_news
from push_hub.store.records import Origin, Update
from traces import TRACE_ID_BYTES, new_trace_id

_PAGE = 64
"""Versions in one answer; who needs more asks again after the last."""
_KEPT = 5.0
"""Seconds for which an answer serves others."""

_Key = tuple[int, Position, Position | None]


class Recall:
    """One answer: updates of one publisher, oldest first, and their events."""

    def __init__(self, updates: Sequence[Update]) -> None:
        self.updates = tuple(updates)
        self.size = sum(len(each.body) for each in updates)
        self._events: dict[tuple[str, bool], tuple[Event, ...]] = {}

    def events(self, spelling: str, whole: bool) -> tuple[Event, ...]:
        """Made once for all who spell the topic alike."""
        key = (spelling, whole)
        if key not in self._events:
            self._events[key] = tuple(update_event(each, spelling, whole) for each in self.updates)
        return self._events[key]


class Recalling:
    """The questions of all streams of a hub."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._asked: dict[_Key, asyncio.Task[Recall]] = {}
        self._kept = 0
        """Bytes of answers that are there for others."""
        self._tasks = Tasks()

    async def stop(self) -> None:
        """Nobody waits any more."""
        await self._tasks.stop()

    async def ask(
        self, topic_id: int, topic: Topic, after: Position, before: Position | None
    ) -> Recall:
        """The versions between two Positions of one publisher, or the first of them.

        Without `before` those that this hub does not have are meant, however many there are.
        """
        key = (topic_id, after, before)
        asked = self._asked.get(key)
        if asked is None:
            asked = self._tasks.start(self._find(topic_id, topic, after, before))
            self._asked[key] = asked
            asked.add_done_callback(lambda done: self._answered(key, done))
        # Shielded: a stream that ends must not take the others along.
        return await asyncio.shield(asked)

    def _answered(self, key: _Key, task: asyncio.Task[Recall]) -> None:
        failed = task.cancelled() or task.exception() is not None
        size = 0 if failed else task.result().size
        if failed or size + self._kept > 4 * self._context.settings.recall_bytes:
            self._asked.pop(key, None)
            return
        self._kept += size
        asyncio.get_running_loop().call_later(_KEPT, self._forget, key, size)

    def _forget(self, key: _Key, size: int) -> None:
        self._asked.pop(key, None)
        self._kept -= size

    async def _find(
        self, topic_id: int, topic: Topic, after: Position, before: Position | None
    ) -> Recall:
        own: list[Update] = []
        if before is not None:
            # What was recorded in another order than it is numbered.
            backlog = await self._context.store.backlog(topic_id, after.publisher, after, _PAGE)
            own = [each for each in backlog if each.position < before]
            if own and own[0].position.directly_follows(after):
                return Recall(own)
        end = own[0].position if own else before
        found = await self._context.carrying.recall(topic, after, end)
        recalled = self._bounded(between(found, after, end))
        if not recalled:
            return Recall(own)
        self._context.counters.add("recalled", len(recalled))
        now = self._context.clock()
        texts = await asyncio.to_thread(_entries, recalled)
        return Recall(
            [
                Update(
                    0, topic_id, topic.canonical, each.position,
                    each.trace_id or new_trace_id(secrets.token_bytes(TRACE_ID_BYTES)),
                    Origin.RECEIVED, each.content_type, each.body, entries, now,
                )
                for each, entries in zip(recalled, texts, strict=True)
            ]
        )  # fmt: skip

    def _bounded(self, found: Iterable[Recalled]) -> list[Recalled]:
        kept: list[Recalled] = []
        size = 0
        for each in islice(found, _PAGE):
            size += len(each.body)
            if kept and size > self._context.settings.recall_bytes:
                break
            kept.append(each)
        return kept


def between(found: Iterable[Recalled], after: Position, before: Position | None) -> list[Recalled]:
    """Those that were asked for, each once and in order, whatever was answered."""
    wanted = {
        each.position: each
        for each in found
        if each.position.publisher == after.publisher
        and each.position > after
        and (before is None or each.position < before)
    }
    return [wanted[position] for position in sorted(wanted)]


def _entries(recalled: Sequence[Recalled]) -> list[str | None]:
    """Of each, what is new since the one before; of the first, all: who knows what came before?"""
    texts = []
    known: dict[str, bytes] = {}
    for each in recalled:
        news = find_news(each.content_type, each.body, None, known)
        assert news is not None  # without a last digest everything is
        known |= news.known or {}
        texts.append(news.entries)
    return texts
