"""Files with secrets in them: made for their owner only, and refused when others can read them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from bootstrap.errors import BootstrapError

LARGEST = 16 << 10
"""Bytes; a key has a few hundred."""


class BadKeyFile(BootstrapError):
    """A key file that cannot be used; the text names the file and says what to do."""


def write_new(path: Path, text: str) -> None:
    """A file that only its owner can read, from its first moment on and never half written.

    FileExistsError when there is one: a key is not overwritten.
    """
    if path.exists():
        raise FileExistsError(path)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        # A link fails where somebody made the file meanwhile; a rename would overwrite it.
        os.link(unfinished, path)
    except FileExistsError:
        raise
    except OSError as error:
        raise BadKeyFile(f"{path}: cannot be written: {error.strerror}") from error
    finally:
        unfinished.unlink(missing_ok=True)


def read(path: Path) -> tuple[str, int]:
    """The text of a file, and its permissions."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise BadKeyFile(f"{path}: is no file")
            raw = file.read(LARGEST + 1)
    except OSError as error:
        raise BadKeyFile(f"{path}: {error.strerror}") from error
    if len(raw) > LARGEST:
        raise BadKeyFile(f"{path}: larger than {LARGEST} bytes, so no key file")
    try:
        return raw.decode("ascii"), stat.S_IMODE(status.st_mode)
    except UnicodeDecodeError:
        raise BadKeyFile(f"{path}: is no key file: it has bytes that are no text") from None


def refuse_readable(path: Path, mode: int) -> None:
    """As ssh does: a secret that others can read is none."""
    if mode & 0o077:
        raise BadKeyFile(
            f"{path}: others can read this secret (mode {mode:04o}): run chmod 600 on it,"
            " and replace the key if others may have read it"
        )
