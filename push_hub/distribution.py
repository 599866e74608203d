"""From a recorded update to POSTs: many callbacks at once, each in order, retried.

One loop trades results for new work with the store, a transaction each round; while it waits,
deliveries end and results gather for the next. What is owed lives in the store alone: memory holds
what is in flight and, for hosts that answer promptly, some more that is claimed and begins as soon
as a slot is free, so that nobody waits for the transaction.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque

import aiohttp

from push_hub.connecting import exact_url, reason_of
from push_hub.content import Contents
from push_hub.context import Context, Tasks, woken
from push_hub.errors import StoreError
from push_hub.limits import HostSlots, Probes
from push_hub.links import link_header
from push_hub.masking import masked_callback, masked_topic
from push_hub.retries import retry_after
from push_hub.signatures import signature
from push_hub.store.records import (
    Delivery,
    DeliveryResult,
    Exchanged,
    Outcome,
    Recorded,
    Update,
)
from traces import LogEvent

_log = logging.getLogger(__name__)

_STORE_PAUSE = 1.0
_GATHER = 8
_ROUND = 0.004
"""Seconds between transactions while more than `_GATHER` deliveries are in flight."""
_LONG_ROUND = 0.025
"""The same while nothing more is due, or there is enough claimed to go on with."""
_MAX_ANSWER = 64 << 10
"""Bytes of an answer that are read to keep the connection; one with more is closed."""

DELIVERY_HEADER = "X-Hub-Delivery"
POSITION_HEADER = "X-Hub-Position"


class Distributor:
    """Delivers what the store says is owed."""

    def __init__(self, context: Context, session: aiohttp.ClientSession) -> None:
        self._context = context
        self._session = session
        self._contents = Contents(context.store)
        self._slots = HostSlots(context.settings.deliveries_per_host)
        self._probes = Probes(context.settings.probe_every)
        self._results: list[DeliveryResult] = []
        self._wake = asyncio.Event()
        self._hurry = asyncio.Event()
        """There is new work, or little is left that is claimed, and more may be due."""
        self._more = False
        """Whether the last look found anything to claim."""
        self._ready: dict[str, deque[Delivery]] = {}
        """Claimed and not begun, by host; hosts take turns in the order of the dictionary."""
        self._in_flight = Tasks()
        self._busy = 0
        """Deliveries in flight: a task may make several, one after the other."""
        self._loops = Tasks()
        self._stopping = False

    async def start(self) -> None:
        """Begin with what was owed before."""
        repeated = await self._context.store.recover()
        self._context.counters.add("deliveries_repeated", repeated)
        self._loops.start(self._run())

    async def stop(self, patience: float) -> None:
        """Finish what is in flight. What does not end in time is repeated after the next start."""
        self._stopping = True
        for host in tuple(self._ready):
            self._release(host)
        await self._in_flight.stop(patience)
        await self._loops.stop()
        try:
            await self._exchange(room=0)
        except StoreError as error:
            _log.error(
                LogEvent("store.failed", reason=error, then="deliveries that ended are repeated")
            )

    def wake(self) -> None:
        """Something is owed that was not before."""
        self._wake.set()
        self._hurry.set()

    def recorded(self, recorded: Recorded) -> None:
        """There is something to deliver."""
        for host in recorded.resting_hosts:
            self._probes.want(host)
        if recorded.deliveries:
            self._contents.keep(recorded.update)
            self.wake()

    async def _run(self) -> None:
        context = self._context
        while True:
            self._wake.clear()
            self._hurry.clear()
            pause: float | None = None
            try:
                exchanged = await self._exchange(self._room())
                self._more = bool(exchanged.claimed)
                for delivery in exchanged.claimed:
                    self._ready.setdefault(delivery.host, deque()).append(delivery)
                self._begin_ready()
                due = [each for each in (exchanged.next_due, self._probes.next) if each is not None]
                if due:
                    pause = max(0.0, min(due) - context.clock())
                if exchanged.claimed:
                    pause = 0.0  # there may be more
            except StoreError as error:
                _log.error(LogEvent("store.failed", reason=error))
                pause = _STORE_PAUSE
            await woken(self._wake, pause)
            if self._busy > _GATHER:
                # Under load: let more results gather for one transaction.
                await asyncio.sleep(_ROUND)
                await woken(self._hurry, _LONG_ROUND)

    def _room(self) -> int:
        if self._stopping:
            return 0
        waiting = sum(len(queue) for queue in self._ready.values())
        return 4 * self._context.settings.deliveries_at_once - self._busy - waiting

    def _shares(self) -> dict[str, int]:
        """How many deliveries may be claimed for each host: its slots, and some ahead.

        None while half of that is there: a few at a time would not be worth the look.
        """
        shares = {}
        for host, free in self._slots.shares().items():
            ahead, waiting = self._slots.ahead(host), len(self._ready.get(host, ()))
            shares[host] = 0 if 0 < ahead < 2 * waiting else free + ahead - waiting
        return shares

    def _begin_ready(self) -> None:
        """Begin what there are slots for; each host in turn."""
        for host in tuple(self._ready):
            while (delivery := self._next(host)) is not None:
                self._in_flight.start(self._deliver_on(delivery))
            if host in self._ready:
                self._ready[host] = self._ready.pop(host)  # to the end

    def _next(self, host: str) -> Delivery | None:
        """Take the next delivery of a host, and a slot for it, if there are both."""
        queue = self._ready.get(host)
        if (
            queue is None
            or self._slots.free(host) <= 0
            or self._busy >= self._context.settings.deliveries_at_once
        ):
            return None
        delivery = queue.popleft()
        self._slots.take(host)
        self._busy += 1
        if not queue:
            del self._ready[host]
        if self._more and 2 * len(queue) < self._slots.ahead(host):
            self._hurry.set()
        return delivery

    def _release(self, host: str) -> None:
        """Give back what is claimed for a host and not begun."""
        now = self._context.clock()
        self._results += [
            DeliveryResult(delivery, Outcome.RELEASED, now)
            for delivery in self._ready.pop(host, ())
        ]

    async def _exchange(self, room: int) -> Exchanged:
        context, now = self._context, self._context.clock()
        results, self._results = self._results, []
        probes = self._probes.take(now) if room > 0 else {}
        try:
            exchanged = await context.store.exchange(
                results, now, room, self._shares(), 4 * self._slots.initial, probes
            )
        except StoreError:
            self._results[:0] = results
            for host in probes:
                self._probes.want(host)
            raise
        # Counted once it is recorded: who sees the number finds what it speaks of in the store.
        for result in results:
            context.counters.add(f"deliveries_{result.outcome}")
        context.counters.add("superseded", exchanged.superseded)
        for ended in exchanged.ended:
            context.tracer.unsubscribed(ended.topic, ended.callback, ended.reason)
            context.carrying.unsubscribed(ended.topic, ended.callback)
        return exchanged

    async def _deliver_on(self, delivery: Delivery) -> None:
        """Make the delivery, and go on with others to the same host."""
        following: Delivery | None = delivery
        most = self._context.settings.deliveries_at_once
        while following is not None:
            host = following.host
            try:
                await self._deliver(following)
            finally:
                self._busy -= 1
            if len(self._ready) > 1 and self._busy + 1 >= most:
                break  # where slots are scarce, hosts take turns
            following = self._next(host)
            if self._slots.free(host) > 0 and (another := self._next(host)) is not None:
                self._in_flight.start(self._deliver_on(another))  # it earned a slot
        if self._ready:
            self._begin_ready()

    async def _deliver(self, delivery: Delivery) -> None:
        answered, began = False, time.monotonic()
        try:
            found = await self._contents.of(delivery)
            if found is None:
                result = DeliveryResult(
                    delivery, Outcome.DROPPED, self._context.clock(), "its content is lost"
                )
            else:
                update, body = found
                result, answered = await self._attempt(delivery, update, body)
                self._context.tracer.pushed(update, delivery.callback, result.reason)
                if result.outcome is Outcome.DELIVERED:
                    self._context.metrics.journeys.delivered(update.trace_id, "callback", result.at)
        except StoreError as error:
            result = self._failed(delivery, str(error), None)
        except Exception as error:
            # A fault of ours must not hold up the lane until the next start.
            _log.exception(LogEvent("delivery.failed", subscription=delivery.subscription))
            result = self._failed(delivery, f"a fault of the hub: {error!r}"[:200], None)
        finally:
            self._slots.give_back(delivery.host, answered, time.monotonic() - began)
        if result.outcome is not Outcome.DELIVERED:
            self._told(result)
        elif delivery.failures:
            self._probes.recovered(delivery.host)
        self._results.append(result)
        if not answered:
            self._release(delivery.host)  # they would wait long, and others could use the room
        self._wake.set()

    def _told(self, result: DeliveryResult) -> None:
        """A dead callback fails often: what is tried again is for those who look closely."""
        delivery = result.delivery
        again = result.outcome in (Outcome.RETRY, Outcome.PROBED)
        level = logging.DEBUG if again else logging.INFO
        callback = masked_callback(delivery.callback)
        told = LogEvent(
            "delivery.failed", outcome=result.outcome, topic=masked_topic(delivery.topic),
            callback=callback, subscription=delivery.subscription, reason=result.reason,
        )  # fmt: skip
        _log.log(level, told)

    async def _attempt(
        self, delivery: Delivery, update: Update, body: bytes
    ) -> tuple[DeliveryResult, bool]:
        """One POST: how it ended, and whether there was any answer."""
        try:
            async with self._session.post(
                exact_url(delivery.callback),
                data=_Payload(body),
                headers=self._headers(delivery, update, body),
                allow_redirects=False,
            ) as answer:
                status, header = answer.status, answer.headers.get("Retry-After")
                await _drain(answer)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return self._failed(delivery, reason_of(error), None), False
        now = self._context.clock()
        if 200 <= status < 300:
            return DeliveryResult(delivery, Outcome.DELIVERED, now), True
        reason = f"the callback answered {status}"
        if status == 410:
            return DeliveryResult(delivery, Outcome.GONE, now, reason), True
        return self._failed(delivery, reason, retry_after(header, now)), True

    def _headers(self, delivery: Delivery, update: Update, body: bytes) -> dict[str, str]:
        """All there is: nothing of the publisher's but the content type."""
        settings = self._context.settings
        headers = {
            "Content-Type": update.content_type,
            "Link": link_header(settings.hub_url, delivery.topic),
            # The same for every attempt, so that a receiver can recognise a repeat.
            DELIVERY_HEADER: f"{update.position}-{delivery.subscription}",
            # The same for every subscriber: which update this is, for a hub that passes it on.
            POSITION_HEADER: str(update.position),
        }
        if delivery.secret is not None:
            algorithm = delivery.signature or settings.signature
            headers["X-Hub-Signature"] = signature(delivery.secret, body, algorithm)
        return headers

    def _failed(self, delivery: Delivery, reason: str, asked: float | None) -> DeliveryResult:
        schedule, now = self._context.settings.delivery_retries, self._context.clock()
        asked = None if asked is None else min(asked, schedule.longest)
        self._probes.failed(delivery.host, now, asked)
        if delivery.rests_until is not None:
            until = max(delivery.rests_until, now + (asked or 0.0))
            return DeliveryResult(delivery, Outcome.PROBED, now, reason, until)
        retry_at = now + schedule.delay(delivery.failures + 1, random.random(), asked)
        exhausted = schedule.exhausted(delivery.attempt + 1)
        outcome = Outcome.DROPPED if exhausted else Outcome.RETRY
        return DeliveryResult(delivery, outcome, now, reason, retry_at)


class _Payload(aiohttp.payload.BytesPayload):
    """Bytes of any size, without aiohttp's advice to stream large ones: these are in memory."""

    def __init__(self, value: bytes) -> None:
        aiohttp.payload.Payload.__init__(self, value, content_type="application/octet-stream")
        self._size = len(value)


async def _drain(answer: aiohttp.ClientResponse) -> None:
    """Read what little a callback says, so that its connection can be used again."""
    size = 0
    async for chunk in answer.content.iter_any():
        size += len(chunk)
        if size > _MAX_ANSWER:
            answer.close()
            return
