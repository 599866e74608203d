"""Follows topics that nobody pings here: as a subscriber at their own hub, or by polling.

The rules are in `following`; here they meet the store, the clock and other hubs, which are asked by
`upstream_asking`. `upstream_routes` hands on what those hubs say to `verify` and `push`. A topic's
state is in the store, so a restart goes on.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from dataclasses import replace

from push_hub import following as rules
from push_hub.carried import Carried
from push_hub.context import Context, Tasks, woken
from push_hub.discovery import Discovery
from push_hub.errors import StoreError
from push_hub.following import Following, Patience, Way
from push_hub.intake import Intake, ignored
from push_hub.interest import Interest
from push_hub.signatures import verified
from push_hub.store.interface import SENT
from push_hub.store.records import Origin, TopicRecord
from push_hub.upstream_asking import Asking
from traces import LogEvent

_log = logging.getLogger(__name__)

_LONGEST_TICK = 5.0
_BATCH = 100
MAX_CHALLENGE = 4_096
MAX_URL = 2_048


class Upstream:
    """One loop that does what is due, and the answers to other hubs."""

    def __init__(
        self,
        context: Context,
        asking: Asking,
        intake: Intake,
        interest: Interest,
        carried: Carried,
    ) -> None:
        self._context = context
        self._asking = asking
        self._intake = intake
        self._interest = interest
        self._carried = carried
        self._patience = Patience.of(context.settings)
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
            self._interest.begun = self._wake.set
            self._tasks.start(self._run(self._context.settings.follow_after))

    async def stop(self) -> None:
        """State is in the store: the next start goes on, also with what a fetch still finds."""
        self._intake.fetched = ignored
        await self._tasks.stop()
        await self._asking.stop()

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
                _log.error(LogEvent("store.failed", reason=error))
                more = False
            await woken(self._wake, tick / 10 if more else tick)

    async def _round(self, patience: float, search: bool) -> bool:
        """Whether there is more to do than was done."""
        store, now = self._context.store, self._context.clock()
        watched = self._interest.topics()
        told_before = now - self._patience.pinged_lately
        # A carrier is asked whether it brings a topic: earlier versions do not promise later ones.
        sent = {Origin.PUBLISHED} if self._context.carrying.present else SENT
        await store.begin_following(
            now,
            asked_before=now - patience if search else None,
            told_before=told_before,
            watched=watched,
            sent=sent,
        )
        if now >= self._tidy_at:
            self._tidy_at = now + min(30.0, patience * 2)
            await store.end_following(
                told_before=told_before, watched=watched, sent=sent, limit=1_000
            )
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
        if await self._carried.takes(record, topic):
            return
        until = (topic.last_ping_at or 0) + self._patience.pinged_lately
        leased = record.way is Way.HUB and record.renew_at is not None and record.renew_at > now
        pinged = topic.last_ping_at is not None and until > now
        if pinged and not leased:
            await self._asking.put(rules.pinged(now, record, until), record.way)
        elif record.way is Way.ASKED:
            reason = f"its hub {record.hub} did not confirm our subscription"
            await self._asking.poll_instead(record, reason)
        elif record.way is Way.HUB and (record.lease_until or 0) <= now:
            reason = f"its hub {record.hub} did not renew our subscription"
            await self._asking.poll_instead(record, reason)
        elif record.way is Way.HUB and record.renew_at is not None and record.renew_at <= now:
            hub, self_url = record.hub or "", record.self_url or ""
            await self._asking.ask(record, hub, self_url)
        elif record.way is Way.HUB:
            self._checking.add(topic.id)
            due = min(record.renew_at or now, record.lease_until or now)
            due = min(max(due, now + 1), now + self._patience.poll_longest)
            await self._asking.put(replace(record, due=due))
            await self._intake.look(topic.id)
        elif record.way is Way.POLLED:
            await self._poll(record, now)
        else:
            await self._asking.put(rules.looked_at(now, record, self._patience))
            await self._intake.look(topic.id, fresh=True)

    async def _poll(self, record: Following, now: float) -> None:
        if record.hub and record.self_url and record.ask_after and record.ask_after <= now:
            await self._asking.ask(record, record.hub, record.self_url)
            return
        # Should the end of the fetch be lost, the next poll is due all the same.
        await self._asking.put(
            replace(record, due=now + (record.interval or self._patience.poll_longest))
        )
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
        if record.way is Way.LOOKING:
            await self._decide(record, topic, links, failure)
        elif record.way is Way.HUB and checking and changed and not announced:
            await self._asking.poll_instead(record, f"its hub {record.hub} did not push an update")
        elif record.way is Way.POLLED:
            record = rules.after_poll(now, record, changed, self._patience)
            hub = _hub_of(links, self._context.settings.hub_url) if links else None
            if hub and hub != record.hub:
                await self._asking.ask(record, hub, _self_of(links, topic))
            else:
                await self._asking.put(record)

    async def _decide(
        self, record: Following, topic: TopicRecord, links: Discovery | None, failure: str | None
    ) -> None:
        """What the topic says of itself is known now, or it could not be fetched."""
        now, own = self._context.clock(), self._context.settings.hub_url
        if failure is not None or links is None:
            reason = f"it could not be fetched: {failure or 'no content'}"
            await self._asking.put(rules.polled(now, record, reason, self._patience), record.way)
        elif any(rules.is_own(hub, own) for hub in links.hubs):
            # It should ping, and then this ends; until it does nobody hears of news otherwise.
            rarely = replace(record, interval=self._patience.poll_longest)
            reason = "it names this hub as its own, and has not pinged it yet"
            await self._asking.put(rules.polled(now, rarely, reason, self._patience), record.way)
        elif hub := _hub_of(links, own):
            await self._asking.ask(record, hub, _self_of(links, topic))
        else:
            reason = "it names no hub"
            await self._asking.put(rules.polled(now, record, reason, self._patience), record.way)

    async def verify(
        self, token: str, mode: str, topic: str, challenge: str, lease: str, reason: str
    ) -> str | None:
        """A hub asks whether we meant it: what to answer, or None for no."""
        record = await self._context.store.following_by_token(token)
        if record is None or topic != record.self_url:
            return None
        if mode == "denied":
            words = "".join(c if c.isprintable() else " " for c in reason[:200])
            await self._asking.poll_instead(
                record, f"its hub {record.hub} denied: {words or 'no reason'}"
            )
            return ""
        if mode != "subscribe" or not challenge or len(challenge) > MAX_CHALLENGE:
            return None
        if record.way not in (Way.ASKED, Way.HUB):
            return None
        seconds = int(lease) if lease.isascii() and lease.isdigit() and len(lease) < 12 else None
        confirmed = rules.confirmed(self._context.clock(), record, seconds, self._patience)
        await self._asking.put(confirmed, record.way)
        self._context.counters.add("upstream_confirmed")
        return challenge

    async def push(self, token: str, signature: str, body: bytes) -> bool:
        """A hub says that a topic changed. False when nobody here wants it any more."""
        store = self._context.store
        record = await store.following_by_token(token)
        if record is None or record.secret is None:
            return False
        if not verified(signature, record.secret, body):
            self._context.counters.add("upstream_forged")
            return True
        await store.pushed(record.topic_id, self._context.clock())
        self._context.counters.add("upstream_pushes")
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
