"""What became of the events: for metrics, logs and tests."""

from msgspec import Struct


class TraceCounters(Struct):
    """What became of the events of one writer. Every event emitted is in one of the first four."""

    written: int = 0
    """Events in files that readers see."""
    waiting: int = 0
    """Events in the queue, or in a file that is not on disk yet."""
    dropped: int = 0
    """Events lost: the queue was full, the writer closed, or the disk failed to the end."""
    rejected: int = 0
    """Events of another node, or with a value that its column cannot hold."""
    files: int = 0
    """Files finished and stored."""
    bytes: int = 0
    """Their size when they were stored."""
    errors: int = 0
    """Attempts to write or remove a file that failed."""
