"""The hub as the proxy sees it."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from identifiers import Position, PublisherId, Topic
from psph.proxy.ports import WebUpdate
from push_hub import Hub
from push_hub.errors import Refused, StoreError
from push_hub.store.records import Origin, Update
from traces import TRACE_ID_BYTES, LogEvent, new_trace_id

_log = logging.getLogger(__name__)

_PAGE = 64
"""Updates that are read from the history at a time."""
_PATIENCE = 5.0
"""Seconds for the first look at a topic."""
_AGAIN = 1.0
"""Seconds after which a store that failed is asked again."""

T = TypeVar("T")
Incoming = tuple[WebUpdate, Callable[[], None]]


class HubSide:
    """Implements `psph.proxy.ports.Web` in the event loop of the hub."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._tasks: set[asyncio.Task[None]] = set()
        self._arriving: dict[str, deque[Incoming]] = {}
        """By topic: what waits to be recorded, in order."""

    async def stop(self) -> None:
        """What was not recorded comes again after the next start."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def publisher(self) -> PublisherId:
        return self._hub.store.identity.publisher

    @property
    def epoch(self) -> int:
        return self._hub.store.identity.epoch

    def keep(self, topic: Topic, looked: Callable[[], None]) -> None:
        self._hub.keep(topic)
        self._start(self._first_look(topic, looked))

    async def _first_look(self, topic: Topic, looked: Callable[[], None]) -> None:
        await self._hub.first_look(topic, _PATIENCE)
        looked()

    def let_go(self, topic: Topic) -> None:
        self._hub.let_go(topic)

    def ping(self, topic: Topic, done: Callable[[], None]) -> None:
        self._start(self._ping(topic, done))

    async def _ping(self, topic: Topic, done: Callable[[], None]) -> None:
        await _patiently(lambda: self._hub.ping((topic,)))
        done()

    def adopt(self, topic: Topic, numbered: Callable[[PublisherId], bool]) -> None:
        self._start(self._adopt(topic, numbered))

    async def _adopt(self, topic: Topic, numbered: Callable[[PublisherId], bool]) -> None:
        await _patiently(lambda: self._hub.adopt(topic, numbered))

    def backlog(
        self, topic: Topic, after: Position | None, reply: Callable[[Sequence[WebUpdate]], None]
    ) -> None:
        self._start(self._backlog(topic, after, reply))

    async def _backlog(
        self, topic: Topic, after: Position | None, reply: Callable[[Sequence[WebUpdate]], None]
    ) -> None:
        updates = await _patiently(lambda: self._hub.backlog(topic, after, _PAGE))
        reply([web_update(each) for each in updates])

    def positions(self, topic: Topic, reply: Callable[[Sequence[Position]], None]) -> None:
        self._start(self._positions(topic, reply))

    async def _positions(self, topic: Topic, reply: Callable[[Sequence[Position]], None]) -> None:
        reply(await _patiently(lambda: self._hub.positions(topic)))

    def deliver(self, topic: Topic, update: WebUpdate, done: Callable[[], None]) -> None:
        arriving = self._arriving.get(update.topic)
        if arriving is None:
            arriving = self._arriving[update.topic] = deque()
            self._start(self._record(topic, arriving))
        arriving.append((update, done))

    async def _record(self, topic: Topic, arriving: deque[Incoming]) -> None:
        """One after the other, until there are no more."""
        try:
            while arriving:
                update, done = arriving.popleft()
                await _patiently(partial(self._accept, topic, update))
                done()
        finally:
            del self._arriving[topic.canonical]

    async def _accept(self, topic: Topic, update: WebUpdate) -> None:
        try:
            await self._hub.accept(
                topic,
                update.content_type,
                update.body,
                position=update.position,
                trace_id=update.trace_id or new_trace_id(secrets.token_bytes(TRACE_ID_BYTES)),
                published=update.published,
                recorded_at=update.recorded_ms / 1_000 if update.recorded_ms else None,
            )
        except Refused as refusal:
            _log.warning(LogEvent("update.refused", host=topic.host, reason=refusal))

    def deny(self, topic: Topic, reason: str) -> None:
        self._start(self._deny(topic, reason))

    async def _deny(self, topic: Topic, reason: str) -> None:
        store = self._hub.store
        record = await store.topic(topic)
        if record is None:
            return
        after = 0
        while page := await store.subscriptions(topic_id=record.id, after=after):
            after = page[-1].id
            for subscription in page:
                if subscription.ended_at is None:
                    await self._hub.drop(subscription.id, reason)

    def carried(self, topic: Topic) -> None:
        self._hub.carrier_changed(topic)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error(LogEvent("task.failed"), exc_info=error)


async def _patiently(ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """A store that cannot write now may later; nothing is lost meanwhile."""
    while True:
        try:
            return await ask()
        except StoreError as error:
            _log.error(LogEvent("store.failed", reason=error))
            await asyncio.sleep(_AGAIN)


def web_update(update: Update) -> WebUpdate:
    """As the proxy knows it."""
    return WebUpdate(
        update.topic,
        update.position,
        update.content_type,
        update.body,
        update.trace_id,
        update.origin in (Origin.PUBLISHED, Origin.RECEIVED_PUBLISHED),
        int(update.recorded_at * 1_000),
    )
