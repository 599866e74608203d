"""Back-ups of the database while a hub runs, and the way back.

A back-up is one consistent moment, written by SQLite itself (VACUUM INTO): the hub goes on
meanwhile. It holds the subscribers' secrets, so only its owner can read it.

After a restore the hub numbers updates in a new epoch: versions given since the back-up was made
are known to others, and must not be given again to something else. Subscribers that keep a
Position see a reset.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from push_hub.errors import StoreError
from push_hub.store.locking import DatabaseLock
from push_hub.store.sqlite_schema import APPLICATION_ID, VERSION

_PARTS = ("", "-wal", "-shm")


@dataclass(frozen=True, slots=True)
class Contents:
    """What a database holds."""

    version: int
    topics: int
    subscriptions: int
    """Those that receive updates."""
    deliveries: int


def back_up(database: Path, target: Path) -> Contents:
    """Write a back-up to `target`, which does not exist. It is whole, or not there."""
    if not database.is_file():
        raise StoreError(f"{database} does not exist: name the directory of the hub's data")
    unfinished = target.with_name(f"{target.name}.unfinished")
    try:
        # The first name is taken at once, so that two back-ups cannot overwrite each other.
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        raise StoreError(f"{target} exists: choose another name for the back-up") from None
    except OSError as error:
        raise StoreError(f"{target} cannot be written: {error.strerror}") from None
    try:
        unfinished.unlink(missing_ok=True)
        os.close(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        with _opened(database) as source:
            inspect(source, database)
            source.execute("VACUUM INTO ?", (str(unfinished),))
        with _opened(unfinished) as copy:
            found = check(copy, unfinished)
        with unfinished.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(unfinished, target)
    except BaseException as error:
        target.unlink(missing_ok=True)
        unfinished.unlink(missing_ok=True)
        if isinstance(error, sqlite3.Error | OSError):
            raise StoreError(f"the back-up of {database} failed: {error}") from error
        raise
    return found


def restore(backup: Path, database: Path) -> Contents:
    """Put a back-up in the place of a database that no hub uses; that one is kept beside it."""
    if not backup.is_file():
        raise StoreError(f"{backup} does not exist: name a file that a back-up wrote")
    lock = DatabaseLock(database)
    unfinished = database.with_name(f"{database.name}.unfinished")
    try:
        unfinished.unlink(missing_ok=True)
        os.close(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        with _opened(backup) as source:
            found = check(source, backup)
            source.execute("VACUUM INTO ?", (str(unfinished),))
        with _opened(unfinished) as copy, copy:
            # Later than any epoch that a hub had which was restored before from the same file.
            copy.execute("UPDATE identity SET epoch = max(epoch + 1, ?)", (int(time.time()),))
        with unfinished.open("rb") as written:
            os.fsync(written.fileno())
        aside = f"{database.name}.replaced-{time.time_ns()}"
        for part in _PARTS:
            old = database.with_name(database.name + part)
            if old.exists():
                old.rename(database.with_name(aside + part))
        os.replace(unfinished, database)
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"{backup} could not be restored: {error}") from error
    finally:
        unfinished.unlink(missing_ok=True)
        lock.release()
    return found


def inspect(connection: sqlite3.Connection, path: Path) -> Contents:
    """What a database of a hub holds, or a StoreError that says that it is none."""
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.DatabaseError as error:
        raise StoreError(f"{path} is no database: {error}") from None
    if application != APPLICATION_ID:
        raise StoreError(f"{path} is no database of a hub: choose another file")
    if version > VERSION:
        raise StoreError(f"{path} is from a newer version of this program: use that one")

    def count(what: str) -> int:
        return int(connection.execute(f"SELECT count(*) FROM {what}").fetchone()[0])

    return Contents(
        version,
        count("topics"),
        count("subscriptions WHERE state IN ('active', 'renewing')"),
        count("deliveries"),
    )


def check(connection: sqlite3.Connection, path: Path) -> Contents:
    """The same, of a database that was read from beginning to end and is sound."""
    found = inspect(connection, path)
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise StoreError(f"{path} is damaged ({verdict}): use another back-up")
    return found


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path, timeout=30)
    try:
        yield connection
    finally:
        connection.close()
