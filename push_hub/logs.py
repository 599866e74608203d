"""Structured logs: one JSON object a line, with a time, a level, the part that speaks and an event.

`event` writes one with fields. Callbacks are written masked: their paths are often all that
protects them. Secrets, tokens and bodies are never among the fields.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import TextIO

_FIELDS = "psph_fields"


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


def log_to(stream: TextIO, level: int = logging.INFO) -> None:
    """Make every logger of the process write such lines."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
