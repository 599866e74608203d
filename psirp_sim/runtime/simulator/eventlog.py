"""What happened, twice over: a digest of everything, and the last events for a person.

The digest is how two runs are compared: equal digests mean that the same packets arrived,
the same timers fired and the same lines were logged, at the same instants in the same order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from struct import Struct
from zlib import crc32

from blake3 import blake3

from psirp_sim.runtime.durations import SECOND

_ARRIVAL = Struct("<cQIII").pack
_FIRING = Struct("<cQI").pack
_FLUSH_AT = 1 << 16


class EventLog:
    """Records events cheaply; text is made only of those somebody reads."""

    def __init__(self, keep: int = 2_000) -> None:
        """`keep`: how many of the last events `lines` can show."""
        self._hash = blake3()
        self._buffer = bytearray()
        self._recent: deque[tuple[int, str, str, object]] = deque(maxlen=keep)

    def arrival(self, time: int, channel: int, name: str, packet: bytes) -> None:
        """A packet reached its receiver over the channel of that number and name."""
        self._add(_ARRIVAL(b"P", time, channel, len(packet), crc32(packet)))
        self._recent.append((time, name, "", packet))

    def firing(self, time: int, node: int, name: str, callback: object) -> None:
        """A timer of that node ran."""
        self._add(_FIRING(b"T", time, node))
        self._recent.append((time, name, "timer", callback))

    def note(self, time: int, where: str, message: str, fields: dict[str, object]) -> None:
        """A fault, or a line that a core logged."""
        text = f"N{time} {where} {message} {sorted(fields.items())!r}"
        self._add(text.encode("utf-8", "backslashreplace"))
        self._recent.append((time, where, message, fields))

    def digest(self) -> str:
        """Hex digest of everything so far."""
        self._flush()
        return self._hash.hexdigest(length=16)

    def lines(self) -> Iterator[str]:
        """The last events, oldest first, one line each."""
        for time, where, what, detail in self._recent:
            match detail:
                case bytes():
                    text = f"{len(detail)} B {detail[:24].hex()}"
                case dict():
                    text = what + "".join(f" {key}={value}" for key, value in detail.items())
                case _:
                    text = f"{what} {getattr(detail, '__qualname__', detail)}"
            yield f"{time / SECOND:14.9f}  {where:<14} {text}"

    def _add(self, record: bytes) -> None:
        self._buffer += record
        if len(self._buffer) > _FLUSH_AT:
            self._flush()

    def _flush(self) -> None:
        self._hash.update(self._buffer)
        self._buffer.clear()
