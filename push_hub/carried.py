"""Topics that the carrier brings are left to it; those it does not bring any more are seen to.

The carrier is asked when something about a topic is due, when it says that its answer changed, and
about all topics that are followed, a few at a time.
"""

from __future__ import annotations

import asyncio
import logging

from identifiers import Topic, identify
from push_hub import following as rules
from push_hub.context import Context, Tasks, woken
from push_hub.errors import StoreError
from push_hub.following import Following, Patience, Way
from push_hub.intake import Intake
from push_hub.interest import Interest
from push_hub.store.records import TopicRecord
from traces import LogEvent

_log = logging.getLogger(__name__)

_LONGEST_TICK = 5.0
_PAGE = 200
"""Topics that the carrier is asked about in one tick."""


class Carried:
    """One loop, asleep while there is no carrier."""

    def __init__(self, context: Context, intake: Intake, interest: Interest) -> None:
        self._context = context
        self._intake = intake
        self._interest = interest
        self._patience = Patience.of(context.settings)
        self._changed: dict[str, Topic] = {}
        self._wake = asyncio.Event()
        self._at = 0
        self._tasks = Tasks()

    def start(self) -> None:
        """Begin to ask."""
        self._tasks.start(self._run())

    async def stop(self) -> None:
        """The next start asks again."""
        await self._tasks.stop()

    def changed(self, topic: Topic) -> None:
        """The carrier has begun or ceased to bring it, or brings it in another way."""
        self._changed[topic.canonical] = topic
        self._wake.set()

    async def takes(self, record: Following, topic: TopicRecord) -> bool:
        """Whether the carrier brings the topic: then it is left to it."""
        words = self._context.carrying.brings(identify(topic.canonical))
        if words is None:
            return False
        if record.way is not Way.CARRIED or record.reason != words:
            await self._put(rules.carried(self._context.clock(), record, words), record.way)
        return True

    async def _run(self) -> None:
        follow_after = self._context.settings.follow_after
        tick = min(_LONGEST_TICK, max(0.05, (follow_after or _LONGEST_TICK) / 4))
        while True:
            self._wake.clear()
            try:
                while self._changed:
                    canonical = next(iter(self._changed))
                    await self._reconsider(self._changed[canonical])
                    self._changed.pop(canonical, None)
                if self._context.carrying.present:
                    await self._ask_about_some()
            except StoreError as error:
                _log.error(LogEvent("store.failed", reason=error))
            await woken(self._wake, tick)

    async def _ask_about_some(self) -> None:
        page = await self._context.store.all_following(after=self._at, limit=_PAGE)
        for record in page:
            topic = await self._context.store.topic_by_id(record.topic_id)
            if topic is not None:
                await self._see_to(record, topic)
        self._at = page[-1].topic_id if len(page) == _PAGE else 0

    async def _see_to(self, seen: Following, topic: TopicRecord) -> None:
        """`seen` may be a moment old: what is written goes out from the record as it is now."""
        brought = self._context.carrying.brings(identify(topic.canonical)) is not None
        if not brought and seen.way is not Way.CARRIED:
            return
        record = await self._context.store.following(topic.id)
        if record is None or await self.takes(record, topic) or record.way is not Way.CARRIED:
            return
        looked = rules.looked_at(self._context.clock(), record, self._patience)
        await self._put(looked, record.way)
        await self._intake.look(topic.id, fresh=True)

    async def _reconsider(self, topic: Topic) -> None:
        store, settings, now = self._context.store, self._context.settings, self._context.clock()
        known = await store.topic(topic)
        if known is None:
            return
        record = await store.following(known.id)
        if record is not None:
            await self._see_to(record, known)
            return
        if self._context.carrying.brings(topic) is not None:
            return
        # Whoever pings here did so in vain while the topic was carried.
        pinged = (known.last_ping_at or 0.0) > now - settings.pinged_lately
        if (settings.follow_after is None or pinged) and (
            known.id in self._interest.topics() or await store.subscribers(known.id, now)
        ):
            await self._intake.look(known.id)
        self._interest.begun()

    async def _put(self, record: Following, before: Way) -> None:
        await self._context.store.follow(record)
        if before is not record.way:
            _log.info(
                LogEvent(
                    "topic.followed", topic_id=record.topic_id, way=record.way, reason=record.reason
                )
            )
