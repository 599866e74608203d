"""A disk that loses at a power cut what was not synced to it.

`python -m tests.unsynced_disk PLATTER psph-arguments...` runs `psph` with SQLite's calls to the
operating system observed: a file reaches the directory PLATTER when SQLite syncs it, and leaves it
when SQLite deletes it. `lose_power` puts the files of PLATTER in the place of those that the
operating system has. SQLite is not told of it, and runs as it always does.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import shutil
import sys
from pathlib import Path

from tests.psph.hub_process import START

# Names are addresses: SQLite keeps that of a file for as long as it is open.
_OPEN = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p,
)  # fmt: skip
_DELETE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
_SYNC = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
_READ = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
)
_SIZE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64))
_XREAD, _XSYNC, _XFILESIZE = 2, 5, 6
"""Where sqlite3_io_methods has these functions; its version is at 0."""


class _Vfs(ctypes.Structure):
    """sqlite3_vfs, as far as it is needed."""

    _fields_ = (
        ("version", ctypes.c_int),
        ("file_size", ctypes.c_int),
        ("longest_path", ctypes.c_int),
        ("next", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("data", ctypes.c_void_p),
        ("open", _OPEN),
        ("delete", _DELETE),
    )


class _File(ctypes.Structure):
    _fields_ = (("methods", ctypes.c_void_p),)


class _Methods(ctypes.Structure):
    """sqlite3_io_methods of version 3: the version, padded, and 18 functions."""

    _fields_ = (("slots", ctypes.c_void_p * 19),)


class UnsyncedDisk:
    """Observes SQLite in this process from now on."""

    def __init__(self, platter: Path) -> None:
        self._platter = platter
        self._names: dict[int, Path] = {}
        self._observed: dict[int, _Methods] = {}
        """Methods of files, by the address of those they replace."""
        self._kept: list[object] = []
        """Callbacks that SQLite may still call."""
        library = ctypes.CDLL(ctypes.util.find_library("sqlite3"))
        library.sqlite3_vfs_find.restype = ctypes.POINTER(_Vfs)
        vfs = library.sqlite3_vfs_find(None).contents
        # Copies of the functions: a field of the structure would follow what it is set to.
        self._open = ctypes.cast(ctypes.cast(vfs.open, ctypes.c_void_p).value, _OPEN)
        self._delete = ctypes.cast(ctypes.cast(vfs.delete, ctypes.c_void_p).value, _DELETE)
        vfs.open = self._keep(_OPEN(self._on_open))
        vfs.delete = self._keep(_DELETE(self._on_delete))

    def _keep(self, callback):
        self._kept.append(callback)
        return callback

    def _on_open(self, vfs, name, file, flags, out_flags):
        code = self._open(vfs, name, file, flags, out_flags)
        opened = _File.from_address(file)
        if code == 0 and name and opened.methods:
            self._names[file] = _path(name)
            opened.methods = ctypes.addressof(self._observe(opened.methods))
        return code

    def _observe(self, address):
        observed = self._observed.get(address)
        if observed is None:
            observed = self._observed[address] = _Methods()
            ctypes.memmove(ctypes.addressof(observed), address, ctypes.sizeof(_Methods))
            sync = ctypes.cast(observed.slots[_XSYNC], _SYNC)
            read = ctypes.cast(observed.slots[_XREAD], _READ)
            size = ctypes.cast(observed.slots[_XFILESIZE], _SIZE)

            def on_sync(file, flags):
                code = sync(file, flags)
                if code == 0:
                    self._store(self._names[file], _content(file, read, size))
                return code

            callback = self._keep(_SYNC(on_sync))
            observed.slots[_XSYNC] = ctypes.cast(callback, ctypes.c_void_p).value
        return observed

    def _store(self, name, content):
        copy = self._platter / f"{name.name}.new"
        copy.write_bytes(content)
        os.replace(copy, self._platter / name.name)

    def _on_delete(self, vfs, name, synced):
        code = self._delete(vfs, name, synced)
        if code == 0:
            (self._platter / _path(name).name).unlink(missing_ok=True)
        return code


def _path(name):
    return Path(os.fsdecode(ctypes.string_at(name)))


def _content(file, read, size):
    """By SQLite's own handle: to open and close the file here would end SQLite's locks on it."""
    length = ctypes.c_int64()
    if size(file, ctypes.byref(length)):
        raise OSError("the size of a file cannot be read")
    content = ctypes.create_string_buffer(length.value)
    if length.value and read(file, content, length.value, 0):
        raise OSError("a file cannot be read")
    return content.raw


def lose_power(data: Path, platter: Path, *names: str) -> None:
    """The machine stopped: of these databases, `data` holds what was synced, and no more."""
    for name in names:
        for part in ("", "-wal", "-shm"):
            (data / f"{name}{part}").unlink(missing_ok=True)
            if (platter / f"{name}{part}").exists():
                shutil.copyfile(platter / f"{name}{part}", data / f"{name}{part}")


if __name__ == "__main__":
    disk = UnsyncedDisk(Path(sys.argv.pop(1)))
    exec(START)  # noqa: S102  # as `hub_process.command` runs it
