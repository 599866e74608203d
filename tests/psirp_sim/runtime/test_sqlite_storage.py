"""The storage of a real node: what it says after a power cut, and which files it takes."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from psirp_sim.runtime import sqlite_storage
from psirp_sim.runtime.sqlite_storage import SqliteStorage, StorageError
from tests.unsynced_disk import lose_power

WRITER = """
import sys
from pathlib import Path
from tests.unsynced_disk import UnsyncedDisk
disk = UnsyncedDisk(Path(sys.argv[2]))
from psirp_sim.runtime.sqlite_storage import SqliteStorage
call = lambda done: done()
power_safe = sys.argv[3] == "safe"
storage = SqliteStorage(Path(sys.argv[1]), call, call, power_safe=power_safe, boot_id="one")


# Each when the one before is durable, so that they do not share a commit.
def one():
    storage.write({b"2": b""}, two, sync=sys.argv[3] == "sync")


def two():
    storage.write({b"3": b""}, lambda: print("durable", flush=True))


storage.write({b"1": b""}, one)
"""


def open_storage(path, boot_id, **options):
    return SqliteStorage(path, lambda done: done(), lambda done: done(), boot_id=boot_id, **options)


def crashed(storage):
    """Let go of the file without the mark of a clean stop, as a process that dies."""
    storage.close()
    with closing(sqlite3.connect(storage._path)) as db, db:
        db.execute("UPDATE opened SET clean = 0")


def epoch_after(path, boot_id, **options):
    storage = open_storage(path, boot_id, **options)
    crashed(storage)
    return storage.epoch


def test_the_epoch_grows_with_an_unclean_stop_in_another_boot_only(tmp_path):
    path = tmp_path / "state"
    assert epoch_after(path, "one") == 1
    assert epoch_after(path, "one") == 1, "the process died, and the operating system has it all"
    assert epoch_after(path, "two") == 2
    open_storage(path, "two").close()
    assert epoch_after(path, "three") == 2, "it was stopped cleanly"
    assert epoch_after(path, "three", power_safe=True) == 2
    assert epoch_after(path, "four") == 2, "everything was synced"
    assert epoch_after(path, "five") == 3


def test_where_the_boot_is_not_known_every_unclean_stop_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_storage, "BOOT_ID", tmp_path / "nothing")
    assert sqlite_storage.read_boot_id() == ""
    assert epoch_after(tmp_path / "state", None) == 1
    assert epoch_after(tmp_path / "state", None) == 2


@pytest.mark.parametrize(
    ("manner", "left"), [("usual", []), ("sync", [b"1", b"2"]), ("safe", [b"1", b"2", b"3"])]
)
def test_what_a_power_cut_leaves(tmp_path, manner, left):
    platter = tmp_path / "platter"
    platter.mkdir()
    line = [sys.executable, "-c", WRITER, tmp_path / "state", platter, manner]
    with subprocess.Popen(list(map(str, line)), stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"durable\n"
        process.kill()
    lose_power(tmp_path, platter, "state")
    storage = open_storage(tmp_path / "state", "two")
    assert [key for key, _ in storage.scan(b"")] == left
    assert storage.epoch == (1 if manner == "safe" else 2)
    storage.close()


def test_an_older_file_is_upgraded_and_its_end_is_not_known(tmp_path):
    path = tmp_path / "state"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE state (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID")
        db.execute("INSERT INTO state VALUES (?, ?)", (b"key", b"value"))
    storage = open_storage(path, "one")
    assert storage.get(b"key") == b"value"
    assert storage.epoch == 2
    storage.close()


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("PRAGMA user_version = 9", "has format 9, and this program knows 1: run the newer"),
        ("CREATE TABLE other (x)", "was made by another program: choose another path"),
    ],
)
def test_a_file_that_is_not_ours_is_left_alone(tmp_path, statement, why):
    path = tmp_path / "state"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement)
    with pytest.raises(StorageError, match=why):
        open_storage(path, "one")
    with closing(sqlite3.connect(path)) as db:
        assert "opened" not in [row[0] for row in db.execute("SELECT name FROM sqlite_master")]
