"""Traces on disk: a sink that writes Parquet files off the path of the packets.

* `settings` — what an operator can choose;
* `writer` — the sink: the queue and the thread behind it;
* `recent` — the last events, in memory;
* `counters` — what became of the events;
* `recorder` — what the thread does with the events;
* `encoding` — from events to the bytes of a Parquet file;
* `files` — where the files lie, how they appear whole, and when they go.

Arrow takes a third of a second to load, so only making a writer loads it: a command that
merely reads a configuration does not wait.

The events themselves, their stages and columns are in `traces`; docs/traces.md is written
for those who read the files.
"""

from psph.trace_writer.counters import TraceCounters
from psph.trace_writer.files import InvalidPartitionName
from psph.trace_writer.recent import BothSinks, RecentEvents
from psph.trace_writer.settings import TraceSettings
from psph.trace_writer.writer import TraceWriter

__all__ = [
    "BothSinks",
    "InvalidPartitionName",
    "RecentEvents",
    "TraceCounters",
    "TraceSettings",
    "TraceWriter",
]
