"""Structured logs: one JSON object a line, with a time, a level, the part that speaks and an event.

`event` writes one with fields. Callbacks are written masked: their paths are often all that
protects them. Secrets, tokens and bodies are never among the fields.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import threading
from datetime import UTC, datetime
from typing import TextIO

_FIELDS = "psph_fields"
_FLUSH = 2.0
"""Seconds that the end of the process waits for its log."""


class JsonLines(logging.Formatter):
    """One object for each record; a line end in a value is escaped, so nobody forges a line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "part": record.name,
            "event": record.getMessage(),
        }
        fields = getattr(record, _FIELDS, None)
        if fields:
            line |= fields
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def event(log: logging.Logger, name: str, level: int = logging.INFO, **fields: object) -> None:
    """Log an event with fields; those that are None are left out."""
    if log.isEnabledFor(level):
        told = {key: value for key, value in fields.items() if value is not None}
        log.log(level, name, extra={_FIELDS: told})


class Background(logging.Handler):
    """Writes in a thread of its own: whoever reads the log, or does not, never stops the hub.

    Lines beyond `most` that wait are dropped, and a line says how many.
    """

    def __init__(self, stream: TextIO, most: int = 10_000) -> None:
        super().__init__()
        self._stream = stream
        self._lines: queue.Queue[str | threading.Event | None] = queue.Queue(most)
        self._dropped = 0
        self._thread = threading.Thread(target=self._write_all, name="hub log", daemon=True)
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
                line += "\n" + json.dumps({"event": "log lines dropped", "count": dropped})
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


def log_to(stream: TextIO, level: int = logging.INFO) -> logging.Handler:
    """Make every logger of the process write such lines."""
    handler = Background(stream)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    return handler
