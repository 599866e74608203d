"""Where events go: the protocol, and the two sinks that need no disk."""

from typing import Protocol

from traces.event import TraceEvent


class TraceSink(Protocol):
    """Takes events from the path of a packet."""

    def emit(self, event: TraceEvent) -> None:
        """Take the event. Never blocks and never raises: what cannot be kept is counted."""


class NullSink:
    """Takes events and forgets them: a node that writes no traces."""

    def emit(self, event: TraceEvent) -> None:
        """Forget the event."""


class MemorySink:
    """Keeps every event, in order: for the simulator and for tests."""

    def __init__(self) -> None:
        self.events: list[TraceEvent] = []

    def emit(self, event: TraceEvent) -> None:
        """Keep the event."""
        self.events.append(event)
