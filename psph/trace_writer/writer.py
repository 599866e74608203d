"""The sink that nodes emit to: a bounded queue, and a thread that empties it into files.

On the path of a packet there is one comparison and one append; everything else happens in
the thread. Both share Python's interpreter lock, so the thread takes events in small chunks
and lets others run between two of them, unless it is about to fall behind.
"""

import atexit
import os
import threading
import time
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Self

from msgspec.structs import replace

from psph.trace_writer.counters import TraceCounters
from psph.trace_writer.settings import TraceSettings
from traces import TraceEvent

# How often the thread looks at the queue: often enough that the queue holds what can be
# emitted in between, seldom enough that an idle node sleeps.
_LOOK_EVERY_S = 0.1
# How long it waits for a disk that refused a file.
_RETRY_EVERY_S = 1.0
# Events converted at once. The small chunk keeps other threads from the interpreter lock for
# about a millisecond; the large one is cheaper by the event, for when the queue fills.
_CHUNK = 256
_LARGE_CHUNK = 1024
# A sleep that gives up the interpreter lock for certain; a sleep of 0 may get it back at once.
_BREATH_S = 0.00005


class TraceWriter:
    """Writes one node's events to Parquet files below a directory; a `TraceSink`.

    `emit` may be called from any thread, with or without an event loop. `close` (or the end
    of a `with` block) writes what waits, which blocks for as long as the disk takes; a
    program that forgets is closed when the interpreter exits. After a fork the child has no
    thread: make the writer in the process that emits.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        node: str,
        domain: str,
        settings: TraceSettings | None = None,
    ) -> None:
        """Raises `InvalidPartitionName` for a name that cannot stand in a path.

        The disk is not touched here: a directory that cannot be written is counted, logged
        and tried again, like any other trouble of the disk.
        """
        from psph.trace_writer.recorder import Recorder  # loads Arrow

        settings = settings or TraceSettings()
        self._recorder = Recorder(Path(directory), node, domain, settings)
        self._queue: deque[TraceEvent] = deque()
        self._limit = settings.queue_events
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"traces {node}", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def emit(self, event: TraceEvent) -> None:
        """Queue the event, or count it as dropped when the queue is full."""
        # Threads that pass the comparison together may exceed the limit, by one each.
        if len(self._queue) < self._limit:
            self._queue.append(event)
        else:
            self._recorder.drop(1)

    @property
    def counters(self) -> TraceCounters:
        """What became of the events so far; exact after `close`."""
        return replace(self._recorder.counters, waiting=self._recorder.waiting + len(self._queue))

    def close(self) -> None:
        """Take no more events, write those that wait and stop. May be called twice."""
        self._limit = 0
        self._closing.set()
        self._thread.join()
        atexit.unregister(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self) -> None:
        """What the thread does, to its end."""
        pause = 0.0
        closing = False
        while not closing:
            closing = self._closing.wait(pause)
            try:
                stored = self._turn(last=closing)
            except Exception as error:  # a bug in here must cost traces only
                self._recorder.abandon(error)
                stored = False
            pause = _LOOK_EVERY_S if stored else _RETRY_EVERY_S
        self._recorder.abandon()
        while self._queue:
            self._queue.popleft()
            self._recorder.drop(1)

    def _turn(self, *, last: bool) -> bool:
        """Empty the queue into files; False when the disk refused one."""
        recorder, queue = self._recorder, self._queue
        # While a file waits for the disk no event is taken, so that the queue's limit bounds
        # what is kept in memory.
        if not recorder.store():
            return False
        while queue:
            behind = len(queue) > self._limit // 4
            chunk = min(len(queue), _LARGE_CHUNK if behind else _CHUNK)
            recorder.take([queue.popleft() for _ in range(chunk)])
            recorder.finish_when_due()
            if not recorder.store():
                return False
            if not behind:
                time.sleep(_BREATH_S)
        if last:
            recorder.finish()
        else:
            recorder.finish_when_due()
        return recorder.store()
