"""Asks another hub for a topic as any subscriber would, and keeps how a topic is followed."""

from __future__ import annotations

import asyncio
import logging
import secrets
from dataclasses import replace

import aiohttp

from push_hub import following as rules
from push_hub.connecting import exact_url, reason_of
from push_hub.context import Context, Tasks
from push_hub.following import Following, Patience, Way
from push_hub.limits import RateLimit
from push_hub.settings import Rate
from traces import LogEvent

_log = logging.getLogger(__name__)

_AT_ONCE = 8
"""Hubs that are asked at the same time."""
_RATE = Rate(per_second=1.0, burst=50)
"""Of requests to one host."""
PATH = "/upstream/"


class _AskedTooOften(Exception):
    """A host that many topics name as their hub, which may know nothing of it."""


class Asking:
    """Requests to other hubs, a few at a time."""

    def __init__(self, context: Context, session: aiohttp.ClientSession) -> None:
        self._context = context
        self._session = session
        self._patience = Patience.of(context.settings)
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._rate = RateLimit(_RATE)
        self._tasks = Tasks()

    async def stop(self) -> None:
        """Who was asked and has not confirmed is asked again later."""
        await self._tasks.stop()

    async def ask(self, record: Following, hub: str, self_url: str) -> None:
        """The state is written before the request: a hub may verify before it answers."""
        same = record.hub == hub and record.token and record.secret
        token = record.token if same and record.token else secrets.token_urlsafe(24)
        secret = record.secret if same and record.secret else secrets.token_hex(32).encode()
        asked = rules.asked(
            self._context.clock(), record, hub, self_url, token, secret, self._patience
        )
        await self.put(asked)
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
            self._context.counters.add("upstream_requests")
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
            await self.poll_instead(current, reason)
        elif current is not None and current.way is Way.HUB and current.renew_at is None:
            now, until = self._context.clock(), current.lease_until or 0.0
            again = min(until, now + max(60.0, (until - now) / 4))
            await self.put(replace(current, renew_at=again, due=again, reason=reason))

    async def poll_instead(self, record: Following, reason: str) -> None:
        """The hub failed."""
        now = self._context.clock()
        failed = rules.polled(now, record, reason, self._patience, hub_failed=True)
        await self.put(failed, record.way)
        self._context.counters.add("upstream_failures")

    async def put(self, record: Following, before: Way | None = None) -> None:
        """Keep it; a change from the way `before` is worth a line in the log."""
        await self._context.store.follow(record)
        if before is not None and before is not record.way:
            _log.info(
                LogEvent(
                    "topic.followed", topic_id=record.topic_id, way=record.way, hub=record.hub,
                    reason=record.reason,
                )
            )  # fmt: skip
