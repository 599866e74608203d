"""How topics are followed that nobody pings here, in SQLite. Functions of a connection."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection

from push_hub.following import Following, Way
from push_hub.store.records import Origin

_COLUMNS = ", ".join(Following.__slots__)

_SUBSCRIBED = (
    "EXISTS (SELECT 1 FROM subscriptions WHERE topic_id = topics.id"
    " AND state IN ('active', 'renewing'))"
)
_WANTED = f"(topics.id IN (SELECT value FROM json_each(:watched)) OR {_SUBSCRIBED})"

# Sent here by its publisher or another hub: there is nothing to fetch.
_TOLD = (
    "EXISTS (SELECT 1 FROM updates WHERE topic = topics.id"
    " AND origin IN (SELECT value FROM json_each(:sent)) AND recorded_at >= :told_before)"
)


def _record(row: sqlite3.Row) -> Following:
    values = dict(row)
    values["way"] = Way(values["way"])
    return Following(**values)


def by_topic(connection: sqlite3.Connection, topic_id: int) -> Following | None:
    """How a topic is followed."""
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM following WHERE topic_id = ?", (topic_id,)
    ).fetchone()
    return None if row is None else _record(row)


def by_token(connection: sqlite3.Connection, token: str) -> Following | None:
    """What the hub that calls itself so is about."""
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM following WHERE token = ?", (token,)
    ).fetchone()
    return None if row is None else _record(row)


def wanted(
    connection: sqlite3.Connection,
    asked_before: float | None,
    told_before: float,
    watched: Collection[int],
    sent: Collection[Origin],
    limit: int,
) -> list[int]:
    """Topics that somebody wants, that nobody follows, and of which nobody told us lately.

    Watched ones are looked up; those that are subscribed to are searched for among all topics
    that nobody pings, unless `asked_before` is None.
    """
    unheard = (
        "coalesce(last_ping_at, 0) < :told_before"
        " AND NOT EXISTS (SELECT 1 FROM following WHERE topic_id = topics.id)"
        f" AND NOT {_TOLD} LIMIT :limit"
    )
    parameters = {
        "told_before": told_before,
        "asked_before": asked_before,
        "watched": json.dumps(list(watched)),
        "sent": json.dumps(list(sent)),
        "limit": limit,
    }
    rows = connection.execute(
        f"SELECT id FROM topics WHERE id IN (SELECT value FROM json_each(:watched)) AND {unheard}",
        parameters,
    ).fetchall()
    if asked_before is not None:
        rows += connection.execute(
            f"SELECT id FROM topics WHERE created_at <= :asked_before AND {_SUBSCRIBED}"
            f" AND {unheard}",
            parameters,
        ).fetchall()
    return list({topic_id for (topic_id,) in rows})


def unwanted(
    connection: sqlite3.Connection,
    told_before: float,
    watched: Collection[int],
    sent: Collection[Origin],
    limit: int,
) -> list[int]:
    """Topics that are followed and that nobody wants any more, or whose updates are sent here."""
    rows = connection.execute(
        "SELECT topics.id FROM following JOIN topics ON topics.id = following.topic_id"
        f" WHERE NOT {_WANTED} OR {_TOLD} LIMIT :limit",
        {
            "told_before": told_before,
            "watched": json.dumps(list(watched)),
            "sent": json.dumps(list(sent)),
            "limit": limit,
        },
    )
    return [topic_id for (topic_id,) in rows]


def begin(connection: sqlite3.Connection, topic_ids: Collection[int], now: float) -> None:
    """They are to be looked at."""
    connection.executemany(
        "INSERT OR IGNORE INTO following (topic_id, way, since, due)"
        " VALUES (?1, 'looking', ?2, ?2)",
        [(topic_id, now) for topic_id in topic_ids],
    )


def end(connection: sqlite3.Connection, topic_ids: Collection[int]) -> None:
    """Their hubs learn it from the answer to the next push."""
    connection.executemany(
        "DELETE FROM following WHERE topic_id = ?", [(topic_id,) for topic_id in topic_ids]
    )


def listing(connection: sqlite3.Connection, after: int, limit: int) -> list[Following]:
    """By the number of the topic."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM following WHERE topic_id > ? ORDER BY topic_id LIMIT ?",
        (after, limit),
    )
    return [_record(row) for row in rows]


def due(connection: sqlite3.Connection, now: float, limit: int) -> list[Following]:
    """Those about which something has to be done."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM following WHERE due <= ? ORDER BY due LIMIT ?", (now, limit)
    )
    return [_record(row) for row in rows]


def put(connection: sqlite3.Connection, following: Following) -> None:
    """Write down how a topic is followed now; void when nobody wants it any more."""
    names = [name for name in Following.__slots__ if name != "topic_id"]
    connection.execute(
        f"UPDATE following SET {', '.join(f'{name} = ?' for name in names)} WHERE topic_id = ?",
        (*(getattr(following, name) for name in names), following.topic_id),
    )


def pushed(connection: sqlite3.Connection, topic_id: int, now: float) -> None:
    """Its hub has pushed something."""
    connection.execute("UPDATE following SET last_push_at = ? WHERE topic_id = ?", (now, topic_id))


def by_way(connection: sqlite3.Connection) -> dict[str, int]:
    """How many topics are followed in each way."""
    return dict(connection.execute("SELECT way, count(*) FROM following GROUP BY way").fetchall())
