"""From trace events to the bytes of a Parquet file, in memory.

A Parquet file cannot be read before its footer is written, so half of one on disk is worth
nothing: a file grows here in memory and is put on disk whole, by `files`.
"""

from collections.abc import Iterator, Sequence
from datetime import date, timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec.structs import astuple

from traces import COLUMNS, PARTITIONS, SCHEMA_VERSION, ColumnType, TraceEvent

_DAY_NS = 86_400 * 10**9
_EPOCH = date(1970, 1, 1)

# Large enough to compress and to scan well, small enough (10 MB of columns) to wait in the
# memory of a small node. For small files it is less, by what an event takes in a file.
_ROW_GROUP_ROWS = 32_768
_ROUGHLY_BYTES_PER_EVENT = 16

_ARROW_TYPES = {
    ColumnType.TEXT: pa.string(),
    ColumnType.BINARY: pa.binary(),
    ColumnType.INT64: pa.int64(),
}
_FIELDS = [pa.field(c.name, _ARROW_TYPES[c.type], nullable=c.nullable) for c in COLUMNS]
_FILE_SCHEMA = pa.schema([field for field in _FIELDS if field.name not in PARTITIONS])
# The same as plain tuples: asking Arrow for them costs as much as converting a column does.
_FILE_COLUMNS = [(field.name, field.type, field.nullable) for field in _FILE_SCHEMA]

# Clocks and versions climb in small steps and hardly repeat: their differences are smaller
# than any dictionary. A trace id is random and stands in a few rows only.
_CLIMBING = ("version", "wall_ns", "mono_ns", "t1", "t2", "t3", "t4")
_DICTIONARY = [name for name in _FILE_SCHEMA.names if name not in (*_CLIMBING, "trace_id")]

# Arrow looks for pandas when it makes its first array, and where that is installed its import
# fails in a program that is about to end, whose last events may be the first to be written.
pa.array([], pa.null())


class UnwritableEvent(ValueError):
    """An event has no place in this node's files; the message says why."""


def table_schema() -> pa.Schema:
    """The columns as a reader of the whole directory finds them, the partition's date last."""
    return pa.schema([*_FIELDS, pa.field("date", pa.date32())])


def to_columns(events: Sequence[TraceEvent], node: str, domain: str) -> pa.RecordBatch:
    """The events of this node as columns; `UnwritableEvent` if there is one among them."""
    try:
        rows = map(astuple, events)
        columns = dict(zip(TraceEvent.__struct_fields__, zip(*rows, strict=True), strict=True))
        if {*columns["node"]} != {node} or {*columns["domain"]} != {domain}:
            raise UnwritableEvent(f"it is not of node {node!r} in domain {domain!r}")
        arrays = [pa.array(columns[name], kind) for name, kind, _ in _FILE_COLUMNS]
    except (TypeError, ValueError, OverflowError) as error:
        raise UnwritableEvent(str(error)) from error
    for (name, _, nullable), array in zip(_FILE_COLUMNS, arrays, strict=True):
        if array.null_count and not nullable:
            raise UnwritableEvent(f"it has no {name}")
    return pa.RecordBatch.from_arrays(arrays, schema=_FILE_SCHEMA)


def by_day(batch: pa.RecordBatch) -> Iterator[tuple[date, pa.RecordBatch]]:
    """The rows of each UTC date, in the order of the dates; nearly always there is one."""
    walls = batch.column("wall_ns")
    ends = pc.min_max(walls)
    first, last = ends["min"].as_py() // _DAY_NS, ends["max"].as_py() // _DAY_NS
    if first == last:
        yield _EPOCH + timedelta(days=first), batch
        return
    days = pa.array([wall // _DAY_NS for wall in walls.to_pylist()], pa.int64())
    for day in sorted(days.unique().to_pylist()):
        yield _EPOCH + timedelta(days=day), batch.filter(pc.equal(days, day))


class ParquetBuffer:
    """The Parquet file of one day, growing in memory by row groups until it is finished."""

    def __init__(self, day: date, expected_bytes: int) -> None:
        """The expected size of the whole file decides on that of its row groups."""
        self.day = day
        self.rows = 0
        self._group: list[pa.RecordBatch] = []
        self._group_rows = 0
        self._rows_per_group = min(_ROW_GROUP_ROWS, expected_bytes // _ROUGHLY_BYTES_PER_EVENT)
        self._stream = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(
            self._stream,
            _FILE_SCHEMA,
            compression="zstd",
            use_dictionary=_DICTIONARY,
            column_encoding=dict.fromkeys(_CLIMBING, "DELTA_BINARY_PACKED"),
        )

    @property
    def size(self) -> int:
        """Bytes of the file so far, without the row group that is still being collected."""
        return int(self._stream.tell())

    def add(self, batch: pa.RecordBatch) -> None:
        """Append the rows."""
        self._group.append(batch)
        self._group_rows += batch.num_rows
        self.rows += batch.num_rows
        if self._group_rows >= self._rows_per_group:
            self._end_group()

    def finish(self, **about: str) -> memoryview:
        """The complete file, with these words about it in its footer."""
        self._end_group()
        about["schema_version"] = str(SCHEMA_VERSION)
        self._writer.add_key_value_metadata(
            {f"psph.traces.{key}": value for key, value in about.items()}
        )
        self._writer.close()
        return memoryview(self._stream.getvalue())

    def _end_group(self) -> None:
        if self._group:
            # Encoding many short pieces costs twice as much as joining them first.
            rows = pa.Table.from_batches(self._group).combine_chunks()
            self._writer.write_table(rows, self._group_rows)
            self._group, self._group_rows = [], 0
