"""Readers of /t/TOPIC: whoever asks for a topic's latest version counts as its reader for a while.

The first one makes the topic known, has it followed, or brought by the carrier, and waits for its
first version, or for a look at the topic when nobody may have seen to it for a while. All others
are answered at once with what is there.
"""

from __future__ import annotations

import asyncio
import contextlib
import math

from identifiers import Topic, identify
from push_hub.context import Context
from push_hub.errors import Busy, HubError, Refused
from push_hub.intake import Intake
from push_hub.interest import Interest, Looks
from push_hub.limits import RateLimit
from push_hub.settings import Rate
from push_hub.store.records import Origin, TopicRecord

READER = "reader"
_NEW_TOPICS = Rate(per_second=1.0, burst=100)
"""Topics that one client address may make the hub follow."""
_TOLD_AGAIN = 0.1
"""The part of a lease by which it has to grow before the carrier hears of it."""
_LONGEST_TICK = 5.0


class NoVersion(HubError):
    """Nothing of the topic has come in time; the text says why, as far as it is known."""


class Readers:
    """Leases by topic, in memory."""

    def __init__(self, context: Context, intake: Intake, interest: Interest, looks: Looks) -> None:
        self._context = context
        self._intake = intake
        self._interest = interest
        self._looks = looks
        self._leases: dict[str, tuple[Topic, float]] = {}
        self._rate = RateLimit(_NEW_TOPICS)
        self._waiting = 0

    async def current(self, topic: Topic, client: str) -> TopicRecord:
        """The topic, with a version in the store; NoVersion, Refused or Busy when there is none."""
        settings = self._context.settings
        if not settings.serves_host(topic.host):
            raise Refused(f"this hub does not serve topics of {topic.host}")
        if self._waiting >= settings.streams_at_once:
            raise Busy("too many readers wait for a first version: try again later")
        self._waiting += 1
        try:
            return await self._current(topic, client)
        finally:
            self._waiting -= 1

    async def _current(self, topic: Topic, client: str) -> TopicRecord:
        context, began = self._context, self._context.clock()
        end = asyncio.get_running_loop().time() + context.settings.reader_patience
        new = topic.canonical not in self._leases
        if new:
            self._check_room(client, began)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(end):
                    await context.carrying.admit(topic, READER)
        record = await self._lease(topic)
        look = new and await self._look(record, began)
        with self._looks.of(record.id) as happened:
            while True:
                happened.clear()
                found = await context.store.topic_by_id(record.id) or record
                looked = (found.last_fetch_at or 0.0) >= began
                if found.last_update_at is not None and (looked or not look):
                    return found
                if found.last_update_at is None:
                    self._check_hope(found, began, looked)
                try:
                    async with asyncio.timeout_at(end):
                        await happened.wait()
                except TimeoutError:
                    if found.last_update_at is not None:
                        return found  # an old version is better than none
                    raise NoVersion("it has not come in time") from None

    def _check_room(self, client: str, now: float) -> None:
        if len(self._leases) >= self._context.settings.reader_topics:
            raise Busy("this hub reads as many topics as it can for others: try again later")
        if self._rate.take(client, now):
            raise Busy("you ask for many topics that nobody reads here: slow down")

    def _check_hope(self, topic: TopicRecord, began: float, looked: bool) -> None:
        """Raise NoVersion when the topic could not be fetched and will not be before time is up."""
        if topic.last_error is None or self._context.carrying.brings(identify(topic.canonical)):
            return
        due = math.inf if topic.fetch_due is None else topic.fetch_due
        if looked or due > began + self._context.settings.reader_patience:
            raise NoVersion(topic.last_error)

    async def _lease(self, topic: Topic) -> TopicRecord:
        """The topic has a reader from now on, and for so long."""
        context = self._context
        _, told = self._leases.get(topic.canonical, (topic, 0.0))
        until = context.clock() + context.settings.reader_lease
        self._interest.hold(topic, READER)
        if until - told > _TOLD_AGAIN * context.settings.reader_lease:
            self._leases[topic.canonical] = (topic, until)
        try:
            record = await self._interest.settle(topic)
        except HubError:
            self._end(topic)
            raise
        if self._leases.get(topic.canonical, (topic, 0.0))[1] == until:
            context.carrying.joined(topic, READER, until)
        return record

    async def _look(self, topic: TopicRecord, now: float) -> bool:
        """Fetch a topic that nobody may have seen to for a while; whether that was needed."""
        context, settings = self._context, self._context.settings
        if context.carrying.brings(identify(topic.canonical)):
            return False
        if topic.last_fetch_at is None and topic.last_update_at is None:
            if settings.follow_after is None:
                await self._intake.look(topic.id)  # otherwise it is about to be fetched
            return True
        latest = await context.store.versions(topic.id, 1)
        fetched = not latest or latest[0].origin is Origin.FETCHED
        if not fetched or (topic.last_fetch_at or 0.0) > now - settings.poll_shortest:
            return False
        await self._intake.look(topic.id)
        return True

    async def end_leases(self) -> None:
        """Without end."""
        lease = self._context.settings.reader_lease
        while True:
            await asyncio.sleep(min(_LONGEST_TICK, lease / 4))
            now = self._context.clock()
            for topic, until in tuple(self._leases.values()):
                if until <= now:
                    self._end(topic)
                    self._context.carrying.left(topic, READER)

    def _end(self, topic: Topic) -> None:
        self._leases.pop(topic.canonical, None)
        self._interest.release(topic, READER)
