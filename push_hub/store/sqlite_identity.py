"""The hub's identity in its database, and whether the database has everything it acknowledged.

Without `power_safe` a commit survives the death of the process, because the operating system has
it, and not a power cut: the disk then holds an earlier moment of the database. Positions given
after that moment are known to readers and would be given again, to other contents. So the
database carries the boot id of the machine and a mark of a clean stop, both synced to the disk
before the hub serves. A database that was not stopped cleanly, without `power_safe`, in another
boot than this one may lack acknowledged updates: the hub then numbers in a new epoch, and readers
receive a `reset`. A process that died alone (kill -9) leaves a complete database, and the epoch
goes on.
"""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from typing import Final

from identifiers import PublisherId
from push_hub.store.records import Identity

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def read_boot_id() -> str:
    """Changes whenever the machine starts. Empty where it cannot be read (not on Linux): then
    every unclean stop counts as a power cut, which is the safe side."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def open_identity(db: sqlite3.Connection, boot: str, *, power_safe: bool) -> tuple[Identity, bool]:
    """The identity for this run, and whether acknowledged writes may be missing. The caller commits
    with synchronous = FULL: nothing may be acknowledged before the mark is on the disk."""
    row = db.execute("SELECT publisher, epoch, boot, clean, synced FROM identity").fetchone()
    if row is None:
        publisher, epoch, lost = os.urandom(PublisherId.SIZE), 1, False
        db.execute("INSERT INTO identity (publisher, epoch) VALUES (?, ?)", (publisher, epoch))
    else:
        publisher, epoch, last_boot, clean, synced = row
        lost = not clean and not synced and (last_boot != boot or not boot)
    if lost:
        epoch += 1
        _refetch_all(db)
    db.execute(
        "UPDATE identity SET epoch = ?, boot = ?, clean = 0, synced = ?", (epoch, boot, power_safe)
    )
    return Identity(PublisherId(publisher), epoch), lost


def mark_clean(db: sqlite3.Connection) -> None:
    """Everything that was acknowledged is on the disk with this mark; synchronous = FULL."""
    db.execute("UPDATE identity SET clean = 1")


def _refetch_all(db: sqlite3.Connection) -> None:
    """A lost ping or a lost version is found by fetching every topic that has subscribers."""
    db.execute(
        "UPDATE topics SET ping_serial = ping_serial + 1, trace_id = lower(hex(randomblob(16))),"
        " fetch_due = ? WHERE fetch_due IS NULL AND last_fetch_at IS NOT NULL"
        " AND EXISTS (SELECT 1 FROM subscriptions WHERE topic_id = topics.id"
        " AND state IN ('active', 'renewing')) AND NOT EXISTS (SELECT 1 FROM following"
        " WHERE topic_id = topics.id AND way = 'carried')",
        (time.time(),),
    )
