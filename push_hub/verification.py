"""Verification of intent: asks a callback whether its owner meant the request.

A request is in the store before this begins and leaves it with the callback's answer, so a
restart asks again. Where the hub has a carrier, that is asked first, unless the callback receives
the topic already. Denials go the same way, once, and nobody waits for them.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import random
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar
from weakref import WeakValueDictionary

import aiohttp

from push_hub.callbacks import denial_url, host_of, verification_url
from push_hub.connecting import exact_url, reason_of
from push_hub.context import Context, Tasks
from push_hub.errors import Busy, Refused, StoreError
from push_hub.lifecycle import RECEIVING
from push_hub.limits import RateLimit
from push_hub.masking import masked_callback, masked_topic
from push_hub.store.records import SubscriptionRecord, Verification
from traces import LogEvent

_log = logging.getLogger(__name__)

T = TypeVar("T")

_PER_HOST = 32
_STORE_PAUSE = 1.0


class Verifier:
    """Asks many callbacks at once, but not too many, and few of them at one host."""

    def __init__(self, context: Context, session: aiohttp.ClientSession) -> None:
        self._context = context
        self._session = session
        self._slots = asyncio.Semaphore(context.settings.verifications_at_once)
        self._hosts: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._waiting: Counter[str] = Counter()
        self._rate = RateLimit(context.settings.verification_rate)
        self._tasks = Tasks()

    async def start(self) -> None:
        """Begin with what was pending before."""
        for verification in await self._context.store.pending():
            self.submit(verification)

    async def stop(self) -> None:
        """What is not answered yet will be asked again after the next start."""
        await self._tasks.stop()

    def check_room(self, callback: str) -> None:
        """Busy when too many requests for the callback's host wait for their verification."""
        most = self._context.settings.unverified_per_host
        if self._waiting[host_of(callback)] >= most:
            self._context.counters.add("requests_limited")
            raise Busy(f"{most} requests for that callback's host wait to be verified: try later")

    def submit(self, verification: Verification) -> asyncio.Task[str | None]:
        """Ask, in the background. The result is None, or why the callback did not confirm."""
        host = host_of(verification.callback)
        self._waiting[host] += 1
        task = self._tasks.start(self._verify(verification))
        task.add_done_callback(lambda _: self._ended_waiting(host))
        return task

    def _ended_waiting(self, host: str) -> None:
        self._waiting[host] -= 1
        if not self._waiting[host]:
            del self._waiting[host]

    def deny(self, callback: str, topic: str, reason: str) -> None:
        """Tell a callback that it will not receive the topic."""
        self._tasks.start(self._deny(denial_url(callback, topic=topic, reason=reason), callback))

    async def _verify(self, verification: Verification) -> str | None:
        refusal = await self._until_stored(lambda: self._admit(verification))
        if refusal is not None:
            return refusal
        context, schedule = self._context, self._context.settings.verification_retries
        attempts = 0
        while True:
            asked_at = context.clock()
            attempts += 1
            try:
                reason = await self._ask(verification)
                break
            except (aiohttp.ClientError, OSError, ValueError) as error:
                reason = reason_of(error)
                if schedule.exhausted(attempts):
                    break
            await asyncio.sleep(schedule.delay(attempts, random.random()))
        await self._until_stored(lambda: self._conclude(verification, asked_at, reason))
        return reason

    async def _until_stored(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do it, again and again while the store cannot."""
        while True:
            try:
                return await work()
            except StoreError as error:
                _log.error(LogEvent("store.failed", reason=error))
                await asyncio.sleep(_STORE_PAUSE)

    async def _admit(self, verification: Verification) -> str | None:
        """Why the hub's carrier will never bring the topic, if so: then it is over and told."""
        context, topic, callback = self._context, verification.topic, verification.callback
        if verification.mode != "subscribe" or not context.carrying.present:
            return None
        existing = await context.store.subscription(topic, callback)
        if existing is None or existing.state in RECEIVING:
            return None
        try:
            await context.carrying.admit_callback(topic, callback)
        except Refused as refusal:
            reason = str(refusal)
            await self._conclude(verification, context.clock(), reason)
            self.deny(callback, topic, reason)
            return reason
        return None

    async def _conclude(
        self, verification: Verification, asked_at: float, reason: str | None
    ) -> None:
        context = self._context
        if reason is not None:
            refused = await context.store.refuse(verification, reason, context.clock())
            if refused is not None and refused.state not in RECEIVING:
                context.carrying.unsubscribed(refused.topic, refused.callback)
            context.counters.add("verifications_failed")
            self._told("subscription.refused", verification, reason)
            return
        record = await context.store.confirm(verification, asked_at)
        context.counters.add("verifications_confirmed")
        if record is None:
            return
        if verification.mode == "subscribe":
            context.tracer.subscribed(record.topic, record.callback)
            context.carrying.subscribed(record.topic, record.callback, record.expires_at)
            self._told("subscription.confirmed", verification, None)
        else:
            self.ended(record)

    def ended(self, record: SubscriptionRecord) -> None:
        """Note the end of a subscription."""
        self._told("subscription.ended", record, record.reason)
        self._context.tracer.unsubscribed(record.topic, record.callback, record.reason)
        self._context.carrying.unsubscribed(record.topic, record.callback)

    def _told(
        self, what: str, which: Verification | SubscriptionRecord, reason: str | None
    ) -> None:
        callback, topic = masked_callback(which.callback), masked_topic(which.topic)
        _log.info(LogEvent(what, topic=topic, callback=callback, reason=reason))

    async def _ask(self, verification: Verification) -> str | None:
        """None when the callback confirmed; otherwise what it did instead."""
        challenge = secrets.token_urlsafe(32)
        subscribing = verification.mode == "subscribe"
        url = verification_url(
            verification.callback,
            mode=verification.mode,
            topic=verification.topic,
            challenge=challenge,
            lease_seconds=verification.lease_seconds if subscribing else None,
            verify_token=verification.verify_token,
        )
        async with self._host_slot(verification.callback):
            await self._turn(verification.callback)
            reason = await self._answer(url, challenge)
        if reason is None:
            self._rate.give_back(host_of(verification.callback))
        return reason

    async def _turn(self, callback: str) -> None:
        """Wait while the callback's host has been asked too often for nothing."""
        host = host_of(callback)
        wait = self._rate.take(host, self._context.clock())
        while wait:
            await asyncio.sleep(wait)
            wait = self._rate.take(host, self._context.clock())

    async def _answer(self, url: str, challenge: str) -> str | None:
        async with (
            self._slots,
            self._session.get(
                exact_url(url), allow_redirects=False, headers={"Accept-Encoding": "identity"}
            ) as answer,
        ):
            if not 200 <= answer.status < 300:
                return f"the callback answered {answer.status} to the verification"
            body = await _at_most(answer, len(challenge) + 1)
        if not hmac.compare_digest(body, challenge.encode()):
            return "the callback did not echo the challenge"
        return None

    async def _deny(self, url: str, callback: str) -> None:
        if self._rate.take(host_of(callback), self._context.clock()):
            self._context.counters.add("denials_limited")
            return
        self._context.counters.add("denials")
        async with self._host_slot(callback), self._slots:
            try:
                async with self._session.get(exact_url(url), allow_redirects=False):
                    pass
            except (aiohttp.ClientError, OSError, ValueError) as error:
                _log.info(
                    LogEvent(
                        "denial.failed", callback=masked_callback(callback), reason=reason_of(error)
                    )
                )

    def _host_slot(self, callback: str) -> asyncio.Semaphore:
        host = host_of(callback)
        slot = self._hosts.get(host)
        if slot is None:
            slot = self._hosts[host] = asyncio.Semaphore(_PER_HOST)
        return slot


async def _at_most(answer: aiohttp.ClientResponse, size: int) -> bytes:
    """The first bytes of a body, which may have no end."""
    body = b""
    while len(body) < size and (chunk := await answer.content.read(size - len(body))):
        body += chunk
    return body
