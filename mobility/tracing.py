"""Traces of hand-offs: when a client went, came, and was live again."""

from __future__ import annotations

from psirp_sim.runtime.environment import Environment
from traces import TRACE_ID_BYTES, Stage, TraceEvent, new_trace_id


class Tracing:
    """Writes events about the clients of one proxy."""

    def __init__(self, env: Environment, domain: str) -> None:
        self._env = env
        self._domain = domain

    def move_out(self, client: str, reason: str | None) -> None:
        """The proxy took over; `reason` when the client did not ask for it."""
        self._write(Stage.MOVE_OUT, client, reason=reason)

    def move_in_begin(self, client: str, prepared_by: str = "") -> str:
        """The client came; the id of this hand-off. Which proxy had it prepared, if one had."""
        trace_id = new_trace_id(self._env.random.randbytes(TRACE_ID_BYTES))
        self._write(Stage.MOVE_IN_BEGIN, client, trace_id, peer=prepared_by or None)
        return trace_id

    def move_in_end(
        self, client: str, trace_id: str, size: int, peer: str, reason: str | None
    ) -> None:
        """It has everything; `reason` when something is missing, or it went before that."""
        self._write(Stage.MOVE_IN_END, client, trace_id, size, peer or None, reason)

    def _write(
        self,
        stage: Stage,
        client: str,
        trace_id: str | None = None,
        size: int | None = None,
        peer: str | None = None,
        reason: str | None = None,
    ) -> None:
        self._env.trace.emit(
            TraceEvent(
                trace_id=trace_id,
                stage=stage,
                node=self._env.node,
                domain=self._domain,
                subscriber=client,
                peer=peer,
                wall_ns=self._env.wall(),
                mono_ns=self._env.now(),
                bytes=size,
                reason=reason,
            )
        )
