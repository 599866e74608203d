"""The columns of a trace, as a table that writers and readers derive their schema from.

The rules by which it may grow: a new column goes to the end, is nullable, says since which
version of the schema it exists, and raises `SCHEMA_VERSION`. A column is never renamed,
removed or given another type. So a reader that asks for all columns by name reads every file
ever written, with null for what a file does not have.
"""

from enum import StrEnum
from typing import NamedTuple

SCHEMA_VERSION = 1


class ColumnType(StrEnum):
    """The types that Parquet, Spark, duckdb and pandas all have."""

    TEXT = "text"
    BINARY = "binary"
    INT64 = "int64"


class Column(NamedTuple):
    """One column; `since` is the version of the schema that brought it."""

    name: str
    type: ColumnType
    nullable: bool
    meaning: str
    since: int = 1


_TEXT, _BINARY, _INT64 = ColumnType.TEXT, ColumnType.BINARY, ColumnType.INT64

COLUMNS: tuple[Column, ...] = (
    Column("trace_id", _TEXT, True, "the update: 32 hex digits, made where it entered"),
    Column("sid", _BINARY, True, "scope id, 32 bytes"),
    Column("rid", _BINARY, True, "rendezvous id, 32 bytes"),
    Column("topic", _TEXT, True, "topic URL, as the writing room knows it"),
    Column("publisher", _BINARY, True, "publisher id of the position, 16 bytes"),
    Column("epoch", _INT64, True, "epoch of the position"),
    Column("version", _INT64, True, "version of the position, counting from 1"),
    Column("stage", _TEXT, False, "what happened: one of the stages below"),
    Column("node", _TEXT, False, "node that wrote the event; unique among all domains"),
    Column("domain", _TEXT, False, "domain that node belongs to"),
    Column("subscriber", _TEXT, True, "callback URL, stream, or client id"),
    Column("peer", _TEXT, True, "the other node's `node`"),
    Column("wall_ns", _INT64, False, "node's wall clock: nanoseconds since 1970, UTC"),
    Column("mono_ns", _INT64, False, "node's monotonic clock: only differences mean anything"),
    Column("t1", _INT64, True, "clock probe: this node sent, by its wall clock"),
    Column("t2", _INT64, True, "clock probe: `peer` received, by the peer's wall clock"),
    Column("t3", _INT64, True, "clock probe: `peer` answered, by the peer's wall clock"),
    Column("t4", _INT64, True, "clock probe: this node received the answer, by its wall clock"),
    Column("bytes", _INT64, True, "size of what was sent, received or dropped"),
    Column("reason", _TEXT, True, "why it failed or ended: a short word, none when all is well"),
)

# Told by the directory a file lies in, not by the file: `domain=D/date=YYYY-MM-DD/node=N/`.
# `date` is no column of the event; it is the UTC date of wall_ns.
PARTITIONS: tuple[str, ...] = ("domain", "date", "node")
