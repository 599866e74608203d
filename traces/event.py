"""The trace event: one thing that happened, at one node, to an update or to a client.

Here live the event and the trace id. What a column means is in `schema`, what a stage must
carry in `stages`.

Building an event is on the path of every packet, so nothing is verified here: the types are
promises of whoever builds one, and `traces.check` tells whether they were kept.
"""

from typing import Annotated

from msgspec import Meta, Struct

from traces.stages import Stage

TRACE_ID_BYTES = 16

# Epochs and versions are u64 on the wire, but Spark and Parquet's common readers know only
# signed integers. Counting from 1, a publisher never reaches the upper half.
_MAX = 2**63 - 1

TraceId = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
RawId = Annotated[bytes, Meta(min_length=32, max_length=32)]
RawPublisher = Annotated[bytes, Meta(min_length=16, max_length=16)]
Counter = Annotated[int, Meta(ge=0, le=_MAX)]
Ordinal = Annotated[int, Meta(ge=1, le=_MAX)]
Nanoseconds = Annotated[int, Meta(ge=0, le=_MAX)]
Name = Annotated[str, Meta(min_length=1)]


class InvalidTraceId(ValueError):
    """A trace id was to be made from something other than 16 random bytes."""


class TraceEvent(Struct, frozen=True, kw_only=True, gc=False):
    """One row of the trace; the fields stand in the order of the columns.

    Not tracked by the garbage collector, which a million waiting events would slow down:
    the values must be plain text, bytes and integers.
    """

    trace_id: TraceId | None = None
    sid: RawId | None = None
    rid: RawId | None = None
    topic: Name | None = None
    publisher: RawPublisher | None = None
    epoch: Counter | None = None
    version: Ordinal | None = None
    stage: Stage
    node: Name
    domain: Name
    subscriber: Name | None = None
    peer: Name | None = None
    wall_ns: Nanoseconds
    mono_ns: Nanoseconds
    t1: Nanoseconds | None = None
    t2: Nanoseconds | None = None
    t3: Nanoseconds | None = None
    t4: Nanoseconds | None = None
    bytes: Counter | None = None
    reason: Name | None = None


def new_trace_id(randomness: bytes) -> str:
    """The id of an update that enters here, from 16 bytes of the caller's randomness.

    The form is that of a W3C trace-id, so that it can travel in a `traceparent` header.
    """
    if len(randomness) != TRACE_ID_BYTES:
        raise InvalidTraceId(
            f"a trace id is made from {TRACE_ID_BYTES} random bytes, not {len(randomness)}:"
            f" pass for example random.randbytes({TRACE_ID_BYTES})"
        )
    return randomness.hex()
