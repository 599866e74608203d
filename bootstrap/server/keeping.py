"""Where the zones are kept: SQLite, synced to the disk before a change is acknowledged (RFC 2136,
section 3.5). Otherwise a power cut could take an update and leave its serial to another one, which
secondary servers would never fetch.

The records of the configuration and those that came by update live in one zone. What the
configuration said last time is kept, too, so that a line taken out of it takes out its record, and
one added to it adds one; what came by update stays.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path

import dns.exception
import dns.name
import dns.rdata
import dns.rdataclass
import dns.rdataset
from dns.name import Name
from dns.rdataset import Rdataset
from dns.rdatatype import CNAME, NS, SOA, RdataType

from bootstrap.server.updating import Change
from bootstrap.server.zone import (
    BadZone,
    Node,
    Record,
    Zone,
    freeze,
    newer,
    next_serial,
    parse_zone,
)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS records (
    zone BLOB NOT NULL, owner BLOB NOT NULL, name BLOB NOT NULL, type INTEGER NOT NULL,
    ttl INTEGER NOT NULL, data BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS by_owner ON records (zone, owner);
CREATE TABLE IF NOT EXISTS configured (zone BLOB NOT NULL, line TEXT NOT NULL);
"""
_OF_OWNER = "FROM records WHERE zone = ? AND owner = ?"
_INSERT = "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?)"


class KeepingError(Exception):
    """The zones cannot be read or written; the message says why."""


class Keeper:
    """One file; used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            # Whoever writes holds the server's lock, but not always in the same thread.
            self._connection = sqlite3.connect(
                path, isolation_level=None, timeout=30, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise self._failure(error) from error
        try:
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute("PRAGMA fullfsync = ON")  # macOS: through the disk's own cache
            self._connection.executescript(_SCHEMA)
        except sqlite3.Error as error:
            self._connection.close()
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> KeepingError:
        return KeepingError(f"{self._path} cannot keep the zones ({error}): check path and disk")

    def close(self) -> None:
        self._connection.close()

    def open(self, origin: Name, lines: Iterable[str]) -> Zone:
        """The zone as it was left, brought to what the configuration says now; durable."""
        lines = list(lines)
        wanted = parse_zone(origin, lines)
        try:
            kept, before = self._load(origin), self._configured(origin)
            if kept is None:
                zone = wanted
            elif before == lines:
                return kept
            else:
                zone = _merge(kept, _still_valid(origin, before), wanted)
            self._transact(zone, zone.nodes, lines, afresh=True)
        except (sqlite3.Error, dns.exception.DNSException, BadZone) as error:
            raise self._failure(error) from error
        return zone

    def keep(self, change: Change) -> None:
        """Durable when it returns; raises KeepingError and keeps nothing otherwise."""
        try:
            self._transact(change.after, change.names, None, afresh=False)
        except sqlite3.Error as error:
            raise self._failure(error) from error

    def _load(self, origin: Name) -> Zone | None:
        rows = self._connection.execute(
            "SELECT name, type, ttl, data FROM records WHERE zone = ? ORDER BY rowid",
            (_canonical(origin),),
        ).fetchall()
        if not rows:
            return None
        return Zone.of(origin, [_record(*row) for row in rows])

    def _configured(self, origin: Name) -> list[str]:
        rows = self._connection.execute(
            "SELECT line FROM configured WHERE zone = ? ORDER BY rowid", (_canonical(origin),)
        )
        return [line for (line,) in rows]

    def _transact(
        self, zone: Zone, names: Iterable[Name], lines: list[str] | None, *, afresh: bool
    ) -> None:
        connection, origin = self._connection, _canonical(zone.origin)
        connection.execute("BEGIN IMMEDIATE")
        try:
            if afresh:
                connection.execute("DELETE FROM records WHERE zone = ?", (origin,))
            for name in names:
                key = (origin, _canonical(name))
                # The zone keeps the first spelling of a name, and so must we.
                found = connection.execute(f"SELECT name {_OF_OWNER} LIMIT 1", key).fetchone()
                spelled = found[0] if found else name.to_wire()
                connection.execute(f"DELETE {_OF_OWNER}", key)
                connection.executemany(
                    _INSERT, [(*key, spelled, *row) for row in _rows(zone.node(name) or {})]
                )
            if lines is not None:
                connection.execute("DELETE FROM configured WHERE zone = ?", (origin,))
                connection.executemany(
                    "INSERT INTO configured VALUES (?, ?)", [(origin, line) for line in lines]
                )
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _merge(kept: Zone, before: Zone | None, wanted: Zone) -> Zone:
    """The zone with what the configuration no longer says taken out, and what it says anew put in.

    Where a new line contradicts what came by update (a CNAME beside something else), it wins.
    """
    nodes = {name: dict[RdataType, Rdataset](node) for name, node in kept.nodes.items()}
    said, says = set(before.records() if before else ()), list(wanted.records())
    for record in said.difference(says):
        _take_out(nodes.get(record.name, {}), record)
    new = [record for record in says if record not in said]
    if NS not in nodes[kept.origin]:  # updates and lines took out each other's
        new += [record for record in says if record.rdata.rdtype == NS]
    for record in new:
        _put_in(nodes.setdefault(record.name, {}), record)
    zone = kept.with_nodes({name: freeze(node) for name, node in nodes.items()})
    serial = wanted.serial
    return zone.with_serial(serial if newer(serial, kept.serial) else next_serial(kept.serial))


def _take_out(node: dict[RdataType, Rdataset], record: Record) -> None:
    kind = record.rdata.rdtype
    if kind == SOA or kind not in node:  # a zone always has one; another replaces it
        return
    left = [rdata for rdata in node[kind] if rdata != record.rdata]
    if left:
        node[kind] = dns.rdataset.from_rdata_list(node[kind].ttl, left)
    else:
        del node[kind]


def _put_in(node: dict[RdataType, Rdataset], record: Record) -> None:
    kind = record.rdata.rdtype
    if kind == CNAME:
        node.clear()
    else:
        node.pop(CNAME, None)
    others = [] if kind == SOA else [rdata for rdata in node.get(kind, ()) if rdata != record.rdata]
    node[kind] = dns.rdataset.from_rdata_list(record.ttl, [*others, record.rdata])


def _still_valid(origin: Name, lines: list[str]) -> Zone | None:
    """What the configuration said last time; another version of psph may have been less strict."""
    try:
        return parse_zone(origin, lines)
    except BadZone:
        return None


def _canonical(name: Name) -> bytes:
    return name.canonicalize().to_wire() or b""


def _rows(node: Node) -> list[tuple[int, int, bytes]]:
    return [
        (int(kind), rdataset.ttl, rdata.to_wire() or b"")
        for kind, rdataset in node.items()
        for rdata in rdataset
    ]


def _record(name: bytes, kind: int, ttl: int, data: bytes) -> Record:
    rdata = dns.rdata.from_wire(dns.rdataclass.IN, RdataType.make(kind), data, 0, len(data))
    return Record(dns.name.from_wire(name, 0)[0], ttl, rdata)
