"""What the store keeps and hands out: frozen values, the same for every engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from identifiers import Position, PublisherId
from push_hub.lifecycle import State


@dataclass(frozen=True, slots=True)
class Identity:
    """Who numbers the updates that enter at this hub."""

    publisher: PublisherId
    epoch: int


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A topic, which is all spellings with the same ids."""

    id: int
    canonical: str
    sid: bytes
    rid: bytes
    fetch_url: str
    """The publisher's spelling: that of its last ping, or the first anybody used."""
    etag: str | None
    last_modified: str | None
    content_type: str | None
    digest: bytes | None
    """Of the body last recorded or seen to be no news."""
    ping_serial: int
    """Counts pings. A fetch is due while it is ahead of `fetched_serial`."""
    fetched_serial: int
    fetch_due: float | None
    fetch_failures: int
    trace_id: str | None
    """Of the last ping, for the update its fetch may find."""
    last_ping_at: float | None
    last_fetch_at: float | None
    last_update_at: float | None
    last_error: str | None
    """Why the last fetch failed; None when it did not."""
    signalled: bool
    """Whether a ping, or another hub, says that it changed, and no fetch has shown it yet."""
    rechecks: int
    """Fetches planned because a cache may have answered the last ping that was fetched for; 0 when
    its promise is kept, or given up."""


@dataclass(frozen=True, slots=True)
class Verification:
    """A request to subscribe or unsubscribe that its callback has not confirmed yet."""

    id: int
    mode: str
    topic: str
    callback: str
    lease_seconds: int
    requested_at: float
    secret: bytes | None = field(default=None, repr=False)
    verify_token: str | None = field(default=None, repr=False)
    new_entries_only: bool = False
    signature: str | None = None


@dataclass(frozen=True, slots=True)
class SubscriptionRecord:
    """A subscription and how its deliveries have been going."""

    id: int
    topic_id: int
    topic: str
    """As the subscriber spelled it."""
    callback: str
    host: str
    state: State
    lease_seconds: int
    expires_at: float | None
    created_at: float
    verified_at: float | None
    new_entries_only: bool
    signature: str | None
    waiting: int
    failures: int
    """In a row, since the last success."""
    last_success_at: float | None
    last_failure_at: float | None
    last_failure: str | None
    reason: str | None
    """Why it ended, where the subscriber did not end it."""
    ended_at: float | None
    secret: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Active:
    """What others need to know of a subscription that receives: who reads what, and how long."""

    id: int
    topic: str
    callback: str
    expires_at: float


class Origin(StrEnum):
    """How an update came here."""

    FETCHED = "fetched"
    """Full content each time: a newer one supersedes a waiting older one."""
    PUBLISHED = "published"
    """Sent by its publisher: each one counts."""
    RECEIVED = "received"
    """From another hub, which numbered it, and fetched it."""
    RECEIVED_PUBLISHED = "received published"
    """From another hub, to which its publisher had sent it."""

    @property
    def superseding(self) -> bool:
        return self in (Origin.FETCHED, Origin.RECEIVED)

    @property
    def received(self) -> bool:
        return self in (Origin.RECEIVED, Origin.RECEIVED_PUBLISHED)


@dataclass(frozen=True, slots=True)
class NewUpdate:
    """An update to be recorded. Without a position it enters here and gets one."""

    topic_id: int
    origin: Origin
    content_type: str
    body: bytes
    digest: bytes
    trace_id: str
    position: Position | None = None
    entries: str | None = None
    """New and changed entries as JSON, sanitised, for browsers; None for what is no feed."""
    known: Mapping[str, bytes] | None = None
    """Key and digest of each entry of the feed."""
    changed: frozenset[str] = frozenset()
    """The keys of those that are new or changed."""
    etag: str | None = None
    last_modified: str | None = None
    fetched_serial: int | None = None
    """The ping the fetch was for; None for an update that was not fetched here."""
    recheck_at: float | None = None
    """When to fetch again all the same, because this may not be all the news."""
    epoch: int | None = None
    """To number it in another epoch than the hub's own: that of a writer lease."""


@dataclass(frozen=True, slots=True)
class Update:
    """A recorded update."""

    seq: int
    """The order in which this hub recorded it, over all topics; local, unlike the position."""
    topic_id: int
    topic: str
    """In canonical form."""
    position: Position
    trace_id: str
    origin: Origin
    content_type: str
    body: bytes
    entries: str | None
    recorded_at: float


@dataclass(frozen=True, slots=True)
class LogPlace:
    """A topic as it was when the log had come to a certain number."""

    positions: tuple[Position, ...]
    """The highest of each publisher that was recorded by then, in its latest epoch."""
    pruned: frozenset[PublisherId]
    """Publishers of whom later updates have left the history since; of these there is no Position
    above, because it is not known any more."""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What has left the history of a topic, of one publisher: all up to a Position."""

    topic_id: int
    position: Position
    seq: int
    """The number of the last one that left."""


@dataclass(frozen=True, slots=True)
class Version:
    """An update in the history, without what it said."""

    position: Position
    origin: Origin
    content_type: str
    size: int
    recorded_at: float


@dataclass(frozen=True, slots=True)
class Progress:
    """The latest version of a topic, and how far it is with its callbacks."""

    position: Position
    new_entries: int | None
    """Entries that are new or changed in it; None for what is no feed."""
    delivered: int
    owed: int
    retrying: int
    """Of those owed, how many wait for another attempt."""
    next_at: float | None
    """When the first of these attempts is due."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What recording an update led to."""

    update: Update
    deliveries: int
    superseded: int
    overflowed: int
    """Waiting deliveries dropped because too many were waiting for their subscription."""
    resting_hosts: tuple[str, ...] = ()
    """Callback hosts with a subscription that is owed it and waits for the time of a retry."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """An update that is owed to a subscription, claimed to be sent now."""

    id: int
    subscription: int
    seq: int
    topic_id: int
    topic: str
    callback: str
    host: str
    attempt: int
    """How often it has failed."""
    failures: int
    """In a row, of the subscription."""
    last_seq: int
    """The update last delivered to the subscription, or latest when it began."""
    new_entries_only: bool
    signature: str | None
    secret: bytes | None = field(repr=False)
    rests_until: float | None = None
    """Of a probe: when the lane would have been due. None for an attempt in its time."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A delivery in the queue, for the operator."""

    id: int
    subscription: int
    topic: str
    callback: str
    position: str | None
    """None when its update is lost."""
    attempt: int
    in_flight: bool
    next_due: float | None
    """Of its lane; None while that is busy."""
    last_failure: str | None


class Outcome(StrEnum):
    """How an attempt to deliver ended."""

    DELIVERED = "delivered"
    RETRY = "retry"
    DROPPED = "dropped"
    GONE = "gone"
    PROBED = "probed"
    """A probe failed. It counts for nothing: the lane rests as long as it would have."""
    RELEASED = "released"
    """Not attempted: claimed too early, or the hub stops. Due at once, or when it was before."""


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """The end of one attempt."""

    delivery: Delivery
    outcome: Outcome
    at: float
    reason: str | None = None
    retry_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Exchanged:
    """What an exchange of results for new work came to."""

    claimed: tuple[Delivery, ...]
    next_due: float | None
    """When the next lane may go on that could not now because of its time."""
    superseded: int
    ended: tuple[SubscriptionRecord, ...]
    """Subscriptions that ended because their callback is gone."""


@dataclass(frozen=True, slots=True)
class Caps:
    """How much a store accepts. Those who ask are told."""

    subscriptions: int
    subscriptions_per_host: int
    topics: int


@dataclass(frozen=True, slots=True)
class Statistics:
    """Numbers for the metrics."""

    topics: int
    updates: int
    subscriptions: Mapping[str, int]
    """By state."""
    verifications: int
    deliveries: int
    fetches_due: int
    following: Mapping[str, int] = field(default_factory=dict)
    """Topics that nobody pings here, by the way they are followed."""
