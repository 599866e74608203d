"""From numbers to Parquet files, as docs/traces.md says nodes write them.

The columns come from `traces`, as those of the writer in the nodes do; a test compares a file of
each.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.random import Generator
from numpy.typing import NDArray

from spark_jobs.generating.crossings import REASONS
from spark_jobs.generating.rows import CODE, NONE, STAGES, Numbers, Rows
from spark_jobs.generating.world import EPOCH, World
from traces import COLUMNS, PARTITIONS, SCHEMA_VERSION, ColumnType, Stage

DAY = 86_400 * 10**9
ROW_GROUP = 32_768
_ARROW = {
    ColumnType.TEXT: pa.string(),
    ColumnType.BINARY: pa.binary(),
    ColumnType.INT64: pa.int64(),
}
SCHEMA = pa.schema(
    [
        pa.field(column.name, _ARROW[column.type], nullable=column.nullable)
        for column in COLUMNS
        if column.name not in PARTITIONS
    ]
)
_CLIMBING = ("version", "wall_ns", "mono_ns", "t1", "t2", "t3", "t4")
_DICTIONARY = [name for name in SCHEMA.names if name not in (*_CLIMBING, "trace_id")]
_HEX = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), np.uint8).reshape(256, 2)


def hex_text(raw: NDArray[np.uint8]) -> pa.Array:
    """Ids as text, from their bytes: one id a row."""
    count, length = raw.shape
    letters = np.ascontiguousarray(_HEX[raw]).tobytes()
    offsets = np.arange(count + 1, dtype=np.int32) * (2 * length)
    return pa.StringArray.from_buffers(
        count, pa.py_buffer(offsets.tobytes()), pa.py_buffer(letters)
    )


class Writer:
    """Writes pieces, each as one file for every node and day."""

    def __init__(
        self, directory: Path, world: World, subscribers: list[str], start: int, draw: Generator
    ) -> None:
        self._directory = directory
        self._world = world
        self._start = start
        self._tokens = [draw.bytes(4).hex() for _ in world.nodes]
        self._numbers = [count(1) for _ in world.nodes]
        self.files = 0
        self.bytes = 0
        self._stages = pa.array([str(stage) for stage in STAGES])
        self._nodes = pa.array(world.nodes)
        self._topics = pa.array(world.topics)
        self._sids = pa.array(world.sids, pa.binary())
        self._rids = pa.array(world.rids, pa.binary())
        self._publishers = pa.array([world.publishers[home] for home in world.home], pa.binary())
        self._subscribers = pa.array(subscribers)
        self._reasons = pa.array(REASONS)

    def write(self, rows: Rows, trace_ids: NDArray[np.uint8]) -> None:
        """The events of all nodes, in the order of each node's clock."""
        wall = self._world.wall(rows.node, rows.at, self._start)
        day = wall // DAY
        order = np.lexsort((wall, day, rows.node))
        rows, wall, day = rows.where(order), wall[order], day[order]
        ends = np.flatnonzero((np.diff(rows.node) != 0) | (np.diff(day) != 0)) + 1
        traces = hex_text(trace_ids)
        for first, last in zip([0, *ends], [*ends, len(rows)], strict=True):
            mine = rows.where(np.arange(first, last))
            table = self._table(mine, wall[first:last], traces)
            self._file(int(rows.node[first]), int(day[first]), table, int(wall[last - 1]))

    def _table(self, rows: Rows, wall: Numbers, traces: pa.Array) -> pa.Table:
        world = self._world
        passing = rows.stage == CODE[Stage.FORWARDED]
        topic = np.where(rows.named == 1, rows.topic, NONE)
        numbered = np.where(rows.version != NONE, rows.topic, NONE)
        since = rows.at - self._start
        mono = world.mono_ns[rows.node] + since + np.rint(world.drift[rows.node] * since)
        columns = {
            "trace_id": _looked_up(traces, np.where(passing, NONE, rows.update)),
            "sid": _looked_up(self._sids, topic),
            "rid": _looked_up(self._rids, topic),
            "topic": _looked_up(self._topics, np.where(passing, NONE, rows.topic)),
            "publisher": _looked_up(self._publishers, numbered),
            "epoch": _known(np.where(rows.version != NONE, EPOCH, NONE)),
            "version": _known(rows.version),
            "stage": _looked_up(self._stages, rows.stage),
            "subscriber": _looked_up(self._subscribers, rows.subscriber),
            "peer": _looked_up(self._nodes, rows.peer),
            "wall_ns": pa.array(wall),
            "mono_ns": pa.array(mono.astype(np.int64)),
            "t1": _known(rows.t1),
            "t2": _known(rows.t2),
            "t3": _known(rows.t3),
            "t4": _known(rows.t4),
            "bytes": _known(rows.size),
            "reason": _looked_up(self._reasons, rows.reason),
        }
        return pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA)

    def _file(self, node: int, day: int, table: pa.Table, finished: int) -> None:
        name, domain = self._world.nodes[node], self._world.domain_of[node]
        date = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day)).date()
        directory = self._directory.joinpath(
            f"domain={quote(domain, safe='')}", f"date={date}", f"node={quote(name, safe='')}"
        )
        directory.mkdir(parents=True, exist_ok=True)
        when = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=finished // 1_000)
        of_writer = f"{self._tokens[node]}-{next(self._numbers[node]):06}"
        final = directory / f"{when:%Y%m%dT%H%M%S%fZ}-{of_writer}.parquet"
        aside = directory / f"_{final.name}.part"
        with pq.ParquetWriter(
            aside,
            SCHEMA,
            compression="zstd",
            use_dictionary=_DICTIONARY,
            column_encoding=dict.fromkeys(_CLIMBING, "DELTA_BINARY_PACKED"),
        ) as file:
            file.write_table(table, ROW_GROUP)
            about = {
                "schema_version": str(SCHEMA_VERSION), "node": name, "domain": domain,
                "dropped": "0",
            }  # fmt: skip
            file.add_key_value_metadata({f"psph.traces.{key}": text for key, text in about.items()})
        aside.rename(final)
        self.files += 1
        self.bytes += final.stat().st_size


def _known(numbers: Numbers) -> pa.Array:
    return pa.array(numbers, mask=numbers == NONE)


def _looked_up(values: pa.Array, numbers: Numbers) -> pa.Array:
    return values.take(_known(numbers))
