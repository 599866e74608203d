"""The tables, and how an older database becomes a current one.

`MIGRATIONS[n]` leads from version n to n + 1, in one transaction, so that a start that dies half
way begins again. A migration is never changed once released: add another.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from push_hub.errors import NewerDatabase

APPLICATION_ID: Final = 0x70737068  # "psph"

_VERSION_1: Final = (
    "CREATE TABLE identity (publisher BLOB NOT NULL, epoch INTEGER NOT NULL)",
    """CREATE TABLE topics (
        id INTEGER PRIMARY KEY,
        canonical TEXT NOT NULL UNIQUE,
        sid BLOB NOT NULL,
        rid BLOB NOT NULL,
        fetch_url TEXT NOT NULL,
        etag TEXT, last_modified TEXT, content_type TEXT, digest BLOB,
        ping_serial INTEGER NOT NULL DEFAULT 0,
        fetched_serial INTEGER NOT NULL DEFAULT 0,
        fetch_due REAL,
        fetch_failures INTEGER NOT NULL DEFAULT 0,
        trace_id TEXT,
        last_ping_at REAL, last_fetch_at REAL, last_update_at REAL, last_error TEXT,
        epoch INTEGER NOT NULL DEFAULT 0,
        last_version INTEGER NOT NULL DEFAULT 0,
        created_at REAL NOT NULL
    )""",
    "CREATE INDEX topics_due ON topics (fetch_due) WHERE fetch_due IS NOT NULL",
    """CREATE TABLE related (
        canonical TEXT NOT NULL, other TEXT NOT NULL, PRIMARY KEY (canonical, other)
    ) WITHOUT ROWID""",
    """CREATE TABLE entries (
        topic INTEGER NOT NULL REFERENCES topics ON DELETE CASCADE,
        key TEXT NOT NULL, digest BLOB NOT NULL,
        changed_seq INTEGER NOT NULL, seen_seq INTEGER NOT NULL,
        PRIMARY KEY (topic, key)
    ) WITHOUT ROWID""",
    """CREATE TABLE updates (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        topic INTEGER NOT NULL REFERENCES topics ON DELETE CASCADE,
        publisher BLOB NOT NULL, epoch INTEGER NOT NULL, version INTEGER NOT NULL,
        trace_id TEXT NOT NULL, origin TEXT NOT NULL,
        content_type TEXT NOT NULL, entries TEXT, recorded_at REAL NOT NULL,
        body BLOB NOT NULL,
        UNIQUE (topic, publisher, epoch, version)
    )""",
    "CREATE INDEX updates_of_topic ON updates (topic, seq)",
    # The way in of an update whose history is gone: it must not be taken for a new one.
    """CREATE TABLE streams (
        topic INTEGER NOT NULL REFERENCES topics ON DELETE CASCADE,
        publisher BLOB NOT NULL, epoch INTEGER NOT NULL, forgotten INTEGER NOT NULL,
        PRIMARY KEY (topic, publisher, epoch)
    ) WITHOUT ROWID""",
    """CREATE TABLE subscriptions (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        topic_id INTEGER NOT NULL REFERENCES topics,
        topic TEXT NOT NULL, callback TEXT NOT NULL, host TEXT NOT NULL,
        state TEXT NOT NULL,
        secret BLOB, signature TEXT, new_entries_only INTEGER NOT NULL DEFAULT 0,
        lease_seconds INTEGER NOT NULL, expires_at REAL,
        created_at REAL NOT NULL, verified_at REAL,
        last_seq INTEGER NOT NULL DEFAULT 0,
        waiting INTEGER NOT NULL DEFAULT 0,
        in_flight INTEGER, next_due REAL,
        failures INTEGER NOT NULL DEFAULT 0,
        last_success_at REAL, last_failure_at REAL, last_failure TEXT, reason TEXT,
        ended_at REAL,
        UNIQUE (topic, callback)
    )""",
    """CREATE INDEX subscriptions_of_topic ON subscriptions (topic_id)
        WHERE state IN ('active', 'renewing')""",
    "CREATE INDEX subscriptions_of_host ON subscriptions (host)",
    "CREATE INDEX lanes_due ON subscriptions (next_due) WHERE next_due IS NOT NULL",
    """CREATE INDEX leases ON subscriptions (expires_at)
        WHERE state IN ('active', 'renewing')""",
    "CREATE INDEX ended ON subscriptions (ended_at) WHERE ended_at IS NOT NULL",
    "CREATE INDEX subscriptions_by_topic ON subscriptions (topic_id)",
    """CREATE TABLE verifications (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        mode TEXT NOT NULL, topic TEXT NOT NULL, callback TEXT NOT NULL,
        lease_seconds INTEGER NOT NULL, requested_at REAL NOT NULL,
        secret BLOB, verify_token TEXT, new_entries_only INTEGER NOT NULL, signature TEXT,
        UNIQUE (topic, callback)
    )""",
    """CREATE TABLE deliveries (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        subscription INTEGER NOT NULL, topic_id INTEGER NOT NULL, seq INTEGER NOT NULL,
        superseding INTEGER NOT NULL, attempt INTEGER NOT NULL DEFAULT 0
    )""",
    "CREATE INDEX deliveries_of_subscription ON deliveries (subscription, id)",
    "CREATE INDEX deliveries_of_topic ON deliveries (topic_id, seq)",
)

_VERSION_2: Final = (
    # A first version that no ping announced is pushed to no callback, until one does.
    "ALTER TABLE topics ADD COLUMN signalled INTEGER NOT NULL DEFAULT 0",
    "UPDATE topics SET signalled = 1 WHERE ping_serial > fetched_serial",
    "ALTER TABLE topics ADD COLUMN quiet_seq INTEGER",
    "ALTER TABLE related ADD COLUMN foreign_zone INTEGER NOT NULL DEFAULT 0",
    """CREATE TABLE following (
        topic_id INTEGER PRIMARY KEY REFERENCES topics ON DELETE CASCADE,
        way TEXT NOT NULL, since REAL NOT NULL, due REAL,
        hub TEXT, self_url TEXT, token TEXT UNIQUE, secret BLOB,
        lease_until REAL, renew_at REAL, interval REAL, ask_after REAL,
        failures INTEGER NOT NULL DEFAULT 0, reason TEXT, last_push_at REAL
    )""",
    # Whoever is pinged need not be looked at to find those who are not.
    "CREATE INDEX topics_pinged ON topics (coalesce(last_ping_at, 0))",
    "CREATE INDEX following_due ON following (due) WHERE due IS NOT NULL",
)

_VERSION_3: Final = (
    # How much of a topic is kept is asked with every update: the bodies must not be read for it.
    "DROP INDEX updates_of_topic",
    "CREATE INDEX updates_of_topic ON updates (topic, seq, length(body))",
)

_VERSION_4: Final = (
    # Fetches made since the last ping because an answer without news may come from a cache.
    "ALTER TABLE topics ADD COLUMN rechecks INTEGER NOT NULL DEFAULT 0",
    # Whether a reader who has everything up to a number of the log misses what was forgotten. Of
    # what was forgotten before, only this is known: it is older than the topic's latest update.
    "ALTER TABLE streams ADD COLUMN forgotten_seq INTEGER NOT NULL DEFAULT 0",
    "UPDATE streams SET forgotten_seq ="
    " coalesce((SELECT max(seq) FROM updates WHERE topic = streams.topic), 1) - 1",
    # How the last run ended (`sqlite_identity`). Of an older database that is not known, so its
    # first start here begins a new epoch.
    "ALTER TABLE identity ADD COLUMN boot TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE identity ADD COLUMN clean INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE identity ADD COLUMN synced INTEGER NOT NULL DEFAULT 0",
)

MIGRATIONS: Final = (_VERSION_1, _VERSION_2, _VERSION_3, _VERSION_4)
VERSION: Final = len(MIGRATIONS)


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the database to the current version, or say that it is from the future."""
    connection.execute("BEGIN EXCLUSIVE")
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application != APPLICATION_ID and tables:
            raise NewerDatabase("the database was made by another program: choose another path")
        if version > VERSION:
            raise NewerDatabase(
                f"the database has version {version}, this program knows {VERSION}: "
                "run the newer program, or restore a back-up"
            )
        for steps in MIGRATIONS[version:]:
            for step in steps:
                connection.execute(step)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
