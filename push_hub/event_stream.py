"""Server-Sent Events as /stream speaks them: made here, and read here by those who follow.

`gap` and `reset` are events of their own; comments are heartbeats, and one of them says that the
stream has sent all that was recorded before it began. A comment is a line and ends no event: some
readers (httpx-sse) take any empty line for the end of one, even where there is no data. So the line
RETRY, which a stream begins with, is part of its first event. The line `id` is added to an event
where it is sent (`cursor`).
"""

from __future__ import annotations

import json
from binascii import b2a_base64
from collections.abc import Iterable
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii as quoted
from typing import Final

from identifiers import Position
from push_hub.errors import HubError
from push_hub.store.records import Update

RETRY: Final = b"retry: 3000\n"
"""How a stream begins: milliseconds after which a browser that lost it comes back."""
HEARTBEAT: Final = b": still here\n"
CAUGHT_UP: Final = "caught up"
MAX_EVENT: Final = 32 << 20
"""Bytes of one event that is read: the largest body that hubs take, encoded, and some more."""


class BadEvent(HubError):
    """Bytes that no stream of a hub would send."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event as it goes over the wire; `update` is what it is about, if anything."""

    data: bytes
    update: Update | None = None
    notice: Notice | None = None

    @property
    def caught_up(self) -> bool:
        """Whether it says that all that was recorded before has been sent."""
        return self.update is None and self.notice is None


@dataclass(frozen=True, slots=True)
class Notice:
    """A `gap` or `reset`: the client knew `after`, and goes on with `resumes`. For a client that
    came with a cursor `after` may be None, because the hub cannot say what it knew, and `resumes`,
    because the hub has nothing of the topic yet."""

    kind: str
    topic: str
    """As the client spelled it."""
    after: Position | None
    resumes: Position | None


def update_event(update: Update, spelling: str, whole: bool = False) -> Event:
    """The event of an update, with the topic as the reader spelled it.

    Feeds go as their new entries, made safe for a browser, unless the reader wants them `whole`.
    """
    if update.entries is not None and not whole:
        # Already JSON, and on one line: json.dumps escapes line ends in texts.
        body = f'"entries": {update.entries}'
    else:
        body = f'"body_b64": "{b2a_base64(update.body, newline=False).decode()}"'
    data = (
        f'data: {{"topic": {quoted(spelling)}, "position": "{update.position}",'
        f' "content_type": {quoted(update.content_type)}, "trace_id": {quoted(update.trace_id)},'
        f" {body}}}\n\n"
    )
    return Event(data.encode(), update)


def notice_event(
    kind: str, spelling: str, after: Position | None, resumes: Position | None
) -> Event:
    """A notice as it goes over the wire."""
    data = {
        "topic": spelling,
        "after": None if after is None else str(after),
        "resumes": None if resumes is None else str(resumes),
    }
    notice = Notice(kind, spelling, after, resumes)
    return Event(f"event: {kind}\ndata: {json.dumps(data)}\n\n".encode(), notice=notice)


def base_event(spelling: str, base: Iterable[Position]) -> bytes:
    """Where the reader is in a topic when the stream has caught up: everything newer comes for
    certain. Nothing, where this hub does not know."""
    data = {"topic": spelling, "base": [str(each) for each in base]}
    return f"event: base\ndata: {json.dumps(data)}\n\n".encode()


def caught_up_event() -> Event:
    """All that was recorded before has been sent; what comes now is new."""
    return Event(f": {CAUGHT_UP}\n".encode())


def alive_event(every: float) -> bytes:
    """A heartbeat for browsers, whose EventSource hides comments; the next comes in `every` s."""
    return f"event: alive\ndata: {every:g}\n\n".encode()


@dataclass(frozen=True, slots=True)
class ReadEvent:
    """One event as it arrived; a comment has the kind "" and its text as data."""

    kind: str
    data: str


class EventReader:
    """From bytes to events, wherever the bytes were cut. BadEvent when one is too large."""

    def __init__(self, max_event: int = MAX_EVENT) -> None:
        self._max = max_event
        self._parts: list[bytes] = []
        """Of a line whose end has not come."""
        self._kind = "message"
        self._data: list[str] = []
        self._size = 0
        self._after_cr = False

    def feed(self, chunk: bytes) -> list[ReadEvent]:
        """The events that these bytes complete."""
        if self._after_cr and chunk:
            # A line end may be cut in two.
            chunk = chunk.removeprefix(b"\n")
            self._after_cr = False
        self._size += len(chunk)
        if b"\n" not in chunk and b"\r" not in chunk:
            self._parts.append(chunk)
            self._check()
            return []
        self._after_cr = chunk.endswith(b"\r")
        whole = b"".join([*self._parts, chunk]).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = whole.split(b"\n")
        self._parts = [rest] if rest else []
        found = [event for line in lines if (event := self._line(line)) is not None]
        if found:
            self._size = len(rest) + sum(map(len, self._data))
        self._check()
        return found

    def _check(self) -> None:
        if self._size > self._max:
            raise BadEvent(f"an event of more than {self._max} bytes")

    def _line(self, raw: bytes) -> ReadEvent | None:
        line = raw.decode(errors="replace")
        if not line:
            event = ReadEvent(self._kind, "\n".join(self._data)) if self._data else None
            self._kind, self._data = "message", []
            return event
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not field:
            return ReadEvent("", value)
        if field == "event":
            self._kind = value or "message"
        elif field == "data":
            self._data.append(value)
        return None
