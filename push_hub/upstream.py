"""Follows topics that nobody pings here: as a subscriber at their own hub, or by polling.

The rules are in `following`; here they meet the store, the clock and other hubs. `app` routes what
those hubs say to `verify` and `push`. A topic's state is in the store, so a restart goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import secrets
import time
from dataclasses import replace

import aiohttp

from push_hub import following as rules
from push_hub.connecting import exact_url, reason_of
from push_hub.context import Context, Tasks
from push_hub.discovery import Discovery
from push_hub.errors import StoreError
from push_hub.following import Following, Patience, Way
from push_hub.intake import Intake, ignored
from push_hub.limits import RateLimit
from push_hub.logs import event
from push_hub.settings import Rate
from push_hub.signatures import verified
from push_hub.store.records import TopicRecord
from push_hub.streams import Streams

_log = logging.getLogger(__name__)

_AT_ONCE = 8
"""Hubs that are asked at the same time."""
_RATE = Rate(per_second=1.0, burst=50)
"""Of requests to one host."""
_LATER = 10.0
"""Seconds after which a topic is fetched again when a push announced what was not there yet."""
_LONGEST_TICK = 5.0
_BATCH = 100
PATH = "/upstream/"
MAX_CHALLENGE = 4_096
MAX_URL = 2_048


class _AskedTooOften(Exception):
    """A host that many topics name as their hub, which may know nothing of it."""


class Upstream:
    """One loop that does what is due, and the answers to other hubs."""

    def __init__(
        self, context: Context, session: aiohttp.ClientSession, intake: Intake, streams: Streams
    ) -> None:
        self._context = context
        self._session = session
        self._intake = intake
        self._streams = streams
        settings = context.settings
        self._patience = Patience(
            settings.poll_shortest, settings.poll_longest, settings.confirm_patience,
            settings.ask_again, settings.pinged_lately,
        )  # fmt: skip
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._rate = RateLimit(_RATE)
        self._tidy_at = 0.0
        self._wake = asyncio.Event()
        self._checking: set[int] = set()
        """Topics of hubs that are being fetched to see whether a push is missing."""
        self._announced: set[int] = set()
        """Topics that a push announced and that were not fetched since."""
        self._tasks = Tasks()

    def start(self) -> None:
        """Follow, if that is chosen."""
        if self._context.settings.follow_after is not None:
            self._intake.fetched = self.fetched
            self._streams.opened = self._wake.set
            self._tasks.start(self._run(self._context.settings.follow_after))

    async def stop(self) -> None:
        """State is in the store: the next start goes on, also with what a fetch still finds."""
        self._intake.fetched = ignored
        await self._tasks.stop()

    async def _run(self, patience: float) -> None:
        tick = min(_LONGEST_TICK, max(0.05, patience / 4))
        searched, pause = -math.inf, 0.0
        while True:
            self._wake.clear()
            begun = time.monotonic()
            try:
                # All topics are searched at times, and never for more than a small part of it.
                search = begun >= searched + pause
                more = await self._round(patience, search)
                if search:
                    searched = time.monotonic()
                    pause = max(tick, 20 * (searched - begun))
            except StoreError as error:
                _log.error("%s", error)
                more = False
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), tick / 10 if more else tick)

    async def _round(self, patience: float, search: bool) -> bool:
        """Whether there is more to do than was done."""
        store, now = self._context.store, self._context.clock()
        watched = self._streams.topics()
        told_before = now - self._patience.pinged_lately
        await store.begin_following(
            now,
            asked_before=now - patience if search else None,
            told_before=told_before,
            watched=watched,
        )
        if now >= self._tidy_at:
            self._tidy_at = now + min(30.0, patience * 2)
            await store.end_following(told_before=told_before, watched=watched, limit=1_000)
        due = await store.due_following(now, _BATCH)
        for each in due:
            await self._act(each.topic_id, now)
        return len(due) == _BATCH

    async def _act(self, topic_id: int, now: float) -> None:
        """Something is due, unless that has changed while others were seen to."""
        record = await self._context.store.following(topic_id)
        topic = await self._context.store.topic_by_id(topic_id)
        if topic is None or record is None or record.due is None or record.due > now:
            return
        until = (topic.last_ping_at or 0) + self._patience.pinged_lately
        leased = record.way is Way.HUB and record.renew_at is not None and record.renew_at > now
        if topic.last_ping_at is not None and until > now and not leased:
            await self._put(rules.pinged(now, record, until), record.way)
        elif record.way is Way.ASKED:
            reason = f"its hub {record.hub} did not confirm our subscription"
            await self._poll_instead(record, reason)
        elif record.way is Way.HUB and (record.lease_until or 0) <= now:
            reason = f"its hub {record.hub} did not renew our subscription"
            await self._poll_instead(record, reason)
        elif record.way is Way.HUB and record.renew_at is not None and record.renew_at <= now:
            await self._ask(record, record.hub or "", record.self_url or "")
        elif record.way is Way.HUB:
            self._checking.add(topic.id)
            due = min(record.renew_at or now, record.lease_until or now)
            due = min(max(due, now + 1), now + self._patience.poll_longest)
            await self._put(replace(record, due=due))
            await self._intake.look(topic.id)
        elif record.way is Way.POLLED:
            await self._poll(record, now)
        else:
            await self._put(rules.looked_at(now, record, self._patience))
            await self._intake.look(topic.id, fresh=True)

    async def _poll(self, record: Following, now: float) -> None:
        if record.hub and record.self_url and record.ask_after and record.ask_after <= now:
            await self._ask(record, record.hub, record.self_url)
            return
        # Should the end of the fetch be lost, the next poll is due all the same.
        await self._put(replace(record, due=now + (record.interval or self._patience.poll_longest)))
        await self._intake.look(record.topic_id)

    async def fetched(
        self, topic: TopicRecord, links: Discovery | None, changed: bool, failure: str | None
    ) -> None:
        """A fetch ended, whoever wanted it. `links` is None when there was no body to search."""
        announced = topic.id in self._announced
        self._announced.discard(topic.id)
        record = await self._context.store.following(topic.id)
        if record is None:
            return
        now = self._context.clock()
        checking = topic.id in self._checking
        self._checking.discard(topic.id)
        if announced and not changed:
            # The hub may be ahead of what caches in front of the publisher answer.
            self._tasks.start(self._again(topic.id))
        if record.way is Way.LOOKING:
            await self._decide(record, topic, links, failure)
        elif record.way is Way.HUB and checking and changed and not announced:
            await self._poll_instead(record, f"its hub {record.hub} did not push an update")
        elif record.way is Way.POLLED:
            record = rules.after_poll(now, record, changed, self._patience)
            hub = _hub_of(links, self._context.settings.hub_url) if links else None
            if hub and hub != record.hub:
                await self._ask(record, hub, _self_of(links, topic))
            else:
                await self._put(record)

    async def _decide(
        self, record: Following, topic: TopicRecord, links: Discovery | None, failure: str | None
    ) -> None:
        """What the topic says of itself is known now, or it could not be fetched."""
        now, own = self._context.clock(), self._context.settings.hub_url
        if failure is not None or links is None:
            reason = f"it could not be fetched: {failure or 'no content'}"
            await self._put(rules.polled(now, record, reason, self._patience), record.way)
        elif any(rules.is_own(hub, own) for hub in links.hubs):
            # It should ping, and then this ends; until it does nobody hears of news otherwise.
            rarely = replace(record, interval=self._patience.poll_longest)
            reason = "it names this hub as its own, and has not pinged it yet"
            await self._put(rules.polled(now, rarely, reason, self._patience), record.way)
        elif hub := _hub_of(links, own):
            await self._ask(record, hub, _self_of(links, topic))
        else:
            reason = "it names no hub"
            await self._put(rules.polled(now, record, reason, self._patience), record.way)

    async def _ask(self, record: Following, hub: str, self_url: str) -> None:
        """The state is written before the request: a hub may verify before it answers."""
        same = record.hub == hub and record.token and record.secret
        token = record.token if same and record.token else secrets.token_urlsafe(24)
        secret = record.secret if same and record.secret else secrets.token_hex(32).encode()
        asked = rules.asked(
            self._context.clock(), record, hub, self_url, token, secret, self._patience
        )
        await self._put(asked)
        self._tasks.start(self._request(asked))

    async def _request(self, asked: Following) -> None:
        settings = self._context.settings
        form = {
            "hub.mode": "subscribe",
            "hub.topic": asked.self_url or "",
            "hub.callback": f"{settings.public_url.rstrip('/')}{PATH}{asked.token}",
            "hub.secret": (asked.secret or b"").decode(),
            "hub.lease_seconds": str(rules.LEASE),
        }
        try:
            host = exact_url(asked.hub or "").host or ""
            if self._rate.take(host, self._context.clock()):
                raise _AskedTooOften
            self._context.counters["upstream_requests"] += 1
            async with (
                self._slots,
                self._session.post(
                    exact_url(asked.hub or ""), data=form, allow_redirects=False
                ) as answer,
            ):
                if 200 <= answer.status < 300:
                    return
                reason = f"its hub {asked.hub} answered {answer.status}"
        except _AskedTooOften:
            reason = f"its hub {asked.hub} is named by many topics: it will be asked later"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            reason = f"its hub {asked.hub} cannot be asked: {reason_of(error)}"
        current = await self._context.store.following(asked.topic_id)
        # While a lease runs, a renewal that failed is tried again before it ends.
        if current is not None and current.way is Way.ASKED and current.token == asked.token:
            await self._poll_instead(current, reason)
        elif current is not None and current.way is Way.HUB and current.renew_at is None:
            now, until = self._context.clock(), current.lease_until or 0.0
            again = min(until, now + max(60.0, (until - now) / 4))
            await self._put(replace(current, renew_at=again, due=again, reason=reason))

    async def _poll_instead(self, record: Following, reason: str) -> None:
        now = self._context.clock()
        failed = rules.polled(now, record, reason, self._patience, hub_failed=True)
        await self._put(failed, record.way)
        self._context.counters["upstream_failures"] += 1

    async def _again(self, topic_id: int) -> None:
        await asyncio.sleep(_LATER)
        await self._intake.look(topic_id, signalled=True)

    async def _put(self, record: Following, before: Way | None = None) -> None:
        """Keep it; a change from the way `before` is worth a line in the log."""
        await self._context.store.follow(record)
        if before is not None and before is not record.way:
            event(
                _log, "following", topic_id=record.topic_id, way=record.way, hub=record.hub,
                reason=record.reason,
            )  # fmt: skip

    async def verify(
        self, token: str, mode: str, topic: str, challenge: str, lease: str, reason: str
    ) -> str | None:
        """A hub asks whether we meant it: what to answer, or None for no."""
        record = await self._context.store.following_by_token(token)
        if record is None or topic != record.self_url:
            return None
        if mode == "denied":
            words = "".join(c if c.isprintable() else " " for c in reason[:200])
            await self._poll_instead(record, f"its hub {record.hub} denied: {words or 'no reason'}")
            return ""
        if mode != "subscribe" or not challenge or len(challenge) > MAX_CHALLENGE:
            return None
        if record.way not in (Way.ASKED, Way.HUB):
            return None
        seconds = int(lease) if lease.isascii() and lease.isdigit() and len(lease) < 12 else None
        confirmed = rules.confirmed(self._context.clock(), record, seconds, self._patience)
        await self._put(confirmed, record.way)
        self._context.counters["upstream_confirmed"] += 1
        return challenge

    async def push(self, token: str, signature: str, body: bytes) -> bool:
        """A hub says that a topic changed. False when nobody here wants it any more."""
        store = self._context.store
        record = await store.following_by_token(token)
        if record is None or record.secret is None:
            return False
        if not verified(signature, record.secret, body):
            self._context.counters["upstream_forged"] += 1
            return True
        await store.pushed(record.topic_id, self._context.clock())
        self._context.counters["upstream_pushes"] += 1
        self._announced.add(record.topic_id)
        await self._intake.look(record.topic_id, signalled=True)
        return True


def _hub_of(links: Discovery | None, own: str) -> str | None:
    """The first hub a topic names that is not this one."""
    hubs = [hub for hub in (links.hubs if links else ()) if len(hub) <= MAX_URL]
    return next((hub for hub in hubs if not rules.is_own(hub, own)), None)


def _self_of(links: Discovery | None, topic: TopicRecord) -> str:
    """What the topic's hub knows it by."""
    own = links.self_url if links else None
    return own if own and len(own) <= MAX_URL else topic.fetch_url
