"""The hub: its parts put together, started and stopped in order.

Nothing here knows about routes; `app` serves a hub over HTTP, and a proxy can run one in process.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Self

import aiohttp
from aiohttp.abc import AbstractResolver

from identifiers import Position, Topic
from push_hub.addresses import AddressPolicy
from push_hub.callbacks import host_of
from push_hub.connecting import guarded_session
from push_hub.context import Context, Tasks
from push_hub.distribution import Distributor
from push_hub.errors import Refused, StoreError
from push_hub.intake import Intake
from push_hub.lifecycle import Event
from push_hub.requests import SubscriptionRequest
from push_hub.settings import HubSettings
from push_hub.store.interface import Store
from push_hub.store.records import Origin, Recorded, SubscriptionRecord, Update
from push_hub.streams import Streams
from push_hub.tracing import Tracer
from push_hub.upstream import Upstream
from push_hub.verification import Verifier
from traces import NullSink, TraceSink

_log = logging.getLogger(__name__)

Listener = Callable[[Update], None]

_SWEEP = 5.0
_NEARLY_FULL = 0.8
_SHORTLY = 60.0
"""Seconds for which a hub that is nearly full remembers what nobody needs."""
_FORGET_AT_ONCE = 500


class Hub:
    """An asynchronous context manager; the store is the caller's to open and close."""

    def __init__(
        self,
        settings: HubSettings,
        store: Store,
        *,
        trace: TraceSink | None = None,
        node: str = "hub",
        domain: str = "local",
        clock: Callable[[], float] = time.time,
        resolver: AbstractResolver | None = None,
    ) -> None:
        tracer = Tracer(trace or NullSink(), node, domain)
        self.context = Context(settings, store, tracer, clock)
        self.callback_policy = AddressPolicy(
            settings.allow_callback, "request to a callback", "--allow-callback"
        )
        self.fetch_policy = AddressPolicy(settings.allow_fetch, "fetch", "--allow-fetch")
        self.streams = Streams(self.context)
        self._resolver = resolver
        self._listeners: list[Listener] = []
        self._loops = Tasks()
        self._sessions: list[aiohttp.ClientSession] = []
        self._intake: Intake
        self.upstream: Upstream
        self._verifier: Verifier
        self._distributor: Distributor

    @property
    def settings(self) -> HubSettings:
        return self.context.settings

    @property
    def store(self) -> Store:
        return self.context.store

    @property
    def counters(self) -> Counter[str]:
        return self.context.counters

    async def __aenter__(self) -> Self:
        settings = self.settings
        callbacks = self._session(
            self.callback_policy,
            settings.deliveries_at_once + settings.verifications_at_once,
            settings.callback_timeout,
        )
        topics = self._session(self.fetch_policy, settings.fetches_at_once, settings.fetch_timeout)
        self._verifier = Verifier(self.context, callbacks)
        self._distributor = Distributor(self.context, callbacks)
        self._intake = Intake(
            self.context, topics, self.fetch_policy, self._recorded, self._distributor.wake
        )
        self.upstream = Upstream(self.context, topics, self._intake, self.streams)
        await self._distributor.start()
        await self._verifier.start()
        self._intake.start()
        self.upstream.start()
        self._loops.start(self._sweep())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        patience = self.settings.callback_timeout
        self.streams.close()
        await self._loops.stop()
        await self.upstream.stop()
        await self._intake.stop(patience)
        await self._verifier.stop()
        await self._distributor.stop(patience)
        for session in self._sessions:
            await session.close()

    def listen(self, listener: Listener) -> None:
        """Call the listener with every update recorded here, once it is durable.

        That is where a proxy asks whether anyone outside wants it. It must not block.
        """
        self._listeners.append(listener)

    async def subscribe(self, request: SubscriptionRequest) -> asyncio.Task[str | None]:
        """Take a request to subscribe or unsubscribe: durable when it returns, verified later.

        The task's result is None, or why the callback did not confirm. Raises Refused, or
        AddressRefused for a callback the hub must not call.
        """
        self.callback_policy.check_host(host_of(request.callback).rpartition(":")[0])
        lease = self.settings.leases.grant(request.lease_seconds)
        if request.mode == "subscribe" and not self.settings.serves_host(request.topic.host):
            raise Refused(f"this hub does not serve topics of {request.topic.host}")
        self._verifier.check_room(request.callback)
        verification = await self.store.request(
            request, lease, self.context.caps, self.context.clock()
        )
        self.counters["requests"] += 1
        return self._verifier.submit(verification)

    def deny(self, request: SubscriptionRequest, reason: str) -> None:
        """Tell the callback of a request that it was refused."""
        self._verifier.deny(request.callback, request.topic.spelling, reason)

    async def drop(self, subscription: int, reason: str) -> SubscriptionRecord | None:
        """End a subscription by the operator's wish, and tell its callback."""
        ended = await self.store.end(subscription, Event.DENIED, reason, self.context.clock())
        if ended is not None:
            self._verifier.ended(ended)
            self._verifier.deny(ended.callback, ended.topic, reason)
        return ended

    async def replay(self, seq: int, subscription: int | None = None) -> int | None:
        """Owe an update again, to one subscription or to all of its topic; to how many.

        It carries the delivery id of the first time. None when it is not in the history.
        """
        owed = await self.store.replay(seq, subscription, self.context.clock())
        if owed:
            self.counters["replayed"] += owed
            self._distributor.wake()
        return owed

    async def ping(self, topics: tuple[Topic, ...]) -> int:
        """Topics changed: fetch them. Durable when it returns; how many are known here."""
        return await self._intake.ping(topics)

    async def publish(self, topic: Topic, content_type: str, body: bytes) -> Recorded | None:
        """Content from its publisher: durable, with its Position, when it returns."""
        return await self._intake.publish(topic, content_type, body)

    async def accept(
        self,
        topic: Topic,
        content_type: str,
        body: bytes,
        *,
        position: Position,
        trace_id: str,
        published: bool = False,
    ) -> Recorded | None:
        """An update that another hub numbered: it keeps its Position. None when it was here."""
        origin = Origin.RECEIVED_PUBLISHED if published else Origin.RECEIVED
        return await self._intake.accept(topic, content_type, body, origin, trace_id, position)

    def _recorded(self, recorded: Recorded) -> None:
        self._distributor.recorded(recorded)
        self.streams.send(recorded.update)
        for listener in self._listeners:
            try:
                listener(recorded.update)
            except Exception:
                _log.exception("a listener failed on %s", recorded.update.position)

    async def _sweep(self) -> None:
        """End leases whose time is over, and forget what ended long ago."""
        while True:
            try:
                for ended in await self.store.expire(self.context.clock()):
                    self._verifier.ended(ended)
                await self._forget()
            except StoreError as error:
                _log.error("%s", error)
            await asyncio.sleep(_SWEEP)

    async def _forget(self) -> None:
        """What ended long ago; not so long ago when the hub is nearly full.

        Anybody can make it remember requests that nobody confirms and topics nobody has.
        """
        settings, now = self.settings, self.context.clock()
        kept = await self.store.statistics()
        full = max(
            kept.topics / settings.max_topics,
            sum(kept.subscriptions.values()) / settings.max_subscriptions,
        )
        before = now - (settings.remember_ended if full < _NEARLY_FULL else _SHORTLY)
        while await self.store.forget(before, but_topics=self.streams.topics()) >= _FORGET_AT_ONCE:
            pass

    def _session(
        self, policy: AddressPolicy, connections: int, timeout: float
    ) -> aiohttp.ClientSession:
        session = guarded_session(
            policy, connections=connections, timeout=timeout, resolver=self._resolver
        )
        self._sessions.append(session)
        return session
