"""One SQLite database under asyncio: a thread that writes, a thread that reads.

Operations are functions of a connection. Writes that queue up while a commit runs share the next
one, and each caller goes on when its commit is done: many operations for the price of one, and
none is reported before it is durable. An operation that fails is undone alone, by a savepoint.
Durable means against the death of the process; `power_safe` also syncs each commit to the disk,
in the writing thread. What follows from a power cut without it is in `sqlite_identity`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

from push_hub.errors import HubError, StoreError
from push_hub.store.locking import DatabaseLock
from push_hub.store.sqlite_identity import mark_clean, open_identity, read_boot_id
from push_hub.store.sqlite_schema import migrate
from traces import LogEvent

_log = logging.getLogger(__name__)

T = TypeVar("T")
Operation = Callable[[sqlite3.Connection], Any]

MAX_BATCH: Final = 500
"""Operations in one commit. More would make the first of them wait for too many others."""


class SqliteEngine:
    """All methods are for the event loop's thread. One engine at a time for a file."""

    def __init__(self, path: Path, *, power_safe: bool = False, boot_id: str | None = None) -> None:
        """`boot_id` is the machine's unless a test gives another."""
        self._path = path
        self._synchronous = "FULL" if power_safe else "NORMAL"
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._lock = DatabaseLock(path)
        try:
            # It holds the secrets of subscribers; SQLite gives its other files the same mode.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            connection = self._connect("FULL")
            try:
                migrate(connection)
                boot = read_boot_id() if boot_id is None else boot_id
                connection.execute("BEGIN IMMEDIATE")
                self.identity, lost = open_identity(connection, boot, power_safe=power_safe)
                connection.execute("COMMIT")
            finally:
                connection.close()
            self._reading = self._connect()
        except StoreError:
            self._lock.release()
            raise
        except (sqlite3.Error, OSError) as error:
            self._lock.release()
            raise StoreError(
                f"{path} cannot be used as the hub's database ({error}): check the path, its "
                "permissions and that no other program made it"
            ) from error
        if lost:
            _log.warning(
                LogEvent(
                    "epoch.begun", path=path, epoch=self.identity.epoch,
                    reason="updates acknowledged before the machine stopped may be lost, and"
                    " readers receive a reset: power_safe prevents this",
                )
            )  # fmt: skip
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="hub store reader")
        self._writes: queue.SimpleQueue[tuple[Operation, asyncio.Future[Any]] | None] = (
            queue.SimpleQueue()
        )
        self._writer = threading.Thread(target=self._write_all, name="hub store writer")
        self._writer.start()

    async def write(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        """Run the operation in a transaction; returns when that is committed."""
        if self._closed:
            raise StoreError("the store is closed")
        future: asyncio.Future[T] = self._loop.create_future()
        self._writes.put((operation, future))
        return await future

    async def read(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        """Run the operation on what is committed."""
        if self._closed:
            raise StoreError("the store is closed")
        try:
            return await self._loop.run_in_executor(self._reader, operation, self._reading)
        except sqlite3.Error as error:
            raise StoreError(f"{self._path}: {error}") from error

    async def close(self) -> None:
        """Finish what was asked for."""
        if self._closed:
            return
        self._closed = True
        self._writes.put(None)
        await self._loop.run_in_executor(None, self._writer.join)
        await self._loop.run_in_executor(self._reader, self._reading.close)
        self._reader.shutdown()
        self._lock.release()

    def _connect(self, synchronous: str = "") -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, isolation_level=None, timeout=30, check_same_thread=False
        )
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {synchronous or self._synchronous}")
        connection.execute("PRAGMA fullfsync = ON")  # macOS: through the disk's own cache, too
        connection.execute("PRAGMA journal_size_limit = 67108864")
        connection.execute("PRAGMA foreign_keys = ON")
        return connection

    def _write_all(self) -> None:
        connection = self._connect()
        try:
            closing = False
            while not closing:
                batch: list[tuple[Operation, asyncio.Future[Any]]] = []
                waiting = self._writes.get()
                while waiting is not None:
                    batch.append(waiting)
                    if len(batch) >= MAX_BATCH or self._writes.empty():
                        break
                    waiting = self._writes.get()
                closing = waiting is None
                if batch:
                    results = self._commit(connection, [operation for operation, _ in batch])
                    self._loop.call_soon_threadsafe(
                        _report, [future for _, future in batch], results
                    )
            connection.execute("PRAGMA synchronous = FULL")
            mark_clean(connection)
        except sqlite3.Error as error:
            # The next start takes the stop for an unclean one.
            _log.error(LogEvent("store.not_marked_clean", path=self._path, reason=error))
        finally:
            connection.close()

    def _commit(self, connection: sqlite3.Connection, operations: list[Operation]) -> list[Any]:
        """The result of each operation; an exception stands for its own failure."""
        results: list[Any] = []
        try:
            connection.execute("BEGIN IMMEDIATE")
            for operation in operations:
                connection.execute("SAVEPOINT operation")
                try:
                    results.append(operation(connection))
                except Exception as error:
                    connection.execute("ROLLBACK TO operation")
                    results.append(_named(self._path, error))
                connection.execute("RELEASE operation")
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            return [_named(self._path, error)] * len(operations)
        return results


def _named(path: Path, error: Exception) -> Exception:
    if isinstance(error, HubError) or not isinstance(error, sqlite3.Error | OverflowError):
        return error
    return StoreError(f"{path}: {error}: check the disk; nothing was changed")


def _report(futures: list[asyncio.Future[Any]], results: list[Any]) -> None:
    for future, result in zip(futures, results, strict=True):
        if future.done():  # its caller was cancelled; the write happened all the same
            continue
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)
