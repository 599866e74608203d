"""From a ping, or content sent directly, to a recorded update.

A ping is durable before it is answered: it raises a number in the store. One fetch of a topic runs
at a time; it notes the number it began with, so pings that come meanwhile lead to one more.

A ping promises news. Where its fetch brings none and a cache may have answered, the topic is
rechecked: fetched again a few times, ever later, until there is news. If another ping comes before
that, the first news may be that of the earlier ping, from the cache: it is rechecked, too. The
number of rechecks is in the store, so a restart goes on.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import aiohttp

from identifiers import Position, Topic, identify
from push_hub.addresses import AddressPolicy
from push_hub.connecting import USER_AGENT
from push_hub.context import Context, Tasks, woken
from push_hub.discovery import Discovery, discover
from push_hub.errors import FetchFailed, StoreError
from push_hub.feeds import may_be_feed
from push_hub.fetching import Fetched, FetchRefused, fetch
from push_hub.following import same_document
from push_hub.limits import RateLimit
from push_hub.masking import masked_topic
from push_hub.naming import is_web
from push_hub.news import News, digest_of, find_news
from push_hub.retries import retry_after
from push_hub.store.records import NewUpdate, Origin, Recorded, TopicRecord
from traces import TRACE_ID_BYTES, LogEvent, new_trace_id

_log = logging.getLogger(__name__)

_STORE_PAUSE = 1.0
_AT_ONCE = 64 << 10
"""Bytes of something that is no feed which are looked at without the help of another thread."""
_POLL_BATCH = 100
_RECHECK_PATIENCE = 60.0
"""Seconds by which a recheck may be late because its host has many; beyond that it is left out."""
_LATEST = 8
"""Versions that are kept of what is no page of the web when a newer one supersedes the older."""


FetchListener = Callable[[TopicRecord, Discovery | None, bool, str | None], Awaitable[None]]
"""With the topic, its links if there was a body, whether it was news, why it failed."""


async def ignored(*_: object) -> None:
    """What is told to nobody."""


class Intake:
    """Takes pings and content, fetches topics, records what is new."""

    def __init__(
        self,
        context: Context,
        session: aiohttp.ClientSession,
        policy: AddressPolicy,
        recorded: Callable[[Recorded], None],
        released: Callable[[], None] = lambda: None,
    ) -> None:
        """`recorded` hears of every update, once it is durable; `released` when an earlier one is
        owed after all."""
        self._released = released
        self._context = context
        self._session = session
        self._policy = policy
        self._recorded = recorded
        self._rate = RateLimit(context.settings.ping_rate)
        self._version_rate = RateLimit(context.settings.version_rate)
        self._recheck_rate = RateLimit(context.settings.recheck_rate)
        self.fetched: FetchListener = ignored
        """Hears how every fetch ended."""
        self.ended: Callable[[int], None] = lambda _: None
        """Hears of every topic of which a fetch ended, last of all."""
        self._afresh: set[int] = set()
        """Topics to be fetched whole, changed or not, for what they say about themselves."""
        self._running: set[int] = set()
        self._hosts: Counter[str] = Counter()
        self._wake = asyncio.Event()
        self._tasks = Tasks()
        self._loops = Tasks()

    def start(self) -> None:
        """Begin with what was left from before."""
        self._loops.start(self._run())
        if self._context.settings.poll_every is not None:
            self._loops.start(self._poll(self._context.settings.poll_every))

    async def stop(self, patience: float) -> None:
        """Fetches that do not end in time will be made again after the next start."""
        await self._loops.stop()
        await self._tasks.stop(patience)

    async def ping(self, topics: Sequence[Topic]) -> int:
        """Durable when it returns. How many of the topics, and their relatives, are known here."""
        context = self._context
        plain = [context.naming.plain(each) for each in topics]
        served = [each for each in plain if context.settings.serves_host(each.host)]
        pinged = [(each, _trace_id()) for each in served]
        for topic, trace_id in pinged:
            context.tracer.ping_received(topic.canonical, trace_id)
        # A hub for certain hosts follows their topics before anybody asks; a hub for everybody
        # must not be made to fetch whatever a stranger names.
        create = bool(context.settings.topic_hosts)
        # What the carrier brings comes from it alone: fetched, it would be numbered twice.
        ours = []
        for each in pinged:
            if context.carrying.brings(each[0]) is None:
                ours.append(each)
            else:
                context.carrying.pinged(each[0])
        now = context.clock()
        known = await context.store.ping(ours, context.caps, now, create=create)
        for record in known:
            if record.trace_id is not None:
                context.metrics.journeys.pinged(record.trace_id, now)
        context.counters.add("pings", len(topics))
        context.counters.add("pings_carried", len(pinged) - len(ours))
        if known:
            self._wake.set()
        return len(known) + len(pinged) - len(ours)

    async def look(self, topic_id: int, *, signalled: bool = False, fresh: bool = False) -> None:
        """Fetch a topic that nobody pinged; `signalled` when its hub said that it changed, `fresh`
        to have all of it even if it did not."""
        context = self._context
        if fresh:
            self._afresh.add(topic_id)
        await context.store.refetch(topic_id, context.clock(), _trace_id(), signalled=signalled)
        self._wake.set()

    async def publish(
        self,
        topic: Topic,
        content_type: str,
        body: bytes,
        *,
        trace_id: str | None = None,
        superseding: bool = False,
    ) -> Recorded | None:
        """Record content that its publisher sent; durable when it returns."""
        origin = Origin.FETCHED if superseding else Origin.PUBLISHED
        return await self.accept(topic, content_type, body, origin, trace_id or _trace_id(), None)

    async def accept(
        self,
        topic: Topic,
        content_type: str,
        body: bytes,
        origin: Origin,
        trace_id: str,
        position: Position | None,
    ) -> Recorded | None:
        """Record an update that came by another way; None when it was here before."""
        context, plain = self._context, self._context.naming.plain(topic)
        record = await context.store.ensure_topic(plain, context.caps, context.clock())
        news: News | None
        if not is_web(plain):
            news = News(digest_of(body), None, None, frozenset())  # never compared with another
        elif len(body) <= _AT_ONCE and not may_be_feed(content_type, body):
            news = find_news(content_type, body, None, {})
        else:
            known = await context.store.known_entries(record.id)
            news = await asyncio.to_thread(find_news, content_type, body, None, known)
        assert news is not None  # without a last digest everything is
        return await self._record(
            record, news, content_type, body, origin, trace_id, position=position
        )

    async def _run(self) -> None:
        """Start fetches as they become due."""
        context = self._context
        while True:
            self._wake.clear()
            now = context.clock()
            try:
                # Those already running are still due until they end.
                limit = 2 * context.settings.fetches_at_once + len(self._running)
                for topic in await context.store.due_fetches(now, limit):
                    await self._begin(topic, now)
                due = await context.store.next_fetch(now)
            except StoreError as error:
                _log.error(LogEvent("store.failed", reason=error))
                due = now + _STORE_PAUSE
            pause = None if due is None else max(0.0, due - context.clock())
            await woken(self._wake, pause)

    async def _begin(self, topic: TopicRecord, now: float) -> None:
        settings = self._context.settings
        host = identify(topic.fetch_url).host
        if topic.id in self._running or len(self._running) >= settings.fetches_at_once:
            return
        if self._hosts[host] >= settings.fetches_per_host:
            return
        if wait := self._wait(topic.canonical, now):
            await self._context.store.postpone_fetch(topic.id, now + wait)
            return
        self._running.add(topic.id)
        self._hosts[host] += 1
        self._tasks.start(self._fetch(topic, host))

    def _wait(self, canonical: str, now: float) -> float:
        """0 when the topic may be fetched, otherwise the seconds after which it may. Only the end
        of the fetch says which of the rates it counts for: until then it is both."""
        wait = self._rate.take(canonical, now)
        if not wait and (wait := self._version_rate.take(canonical, now)):
            self._rate.give_back(canonical)
        return wait

    async def _fetch(self, topic: TopicRecord, host: str) -> None:
        news = False
        try:
            # Read again now that nobody else fetches it: a fetch may have ended between the look
            # at what is due and this one's beginning, and its update must not be recorded twice.
            current = await self._context.store.topic_by_id(topic.id)
            if current is None or current.fetch_due is None:
                return
            topic = current
            news = await self._fetch_and_record(topic, host)
            self.ended(topic.id)
        except StoreError as error:
            # The ping number is still ahead: the fetch is made again.
            _log.error(LogEvent("store.failed", reason=error))
            await asyncio.sleep(_STORE_PAUSE)
        except Exception as error:
            # A fault of ours must not lead to fetching again and again without a pause.
            _log.exception(LogEvent("fetch.failed", topic=masked_topic(topic.canonical)))
            failure = FetchFailed(f"a fault of the hub: {error!r}"[:200])
            await self._failed(topic, topic.trace_id or _trace_id(), failure)
            self.ended(topic.id)
        finally:
            (self._rate if news else self._version_rate).give_back(topic.canonical)
            self._running.discard(topic.id)
            self._hosts[host] -= 1
            if not self._hosts[host]:
                del self._hosts[host]
            self._wake.set()

    async def _fetch_and_record(self, topic: TopicRecord, host: str) -> bool:
        """Whether there was news."""
        context, store = self._context, self._context.store
        trace_id = topic.trace_id or _trace_id()
        settings = context.settings
        fresh = topic.id in self._afresh
        self._afresh.discard(topic.id)
        if await self._left_to_the_carrier(topic):
            return False
        subscribers = await store.subscribers(topic.id, context.clock())
        try:
            with context.metrics.fetch_seconds.time():
                found = await fetch(
                    self._session,
                    self._policy,
                    topic.fetch_url,
                    etag=None if fresh else topic.etag,
                    last_modified=None if fresh else topic.last_modified,
                    announced=topic.signalled,
                    user_agent=f"{USER_AGENT} (+{settings.hub_url}; {subscribers} subscribers)",
                    max_body=settings.max_body,
                    max_redirects=settings.max_redirects,
                )
        except FetchFailed as failure:
            await self._failed(topic, trace_id, failure)
            return False
        context.counters.add("fetches")
        if await self._left_to_the_carrier(topic):
            return False
        news = links = None
        if found.body is not None:
            known = await store.known_entries(topic.id)
            news = await asyncio.to_thread(
                find_news, found.content_type, found.body, topic.digest, known
            )
            links = await self._relate(topic, found)
        if news is None or found.body is None:
            now = context.clock()
            released = await store.fetched(
                topic.id,
                topic.ping_serial,
                now,
                etag=found.etag or (topic.etag if found.body is None else None),
                last_modified=found.last_modified
                or (topic.last_modified if found.body is None else None),
                recheck_at=self._recheck_at(topic, host, now) if found.may_be_cached else None,
            )
            context.counters.add("fetches_without_news")
            context.tracer.nothing_fetched(topic.canonical, trace_id, "nothing new")
            if released:
                self._released()
        else:
            doubtful = found.may_be_cached and topic.rechecks > 0 and _is_first(topic)
            await self._record(
                topic,
                news,
                found.content_type,
                found.body,
                Origin.FETCHED,
                trace_id,
                found=found,
                recheck_at=self._recheck_at(topic, host, context.clock()) if doubtful else None,
            )
        await self.fetched(topic, links, news is not None, None)
        return news is not None

    def _recheck_at(self, topic: TopicRecord, host: str, now: float) -> float | None:
        """When to look again for what a ping promised and a cache may hide."""
        after = (0.0, *self._context.settings.recheck_after)
        done = 0 if _is_first(topic) else topic.rechecks
        if not topic.signalled or done + 1 >= len(after):
            return None
        wait = self._recheck_rate.reserve(host, now, _RECHECK_PATIENCE)
        if wait is None:
            self._context.counters.add("rechecks_left_out")
            return None
        self._context.counters.add("rechecks")
        # Topics that were pinged together do not come back together.
        pause = (after[done + 1] - after[done]) * (0.8 + 0.4 * random.random())
        return now + wait + pause

    async def _left_to_the_carrier(self, topic: TopicRecord) -> bool:
        """Whether the carrier brings the topic, or began to while it was fetched."""
        known = identify(topic.canonical)
        if self._context.carrying.brings(known) is None:
            return False
        self._context.carrying.pinged(known)  # there was a reason to fetch it
        await self._context.store.skip_fetch(topic.id, topic.ping_serial, self._context.clock())
        return True

    async def _failed(self, topic: TopicRecord, trace_id: str, failure: FetchFailed) -> None:
        context, schedule = self._context, self._context.settings.fetch_retries
        now, failures = context.clock(), topic.fetch_failures + 1
        asked = failure.retry_after if isinstance(failure, FetchRefused) else None
        final = isinstance(failure, FetchRefused) and failure.final
        retry_at = None
        if not final and not schedule.exhausted(failures):
            delay = schedule.delay(failures, random.random(), retry_after(asked, now))
            retry_at = now + delay
        await context.store.fetch_failed(
            topic.id, topic.ping_serial, now, reason=str(failure), retry_at=retry_at
        )
        context.counters.add("fetch_failures")
        context.tracer.nothing_fetched(topic.canonical, trace_id, str(failure))
        told = masked_topic(topic.canonical)
        _log.info(LogEvent("fetch.failed", topic=told, reason=failure, retry_at=retry_at))
        await self.fetched(topic, None, False, str(failure))

    async def _record(
        self,
        topic: TopicRecord,
        news: News,
        content_type: str,
        body: bytes,
        origin: Origin,
        trace_id: str,
        *,
        position: Position | None = None,
        found: Fetched | None = None,
        recheck_at: float | None = None,
    ) -> Recorded | None:
        new = NewUpdate(
            topic.id,
            origin,
            content_type,
            body,
            news.digest,
            trace_id,
            position=position,
            entries=news.entries,
            known=news.known,
            changed=news.changed,
            etag=found.etag if found else None,
            last_modified=found.last_modified if found else None,
            fetched_serial=topic.ping_serial if found else None,
            recheck_at=recheck_at,
        )
        # Shielded from the caller's cancellation: a recorded version is always announced, in order.
        # Otherwise streams would skip it, and their readers resume after a later one.
        return await asyncio.shield(self._commit(topic, new, found))

    async def _commit(
        self, topic: TopicRecord, new: NewUpdate, found: Fetched | None
    ) -> Recorded | None:
        context, settings = self._context, self._context.settings
        latest_only = new.origin.superseding and not is_web(identify(topic.canonical))
        recorded = await context.store.record(
            new,
            context.clock(),
            max_waiting=settings.max_waiting,
            history=min(settings.history, _LATEST) if latest_only else settings.history,
            history_bytes=settings.history_bytes,
        )
        if recorded is None:
            return None
        context.counters.add("updates")
        context.counters.add("superseded", recorded.superseded)
        context.counters.add("overflowed", recorded.overflowed)
        if found is not None:
            context.tracer.fetched(recorded.update)
        _log.info(
            LogEvent(
                "update.recorded", topic=masked_topic(topic.canonical), origin=new.origin,
                position=recorded.update.position, deliveries=recorded.deliveries,
                trace_id=new.trace_id,
            )
        )  # fmt: skip
        self._recorded(recorded)
        return recorded

    async def _relate(self, topic: TopicRecord, found: Fetched) -> Discovery:
        """A permanent redirect and rel=self name the same document."""
        links = await asyncio.to_thread(
            discover, found.url, found.links, found.content_type, found.body or b""
        )
        known = identify(topic.canonical)
        for other in same_document(known, found.url, found.permanent_url, links.self_url):
            await self._context.store.relate(topic.id, other)
        return links

    async def _poll(self, every: float) -> None:
        while True:
            traces = [_trace_id() for _ in range(_POLL_BATCH)]
            try:
                if await self._context.store.poll(every, self._context.clock(), traces):
                    self._wake.set()
            except StoreError as error:
                _log.error(LogEvent("store.failed", reason=error))
            await asyncio.sleep(min(every / 4, 10.0))


def _is_first(topic: TopicRecord) -> bool:
    """Whether the fetch that is due is the first for its ping, and no recheck."""
    return topic.ping_serial > topic.fetched_serial


def _trace_id() -> str:
    return new_trace_id(secrets.token_bytes(TRACE_ID_BYTES))
