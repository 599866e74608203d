"""What every node writes down about an update on its way, and the contract for doing so.

* `stages` — the stages an event can record, who writes them, what they must carry;
* `event` — the trace event and the id that ties the events of one update together;
* `validity` — whether an event keeps the promises of the two;
* `schema` — the columns of the files, a table that writers and readers derive theirs from;
* `sink` — where events go;
* `log_event` — what a line of a log says, in every room.

Nothing here does I/O. Files are written by `psph.trace_writer` and documented in
docs/traces.md.
"""

from traces.event import TRACE_ID_BYTES, InvalidTraceId, TraceEvent, new_trace_id
from traces.log_event import LogEvent
from traces.schema import COLUMNS, PARTITIONS, SCHEMA_VERSION, Column, ColumnType
from traces.sink import MemorySink, NullSink, TraceSink
from traces.stages import STAGES, Room, Stage, StageRule
from traces.validity import InvalidTraceEvent, check

__all__ = [
    "COLUMNS",
    "PARTITIONS",
    "SCHEMA_VERSION",
    "STAGES",
    "TRACE_ID_BYTES",
    "Column",
    "ColumnType",
    "InvalidTraceEvent",
    "InvalidTraceId",
    "LogEvent",
    "MemorySink",
    "NullSink",
    "Room",
    "Stage",
    "StageRule",
    "TraceEvent",
    "TraceSink",
    "check",
    "new_trace_id",
]
