"""The store on SQLite: the interface's methods, each an operation of the engine.

What the operations do is in `sqlite_topics`, `sqlite_subscriptions`, `sqlite_following`,
`sqlite_updates`, `sqlite_history` and `sqlite_deliveries`; here they only meet the engine.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Self

from identifiers import Position, PublisherId, Topic
from push_hub.errors import StoreError
from push_hub.following import Following
from push_hub.lifecycle import Event
from push_hub.requests import SubscriptionRequest
from push_hub.store import sqlite_deliveries as deliveries
from push_hub.store import sqlite_following as following
from push_hub.store import sqlite_history as kept
from push_hub.store import sqlite_subscriptions as subscriptions
from push_hub.store import sqlite_topics as topics
from push_hub.store import sqlite_updates as updates
from push_hub.store.interface import SENT
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
from push_hub.store.sqlite_engine import SqliteEngine


class SqliteStore:
    """Implements `interface.Store`."""

    def __init__(self, engine: SqliteEngine) -> None:
        """Use `open`."""
        self._engine = engine

    @classmethod
    async def open(
        cls, path: Path, *, power_safe: bool = False, boot_id: str | None = None
    ) -> Self:
        """The store in this file, made or migrated where needed. With `power_safe`, what returned
        is on the disk."""
        return cls(SqliteEngine(path, power_safe=power_safe, boot_id=boot_id))

    @property
    def identity(self) -> Identity:
        return self._engine.identity

    async def close(self) -> None:
        await self._engine.close()

    async def request(
        self, request: SubscriptionRequest, lease_seconds: int, caps: Caps, now: float
    ) -> Verification:
        return await self._engine.write(
            lambda db: subscriptions.request(db, request, lease_seconds, caps, now)
        )

    async def pending(self) -> list[Verification]:
        return await self._engine.read(subscriptions.pending)

    async def confirm(
        self, verification: Verification, asked_at: float
    ) -> SubscriptionRecord | None:
        return await self._engine.write(
            lambda db: subscriptions.confirm(db, verification, asked_at)
        )

    async def refuse(
        self, verification: Verification, reason: str, now: float
    ) -> SubscriptionRecord | None:
        return await self._engine.write(
            lambda db: subscriptions.refuse(db, verification, reason, now)
        )

    async def end(
        self, subscription: int, event: Event, reason: str, now: float
    ) -> SubscriptionRecord | None:
        return await self._engine.write(
            lambda db: subscriptions.end(db, subscription, event, reason, now)
        )

    async def expire(self, now: float, limit: int = 1_000) -> list[SubscriptionRecord]:
        return await self._engine.write(lambda db: subscriptions.expire(db, now, limit))

    async def forget(self, before: float, *, but_topics: Collection[int], limit: int = 500) -> int:
        return await self._engine.write(
            lambda db: (
                subscriptions.forget(db, before, limit)
                + topics.forget(db, before, limit, but_topics)
            )
        )

    async def subscription(self, topic: str, callback: str) -> SubscriptionRecord | None:
        return await self._engine.read(lambda db: subscriptions.by_key(db, topic, callback))

    async def subscriptions(
        self, *, topic_id: int | None = None, after: int = 0, limit: int = 100
    ) -> list[SubscriptionRecord]:
        return await self._engine.read(lambda db: subscriptions.listing(db, topic_id, after, limit))

    async def active(self, *, after: int = 0, limit: int = 100) -> list[Active]:
        return await self._engine.read(lambda db: subscriptions.active(db, after, limit))

    async def subscribers(self, topic_id: int, now: float) -> int:
        return await self._engine.read(lambda db: subscriptions.subscribers(db, topic_id, now))

    async def topic(self, topic: Topic) -> TopicRecord | None:
        return await self._engine.read(lambda db: topics.by_canonical(db, topic.canonical))

    async def topic_by_id(self, topic_id: int) -> TopicRecord | None:
        return await self._engine.read(lambda db: topics.by_id(db, topic_id))

    async def topics(self, *, after: int = 0, limit: int = 100) -> list[TopicRecord]:
        return await self._engine.read(lambda db: topics.listing(db, after, limit))

    async def ensure_topic(self, topic: Topic, caps: Caps, now: float) -> TopicRecord:
        def operation(db: sqlite3.Connection) -> TopicRecord:
            topic_id = topics.ensure(db, topic, caps, now)
            topics.touch(db, topic_id, now)
            found = topics.by_id(db, topic_id)
            assert found is not None
            return found

        return await self._engine.write(operation)

    async def ping(
        self, topics_: Sequence[tuple[Topic, str]], caps: Caps, now: float, *, create: bool
    ) -> list[TopicRecord]:
        return await self._engine.write(lambda db: topics.ping(db, topics_, caps, now, create))

    async def due_fetches(self, now: float, limit: int) -> list[TopicRecord]:
        return await self._engine.read(lambda db: topics.due_fetches(db, now, limit))

    async def next_fetch(self, after: float) -> float | None:
        return await self._engine.read(lambda db: topics.next_fetch(db, after))

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
        def operation(db: sqlite3.Connection) -> int:
            released = updates.release(db, topic_id, now)
            topics.note_fetch(db, topic_id, serial, now, etag, last_modified, recheck_at)
            return released

        return await self._engine.write(operation)

    async def fetch_failed(
        self, topic_id: int, serial: int, now: float, *, reason: str, retry_at: float | None
    ) -> None:
        await self._engine.write(
            lambda db: topics.fetch_failed(db, topic_id, serial, now, reason, retry_at)
        )

    async def postpone_fetch(self, topic_id: int, due: float) -> None:
        await self._engine.write(lambda db: topics.postpone_fetch(db, topic_id, due))

    async def skip_fetch(self, topic_id: int, serial: int, now: float) -> None:
        await self._engine.write(lambda db: topics.skip_fetch(db, topic_id, serial, now))

    async def relate(self, topic_id: int, other: Topic) -> None:
        await self._engine.write(lambda db: topics.relate(db, topic_id, other))

    async def spellings(self, topic_id: int, limit: int = 100) -> list[str]:
        return await self._engine.read(lambda db: topics.spellings(db, topic_id, limit))

    async def refetch(self, topic_id: int, now: float, trace_id: str, *, signalled: bool) -> None:
        await self._engine.write(lambda db: topics.refetch(db, topic_id, now, trace_id, signalled))

    async def following(self, topic_id: int) -> Following | None:
        return await self._engine.read(lambda db: following.by_topic(db, topic_id))

    async def following_by_token(self, token: str) -> Following | None:
        return await self._engine.read(lambda db: following.by_token(db, token))

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
        # Found by the reader: writes do not wait for a look at all topics.
        found = await self._engine.read(
            lambda db: following.wanted(db, asked_before, told_before, watched, sent, limit)
        )
        if found:
            await self._engine.write(lambda db: following.begin(db, found, now))
        return len(found)

    async def end_following(
        self,
        *,
        told_before: float,
        watched: Collection[int],
        sent: Collection[Origin] = SENT,
        limit: int = 100,
    ) -> int:
        found = await self._engine.read(
            lambda db: following.unwanted(db, told_before, watched, sent, limit)
        )
        if found:
            await self._engine.write(lambda db: following.end(db, found))
        return len(found)

    async def all_following(self, *, after: int = 0, limit: int = 100) -> list[Following]:
        return await self._engine.read(lambda db: following.listing(db, after, limit))

    async def due_following(self, now: float, limit: int = 100) -> list[Following]:
        return await self._engine.read(lambda db: following.due(db, now, limit))

    async def follow(self, record: Following) -> None:
        await self._engine.write(lambda db: following.put(db, record))

    async def pushed(self, topic_id: int, now: float) -> None:
        await self._engine.write(lambda db: following.pushed(db, topic_id, now))

    async def poll(self, every: float, now: float, trace_ids: Sequence[str]) -> int:
        return await self._engine.write(lambda db: topics.poll(db, every, now, trace_ids))

    async def known_entries(self, topic_id: int) -> dict[str, bytes]:
        return await self._engine.read(lambda db: updates.known_entries(db, topic_id))

    async def changed_since(self, topic_id: int, seq: int) -> frozenset[str]:
        return await self._engine.read(lambda db: updates.changed_since(db, topic_id, seq))

    async def record(
        self, update: NewUpdate, now: float, *, max_waiting: int, history: int, history_bytes: int
    ) -> Recorded | None:
        if update.position is not None and (
            update.position.epoch >= 1 << 63 or update.position.version >= 1 << 63
        ):
            raise StoreError(f"{update.position} is beyond what can be stored: refuse its sender")
        return await self._engine.write(
            lambda db: updates.record(
                db, self.identity, update, now, max_waiting, history, history_bytes
            )
        )

    async def update(self, seq: int) -> Update | None:
        return await self._engine.read(lambda db: kept.by_seq(db, seq))

    async def latest(self, topic_id: int) -> Update | None:
        return await self._engine.read(lambda db: kept.latest(db, topic_id))

    async def history(
        self, topic_ids: Collection[int], after: int, limit: int, most_bytes: int | None = None
    ) -> list[Update]:
        return await self._engine.read(
            lambda db: kept.history(db, topic_ids, after, limit, most_bytes)
        )

    async def log_page(
        self, topic_ids: Collection[int], after: int, limit: int, most_bytes: int
    ) -> tuple[list[Update], list[Forgotten]]:
        return await self._engine.read(
            lambda db: kept.log_page(db, topic_ids, after, limit, most_bytes)
        )

    async def versions(self, topic_id: int, limit: int) -> list[Version]:
        return await self._engine.read(lambda db: kept.versions(db, topic_id, limit))

    async def progress(self, topic_id: int, now: float) -> Progress | None:
        return await self._engine.read(lambda db: deliveries.progress(db, topic_id, now))

    async def find(self, topic_id: int, position: Position) -> int | None:
        return await self._engine.read(lambda db: kept.find(db, topic_id, position))

    async def traced(self, topic_id: int, trace_id: str, within: int) -> list[Update]:
        return await self._engine.read(lambda db: kept.traced(db, topic_id, trace_id, within))

    async def backlog(
        self, topic_id: int, publisher: PublisherId, after: Position | None, limit: int
    ) -> list[Update]:
        return await self._engine.read(
            lambda db: kept.backlog(db, topic_id, publisher, after, limit)
        )

    async def positions(self, topic_id: int) -> list[Position]:
        return await self._engine.read(lambda db: kept.positions(db, topic_id))

    async def log_places(
        self, topic_ids: Collection[int], seq: int
    ) -> Mapping[int, LogPlace] | None:
        return await self._engine.read(lambda db: kept.log_places(db, topic_ids, seq))

    async def last_seq(self) -> int:
        return await self._engine.read(kept.last_seq)

    async def recover(self) -> int:
        return await self._engine.write(deliveries.recover)

    async def exchange(
        self,
        results: Sequence[DeliveryResult],
        now: float,
        room: int,
        per_host: dict[str, int],
        default_per_host: int,
        probes: Mapping[str, int] | None = None,
    ) -> Exchanged:
        return await self._engine.write(
            lambda db: deliveries.exchange(
                db, results, now, room, per_host, default_per_host, probes or {}
            )
        )

    async def replay(self, seq: int, subscription: int | None, now: float) -> int | None:
        return await self._engine.write(lambda db: updates.replay(db, seq, subscription, now))

    async def queue(self, *, after: int = 0, limit: int = 100) -> list[Waiting]:
        return await self._engine.read(lambda db: deliveries.listing(db, after, limit))

    async def subscription_by_id(self, subscription: int) -> SubscriptionRecord | None:
        return await self._engine.read(lambda db: subscriptions.by_id(db, subscription))

    async def statistics(self) -> Statistics:
        return await self._engine.read(_statistics)


def _statistics(db: sqlite3.Connection) -> Statistics:
    def count(what: str) -> int:
        return int(db.execute(f"SELECT count(*) FROM {what}").fetchone()[0])

    states = db.execute("SELECT state, count(*) FROM subscriptions GROUP BY state").fetchall()
    return Statistics(
        topics=count("topics"),
        updates=count("updates"),
        subscriptions=dict(states),
        verifications=count("verifications"),
        deliveries=count("deliveries"),
        fetches_due=count("topics WHERE fetch_due IS NOT NULL"),
        following=following.by_way(db),
    )
