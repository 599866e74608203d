"""What the hub asks of a store. A second engine implements this and passes the same tests.

Every method is one transaction, and durable against the death of the process when it returns. An
engine that cannot do what was asked raises StoreError, and then nothing of it has happened.
Times are seconds since 1970, given by the caller.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, Protocol

from identifiers import Position, PublisherId, Topic
from push_hub.following import Following
from push_hub.lifecycle import Event
from push_hub.requests import SubscriptionRequest
from push_hub.store.records import (
    Active,
    Caps,
    DeliveryResult,
    Exchanged,
    Forgotten,
    Identity,
    LogPlace,
    NewUpdate,
    Origin,
    Progress,
    Recorded,
    Statistics,
    SubscriptionRecord,
    TopicRecord,
    Update,
    Verification,
    Version,
    Waiting,
)

SENT: Final = frozenset(Origin) - {Origin.FETCHED}
"""How an update comes that was sent here: there was nothing to fetch."""


class Store(Protocol):
    """Topics, updates, subscriptions and deliveries, kept."""

    @property
    def identity(self) -> Identity:
        """Who numbers updates here; kept with them."""

    async def close(self) -> None:
        """Write what was asked for and let go."""

    # Subscriptions

    async def request(
        self, request: SubscriptionRequest, lease_seconds: int, caps: Caps, now: float
    ) -> Verification:
        """Keep a request until its callback has spoken; it takes the place of an earlier one.

        Refused when a cap is reached.
        """

    async def pending(self) -> list[Verification]:
        """All requests that wait for their callback, oldest first."""

    async def confirm(
        self, verification: Verification, asked_at: float
    ) -> SubscriptionRecord | None:
        """The callback confirmed; the lease runs from `asked_at`. None when it came too late."""

    async def refuse(
        self, verification: Verification, reason: str, now: float
    ) -> SubscriptionRecord | None:
        """The callback did not confirm. None when a later request has taken its place."""

    async def end(
        self, subscription: int, event: Event, reason: str, now: float
    ) -> SubscriptionRecord | None:
        """End a subscription; None when the event is void in its state."""

    async def expire(self, now: float, limit: int = 1_000) -> list[SubscriptionRecord]:
        """End subscriptions whose lease has, and say which."""

    async def forget(self, before: float, *, but_topics: Collection[int], limit: int = 500) -> int:
        """Forget subscriptions that ended before, and topics made before that never had an update
        or have a subscription; how many."""

    async def subscription(self, topic: str, callback: str) -> SubscriptionRecord | None:
        """By its key: topic and callback as the subscriber spelled them."""

    async def subscriptions(
        self, *, topic_id: int | None = None, after: int = 0, limit: int = 100
    ) -> list[SubscriptionRecord]:
        """In the order of their ids, from the one after `after` on."""

    async def active(self, *, after: int = 0, limit: int = 100) -> list[Active]:
        """Those that receive, in the order of their ids, from the one after `after` on."""

    async def subscribers(self, topic_id: int, now: float) -> int:
        """How many callbacks receive the topic's updates."""

    # Topics and fetching

    async def topic(self, topic: Topic) -> TopicRecord | None:
        """The topic, whatever the spelling."""

    async def topic_by_id(self, topic_id: int) -> TopicRecord | None:
        """The topic with this number."""

    async def topics(self, *, after: int = 0, limit: int = 100) -> list[TopicRecord]:
        """In the order of their ids, from the one after `after` on."""

    async def ensure_topic(self, topic: Topic, caps: Caps, now: float) -> TopicRecord:
        """The topic, made when there is none; Refused when there are too many. It counts as made
        now: one without an update is forgotten some time after this."""

    async def ping(
        self, topics: Sequence[tuple[Topic, str]], caps: Caps, now: float, *, create: bool
    ) -> list[TopicRecord]:
        """Note that (topic, trace id) changed; those known, and their relatives, will be fetched.

        With `create`, those not known become so.
        """

    async def due_fetches(self, now: float, limit: int) -> list[TopicRecord]:
        """Topics that were pinged since they were last fetched, and whose time has come."""

    async def next_fetch(self, after: float) -> float | None:
        """When the earliest fetch is due that is not due yet."""

    async def fetched(
        self,
        topic_id: int,
        serial: int,
        now: float,
        *,
        etag: str | None,
        last_modified: str | None,
        recheck_at: float | None = None,
    ) -> int:
        """A fetch for ping number `serial` found nothing new, and is made again at `recheck_at`
        unless a ping comes before.

        A first version that was kept back is owed now, if a ping led to the fetch: how often.
        """

    async def fetch_failed(
        self, topic_id: int, serial: int, now: float, *, reason: str, retry_at: float | None
    ) -> None:
        """It failed, and will be tried again, or not before the next ping."""

    async def postpone_fetch(self, topic_id: int, due: float) -> None:
        """Not before this time: the topic is pinged more often than it may be fetched."""

    async def skip_fetch(self, topic_id: int, serial: int, now: float) -> None:
        """No fetch for ping number `serial` or one before: the content comes by another way."""

    async def relate(self, topic_id: int, other: Topic) -> None:
        """Two topics are the same document: a ping for one is a ping for the other."""

    async def spellings(self, topic_id: int, limit: int = 100) -> list[str]:
        """The topic's canonical form, those of fetches, of related topics and of late
        subscriptions."""

    async def refetch(self, topic_id: int, now: float, trace_id: str, *, signalled: bool) -> None:
        """Make a fetch due without a ping; `signalled` when somebody said that it changed."""

    async def poll(self, every: float, now: float, trace_ids: Sequence[str]) -> int:
        """Make a fetch due of topics subscribed to and not fetched for so long; how many."""

    # Topics that nobody pings here

    async def following(self, topic_id: int) -> Following | None:
        """How the topic is followed; None when it need not be."""

    async def following_by_token(self, token: str) -> Following | None:
        """The one whose hub knows us by this token."""

    async def begin_following(
        self,
        now: float,
        *,
        asked_before: float | None,
        told_before: float,
        watched: Collection[int],
        sent: Collection[Origin] = SENT,
        limit: int = 100,
    ) -> int:
        """Make a look due at topics that are watched, or subscribed to and known before
        `asked_before`, and that were not pinged or sent since `told_before`; how many.

        Without `asked_before` only those that are watched. Updates of an origin in `sent` mean
        that the topic is sent here.
        """

    async def end_following(
        self,
        *,
        told_before: float,
        watched: Collection[int],
        sent: Collection[Origin] = SENT,
        limit: int = 100,
    ) -> int:
        """Follow no longer what nobody wants, or what is sent here; how many."""

    async def all_following(self, *, after: int = 0, limit: int = 100) -> list[Following]:
        """In the order of their topics' ids, from the one after `after` on."""

    async def due_following(self, now: float, limit: int = 100) -> list[Following]:
        """Those about which something has to be done, the most urgent first."""

    async def follow(self, record: Following) -> None:
        """Keep how a topic is followed; void when it is not any more."""

    async def pushed(self, topic_id: int, now: float) -> None:
        """Its hub has pushed something."""

    # Updates

    async def known_entries(self, topic_id: int) -> dict[str, bytes]:
        """Key and digest of the entries seen so far."""

    async def changed_since(self, topic_id: int, seq: int) -> frozenset[str]:
        """Keys of entries that became new or changed after an update."""

    async def record(
        self, update: NewUpdate, now: float, *, max_waiting: int, history: int, history_bytes: int
    ) -> Recorded | None:
        """Number the update, keep it and queue its deliveries. None when it was here before."""

    async def update(self, seq: int) -> Update | None:
        """An update in the history."""

    async def latest(self, topic_id: int) -> Update | None:
        """The update last recorded."""

    async def history(
        self, topic_ids: Collection[int], after: int, limit: int, most_bytes: int | None = None
    ) -> list[Update]:
        """Updates recorded after number `after`, oldest first; the next, and no more of those that
        follow than have so many bytes together."""

    async def log_page(
        self, topic_ids: Collection[int], after: int, limit: int, most_bytes: int
    ) -> tuple[list[Update], list[Forgotten]]:
        """The same, and what is missing between number `after` and these because it left the
        history: of each publisher, in its latest epoch."""

    async def versions(self, topic_id: int, limit: int) -> list[Version]:
        """The updates in the history, newest first."""

    async def progress(self, topic_id: int, now: float) -> Progress | None:
        """The update last recorded, and how far it is with its callbacks; None before the first."""

    async def find(self, topic_id: int, position: Position) -> int | None:
        """The number of the update with this position; None when it is not in the history."""

    async def traced(self, topic_id: int, trace_id: str, within: int) -> list[Update]:
        """Those of the last so many updates of the topic that have this trace id: each is of
        another publisher."""

    async def backlog(
        self, topic_id: int, publisher: PublisherId, after: Position | None, limit: int
    ) -> list[Update]:
        """Updates that this publisher numbered, after a position of its own, oldest first."""

    async def positions(self, topic_id: int) -> list[Position]:
        """The highest one of each publisher that was ever recorded, in its latest epoch."""

    async def log_places(
        self, topic_ids: Collection[int], seq: int
    ) -> Mapping[int, LogPlace] | None:
        """Each of the topics when update number `seq` was the last one recorded, of whatever topic;
        None when that number was not given yet."""

    async def last_seq(self) -> int:
        """The number of the update last recorded, of whatever topic; 0 before the first."""

    # Deliveries

    async def recover(self) -> int:
        """After a start: deliveries in flight when the process died are due again. How many."""

    async def exchange(
        self, results: Sequence[DeliveryResult], now: float, room: int, per_host: dict[str, int],
        default_per_host: int, probes: Mapping[str, int] | None = None,
    ) -> Exchanged:  # fmt: skip
        """Note how attempts ended, and claim up to `room` deliveries to attempt next.

        `per_host` says how many may be claimed for a host, `default_per_host` for the others.
        `probes` says at which hosts how many lanes may be tried before their time; that tried
        longest ago comes first.
        """

    async def replay(self, seq: int, subscription: int | None, now: float) -> int | None:
        """Owe an update again, to one subscription or all of its topic; to how many. None when it
        is not in the history."""

    async def queue(self, *, after: int = 0, limit: int = 100) -> list[Waiting]:
        """Deliveries owed, in the order of their ids, from the one after `after` on."""

    async def subscription_by_id(self, subscription: int) -> SubscriptionRecord | None:
        """The subscription with this number."""

    async def statistics(self) -> Statistics:
        """Numbers for the metrics."""
