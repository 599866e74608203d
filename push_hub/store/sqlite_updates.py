"""Updates in SQLite: numbering, what is kept, what is owed. Functions of a connection."""

from __future__ import annotations

import sqlite3

from identifiers import Position
from push_hub.store import sqlite_topics
from push_hub.store.records import Identity, NewUpdate, Recorded, Update

_FORGOTTEN_AT_ONCE = 32
KEPT_ENTRIES = 4_000
"""Entries of a topic that are remembered beyond those in its latest feed, so that one which comes
back is not taken for new."""


def record(
    connection: sqlite3.Connection,
    identity: Identity,
    new: NewUpdate,
    now: float,
    max_waiting: int,
    history: int,
    history_bytes: int,
) -> Recorded | None:
    """Number, keep and queue an update, all or nothing."""
    position = new.position or _next_position(connection, identity, new)
    if new.position is not None and _forgotten(connection, new.topic_id, position):
        return None
    inserted = connection.execute(
        "INSERT OR IGNORE INTO updates (topic, publisher, epoch, version, trace_id, origin,"
        " content_type, entries, recorded_at, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " RETURNING seq",
        (new.topic_id, position.publisher.raw, position.epoch, position.version, new.trace_id,
         new.origin, new.content_type, new.entries, now, new.body),
    ).fetchall()  # fmt: skip
    if not inserted:
        return None
    seq = int(inserted[0][0])
    quiet, repeats = _is_quiet(connection, new), _repeats(connection, new)
    _note(connection, new, seq, now)
    superseded = deliveries = 0
    resting: tuple[str, ...] = ()
    if not repeats:
        connection.execute(
            "UPDATE topics SET quiet_seq = ? WHERE id = ?", (seq if quiet else None, new.topic_id)
        )
        superseding = new.origin.superseding
        superseded = _supersede(connection, new.topic_id) if superseding else 0
        deliveries = 0 if quiet else _queue(connection, new.topic_id, seq, superseding, now)
        resting = _resting_hosts(connection, new.topic_id, now) if deliveries else ()
    overflowed = _bound_waiting(connection, new.topic_id, max_waiting)
    _bound_history(connection, new.topic_id, history, history_bytes)
    topic = sqlite_topics.by_id(connection, new.topic_id)
    assert topic is not None  # the foreign key of updates
    update = Update(
        seq, new.topic_id, topic.canonical, position, new.trace_id, new.origin, new.content_type,
        new.body, new.entries, now,
    )  # fmt: skip
    return Recorded(update, deliveries, superseded, overflowed, resting)


def _next_position(connection: sqlite3.Connection, identity: Identity, new: NewUpdate) -> Position:
    """The version after the last one of this epoch; a new epoch counts from 1."""
    epoch = identity.epoch if new.epoch is None else new.epoch
    row = connection.execute(
        "UPDATE topics SET last_version = CASE WHEN epoch = ?1 THEN last_version + 1 ELSE 1 END,"
        " epoch = ?1 WHERE id = ?2 RETURNING last_version",
        (epoch, new.topic_id),
    ).fetchall()
    return Position(identity.publisher, epoch, row[0][0])


def _is_quiet(connection: sqlite3.Connection, new: NewUpdate) -> bool:
    """Whether this is what a topic was like when somebody first looked, and not known to be news.

    Nothing is pushed to a callback because it subscribed. A ping that comes later, and for which
    there is nothing newer, says that it was news after all: see `release`.
    """
    if new.fetched_serial is None:
        return False
    (quiet,) = connection.execute(
        "SELECT last_update_at IS NULL AND NOT signalled FROM topics WHERE id = ?", (new.topic_id,)
    ).fetchone()
    return bool(quiet)


def _repeats(connection: sqlite3.Connection, new: NewUpdate) -> bool:
    """Whether it is, under another Position, what the topic says already: two hubs have fetched it,
    or one goes on where the other stopped. That is news to no callback."""
    if not new.origin.superseding:
        return False
    row = connection.execute("SELECT digest FROM topics WHERE id = ?", (new.topic_id,)).fetchone()
    return row is not None and row[0] == new.digest


def release(connection: sqlite3.Connection, topic_id: int, now: float) -> int:
    """A fetch found nothing new. If a ping led to it, a first version kept back is news."""
    row = connection.execute(
        "SELECT quiet_seq FROM topics WHERE id = ? AND signalled AND quiet_seq IS NOT NULL",
        (topic_id,),
    ).fetchone()
    if row is None:
        return 0
    connection.execute("UPDATE topics SET quiet_seq = NULL WHERE id = ?", (topic_id,))
    return _queue(connection, topic_id, row[0], True, now)


def _forgotten(connection: sqlite3.Connection, topic_id: int, position: Position) -> bool:
    """Whether an update so old was here, and left the history."""
    row = connection.execute(
        "SELECT forgotten FROM streams WHERE topic = ? AND publisher = ? AND epoch = ?",
        (topic_id, position.publisher.raw, position.epoch),
    ).fetchone()
    return row is not None and position.version <= row[0]


def _note(connection: sqlite3.Connection, new: NewUpdate, seq: int, now: float) -> None:
    """What the update says about its topic: validators, digest, entries."""
    connection.execute(
        "UPDATE topics SET digest = ?, content_type = ?, last_update_at = ? WHERE id = ?",
        (new.digest, new.content_type, now, new.topic_id),
    )
    if new.fetched_serial is not None:
        sqlite_topics.note_fetch(
            connection, new.topic_id, new.fetched_serial, now, new.etag, new.last_modified,
            new.recheck_at,
        )  # fmt: skip
    if new.known is None:
        return
    connection.executemany(
        "INSERT INTO entries (topic, key, digest, changed_seq, seen_seq) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET digest = excluded.digest, seen_seq = excluded.seen_seq,"
        " changed_seq = CASE WHEN ? THEN excluded.changed_seq ELSE changed_seq END",
        [
            (new.topic_id, key, digest, seq, seq, key in new.changed)
            for key, digest in new.known.items()
        ],
    )
    connection.execute(
        "DELETE FROM entries WHERE topic = ?1 AND seen_seq < ?2 AND key IN (SELECT key FROM entries"
        " WHERE topic = ?1 AND seen_seq < ?2 ORDER BY seen_seq DESC LIMIT -1 OFFSET ?3)",
        (new.topic_id, seq, KEPT_ENTRIES),
    )


def _supersede(connection: sqlite3.Connection, topic_id: int) -> int:
    """Waiting deliveries of older full contents are not needed any more; those in flight stay."""
    rows = connection.execute(
        "DELETE FROM deliveries WHERE topic_id = ?1 AND superseding = 1 AND id NOT IN"
        " (SELECT in_flight FROM subscriptions WHERE topic_id = ?1 AND in_flight IS NOT NULL"
        " AND state IN ('active', 'renewing')) RETURNING subscription",
        (topic_id,),
    ).fetchall()
    connection.executemany("UPDATE subscriptions SET waiting = waiting - 1 WHERE id = ?", rows)
    return len(rows)


def _queue(
    connection: sqlite3.Connection, topic_id: int, seq: int, superseding: bool, now: float
) -> int:
    """One delivery for each subscription whose lease lasts and which began before the update; its
    lane goes on unless it is busy."""
    receiving = (
        "topic_id = ?1 AND state IN ('active', 'renewing') AND expires_at > ?2 AND last_seq < ?3"
    )
    queued = connection.execute(
        "INSERT INTO deliveries (subscription, topic_id, seq, superseding)"
        f" SELECT id, ?1, ?3, ?4 FROM subscriptions WHERE {receiving}",
        (topic_id, now, seq, superseding),
    ).rowcount
    if queued:
        # A lane that waits after a failure keeps its time: an update leads to a probe only.
        connection.execute(
            "UPDATE subscriptions SET waiting = waiting + 1, next_due = CASE"
            " WHEN in_flight IS NULL THEN coalesce(next_due, ?2) END"
            f" WHERE {receiving}",
            (topic_id, now, seq),
        )
    return queued


def _resting_hosts(connection: sqlite3.Connection, topic_id: int, now: float) -> tuple[str, ...]:
    """Hosts of subscribers to the topic that wait for the time of a retry."""
    rows = connection.execute(
        "SELECT DISTINCT host FROM subscriptions WHERE topic_id = ? AND next_due > ?"
        " AND failures > 0 AND state IN ('active', 'renewing')",
        (topic_id, now),
    )
    return tuple(host for (host,) in rows)


def replay(
    connection: sqlite3.Connection, seq: int, subscription: int | None, now: float
) -> int | None:
    """Owe an update once more, to one subscription or to all of its topic; how many that are."""
    row = connection.execute("SELECT topic FROM updates WHERE seq = ?", (seq,)).fetchone()
    if row is None:
        return None
    # Never superseding: the operator wants this one.
    chosen = (
        "topic_id = ?1 AND state IN ('active', 'renewing') AND expires_at > ?2"
        " AND (?3 IS NULL OR id = ?3)"
    )
    queued = connection.execute(
        "INSERT INTO deliveries (subscription, topic_id, seq, superseding)"
        f" SELECT id, ?1, ?4, 0 FROM subscriptions WHERE {chosen}",
        (row[0], now, subscription, seq),
    ).rowcount
    connection.execute(
        "UPDATE subscriptions SET waiting = waiting + 1, next_due = CASE WHEN in_flight IS NULL"
        f" THEN coalesce(next_due, ?2) END WHERE {chosen}",
        (row[0], now, subscription),
    )
    return queued


def _bound_waiting(connection: sqlite3.Connection, topic_id: int, most: int) -> int:
    rows = connection.execute(
        "SELECT id, waiting - ?, in_flight FROM subscriptions WHERE topic_id = ?"
        " AND state IN ('active', 'renewing') AND waiting > ?",
        (most, topic_id, most),
    ).fetchall()
    dropped = 0
    for subscription, excess, in_flight in rows:
        gone = connection.execute(
            "DELETE FROM deliveries WHERE id IN (SELECT id FROM deliveries WHERE subscription = ?"
            " AND id IS NOT ? ORDER BY id LIMIT ?)",
            (subscription, in_flight, excess),
        ).rowcount
        connection.execute(
            "UPDATE subscriptions SET waiting = waiting - ?, last_failure = ? WHERE id = ?",
            (gone, f"{most} updates were waiting: the oldest were dropped", subscription),
        )
        dropped += gone
    return dropped


def _bound_history(
    connection: sqlite3.Connection, topic_id: int, most: int, most_bytes: int
) -> None:
    """Forget what is too old and owed to nobody."""
    count, size = connection.execute(
        "SELECT count(*), total(length(body)) FROM updates WHERE topic = ?", (topic_id,)
    ).fetchone()
    after = 0
    while count > 1 and (count > most or size > most_bytes):
        rows = connection.execute(
            "SELECT seq, publisher, epoch, version, length(body) FROM updates"
            " WHERE topic = ? AND seq > ? ORDER BY seq LIMIT ?",
            (topic_id, after, min(count - 1, _FORGOTTEN_AT_ONCE)),
        ).fetchall()
        for seq, publisher, epoch, version, length in rows:
            if count <= most and size <= most_bytes:
                return
            # What is owed stays for now; nothing newer goes in its place.
            after, count, size = seq, count - 1, size - length
            _forget(connection, topic_id, seq, publisher, epoch, version)


def _forget(
    connection: sqlite3.Connection,
    topic_id: int,
    seq: int,
    publisher: bytes,
    epoch: int,
    version: int,
) -> None:
    gone = connection.execute(
        "DELETE FROM updates WHERE seq = ?1 AND NOT EXISTS"
        " (SELECT 1 FROM deliveries WHERE topic_id = ?2 AND seq = ?1)",
        (seq, topic_id),
    ).rowcount
    if gone:
        connection.execute(
            "INSERT INTO streams (topic, publisher, epoch, forgotten, forgotten_seq)"
            " VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE"
            " SET forgotten = max(forgotten, excluded.forgotten),"
            " forgotten_seq = max(forgotten_seq, excluded.forgotten_seq)",
            (topic_id, publisher, epoch, version, seq),
        )


def known_entries(connection: sqlite3.Connection, topic_id: int) -> dict[str, bytes]:
    """Key and digest of the entries seen so far."""
    rows = connection.execute("SELECT key, digest FROM entries WHERE topic = ?", (topic_id,))
    return dict(rows.fetchall())


def changed_since(connection: sqlite3.Connection, topic_id: int, seq: int) -> frozenset[str]:
    """Keys of entries that became new or changed after an update."""
    rows = connection.execute(
        "SELECT key FROM entries WHERE topic = ? AND changed_seq > ?", (topic_id, seq)
    )
    return frozenset(key for (key,) in rows)
