"""The files of one node: where they lie, how they appear whole, and when they go.

A file is written aside, under a name that begins with `_` and does not end in `.parquet`,
and renamed when it is complete. So nothing that looks for Parquet files, whatever its rules,
ever sees half of one.

While a file is being written its process holds a lock (`flock`) on it. The kernel drops the
lock when the process dies, however it dies; an unfinished file that can be locked is
therefore one that nobody will finish. That holds where a process id in the name would not:
after a restart of the machine, and between containers that share a directory.

What a file contains is none of this module's business.
"""

import fcntl
import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime
from itertools import count
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

_FINISHED = re.compile(r"\d{8}T\d{12}Z-[0-9a-f]{8}-\d{6,}\.parquet")
_LONGEST_NAME = 255
# What Hive, Spark and Arrow read as "no value", and the end of names that Spark passes over.
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_PASSED_OVER = "._COPYING_"


class InvalidPartitionName(ValueError):
    """A node's or a domain's name cannot stand in the path of its files."""


class _File(NamedTuple):
    """A finished file; sorts by age, oldest first."""

    mtime_ns: int
    name: str
    path: Path
    size: int


class NodeFiles:
    """The trace files of one node below a directory that many nodes may share."""

    def __init__(self, root: Path, domain: str, node: str) -> None:
        self._domain = root / _partition("domain", domain)
        self._node = _partition("node", node)
        self._token = secrets.token_hex(4)
        self._numbers = count(1)

    def publish(self, day: date, content: bytes | memoryview, *, fsync: bool = False) -> None:
        """Make a file of the content appear; on `OSError` there is none, and nothing is left."""
        directory = self._domain / f"date={day}" / self._node
        directory.mkdir(parents=True, exist_ok=True)
        name = (
            f"{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}-{self._token}-{next(self._numbers):06}.parquet"
        )
        aside, final = directory / f"_{name}.part", directory / name
        try:
            with aside.open("xb") as file:
                # Another process that starts right now may have found the file unlocked. Then
                # either this lock or the rename fails, and the caller tries again.
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                file.write(content)
                file.flush()
                if fsync:
                    os.fsync(file.fileno())
                aside.rename(final)
            if fsync:
                _fsync_directory(directory)
        except OSError:
            # The caller will write it all again: a file that did appear would double its rows.
            for path in (aside, final):
                with suppress(OSError):
                    path.unlink()
            raise

    def remove_leftovers(self) -> None:
        """Remove what processes of this node left unfinished when they died."""
        for path in self._domain.glob(f"date=*/{self._node}/_*.part"):
            with suppress(FileNotFoundError, BlockingIOError), path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()

    def expire(self, keep_seconds: float, keep_bytes: int) -> None:
        """Remove files past the age, then the oldest past the size; 0 means no limit."""
        oldest_ns = time.time_ns() - int(keep_seconds * 1e9) if keep_seconds else 0
        total = 0
        for file in sorted(self._finished(), reverse=True):
            total += file.size
            if file.mtime_ns < oldest_ns or 0 < keep_bytes < total:
                file.path.unlink(missing_ok=True)
                with suppress(OSError):  # not empty: files of others, or younger ones
                    file.path.parent.rmdir()
                    file.path.parent.parent.rmdir()

    def _finished(self) -> Iterator[_File]:
        """Files this module named; whatever else lies beside them is someone else's."""
        for path in self._domain.glob(f"date=*/{self._node}/*.parquet"):
            if _FINISHED.fullmatch(path.name):
                with suppress(FileNotFoundError):
                    status = path.stat()
                    yield _File(status.st_mtime_ns, path.name, path, status.st_size)


def _partition(key: str, value: str) -> str:
    """A path segment `key=value` that every reader of Hive-style paths reads back as value.

    ASCII beyond letters, digits and `-._~` is percent-encoded. All else stands as it is,
    because readers disagree about what a percent-encoded byte of UTF-8 is.
    """
    if value in ("", _NO_VALUE) or value.endswith(_PASSED_OVER):
        raise InvalidPartitionName(
            f"{key} {value!r} means no {key} at all to readers of traces: choose another name"
        )
    segment = f"{key}=" + "".join(quote(c, safe="") if c.isascii() else c for c in value)
    try:
        length = len(segment.encode())
    except UnicodeEncodeError:
        raise InvalidPartitionName(
            f"{key} {value!r} is not valid Unicode: choose another name"
        ) from None
    if length > _LONGEST_NAME:
        raise InvalidPartitionName(
            f"{key} {value[:40]!r}... is too long: at most {_LONGEST_NAME - len(key) - 1} bytes"
        )
    return segment


def _fsync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
