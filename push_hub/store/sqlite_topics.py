"""Topics in SQLite: spellings, pings and fetches. Functions of a connection."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Sequence

from identifiers import InvalidTopic, Topic, identify
from push_hub.errors import Refused
from push_hub.store.records import Caps, TopicRecord

_COLUMNS = ", ".join(TopicRecord.__slots__)


def by_canonical(connection: sqlite3.Connection, canonical: str) -> TopicRecord | None:
    """The topic with this canonical form."""
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM topics WHERE canonical = ?", (canonical,)
    ).fetchone()
    return None if row is None else TopicRecord(*row)


def by_id(connection: sqlite3.Connection, topic_id: int) -> TopicRecord | None:
    """The topic with this number."""
    row = connection.execute(f"SELECT {_COLUMNS} FROM topics WHERE id = ?", (topic_id,)).fetchone()
    return None if row is None else TopicRecord(*row)


def listing(connection: sqlite3.Connection, after: int, limit: int) -> list[TopicRecord]:
    """Topics by number."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM topics WHERE id > ? ORDER BY id LIMIT ?", (after, limit)
    )
    return [TopicRecord(*row) for row in rows]


def ensure(connection: sqlite3.Connection, topic: Topic, caps: Caps, now: float) -> int:
    """The number of the topic, made when there is none."""
    row = connection.execute(
        "SELECT id FROM topics WHERE canonical = ?", (topic.canonical,)
    ).fetchone()
    if row is not None:
        return int(row[0])
    # Numbers are not reused, so the highest bounds the count from above, at the price of one look.
    (highest,) = connection.execute("SELECT max(id) FROM topics").fetchone()
    if (highest or 0) >= caps.topics:
        (count,) = connection.execute("SELECT count(*) FROM topics").fetchone()
        if count >= caps.topics:
            raise Refused(f"this hub serves {caps.topics} topics and no more: ask its operator")
    cursor = connection.execute(
        "INSERT INTO topics (canonical, sid, rid, fetch_url, created_at) VALUES (?, ?, ?, ?, ?)",
        (topic.canonical, topic.sid.raw, topic.rid.raw, _fetchable(topic), now),
    )
    return cursor.lastrowid or 0


def touch(connection: sqlite3.Connection, topic_id: int, now: float) -> None:
    """Somebody wants it now: it must not be forgotten before they could say so elsewhere."""
    connection.execute(
        "UPDATE topics SET created_at = max(created_at, ?) WHERE id = ? AND last_update_at IS NULL",
        (now, topic_id),
    )


def _fetchable(topic: Topic) -> str:
    """Where the topic is: not the address at which the hub itself serves it."""
    try:
        named = identify(topic.spelling).rid == topic.rid
    except InvalidTopic:
        named = False  # too long with the hub's own address before it
    return topic.spelling.partition("#")[0] if named else topic.canonical


def ping(
    connection: sqlite3.Connection,
    topics: Sequence[tuple[Topic, str]],
    caps: Caps,
    now: float,
    create: bool,
) -> list[TopicRecord]:
    """Raise the ping number of each topic and its relatives; due at once unless postponed.

    A ping does not wait for a retry or a recheck that an earlier one led to.
    """
    found: list[TopicRecord] = []
    for topic, trace_id in topics:
        if create:
            ensure(connection, topic, caps, now)
        connection.execute(
            "UPDATE topics SET fetch_url = ? WHERE canonical = ?",
            (_fetchable(topic), topic.canonical),
        )
        # A step further within the zone: http, https and www are often joined through one another.
        others = connection.execute(
            "SELECT other FROM related WHERE canonical = ?1 UNION SELECT r.other FROM related r"
            " JOIN related s ON r.canonical = s.other AND s.canonical = ?1 AND s.foreign_zone = 0"
            " WHERE r.foreign_zone = 0 AND r.other <> ?1 LIMIT 30",
            (topic.canonical,),
        ).fetchall()
        for canonical in (topic.canonical, *(other for (other,) in others)):
            rows = connection.execute(
                "UPDATE topics SET ping_serial = ping_serial + 1, trace_id = ?, last_ping_at = ?,"
                " signalled = 1, fetch_failures = 0, fetch_due = CASE"
                " WHEN fetch_failures = 0 AND rechecks = 0 THEN max(coalesce(fetch_due, 0), ?)"
                " ELSE ? END"
                f" WHERE canonical = ? RETURNING {_COLUMNS}",
                (trace_id, now, now, now, canonical),
            ).fetchall()
            found += [TopicRecord(*row) for row in rows]
    return found


def due_fetches(connection: sqlite3.Connection, now: float, limit: int) -> list[TopicRecord]:
    """Topics whose fetch is due, the most urgent first."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM topics WHERE fetch_due <= ? ORDER BY fetch_due LIMIT ?",
        (now, limit),
    )
    return [TopicRecord(*row) for row in rows]


def next_fetch(connection: sqlite3.Connection, after: float) -> float | None:
    """When the earliest fetch is due that is not due yet."""
    (due,) = connection.execute(
        "SELECT min(fetch_due) FROM topics WHERE fetch_due > ?", (after,)
    ).fetchone()
    return None if due is None else float(due)


def note_fetch(
    connection: sqlite3.Connection,
    topic_id: int,
    serial: int,
    now: float,
    etag: str | None,
    last_modified: str | None,
    recheck_at: float | None = None,
) -> None:
    """A fetch for this ping number succeeded. Pings that came meanwhile make another one due; so
    does an answer that has to be checked again, and then the topic stays `signalled`. Rechecks are
    counted from the latest ping on."""
    connection.execute(
        "UPDATE topics SET fetched_serial = max(fetched_serial, ?1), etag = ?2, last_modified = ?3,"
        " last_fetch_at = ?4, last_error = NULL, fetch_failures = 0,"
        " signalled = signalled AND (ping_serial > ?1 OR ?5 IS NOT NULL),"
        " rechecks = CASE WHEN ?5 IS NULL THEN 0 WHEN fetched_serial < ?1 THEN 1"
        " ELSE rechecks + 1 END,"
        " fetch_due = CASE WHEN ping_serial > ?1 THEN ?4 ELSE ?5 END WHERE id = ?6",
        (serial, etag, last_modified, now, recheck_at, topic_id),
    )


def fetch_failed(
    connection: sqlite3.Connection,
    topic_id: int,
    serial: int,
    now: float,
    reason: str,
    retry_at: float | None,
) -> None:
    """It failed; with no time to retry at, only a ping that came meanwhile makes another due."""
    connection.execute(
        "UPDATE topics SET last_fetch_at = ?, last_error = ?,"
        " fetched_serial = CASE WHEN ?3 IS NULL THEN max(fetched_serial, ?4) ELSE fetched_serial"
        " END, fetch_failures = CASE WHEN ?3 IS NULL OR ping_serial > ?4 THEN 0"
        " ELSE fetch_failures + 1 END,"
        " fetch_due = CASE WHEN ping_serial > ?4 THEN ?1 ELSE ?3 END WHERE id = ?5",
        (now, reason, retry_at, serial, topic_id),
    )


def postpone_fetch(connection: sqlite3.Connection, topic_id: int, due: float) -> None:
    """Not before this time."""
    connection.execute(
        "UPDATE topics SET fetch_due = ? WHERE id = ? AND fetch_due IS NOT NULL", (due, topic_id)
    )


def skip_fetch(connection: sqlite3.Connection, topic_id: int, serial: int, now: float) -> None:
    """Nothing is fetched for this ping number. Pings that came meanwhile make another one due."""
    connection.execute(
        "UPDATE topics SET fetched_serial = max(fetched_serial, ?1), fetch_failures = 0,"
        " signalled = signalled AND ping_serial > ?1, rechecks = 0,"
        " fetch_due = CASE WHEN ping_serial > ?1 THEN ?2 END WHERE id = ?3",
        (serial, now, topic_id),
    )


def relate(connection: sqlite3.Connection, topic_id: int, other: Topic) -> None:
    """Both ways. The other need not be a topic yet."""
    row = connection.execute(
        "SELECT canonical, sid FROM topics WHERE id = ?", (topic_id,)
    ).fetchone()
    if row is None or row[0] == other.canonical:
        return
    # Other zones have places of their own: strangers' claims cannot crowd out a site's spellings.
    foreign = row[1] != other.sid.raw
    connection.executemany(
        "INSERT OR IGNORE INTO related (canonical, other, foreign_zone) SELECT ?1, ?2, ?3 WHERE"
        " (SELECT count(*) FROM related WHERE canonical = ?1 AND foreign_zone = ?3) < 10",
        [(row[0], other.canonical, foreign), (other.canonical, row[0], foreign)],
    )


def refetch(
    connection: sqlite3.Connection, topic_id: int, now: float, trace_id: str, signalled: bool
) -> None:
    """Make a fetch due without a ping; `signalled` when somebody else said that it changed."""
    connection.execute(
        "UPDATE topics SET ping_serial = ping_serial + 1, trace_id = ?1,"
        " signalled = signalled OR ?2,"
        " fetch_due = CASE WHEN rechecks > 0 THEN ?3 ELSE coalesce(fetch_due, ?3) END"
        " WHERE id = ?4",
        (trace_id, signalled, now, topic_id),
    )


def spellings(connection: sqlite3.Connection, topic_id: int, limit: int) -> list[str]:
    """All that is known to mean this topic, the canonical form first."""
    rows = connection.execute(
        "SELECT canonical FROM topics WHERE id = ?1"
        " UNION ALL SELECT fetch_url FROM topics WHERE id = ?1"
        " UNION ALL SELECT other FROM related"
        " WHERE canonical = (SELECT canonical FROM topics WHERE id = ?1)"
        " UNION ALL SELECT DISTINCT topic FROM (SELECT topic FROM subscriptions"
        " WHERE topic_id = ?1 ORDER BY id DESC LIMIT 1000)",
        (topic_id,),
    )
    return list(dict.fromkeys(spelling for (spelling,) in rows))[:limit]


def poll(connection: sqlite3.Connection, every: float, now: float, trace_ids: Sequence[str]) -> int:
    """Ping topics ourselves that have subscribers and were not fetched for so long."""
    rows = connection.execute(
        "SELECT id FROM topics WHERE fetch_due IS NULL AND coalesce(last_fetch_at, 0) <= ?"
        " AND EXISTS (SELECT 1 FROM subscriptions WHERE topic_id = topics.id"
        " AND state IN ('active', 'renewing')) AND NOT EXISTS (SELECT 1 FROM following"
        " WHERE topic_id = topics.id AND way = 'carried') LIMIT ?",
        (now - every, len(trace_ids)),
    ).fetchall()
    connection.executemany(
        "UPDATE topics SET ping_serial = ping_serial + 1, trace_id = ?, fetch_due = ? WHERE id = ?",
        [(trace, now, row[0]) for row, trace in zip(rows, trace_ids, strict=False)],
    )
    return len(rows)


def forget(connection: sqlite3.Connection, before: float, limit: int, but: Collection[int]) -> int:
    """Forget topics that nobody subscribes to and that never had an update.

    One that had is kept for its numbering: versions must not begin again in the same epoch.
    """
    return connection.execute(
        "DELETE FROM topics WHERE id IN (SELECT id FROM topics WHERE created_at < ?"
        " AND last_version = 0 AND last_update_at IS NULL AND fetch_due IS NULL"
        " AND NOT EXISTS (SELECT 1 FROM subscriptions WHERE topic_id = topics.id)"
        " AND id NOT IN (SELECT value FROM json_each(?)) LIMIT ?)",
        (before, json.dumps(list(but)), limit),
    ).rowcount
