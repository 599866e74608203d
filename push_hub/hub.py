"""The hub: its parts put together, started and stopped in order.

Nothing here knows about routes; `app` serves a hub over HTTP, and a proxy can run one in process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import aiohttp
from aiohttp.abc import AbstractResolver
from prometheus_client import CollectorRegistry

from identifiers import Position, PublisherId, Topic
from push_hub.addresses import AddressPolicy
from push_hub.callbacks import host_of
from push_hub.carried import Carried
from push_hub.carrier import Carrier
from push_hub.carrying import Carrying
from push_hub.connecting import guarded_session
from push_hub.context import Context, Tasks
from push_hub.distribution import Distributor
from push_hub.errors import Refused, StoreError
from push_hub.guide import Guide, Guiding
from push_hub.housekeeping import keep_house
from push_hub.intake import Intake
from push_hub.interest import Interest, Looks
from push_hub.lifecycle import Event
from push_hub.masking import masked_topic
from push_hub.metrics import Counters, HubMetrics
from push_hub.naming import Naming, is_web
from push_hub.readers import Readers
from push_hub.requests import SubscriptionRequest
from push_hub.settings import HubSettings
from push_hub.siblings import KnownSiblings, Siblings
from push_hub.store.interface import Store
from push_hub.store.records import Origin, Recorded, SubscriptionRecord, Update
from push_hub.stream_carrier import StreamCarrier
from push_hub.streams import Streams
from push_hub.tracing import Tracer
from push_hub.upstream import Upstream
from push_hub.upstream_asking import Asking
from push_hub.verification import Verifier
from traces import LogEvent, NullSink, TraceSink

_log = logging.getLogger(__name__)

Listener = Callable[[Update], None]

_OUTSIDE = "outside"
_LOOKED_UP_S = 30.0
"""For a guide to be asked about the topics of an earlier run before any of them is fetched."""


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
        carrier: Carrier | None = None,
        guide: Guide | None = None,
        siblings: Siblings | None = None,
        registry: CollectorRegistry | None = None,
    ) -> None:
        """`registry` is where the hub's metrics are; without one they have their own."""
        tracer = Tracer(trace or NullSink(), node, domain)
        naming = Naming(settings.public_url)
        carrying = Carrying(naming, settings.admit_patience, settings.recall_patience)
        metrics = HubMetrics(registry)
        self.context = Context(settings, store, tracer, clock, naming, carrying, metrics)
        if carrier is not None and guide is not None:
            raise ValueError("a hub has a guide or a carrier, and not both: leave one out")
        if carrier is not None:
            carrying.use(carrier)
        self._guide = guide
        self._stream_carrier: StreamCarrier | None = None
        self.siblings = KnownSiblings(siblings, settings.public_url)
        self.callback_policy = AddressPolicy(
            settings.allow_callback, "request to a callback", "--allow-callback"
        )
        self.fetch_policy = AddressPolicy(settings.allow_fetch, "fetch", "--allow-fetch")
        self.streams = Streams(self.context)
        metrics.count_streams(self.streams.__len__)
        self.interest = Interest(self.context, self.streams)
        self._looks = Looks()
        self._running = False
        self._resolver = resolver
        self._listeners: list[Listener] = []
        self._loops = Tasks()
        self._sessions: list[aiohttp.ClientSession] = []
        self._intake: Intake
        self._carried: Carried
        self.upstream: Upstream
        self.readers: Readers
        self._verifier: Verifier
        self._distributor: Distributor

    @property
    def settings(self) -> HubSettings:
        return self.context.settings

    @property
    def store(self) -> Store:
        return self.context.store

    @property
    def counters(self) -> Counters:
        return self.context.counters

    async def refresh_metrics(self) -> None:
        """Before its registry is read: what the store knows is asked for then."""
        await self.context.metrics.refresh(self.store)

    async def __aenter__(self) -> Self:
        settings = self.settings
        callbacks = self._session(
            self.callback_policy,
            settings.deliveries_at_once + settings.verifications_at_once,
            settings.callback_timeout,
        )
        topics = self._session(self.fetch_policy, settings.fetches_at_once, settings.fetch_timeout)
        if self._guide is not None and settings.follow_after is not None:
            # Any number of connections: each of them is to a hub that our own guide names.
            streams = self._session(self.fetch_policy, 0, settings.fetch_timeout)
            guiding = Guiding(self._guide, settings.hub_url)
            self._stream_carrier = StreamCarrier(self, guiding, streams)
            self.context.carrying.use(self._stream_carrier)
        self._verifier = Verifier(self.context, callbacks)
        self._distributor = Distributor(self.context, callbacks)
        self._intake = Intake(
            self.context, topics, self.fetch_policy, self._recorded, self._distributor.wake
        )
        self._intake.ended = self._looks.happened
        self._carried = Carried(self.context, self._intake, self.interest)
        asking = Asking(self.context, topics)
        self.upstream = Upstream(self.context, asking, self._intake, self.interest, self._carried)
        self.readers = Readers(self.context, self._intake, self.interest, self._looks)
        await self.streams.start()
        await self._distributor.start()
        await self._verifier.start()
        self._intake.start()
        if self._stream_carrier is not None:
            self._stream_carrier.start()
            self._loops.start(self._follow(self._stream_carrier))
        else:
            self._carried.start()
            self.upstream.start()
            if self.context.carrying.present:
                self._loops.start(self.context.carrying.tell(self.store))
        self._loops.start(keep_house(self.context, self.interest, self._verifier.ended))
        self._loops.start(self.readers.end_leases())
        self._running = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        patience = self.settings.callback_timeout
        self.streams.close()
        await self.streams.stop()
        await self._loops.stop()
        await self.upstream.stop()
        await self._carried.stop()
        await self._intake.stop(patience)
        await self._verifier.stop()
        await self.context.carrying.stop()
        if self._stream_carrier is not None:
            await self._stream_carrier.stop()
        await self._distributor.stop(patience)
        for session in self._sessions:
            await session.close()

    def listen(self, listener: Listener) -> None:
        """Call the listener with every update recorded here, once it is durable.

        That is where a proxy asks whether anyone outside wants it. It must not block.
        """
        self._listeners.append(listener)

    def carry(self, carrier: Carrier) -> None:
        """Have a carrier from now on; best from `started` of `create_app`, before anything is
        served.

        It is told of the subscriptions in the store soon after, a page at a time, while the hub
        serves already; of whoever joins or leaves meanwhile at once.
        """
        self.context.carrying.use(carrier)
        if self._running:
            self._loops.start(self.context.carrying.tell(self.store))

    def carrier_changed(self, topic: Topic) -> None:
        """The carrier's answer to `brings` is another one for this topic."""
        self._carried.changed(topic)

    def keep(self, topic: Topic) -> None:
        """Somebody outside wants the topic: it is followed, and fetched when pinged, until it is
        let go. Kept in memory only."""
        if self.interest.hold(topic, _OUTSIDE):
            self._loops.start(self._keep(topic))

    def let_go(self, topic: Topic) -> None:
        """Nobody outside wants it any more."""
        self.interest.release(topic, _OUTSIDE)

    async def first_look(self, topic: Topic, timeout: float) -> None:  # noqa: ASYNC109
        """Returns when the topic was fetched, or could not be, since it became known, when it has
        an update, or when the time is up. Refused when the hub has too many topics."""
        record = await self.interest.settle(topic)
        if not is_web(topic):
            return
        with self._looks.of(record.id) as happened, contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while True:
                    happened.clear()
                    found = await self.store.topic_by_id(record.id)
                    if found is None or found.last_fetch_at or found.last_update_at:
                        return
                    await happened.wait()

    async def backlog(self, topic: Topic, after: Position | None, limit: int) -> list[Update]:
        """What this hub numbered itself (`store.identity`) after a position of its own, oldest
        first; all that is kept without one, or with one of somebody else."""
        record, publisher = await self.store.topic(topic), self.store.identity.publisher
        if record is None:
            return []
        if after is not None and after.publisher != publisher:
            after = None
        return await self.store.backlog(record.id, publisher, after, limit)

    async def positions(self, topic: Topic) -> list[Position]:
        """The highest Position of each publisher's latest epoch that was recorded here."""
        record = await self.store.topic(topic)
        return [] if record is None else await self.store.positions(record.id)

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
        if request.mode == "subscribe" and (
            (plain := self.context.naming.plain(request.topic)) is not request.topic
        ):
            # Made by its own name: that is where it is fetched.
            await self.store.ensure_topic(plain, self.context.caps, self.context.clock())
        verification = await self.store.request(
            request, lease, self.context.caps, self.context.clock()
        )
        self.counters.add("requests")
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
        if (update := await self.store.update(seq)) is not None:
            self.context.metrics.journeys.forget(update.trace_id)
        owed = await self.store.replay(seq, subscription, self.context.clock())
        if owed:
            self.counters.add("replayed", owed)
            self._distributor.wake()
        return owed

    async def ping(self, topics: tuple[Topic, ...]) -> int:
        """Topics changed: fetch them. Durable when it returns; how many are known here."""
        return await self._intake.ping(topics)

    async def publish(
        self,
        topic: Topic,
        content_type: str,
        body: bytes,
        *,
        trace_id: str | None = None,
        superseding: bool = False,
    ) -> Recorded | None:
        """Content from its publisher: durable, with its Position, when it returns. Each one counts,
        unless it is `superseding`: then only the latest is of interest."""
        return await self._intake.publish(
            topic, content_type, body, trace_id=trace_id, superseding=superseding
        )

    async def adopt(self, topic: Topic, numbered: Callable[[PublisherId], bool]) -> Recorded | None:
        """Number the current version of a topic anew, if one of certain hubs `numbered` it: that
        hub is gone, and who asks this one from now on is to have it. It is news to no callback."""
        record = await self.store.topic(topic)
        latest = None if record is None else await self.store.latest(record.id)
        if latest is None or not numbered(latest.position.publisher):
            return None
        if not latest.origin.superseding or not is_web(topic):
            return None  # each of them counted, and was counted; or is said again by itself
        return await self._intake.publish(topic, latest.content_type, latest.body, superseding=True)

    async def accept(
        self,
        topic: Topic,
        content_type: str,
        body: bytes,
        *,
        position: Position,
        trace_id: str,
        published: bool = False,
        recorded_at: float | None = None,
    ) -> Recorded | None:
        """An update that another hub numbered: it keeps its Position. None when it was here.

        `recorded_at`: when that hub recorded it, by its clock; the crossing is measured from there.
        """
        if recorded_at is not None:
            self.context.metrics.journeys.crossed(trace_id, recorded_at)
        origin = Origin.RECEIVED_PUBLISHED if published else Origin.RECEIVED
        return await self._intake.accept(topic, content_type, body, origin, trace_id, position)

    def _recorded(self, recorded: Recorded) -> None:
        self._distributor.recorded(recorded)
        self.streams.send(recorded.update)
        self._looks.happened(recorded.update.topic_id)
        for listener in self._listeners:
            try:
                listener(recorded.update)
            except Exception:
                _log.exception(LogEvent("listener.failed", position=recorded.update.position))

    async def _follow(self, carrier: StreamCarrier) -> None:
        """Begin to follow topics, once the carrier knows which of them it brings."""
        await self.context.carrying.tell(self.store)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOKED_UP_S):
                await carrier.looked_up()
        self._carried.start()
        self.upstream.start()

    async def _keep(self, topic: Topic) -> None:
        try:
            record = await self.interest.settle(topic)
            if self.settings.follow_after is None and is_web(topic):
                await self._intake.look(record.id)  # nobody else would
        except (Refused, StoreError) as error:
            _log.error(
                LogEvent("topic.not_kept", topic=masked_topic(topic.canonical), reason=error)
            )

    def _session(
        self, policy: AddressPolicy, connections: int, timeout: float
    ) -> aiohttp.ClientSession:
        session = guarded_session(
            policy, connections=connections, timeout=timeout, resolver=self._resolver
        )
        self._sessions.append(session)
        return session
