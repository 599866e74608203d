"""The two sinks that need no disk."""

from traces import MemorySink, NullSink, Stage, TraceEvent, TraceSink

EVENTS = [
    TraceEvent(stage=Stage.DROPPED, node="n1", domain="a.test", wall_ns=n, mono_ns=n)
    for n in range(3)
]


def emit_all(sink: TraceSink) -> None:
    for event in EVENTS:
        sink.emit(event)


def test_memory_sink_keeps_the_events_in_order() -> None:
    sink = MemorySink()
    emit_all(sink)
    assert sink.events == EVENTS


def test_null_sink_takes_everything() -> None:
    emit_all(NullSink())
