"""The way back: from <SId, RId> to the topic they were made from, durably.

Ids are hashes, so somebody has to remember what was hashed; this is that memory, one SQLite file.
It believes nobody: ids are computed from the topic on the way in, and checked on the way out.

Two tables, each searched by one descent of a B-tree:

topics   the first 8 bytes of the RId -> the canonical topic. Eight bytes find the topic; hashing
         what was found together with the SId tells whether it is the one that was asked for (an
         RId is made of both), so neither id is stored whole. Topics that share their first bytes
         lie side by side.
domains  the host with its labels reversed (com.example.www.) -> the same 8 bytes, so that a
         domain and all below it are neighbours.

Which zone a topic has depends on the public suffix list, so the file says for which id version
its ids were made, and is indexed anew when it is opened under another.
"""

import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from identifiers import (
    ID_VERSION,
    InvalidTopic,
    RendezvousId,
    ScopeId,
    Topic,
    identify,
    is_address,
    normalise_host,
    rendezvous_id,
)
from psph.errors import PsphError

_APPLICATION_ID: Final = int.from_bytes(b"psph")  # tells our file from another program's
_SCHEMA_VERSION: Final = 1
_SCHEMA: Final = (
    """CREATE TABLE topics (
        head INTEGER NOT NULL, canonical TEXT NOT NULL, PRIMARY KEY (head, canonical)
    ) WITHOUT ROWID""",
    """CREATE TABLE domains (
        domain TEXT NOT NULL, head INTEGER NOT NULL, PRIMARY KEY (domain, head)
    ) WITHOUT ROWID""",
    "CREATE TABLE made_for (id_version TEXT NOT NULL)",
    f"INSERT INTO made_for VALUES ('{ID_VERSION}')",
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {_SCHEMA_VERSION}",
)

# A writer may hold the lock for as long as it takes to load a million topics.
_BUSY_SECONDS: Final = 60.0
# Mapped pages make a look-up among a million topics about as quick as one among ten.
_MMAP_BYTES: Final = 1 << 30
_BATCH: Final = 10_000

# What to do, by the beginning of SQLite's name for the error.
_ADVICE: Final = {
    "SQLITE_CANTOPEN": "check that its directory exists and that you may write there",
    "SQLITE_READONLY": "check that you may write to it and to its directory",
    "SQLITE_NOTADB": "it is not a topic registry; name another file",
    "SQLITE_BUSY": "another process has been writing to it for long; stop that one or try later",
    "SQLITE_FULL": "make room on its disk",
    "SQLITE_CORRUPT": "it is damaged; restore a copy, or remove it and let it fill again",
}


class RegistryError(PsphError):
    """The registry cannot be used; the sentence says which file, why, and what to do."""


class TopicRegistry:
    """Topics by their ids and by their domain.

    Any number of threads may use one object, and any number of processes one file: readers never
    wait, writers wait for each other. What a method has written when it returns survives the
    death of the process; a power cut may take the last of it, and a topic is added again whenever a
    proxy begins with it. Do not carry an object across a fork.
    """

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        self._closed = False
        # Connections not in use at the moment: as many as there ever were calls at one time.
        self._idle: list[sqlite3.Connection] = []
        try:
            with self._connection() as db:
                self._prepare(db)
        except BaseException:
            self.close()
            raise

    def add(self, topic: str) -> Topic:
        """Remember `topic`; to add it again changes nothing. InvalidTopic if it has no ids."""
        found = identify(topic)
        if not self._knows(found):
            with self._writing() as db:
                _insert(db, [found])
        return found

    def add_many(self, topics: Iterable[str]) -> int:
        """Remember all `topics`, or none if one has no ids; returns how many were new.

        It is one transaction: other writers wait until `topics` is exhausted.
        """
        with self._writing() as db:
            return _insert(db, map(identify, topics))

    def remove(self, topic: str) -> bool:
        """Forget `topic`; returns whether it was known."""
        found = identify(topic)
        head = _head(found.rid)
        with self._writing() as db:
            removed = db.execute(
                "DELETE FROM topics WHERE head = ? AND canonical = ?", (head, found.canonical)
            ).rowcount
            # Another topic with this head may have the same domain.
            db.execute(
                "DELETE FROM domains WHERE domain = ? AND head = ?"
                " AND NOT EXISTS (SELECT 1 FROM topics WHERE topics.head = domains.head)",
                (_domain(found.host), head),
            )
        return bool(removed)

    def topic_of(self, sid: ScopeId, rid: RendezvousId) -> str | None:
        """The canonical topic that has these ids, if it is known."""
        with self._connection() as db:
            rows = db.execute(
                "SELECT canonical FROM topics WHERE head = ?", (_head(rid),)
            ).fetchall()
        for (canonical,) in rows:
            if rendezvous_id(sid, canonical) == rid:
                return str(canonical)
        return None

    def ids_of(self, topic: str) -> tuple[ScopeId, RendezvousId] | None:
        """The ids of `topic`, if it is known. (Whether known or not: `identify`.)"""
        found = identify(topic)
        return (found.sid, found.rid) if self._knows(found) else None

    def under(self, domain: str) -> Iterator[str]:
        """The canonical topics of `domain` and of all domains below it, ordered by domain.

        They are those known at the first step; the file cannot shed old pages until the last.
        """
        first = _domain(normalise_host(domain))
        return self._between(first, first[:-1] + "/")  # "/" is the character after "."

    def __contains__(self, topic: object) -> bool:
        try:
            return isinstance(topic, str) and self._knows(identify(topic))
        except InvalidTopic:
            return False

    def __len__(self) -> int:
        with self._connection() as db:
            (count,) = db.execute("SELECT count(*) FROM topics").fetchone()
        return int(count)

    def close(self) -> None:
        """Give back the file. Calls that are under way in other threads still end well."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _knows(self, topic: Topic) -> bool:
        with self._connection() as db:
            row = db.execute(
                "SELECT 1 FROM topics WHERE head = ? AND canonical = ?",
                (_head(topic.rid), topic.canonical),
            ).fetchone()
        return row is not None

    def _between(self, first: str, after: str) -> Iterator[str]:
        query = (
            "SELECT domain, canonical FROM domains JOIN topics USING (head)"
            " WHERE domain >= ? AND domain < ? ORDER BY domain"
        )
        with self._connection() as db, closing(db.execute(query, (first, after))) as rows:
            for domain, canonical in rows:
                # A topic with the same head in another domain is not meant.
                if _domain(identify(canonical).host) == domain:
                    yield canonical

    # --- Connections ------------------------------------------------------------------------------

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        if self._closed:
            raise RegistryError(f"the topic registry {self._path} was closed: open it again")
        try:
            try:
                db = self._idle.pop()
            except IndexError:
                db = self._open()
            try:
                yield db
            finally:
                self._idle.append(db)
                if self._closed:
                    self.close()
        except sqlite3.Error as error:
            raise self._refusal(error) from error

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._connection() as db:
            db.execute("BEGIN IMMEDIATE")
            with db:  # commits or rolls back
                yield db

    def _open(self) -> sqlite3.Connection:
        db = sqlite3.connect(
            self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute(f"PRAGMA mmap_size = {_MMAP_BYTES}")
        except sqlite3.Error:
            db.close()
            raise
        return db

    def _refusal(self, error: sqlite3.Error) -> RegistryError:
        name = getattr(error, "sqlite_errorname", "")
        advice = (what for kind, what in _ADVICE.items() if name.startswith(kind))
        return RegistryError(
            f"the topic registry {self._path} cannot be used ({error}): "
            f"{next(advice, 'check the file and its disk')}"
        )

    # --- The file ---------------------------------------------------------------------------------

    def _prepare(self, db: sqlite3.Connection) -> None:
        """Make the tables in a new file; bring those of an old one to our id version."""
        # Only reads, so as not to wait for a writer, nor to write to another program's file.
        if self._made_for(db) == str(ID_VERSION):
            return
        _use_wal(db)
        db.execute("BEGIN IMMEDIATE")
        with db:
            # Asked again, since another process may have been quicker.
            made_for = self._made_for(db)
            if made_for is None:
                for statement in _SCHEMA:
                    db.execute(statement)
            elif made_for != str(ID_VERSION):
                _index_anew(db)

    def _made_for(self, db: sqlite3.Connection) -> str | None:
        """The id version of what is in the file; None if it is new."""
        # One statement, so that all is of one moment.
        tables, application, version = db.execute(
            "SELECT (SELECT count(*) FROM sqlite_schema), application_id, user_version"
            " FROM pragma_application_id, pragma_user_version"
        ).fetchone()
        if not tables and not application and not version:
            return None
        if application != _APPLICATION_ID:
            raise RegistryError(
                f"{self._path} is the database of another program: name another file"
            )
        if version != _SCHEMA_VERSION:
            raise RegistryError(
                f"the topic registry {self._path} has format {version}, and this program knows "
                f"format {_SCHEMA_VERSION}: use a newer program, or name another file"
            )
        (made_for,) = db.execute("SELECT id_version FROM made_for").fetchone()
        return str(made_for)


def _use_wal(db: sqlite3.Connection) -> None:
    """Let readers and a writer work side by side; the file stays in this mode."""
    patience = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            # SQLite does not wait here as it does elsewhere, and another process may do the same.
            busy = error.sqlite_errorname.startswith("SQLITE_BUSY")
            if not busy or time.monotonic() > patience:
                raise
            time.sleep(0.01)


def _insert(db: sqlite3.Connection, topics: Iterable[Topic]) -> int:
    """Add what is new of `topics`, and say how many that were."""
    new = 0
    rest = iter(topics)
    while batch := list(islice(rest, _BATCH)):
        # Sorted, because neighbours share pages.
        by_head = sorted((_head(topic.rid), topic.canonical) for topic in batch)
        by_domain = sorted((_domain(topic.host), _head(topic.rid)) for topic in batch)
        new += db.executemany("INSERT OR IGNORE INTO topics VALUES (?, ?)", by_head).rowcount
        db.executemany("INSERT OR IGNORE INTO domains VALUES (?, ?)", by_domain)
    return new


def _index_anew(db: sqlite3.Connection) -> None:
    """Compute all heads again, because the ids in the file are of another version than ours."""
    db.execute("CREATE TEMP TABLE known AS SELECT canonical FROM topics")
    db.execute("DELETE FROM topics")
    db.execute("DELETE FROM domains")
    _insert(db, _identified(canonical for (canonical,) in db.execute("SELECT * FROM known")))
    db.execute("DROP TABLE known")
    db.execute("UPDATE made_for SET id_version = ?", (str(ID_VERSION),))


def _identified(topics: Iterable[str]) -> Iterator[Topic]:
    for topic in topics:
        try:
            yield identify(topic)
        except InvalidTopic:
            continue  # nobody can ask for it any more


def _head(rid: RendezvousId) -> int:
    # Signed, as SQLite's integers are.
    return int.from_bytes(rid.raw[:8], signed=True)


def _domain(host: str) -> str:
    """The host as the key of `domains`: every label with its dot, from the top."""
    labels = [host] if is_address(host) else reversed(host.split("."))
    return "".join(f"{label}." for label in labels)
