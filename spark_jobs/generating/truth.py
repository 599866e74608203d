"""What really happened, beside the traces in `_truth/`, for whoever checks a table.

Readers of traces pass over the directory's name, and those that go by `*.parquet` over the
files', which are Arrow's own format: `pyarrow.feather.read_table` reads them.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa

from spark_jobs.generating.crossings import Piece
from spark_jobs.generating.moving import Client
from spark_jobs.generating.rows import NONE, Numbers
from spark_jobs.generating.settings import Settings
from spark_jobs.generating.world import World
from spark_jobs.generating.writing import hex_text

DIRECTORY = "_truth"
_NAME = pa.dictionary(pa.int32(), pa.string())
_UPDATE = [
    ("trace_id", pa.string()), ("topic", _NAME), ("version", pa.int64()), ("from_domain", _NAME),
    ("to_domain", _NAME), ("pinged", pa.int64()), ("fetched", pa.int64()),
    ("published", pa.int64()),
]  # fmt: skip
DELIVERIES = pa.schema(
    [*_UPDATE, ("delivered", pa.int64()), ("copies", pa.int64()), ("late", pa.bool_())]
)
SENDS = pa.schema(
    [
        *_UPDATE, ("subscriber", _NAME), ("stream", pa.bool_()), ("sent", pa.int64()),
        ("copies", pa.int64()), ("failures", pa.int64()), ("late", pa.bool_()),
        ("buffered", pa.bool_()),
    ]
)  # fmt: skip


class Truth:
    """Written while it is entered: deliveries and sends piece by piece, the rest in the end."""

    def __init__(self, directory: Path, world: World, subscribers: list[str]) -> None:
        self._directory = directory / DIRECTORY
        self._world = world
        self._topics = pa.array(world.topics)
        self._domains = pa.array(world.domains)
        self._subscribers = pa.array(subscribers)

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True)
        options = pa.ipc.IpcWriteOptions(compression="lz4", emit_dictionary_deltas=True)
        self._deliveries, self._sends = (
            pa.ipc.new_file(str(self._directory / f"{name}.arrow"), schema, options=options)
            for name, schema in (("deliveries", DELIVERIES), ("sends", SENDS))
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self._deliveries.close()
        self._sends.close()

    def add(self, piece: Piece) -> None:
        """What became of these updates."""
        found, sent = piece.deliveries, piece.sends
        traces = hex_text(piece.trace_ids)
        self._deliveries.write_batch(
            pa.record_batch(
                [
                    *self._update(piece, traces, found.update, found.domain),
                    pa.array(found.delivered, mask=found.delivered == NONE),
                    pa.array(found.copies),
                    pa.array(found.late),
                ],
                schema=DELIVERIES,
            )
        )
        self._sends.write_batch(
            pa.record_batch(
                [
                    *self._update(piece, traces, sent.update, sent.domain),
                    _named(sent.subscriber, self._subscribers),
                    pa.array(sent.stream),
                    pa.array(sent.sent, mask=sent.sent == NONE),
                    pa.array(sent.copies),
                    pa.array(sent.failures),
                    pa.array(sent.late),
                    pa.array(sent.buffered),
                ],
                schema=SENDS,
            )
        )

    def _update(
        self, piece: Piece, traces: pa.Array, update: Numbers, domain: Numbers
    ) -> list[pa.Array]:
        topic = piece.topic[update]
        return [
            traces.take(pa.array(update)),
            _named(topic, self._topics),
            pa.array(piece.version[update]),
            _named(self._world.home[topic], self._domains),
            _named(domain, self._domains),
            pa.array(piece.pinged[update]),
            pa.array(piece.fetched[update]),
            pa.array(piece.published[update]),
        ]

    def finish(self, settings: Settings, clients: list[Client], summary: dict[str, int]) -> None:
        """Clocks, ways and hand-offs: few, so as JSON."""
        world = self._world
        said = {
            "start_ns": settings.start_ns,
            "summary": summary,
            "nodes": [
                {
                    "node": node,
                    "domain": world.domain_of[number],
                    "offset_ns": int(world.offset_ns[number]),
                    "drift_ppm": float(world.drift[number] * 1e6),
                }
                for number, node in enumerate(world.nodes)
            ],
            "links": [
                {
                    "a": world.nodes[a],
                    "b": world.nodes[b],
                    "forth_ns": world.delay_ns[a, b],
                    "back_ns": world.delay_ns[b, a],
                }
                for a, b in world.links
            ],
            "handoffs": [
                {
                    "trace_id": client.trace_id.hex(),
                    "subscriber": client.name,
                    "topic": world.topics[client.topic],
                    "from_domain": world.domains[client.leaves],
                    "to_domain": world.domains[client.enters],
                    "out_ns": client.out,
                    "begin_ns": client.begin,
                    "end_ns": client.end,
                    "buffered": client.buffered,
                    "bytes": client.bytes,
                    "lost": client.lost,
                    "doubled": client.doubled,
                }
                for client in clients
            ],
        }
        (self._directory / "truth.json").write_text(json.dumps(said, indent=1) + "\n")


def _named(numbers: Numbers, names: pa.Array) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(numbers.astype(np.int32)), names)
