"""Durable storage of a real node: SQLite in write-ahead mode, written by a thread of its own.

Durable means against the death of the process; `power_safe=True` also syncs each commit to
the disk. Writes that queue up while a commit runs share the next one.

After a power cut without `power_safe` the disk holds an earlier moment of the file. So the file
carries the boot id of the machine and a mark of a clean stop, both synced before the storage is
used; when it was not stopped cleanly in another boot, its epoch grows (`environment.Storage`).
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
FORMAT = 1
"""In the file's user_version; 0 is a file without the table `opened`."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_Batch = dict[bytes, bytes | None]
_Done = Callable[[], None] | None
_Write = tuple[int, _Batch, _Done, bool]
"""Its number, its changes, the call when it is done, and whether it is synced."""


def read_boot_id() -> str:
    """Changes whenever the machine starts. Empty where it cannot be read (not on Linux): then
    every unclean stop counts as a power cut, which is the safe side."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


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
        boot_id: str | None = None,
    ) -> None:
        """`report` takes a call from the writing thread to the core's, `run` makes one there.
        `boot_id` is the machine's unless a test gives another."""
        self._path = path
        self._report = report
        self._run = run
        self._power_safe = power_safe
        self._unwritten: dict[bytes, tuple[int, bytes | None]] = {}
        """What is not durable yet, with the number of the write it came by."""
        self._count = 0
        self._closing = False
        self._writes: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        try:
            self._reader = self._connect()
            self.epoch = self._open(read_boot_id() if boot_id is None else boot_id)
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

    def write(self, changes: Changes, done: _Done = None, *, sync: bool = False) -> None:
        self._count += 1
        batch = dict(changes)
        if not all(isinstance(each, bytes | None) for pair in batch.items() for each in pair):
            raise TypeError("keys and values are bytes")  # here, not in the writing thread
        for key, value in batch.items():
            self._unwritten[key] = (self._count, value)
        self._writes.put((self._count, batch, done, sync))

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
        connection.execute("PRAGMA fullfsync = ON")  # macOS: through the disk's own cache, too
        self._sync(connection, self._power_safe)
        return connection

    @staticmethod
    def _sync(connection: sqlite3.Connection, synced: bool) -> None:
        """Whether the commits that follow are."""
        connection.execute(f"PRAGMA synchronous = {'FULL' if synced else 'NORMAL'}")

    def _open(self, boot: str) -> int:
        """Make the tables where there are none, and mark the file as in use; its epoch."""
        connection = self._reader
        self._sync(connection, True)
        with connection:
            connection.execute("BEGIN EXCLUSIVE")
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
            if version > FORMAT:
                raise StorageError(
                    f"{self._path} has format {version}, and this program knows {FORMAT}: "
                    "run the newer program, or choose another path"
                )
            if version == 0:
                if tables - {"state"}:
                    raise StorageError(
                        f"{self._path} was made by another program: choose another path"
                    )
                connection.execute(
                    "CREATE TABLE IF NOT EXISTS state (key BLOB PRIMARY KEY, value BLOB NOT NULL)"
                    " WITHOUT ROWID"
                )
                connection.execute(
                    "CREATE TABLE opened (epoch INTEGER NOT NULL, boot TEXT NOT NULL,"
                    " clean INTEGER NOT NULL, synced INTEGER NOT NULL)"
                )
                # How a file without the table was left is not known.
                connection.execute("INSERT INTO opened VALUES (1, '', ?, 0)", (not tables,))
                connection.execute(f"PRAGMA user_version = {FORMAT}")
            epoch, last, clean, synced = connection.execute("SELECT * FROM opened").fetchone()
            if not clean and not synced and (last != boot or not boot):
                epoch += 1
                _log.warning(
                    LogEvent(
                        "epoch.begun", path=self._path, epoch=epoch,
                        reason="writes reported durable before the machine stopped may be lost:"
                        " power_safe prevents this",
                    )
                )  # fmt: skip
            connection.execute(
                "UPDATE opened SET epoch = ?, boot = ?, clean = 0, synced = ?",
                (epoch, boot, self._power_safe),
            )
        return int(epoch)

    def _write_all(self) -> None:
        connection = self._connect()
        try:
            closing = False
            while not closing and (first := self._writes.get()) is not None:
                batches = [first]
                while not (closing or self._writes.empty()):
                    following = self._writes.get()
                    if following is None:
                        closing = True
                    else:
                        batches.append(following)
                if not self._commit(connection, batches):
                    return
                self._report(partial(self._completed, batches))
            self._sync(connection, True)
            connection.execute("UPDATE opened SET clean = 1")
        except sqlite3.Error as error:
            # The next start takes the stop for an unclean one.
            _log.error(LogEvent("storage.not_marked_clean", path=self._path, reason=error))
        finally:
            connection.close()

    def _commit(self, connection: sqlite3.Connection, batches: list[_Write]) -> bool:
        """Whether they are durable now; not, only when the disk refuses and we are to close."""
        # One commit for all: of a key that was written several times only the last value counts.
        changes: _Batch = {}
        for _, batch, _, _ in batches:
            changes.update(batch)
        synced = self._power_safe or any(sync for *_, sync in batches)
        kept = [(key, value) for key, value in changes.items() if value is not None]
        gone = [(key,) for key, value in changes.items() if value is None]
        while True:
            try:
                self._sync(connection, synced)
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

    def _completed(self, batches: list[_Write]) -> None:
        for number, batch, done, _ in batches:
            for key in batch:
                if self._unwritten.get(key, (0, None))[0] == number:
                    del self._unwritten[key]
            if done is not None:
                self._run(done)


def _after(prefix: bytes) -> bytes | None:
    """The first key behind all that begin with the prefix; None when there is none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None
