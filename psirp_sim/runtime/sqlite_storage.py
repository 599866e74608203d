"""Durable storage of a real node: SQLite in write-ahead mode, written by a thread of its own.

Durable means against the death of the process; `power_safe=True` also syncs each commit to
the disk. Writes that queue up while a commit runs share the next one.
"""

from __future__ import annotations

import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from psirp_sim.runtime.environment import Changes
from traces import LogEvent

_log = logging.getLogger(__name__)

_RETRY_SECONDS = 1.0

_Batch = dict[bytes, bytes | None]
_Done = Callable[[], None] | None


class StorageError(Exception):
    """The file cannot be used as durable storage; the message says why."""


class SqliteStorage:
    """Implements `environment.Storage`. All methods are for the thread that made it."""

    def __init__(
        self,
        path: Path,
        report: Callable[[Callable[[], None]], object],
        run: Callable[[Callable[[], None]], object],
        *,
        power_safe: bool = False,
    ) -> None:
        """`report` takes a call from the writing thread to the core's, `run` makes one there."""
        self._path = path
        self._report = report
        self._run = run
        self._synchronous = "FULL" if power_safe else "NORMAL"
        self._unwritten: dict[bytes, tuple[int, bytes | None]] = {}
        """What is not durable yet, with the number of the write it came by."""
        self._count = 0
        self._closing = False
        self._writes: queue.SimpleQueue[tuple[int, _Batch, _Done] | None] = queue.SimpleQueue()
        try:
            self._reader = self._connect()
            self._reader.execute(
                "CREATE TABLE IF NOT EXISTS state (key BLOB PRIMARY KEY, value BLOB NOT NULL)"
                " WITHOUT ROWID"
            )
        except sqlite3.Error as error:
            raise StorageError(
                f"{path} cannot be used for storage ({error}): check the path, its permissions "
                "and that no other program made it"
            ) from error
        self._thread = threading.Thread(target=self._write_all, name=f"storage {path.name}")
        self._thread.start()

    def get(self, key: bytes) -> bytes | None:
        if key in self._unwritten:
            return self._unwritten[key][1]
        row = self._reader.execute("SELECT value FROM state WHERE key = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def scan(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        end = _after(prefix)
        if end is None:
            rows = self._reader.execute("SELECT key, value FROM state WHERE key >= ?", (prefix,))
        else:
            rows = self._reader.execute(
                "SELECT key, value FROM state WHERE key >= ? AND key < ?", (prefix, end)
            )
        found: dict[bytes, bytes | None] = dict(rows.fetchall())
        for key, (_, value) in self._unwritten.items():
            if key.startswith(prefix):
                found[key] = value
        return sorted((key, value) for key, value in found.items() if value is not None)

    def write(self, changes: Changes, done: _Done = None) -> None:
        self._count += 1
        batch = dict(changes)
        if not all(isinstance(each, bytes | None) for pair in batch.items() for each in pair):
            raise TypeError("keys and values are bytes")  # here, not in the writing thread
        for key, value in batch.items():
            self._unwritten[key] = (self._count, value)
        self._writes.put((self._count, batch, done))

    def stop_writing(self) -> None:
        """Write everything that was asked for. May take a while, and may run in any thread."""
        self._closing = True
        self._writes.put(None)
        self._thread.join()

    def close(self) -> None:
        """Let go of the file, once what was asked for is written."""
        self.stop_writing()
        self._reader.close()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, timeout=30)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        return connection

    def _write_all(self) -> None:
        connection = self._connect()
        try:
            while (first := self._writes.get()) is not None:
                batches = [first]
                closing = False
                while not (closing or self._writes.empty()):
                    following = self._writes.get()
                    if following is None:
                        closing = True
                    else:
                        batches.append(following)
                if self._commit(connection, batches):
                    self._report(partial(self._completed, batches))
                if closing:
                    return
        finally:
            connection.close()

    def _commit(
        self, connection: sqlite3.Connection, batches: list[tuple[int, _Batch, _Done]]
    ) -> bool:
        """Whether they are durable now; not, only when the disk refuses and we are to close."""
        # One commit for all: of a key that was written several times only the last value counts.
        changes: _Batch = {}
        for _, batch, _ in batches:
            changes.update(batch)
        kept = [(key, value) for key, value in changes.items() if value is not None]
        gone = [(key,) for key, value in changes.items() if value is None]
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
                connection.executemany("DELETE FROM state WHERE key = ?", gone)
                connection.executemany("INSERT OR REPLACE INTO state VALUES (?, ?)", kept)
                connection.execute("COMMIT")
            except sqlite3.Error as error:
                # Nobody has been told that these are durable, so waiting loses nothing.
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                if self._closing:
                    _log.error(LogEvent("storage.lost", path=self._path, reason=error))
                    return False
                _log.error(
                    LogEvent(
                        "storage.failed", path=self._path, reason=error, retry_s=_RETRY_SECONDS
                    )
                )
                time.sleep(_RETRY_SECONDS)
            else:
                return True

    def _completed(self, batches: list[tuple[int, _Batch, _Done]]) -> None:
        for number, batch, done in batches:
            for key in batch:
                if self._unwritten.get(key, (0, None))[0] == number:
                    del self._unwritten[key]
            if done is not None:
                self._run(done)


def _after(prefix: bytes) -> bytes | None:
    """The first key behind all that begin with the prefix; None when there is none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None
