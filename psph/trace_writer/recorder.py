"""What the writer's thread does with events: collect them in a file, store it, tidy up.

Plain and synchronous: there is no queue and no thread here. Nothing raises for what an event
contains or for what the disk does: it is counted, and now and then said in the log.
"""

import logging
import threading
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import NamedTuple

from psph.trace_writer.counters import TraceCounters
from psph.trace_writer.encoding import ParquetBuffer, UnwritableEvent, by_day, to_columns
from psph.trace_writer.files import NodeFiles
from psph.trace_writer.settings import TraceSettings
from traces import LogEvent, TraceEvent

_LOG = logging.getLogger("psph.traces")
_LOG_EVERY_S = 60.0
_TIDY_EVERY_S = 60.0


class _Finished(NamedTuple):
    """A file that is complete, but not on disk yet."""

    day: date
    rows: int
    content: memoryview


class Recorder:
    """Takes one node's events and turns them into files.

    At most one file is open: an event of another date ends it. Around midnight that makes a
    few small files, and spares a rule for how many may stay open and for how long.
    """

    def __init__(self, root: Path, node: str, domain: str, settings: TraceSettings) -> None:
        self.counters = TraceCounters()
        self._dropping = threading.RLock()
        self._root = root
        self._node = node
        self._domain = domain
        self._settings = settings
        self._directory = NodeFiles(root, domain, node)
        self._open: ParquetBuffer | None = None
        self._opened_at = 0.0
        self._finished: list[_Finished] = []
        self._tidy_at = 0.0
        self._log_at = 0.0

    @property
    def waiting(self) -> int:
        """Events taken that are not on disk yet; may be asked for from any thread."""
        opened = self._open
        return sum(file.rows for file in self._finished) + (opened.rows if opened else 0)

    def take(self, events: Sequence[TraceEvent]) -> None:
        """Add the events to the open file; those that cannot be written are rejected."""
        try:
            batch = to_columns(events, self._node, self._domain)
        except UnwritableEvent as error:
            if len(events) == 1:
                self.counters.rejected += 1
                self._complain(f"An event cannot be written: {error}. Correct what emits it")
            else:  # halving finds the bad ones without a look at every event
                middle = len(events) // 2
                self.take(events[:middle])
                self.take(events[middle:])
            return
        for day, rows in by_day(batch):
            if self._open and self._open.day != day:
                self.finish()
            if not self._open:
                self._open = ParquetBuffer(day, expected_bytes=self._settings.rotate_bytes)
                self._opened_at = time.monotonic()
            self._open.add(rows)
            if self._open.size >= self._settings.rotate_bytes:
                self.finish()

    def finish(self) -> None:
        """End the open file, if there is one; `store` puts it on disk."""
        if self._open:
            content = self._open.finish(
                node=self._node, domain=self._domain, dropped=str(self.counters.dropped)
            )
            self._finished.append(_Finished(self._open.day, self._open.rows, content))
            self._open = None

    def finish_when_due(self) -> None:
        """End the open file if it is old enough."""
        if self._open and time.monotonic() - self._opened_at >= self._settings.rotate_seconds:
            self.finish()

    def store(self) -> bool:
        """Put finished files on disk; False when it refused one, which is kept for next time."""
        stored = self._store_finished()
        self._tidy_when_due()
        return stored

    def abandon(self, error: Exception | None = None) -> None:
        """Drop what is not on disk yet: the writer ends, or met an error nobody foresaw."""
        if error:
            self.counters.errors += 1
            self._complain("Traces were dropped; please report this as a bug", error)
        self.drop(self.waiting)
        self._open = None
        self._finished.clear()

    def drop(self, events: int) -> None:
        """Count events that will never be written. May be called from any thread."""
        # Re-entrant, because a signal handler may emit while its thread is in here.
        with self._dropping:
            self.counters.dropped += events

    def _store_finished(self) -> bool:
        while self._finished:
            file = self._finished[0]
            try:
                self._directory.publish(file.day, file.content, fsync=self._settings.fsync)
            except OSError as error:
                self._failed("written", error)
                return False
            del self._finished[0]
            self.counters.written += file.rows
            self.counters.files += 1
            self.counters.bytes += file.content.nbytes
            self._tidy_at = 0.0
        return True

    def _tidy_when_due(self) -> None:
        """Remove old files and leftovers: at first, after new files, and every minute."""
        if time.monotonic() < self._tidy_at:
            return
        self._tidy_at = time.monotonic() + _TIDY_EVERY_S
        try:
            self._directory.remove_leftovers()
            self._directory.expire(self._settings.keep_seconds, self._settings.keep_bytes)
        except OSError as error:
            self._failed("removed", error)

    def _failed(self, what: str, error: OSError) -> None:
        self.counters.errors += 1
        self._complain(
            f"Trace files below {self._root} cannot be {what}: {error}."
            " Free space there or correct the directory; it is tried again until then"
        )

    def _complain(self, message: str, bug: Exception | None = None) -> None:
        """Warn, at most once a minute: a broken disk must not fill the log as well."""
        if time.monotonic() < self._log_at:
            return
        self._log_at = time.monotonic() + _LOG_EVERY_S
        counted = self.counters
        told = LogEvent(
            "traces.lost", reason=message, dropped=counted.dropped, rejected=counted.rejected,
            errors=counted.errors,
        )  # fmt: skip
        _LOG.warning(told, exc_info=bug)
