"""The history of updates in SQLite, as it is read. Functions of a connection."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection

from identifiers import Position, PublisherId
from push_hub.store.records import Forgotten, LogPlace, Origin, Update, Version

_COLUMNS = (
    "seq, topic, (SELECT canonical FROM topics WHERE id = topic) AS canonical, publisher, epoch,"
    " version, trace_id, origin, content_type, body, entries, recorded_at"
)


def record_of(row: sqlite3.Row) -> Update:
    """The update in a row of `_COLUMNS`."""
    return Update(
        row["seq"],
        row["topic"],
        row["canonical"],
        Position(PublisherId(row["publisher"]), row["epoch"], row["version"]),
        row["trace_id"],
        Origin(row["origin"]),
        row["content_type"],
        row["body"],
        row["entries"],
        row["recorded_at"],
    )


def by_seq(connection: sqlite3.Connection, seq: int) -> Update | None:
    """The update with this number."""
    row = connection.execute(f"SELECT {_COLUMNS} FROM updates WHERE seq = ?", (seq,)).fetchone()
    return None if row is None else record_of(row)


def latest(connection: sqlite3.Connection, topic_id: int) -> Update | None:
    """The update last recorded for a topic."""
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM updates WHERE topic = ? ORDER BY seq DESC LIMIT 1", (topic_id,)
    ).fetchone()
    return None if row is None else record_of(row)


def history(
    connection: sqlite3.Connection,
    topic_ids: Collection[int],
    after: int,
    limit: int,
    most_bytes: int | None,
) -> list[Update]:
    """Updates of these topics recorded later than `after`, oldest first; at least one, if there is
    any, and no more than have so many bytes together."""
    marks = ", ".join("?" * len(topic_ids))
    # Numbers first: bodies are not to be sorted, nor read beyond those that are wanted.
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM updates WHERE seq IN (SELECT seq FROM updates"
        f" WHERE topic IN ({marks}) AND seq > ? ORDER BY seq LIMIT ?) ORDER BY seq",
        (*topic_ids, after, limit),
    )
    found: list[Update] = []
    size = 0
    for row in rows:
        update = record_of(row)
        size += len(update.body) + len(update.entries or "")
        if found and most_bytes is not None and size > most_bytes:
            break
        found.append(update)
    return found


def log_page(
    connection: sqlite3.Connection,
    topic_ids: Collection[int],
    after: int,
    limit: int,
    most_bytes: int,
) -> tuple[list[Update], list[Forgotten]]:
    """The same, and what left the history that was recorded later than `after`. One moment of the
    database has both: nothing can leave unseen between the two."""
    connection.execute("BEGIN")
    try:
        rows = connection.execute(
            "SELECT topic, publisher, epoch, forgotten, forgotten_seq FROM streams"
            " WHERE topic IN (SELECT value FROM json_each(?)) AND forgotten_seq > ?"
            " ORDER BY topic, publisher, epoch",
            (json.dumps(list(topic_ids)), after),
        )
        latest = {
            (topic, publisher): Forgotten(
                topic, Position(PublisherId(publisher), epoch, version), seq
            )
            for topic, publisher, epoch, version, seq in rows
        }
        return history(connection, topic_ids, after, limit, most_bytes), list(latest.values())
    finally:
        connection.execute("COMMIT")


def versions(connection: sqlite3.Connection, topic_id: int, limit: int) -> list[Version]:
    """What is in the history of a topic, newest first."""
    rows = connection.execute(
        "SELECT publisher, epoch, version, origin, content_type, length(body) AS size, recorded_at"
        " FROM updates WHERE topic = ? ORDER BY seq DESC LIMIT ?",
        (topic_id, limit),
    )
    return [
        Version(
            Position(PublisherId(row["publisher"]), row["epoch"], row["version"]),
            Origin(row["origin"]),
            row["content_type"],
            row["size"],
            row["recorded_at"],
        )
        for row in rows
    ]


def find(connection: sqlite3.Connection, topic_id: int, position: Position) -> int | None:
    """The number of the update with this position."""
    if max(position.epoch, position.version) >= 1 << 63:
        return None
    row = connection.execute(
        "SELECT seq FROM updates WHERE topic = ? AND publisher = ? AND epoch = ? AND version = ?",
        (topic_id, position.publisher.raw, position.epoch, position.version),
    ).fetchone()
    return None if row is None else int(row[0])


def traced(
    connection: sqlite3.Connection, topic_id: int, trace_id: str, within: int
) -> list[Update]:
    """The updates with this trace id, among the last so many of a topic."""
    rows = connection.execute(
        "SELECT seq FROM (SELECT seq, trace_id FROM updates WHERE topic = ? ORDER BY seq DESC"
        " LIMIT ?) WHERE trace_id = ?",
        (topic_id, within, trace_id),
    ).fetchall()
    found = [by_seq(connection, row[0]) for row in rows]
    return [each for each in found if each is not None]


def backlog(
    connection: sqlite3.Connection,
    topic_id: int,
    publisher: PublisherId,
    after: Position | None,
    limit: int,
) -> list[Update]:
    """Updates of one numbering, after a position in it, oldest first."""
    epoch, version = (0, 0) if after is None else (after.epoch, after.version)
    if max(epoch, version) >= 1 << 63:
        return []
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM updates WHERE topic = ? AND publisher = ?"
        " AND (epoch, version) > (?, ?) ORDER BY epoch, version LIMIT ?",
        (topic_id, publisher.raw, epoch, version, limit),
    )
    return [record_of(row) for row in rows]


def positions(connection: sqlite3.Connection, topic_id: int) -> list[Position]:
    """The highest of each publisher, in its latest epoch; in the history or not any more."""
    rows = connection.execute(
        "SELECT publisher, epoch, max(version) FROM (SELECT publisher, epoch, version FROM updates"
        " WHERE topic = ?1 UNION ALL SELECT publisher, epoch, forgotten FROM streams"
        " WHERE topic = ?1) GROUP BY publisher, epoch ORDER BY publisher, epoch",
        (topic_id,),
    ).fetchall()
    highest = {row[0]: Position(PublisherId(row[0]), row[1], row[2]) for row in rows}
    return list(highest.values())


def log_places(
    connection: sqlite3.Connection, topic_ids: Collection[int], seq: int
) -> dict[int, LogPlace] | None:
    """Each topic when `seq` was the number last given; None when it was not given yet."""
    if seq > last_seq(connection):
        return None
    topics = json.dumps(list(topic_ids))
    pruned: dict[int, set[PublisherId]] = {topic_id: set() for topic_id in topic_ids}
    for topic, publisher in connection.execute(
        "SELECT topic, publisher FROM streams"
        " WHERE topic IN (SELECT value FROM json_each(?)) AND forgotten_seq > ?",
        (topics, seq),
    ):
        pruned[topic].add(PublisherId(publisher))
    rows = connection.execute(
        "SELECT topic, publisher, epoch, max(version) FROM (SELECT topic, publisher, epoch, version"
        " FROM updates WHERE topic IN (SELECT value FROM json_each(?1)) AND seq <= ?2"
        " UNION ALL SELECT topic, publisher, epoch, forgotten FROM streams"
        " WHERE topic IN (SELECT value FROM json_each(?1)) AND forgotten_seq <= ?2)"
        " GROUP BY topic, publisher, epoch ORDER BY topic, publisher, epoch",
        (topics, seq),
    )
    highest: dict[int, dict[PublisherId, Position]] = {topic_id: {} for topic_id in topic_ids}
    for topic, raw, epoch, version in rows:
        publisher = PublisherId(raw)
        if publisher not in pruned[topic]:
            highest[topic][publisher] = Position(publisher, epoch, version)
    return {
        topic_id: LogPlace(tuple(highest[topic_id].values()), frozenset(pruned[topic_id]))
        for topic_id in topic_ids
    }


def last_seq(connection: sqlite3.Connection) -> int:
    """The number last given, of whatever topic."""
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'updates'").fetchone()
    return 0 if row is None else int(row[0])
