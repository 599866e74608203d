"""One process for each database: a lock that ends with whoever holds it, however that ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from push_hub.errors import StoreError, StoreInUse


class DatabaseLock:
    """A file beside the database, locked; its text is the process that did."""

    def __init__(self, database: Path) -> None:
        path = database.with_name(f"{database.name}.lock")
        try:
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreError(
                f"{path} cannot be made ({error.strerror}): check the directory and its permissions"
            ) from error
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(self._handle, 20, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._handle)
            raise StoreInUse(
                f"{database} is in use by another hub (process {holder}): stop that one, or choose "
                "another directory"
            ) from None
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """The file stays: removing it would let two hold locks on two files of the same name."""
        os.close(self._handle)
