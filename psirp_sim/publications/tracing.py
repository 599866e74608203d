"""Traces of publications: what was published, delivered and dropped at a node."""

from __future__ import annotations

from collections.abc import Mapping

from identifiers import Position
from psirp_sim.runtime.environment import Environment
from traces import NullSink, Stage, TraceEvent

TRACE_ID = "trace_id"
"""The key of the metadata that ties together what is written about an update."""
TOPIC = "topic"
"""The key of the metadata that says which topic an item is, where it is one."""


class Tracing:
    """Writes events about the publications of one node."""

    def __init__(self, env: Environment, domain: str) -> None:
        self._env = env
        self._domain = domain or "-"
        # Making an event costs more than throwing it away.
        self._in_vain = isinstance(env.trace, NullSink)

    def write(
        self,
        stage: Stage,
        sid: bytes,
        rid: bytes,
        position: Position,
        metadata: Mapping[str, str],
        size: int,
        *,
        subscriber: str | None = None,
        reason: str | None = None,
    ) -> None:
        """One event."""
        if self._in_vain:
            return
        self._env.trace.emit(
            TraceEvent(
                trace_id=metadata.get(TRACE_ID),
                sid=sid,
                rid=rid,
                topic=metadata.get(TOPIC),
                publisher=position.publisher.raw,
                epoch=position.epoch,
                version=position.version,
                stage=stage,
                node=self._env.node,
                domain=self._domain,
                subscriber=subscriber,
                wall_ns=self._env.wall(),
                mono_ns=self._env.now(),
                bytes=size,
                reason=reason,
            )
        )
