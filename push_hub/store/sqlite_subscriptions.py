"""Subscriptions and pending verifications in SQLite. Functions of a connection.

Which state follows is decided by `lifecycle` alone; here it is written down.
"""

from __future__ import annotations

import sqlite3

from push_hub.callbacks import host_of
from push_hub.errors import Refused
from push_hub.lifecycle import RECEIVING, Event, State, follow
from push_hub.requests import SubscriptionRequest
from push_hub.store import sqlite_topics
from push_hub.store.records import Active, Caps, SubscriptionRecord, Verification

_COLUMNS = ", ".join(SubscriptionRecord.__slots__)
_VERIFICATION = ", ".join(Verification.__slots__)


def record_of(row: sqlite3.Row) -> SubscriptionRecord:
    """The record in a row of `_COLUMNS`."""
    values = dict(row)
    values["state"] = State(values["state"])
    values["new_entries_only"] = bool(values["new_entries_only"])
    return SubscriptionRecord(**values)


def by_key(connection: sqlite3.Connection, topic: str, callback: str) -> SubscriptionRecord | None:
    """The subscription of a callback to a topic, both as spelled."""
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM subscriptions WHERE topic = ? AND callback = ?", (topic, callback)
    ).fetchone()
    return None if row is None else record_of(row)


def by_id(connection: sqlite3.Connection, subscription: int) -> SubscriptionRecord | None:
    """The subscription with this number."""
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM subscriptions WHERE id = ?", (subscription,)
    ).fetchone()
    return None if row is None else record_of(row)


def listing(
    connection: sqlite3.Connection, topic_id: int | None, after: int, limit: int
) -> list[SubscriptionRecord]:
    """Subscriptions by number, of one topic or all."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM subscriptions WHERE id > ? AND (?2 IS NULL OR topic_id = ?2)"
        " ORDER BY id LIMIT ?3",
        (after, topic_id, limit),
    )
    return [record_of(row) for row in rows]


def active(connection: sqlite3.Connection, after: int, limit: int) -> list[Active]:
    """Who receives, by number."""
    rows = connection.execute(
        "SELECT id, topic, callback, expires_at FROM subscriptions WHERE id > ?"
        " AND state IN ('active', 'renewing') ORDER BY id LIMIT ?",
        (after, limit),
    )
    return [Active(*row) for row in rows]


def subscribers(connection: sqlite3.Connection, topic_id: int, now: float) -> int:
    """Callbacks that receive the topic."""
    (count,) = connection.execute(
        "SELECT count(*) FROM subscriptions WHERE topic_id = ? AND state IN ('active', 'renewing')"
        " AND expires_at > ?",
        (topic_id, now),
    ).fetchone()
    return int(count)


def request(
    connection: sqlite3.Connection,
    wish: SubscriptionRequest,
    lease_seconds: int,
    caps: Caps,
    now: float,
) -> Verification:
    """Keep the wish for its verification, and let the subscription know."""
    key = (wish.topic.spelling, wish.callback)
    existing = by_key(connection, *key)
    if wish.mode == "subscribe":
        if existing is None:
            _add(connection, wish, lease_seconds, caps, now)
        else:
            _follow(connection, existing, Event.SUBSCRIBE_REQUESTED)
    elif existing is not None:
        _follow(connection, existing, Event.UNSUBSCRIBE_REQUESTED)
    # REPLACE makes a new number, so that the verification of an earlier request comes to nothing.
    row = connection.execute(
        "INSERT OR REPLACE INTO verifications (mode, topic, callback, lease_seconds, requested_at,"
        " secret, verify_token, new_entries_only, signature) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        f" RETURNING {_VERIFICATION}",
        (wish.mode, *key, lease_seconds, now, wish.secret, wish.verify_token,
         wish.new_entries_only, wish.signature),
    ).fetchone()  # fmt: skip
    return Verification(*row)


def _add(
    connection: sqlite3.Connection,
    wish: SubscriptionRequest,
    lease_seconds: int,
    caps: Caps,
    now: float,
) -> None:
    host = host_of(wish.callback)
    # Counting takes time, and below these numbers there is nothing to count.
    (highest,) = connection.execute("SELECT max(id) FROM subscriptions").fetchone()
    if (highest or 0) >= caps.subscriptions_per_host:
        # Those that ended do not count: anybody can leave some behind in the name of any host.
        (of_host,) = connection.execute(
            "SELECT count(*) FROM (SELECT 1 FROM subscriptions WHERE host = ? AND ended_at IS NULL"
            " LIMIT ?)",
            (host, caps.subscriptions_per_host),
        ).fetchone()
        if of_host >= caps.subscriptions_per_host:
            raise Refused(
                f"{host} has {of_host} subscriptions and may have no more: end some of them"
            )
    if (highest or 0) >= caps.subscriptions:
        (count,) = connection.execute("SELECT count(*) FROM subscriptions").fetchone()
        if count >= caps.subscriptions:
            raise Refused(f"this hub has {count} subscriptions and takes no more: ask its operator")
    topic_id = sqlite_topics.ensure(connection, wish.topic, caps, now)
    connection.execute(
        "INSERT INTO subscriptions (topic_id, topic, callback, host, state, lease_seconds,"
        " created_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (topic_id, wish.topic.spelling, wish.callback, host, State.PENDING, lease_seconds, now),
    )


def pending(connection: sqlite3.Connection) -> list[Verification]:
    """Verifications that wait."""
    rows = connection.execute(f"SELECT {_VERIFICATION} FROM verifications ORDER BY id")
    return [Verification(*row) for row in rows]


def _take(connection: sqlite3.Connection, verification: Verification) -> SubscriptionRecord | None:
    """The subscription a verification is for, unless a later request has taken its place."""
    done = connection.execute("DELETE FROM verifications WHERE id = ?", (verification.id,))
    if done.rowcount == 0:
        return None
    return by_key(connection, verification.topic, verification.callback)


def confirm(
    connection: sqlite3.Connection, verification: Verification, asked_at: float
) -> SubscriptionRecord | None:
    """The callback confirmed what was asked."""
    existing = _take(connection, verification)
    if existing is None:
        return None
    if verification.mode == "unsubscribe":
        return _end(connection, existing, Event.UNSUBSCRIBE_CONFIRMED, None, asked_at)
    state = follow(existing.state, Event.SUBSCRIBE_CONFIRMED)
    if state is None:
        return None
    # A new subscription begins at the present: base is the latest update, nothing is pushed.
    begins = existing.state not in RECEIVING
    connection.execute(
        "UPDATE subscriptions SET state = ?, secret = ?, signature = ?, new_entries_only = ?,"
        " lease_seconds = ?, expires_at = ?, verified_at = ?, reason = NULL, last_seq = CASE"
        " WHEN ? THEN coalesce((SELECT max(seq) FROM updates WHERE topic = ?), 0)"
        " ELSE last_seq END WHERE id = ?",
        (state, verification.secret, verification.signature, verification.new_entries_only,
         verification.lease_seconds, asked_at + verification.lease_seconds, asked_at, begins,
         existing.topic_id, existing.id),
    )  # fmt: skip
    return by_id(connection, existing.id)


def refuse(
    connection: sqlite3.Connection, verification: Verification, reason: str, now: float
) -> SubscriptionRecord | None:
    """The callback did not confirm: what was there before stays."""
    existing = _take(connection, verification)
    if existing is None:
        return None
    event = (
        Event.SUBSCRIBE_REFUSED if verification.mode == "subscribe" else Event.UNSUBSCRIBE_REFUSED
    )
    state = follow(existing.state, event)
    if state is None:
        return existing
    connection.execute(
        "UPDATE subscriptions SET state = ?, reason = ?, ended_at = ? WHERE id = ?",
        (state, *((None, None) if state in RECEIVING else (reason, now)), existing.id),
    )
    return by_id(connection, existing.id)


def end(
    connection: sqlite3.Connection, subscription: int, event: Event, reason: str, now: float
) -> SubscriptionRecord | None:
    """An event that ends a subscription, if its state allows."""
    existing = by_id(connection, subscription)
    return None if existing is None else _end(connection, existing, event, reason, now)


def expire(connection: sqlite3.Connection, now: float, limit: int) -> list[SubscriptionRecord]:
    """Leases that ended."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM subscriptions WHERE state IN ('active', 'renewing')"
        " AND expires_at <= ? ORDER BY expires_at LIMIT ?",
        (now, limit),
    ).fetchall()
    ended = [
        _end(connection, record_of(row), Event.LEASE_ENDED, "the lease ended", now) for row in rows
    ]
    return [each for each in ended if each is not None]


def _follow(connection: sqlite3.Connection, existing: SubscriptionRecord, event: Event) -> None:
    state = follow(existing.state, event)
    if state is not None:
        connection.execute(
            "UPDATE subscriptions SET state = ?, ended_at = NULL WHERE id = ?", (state, existing.id)
        )


def _end(
    connection: sqlite3.Connection,
    existing: SubscriptionRecord,
    event: Event,
    reason: str | None,
    now: float,
) -> SubscriptionRecord | None:
    state = follow(existing.state, event)
    if state is None:
        return None
    connection.execute("DELETE FROM deliveries WHERE subscription = ?", (existing.id,))
    connection.execute(
        "UPDATE subscriptions SET state = ?, reason = ?, waiting = 0, in_flight = NULL,"
        " next_due = NULL, failures = 0, secret = NULL, expires_at = NULL, ended_at = ?"
        " WHERE id = ?",
        (state, reason, None if state is State.PENDING else now, existing.id),
    )
    return by_id(connection, existing.id)


def forget(connection: sqlite3.Connection, before: float, limit: int) -> int:
    """Forget subscriptions that ended long ago and that nobody asks for again."""
    return connection.execute(
        "DELETE FROM subscriptions WHERE id IN (SELECT id FROM subscriptions WHERE ended_at < ?"
        " AND NOT EXISTS (SELECT 1 FROM verifications v WHERE v.topic = subscriptions.topic"
        " AND v.callback = subscriptions.callback) LIMIT ?)",
        (before, limit),
    ).rowcount
