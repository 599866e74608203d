"""Logs of a process, as text or JSON: a time, a level, the part that speaks, an event, its fields.

`log_to` sets them up, for `psph hub` and `psph serve` alike. What is logged is a `LogEvent`.
Callbacks are written masked: their paths are often all that protects them. Secrets, tokens and
bodies are never among the fields.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import threading
from datetime import UTC, datetime
from typing import Final, TextIO

from traces import LogEvent

_FLUSH = 2.0
"""Seconds that the end of the process waits for its log."""

LEVELS: Final = ("debug", "info", "warning", "error")


class JsonLines(logging.Formatter):
    """One object for each record; a line end in a value is escaped, so nobody forges a line."""

    def format(self, record: logging.LogRecord) -> str:
        said = record.msg
        line: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "part": record.name,
            "event": said.name if isinstance(said, LogEvent) else record.getMessage(),
        }
        if isinstance(said, LogEvent):
            line |= {key: said.fields[key] for key in said.fields if key not in line}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextLines(logging.Formatter):
    """One line for each record, fields as key=value; the lines of a traceback are set in."""

    def format(self, record: logging.LogRecord) -> str:
        said = record.getMessage()
        if not isinstance(record.msg, LogEvent):
            said = said.encode("unicode_escape").decode() if not said.isprintable() else said
        line = f"{_time(record)} {record.levelname.lower()} {record.name} {said}"
        if record.exc_info:
            traceback = self.formatException(record.exc_info)
            line += "".join(f"\n  {each}" for each in traceback.splitlines())
        return line


FORMATS: Final = {"text": TextLines, "json": JsonLines}


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


class Background(logging.Handler):
    """Writes in a thread of its own, so that a pipe that is not read never stops the process.

    Lines beyond `most` that wait are dropped, and a line says how many.
    """

    def __init__(self, stream: TextIO, most: int = 10_000) -> None:
        super().__init__()
        self._stream = stream
        self._lines: queue.Queue[str | threading.Event | None] = queue.Queue(most)
        self._dropped = 0
        self._thread = threading.Thread(target=self._write_all, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._lines.put_nowait(self.format(record))
        except queue.Full:
            self._dropped += 1
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        """Wait for what was logged before, but not for ever."""
        written = threading.Event()
        if self._thread.is_alive():
            with contextlib.suppress(queue.Full):
                self._lines.put(written, timeout=_FLUSH)
                written.wait(_FLUSH)

    def close(self) -> None:
        with contextlib.suppress(queue.Full):
            self._lines.put(None, timeout=_FLUSH)
            self._thread.join(_FLUSH)
        super().close()

    def _write_all(self) -> None:
        while (line := self._lines.get()) is not None:
            if isinstance(line, threading.Event):
                line.set()
                continue
            if self._dropped:
                dropped, self._dropped = self._dropped, 0
                line += "\n" + self.format(_record(LogEvent("log.dropped", lines=dropped)))
            try:
                _write(self._stream, f"{line}\n")
            except (OSError, ValueError):
                return  # nobody will ever read them


def _write(stream: TextIO, text: str) -> None:
    try:
        handle = stream.fileno()
    except (OSError, AttributeError):
        stream.write(text)
        return
    # Past the buffer, whose lock must not be held by a thread that is stuck when the process ends.
    data = text.encode()
    while data:
        data = data[os.write(handle, data) :]


def _record(said: LogEvent) -> logging.LogRecord:
    return logging.LogRecord(__name__, logging.WARNING, __file__, 0, said, None, None)


def log_to(stream: TextIO, level: str = "info", style: str = "text") -> logging.Handler:
    """Make every logger of the process write lines of this level or above, in one of `FORMATS`."""
    handler = Background(stream)
    handler.setFormatter(FORMATS[style]())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    return handler
