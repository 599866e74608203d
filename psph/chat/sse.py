"""Server-Sent Events, as a client reads them: lines in, events out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LARGEST: Final = 1 << 20
"""Bytes of one event; what is larger is not for us."""


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event; `id` is empty where it has none."""

    kind: str
    data: str
    id: str = ""


class EventReader:
    """Puts the lines of a stream together."""

    def __init__(self) -> None:
        self._kind = self._id = ""
        self._data: list[str] = []
        self._size = 0

    def line(self, raw: bytes) -> ServerEvent | None:
        """Take a line; the event that it ends. ValueError when an event is too large."""
        text = raw.decode(errors="replace").rstrip("\r\n")
        if not text:
            return self._end()
        self._size += len(raw)
        if self._size > LARGEST:
            raise ValueError(f"an event of more than {LARGEST} bytes")
        name, _, value = text.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._kind = value
        elif name == "data":
            self._data.append(value)
        elif name == "id" and "\0" not in value:
            self._id = value
        return None

    def _end(self) -> ServerEvent | None:
        data, kind, identity = self._data, self._kind, self._id
        self._data, self._kind, self._id, self._size = [], "", "", 0
        return ServerEvent(kind or "message", "\n".join(data), identity) if data else None
