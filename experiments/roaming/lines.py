"""Connections over one simulated link: what TCP makes of it, as far as it costs time or bytes.

A connection is opened by a round trip and carries messages of any size in packets with a header of
40 bytes. The links used here repeat what breaks and keep the order, so nothing is sent twice; slow
start and acknowledgements of single packets are left out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from psirp_sim.runtime.durations import MILLISECOND
from psirp_sim.runtime.environment import Environment

HEADER_BYTES = 40
"""IPv4 and TCP without options."""
_HEADER = Struct("!BBQQ")
_FULL = 20 * MILLISECOND
"""Until a packet that the link refused is offered again."""


class Channel(IntEnum):
    """Who a message is for."""

    PUBSUB = 1
    MOBILITY = 2


class _Kind(IntEnum):
    OPEN = 1
    OPENED = 2
    PART = 3
    LAST = 4
    LAST_WANTS_RECEIPT = 5
    RECEIPT = 6


class _Key(NamedTuple):
    channel: int
    number: int
    """0 is the connection that is kept."""


class _Waiting(NamedTuple):
    message: bytes
    sent: Callable[[], None] | None
    received: Callable[[], None] | None


class Line:
    """One node's end of a link."""

    def __init__(
        self, env: Environment, link: str, receive: Callable[[Channel, bytes], None]
    ) -> None:
        self._env = env
        self._link = env.links[link]
        self._receive = receive
        self._outbox: deque[bytes] = deque()
        self._kept: set[int] = set()
        self._opening: dict[_Key, list[_Waiting]] = {}
        self._coming: dict[_Key, bytearray] = {}
        self._receipts: dict[int, Callable[[], None]] = {}
        self._connections = 0
        self._messages = 0

    def send(
        self, channel: Channel, message: bytes, received: Callable[[], None] | None = None
    ) -> None:
        """Over the connection that is kept; `received` when the other end has all of it."""
        key, waiting = _Key(channel, 0), _Waiting(message, None, received)
        if channel in self._kept:
            self._transmit(key, waiting)
        elif key in self._opening:
            self._opening[key].append(waiting)
        else:
            self._open(key, waiting)

    def send_alone(
        self, channel: Channel, message: bytes, sent: Callable[[], None] | None = None
    ) -> None:
        """Over a connection of its own; `sent` when that is open and the message on its way."""
        self._connections += 1
        self._open(_Key(channel, self._connections), _Waiting(message, sent, None))

    def receive(self, packet: bytes) -> None:
        """A packet of the other end."""
        kind, channel, number, message = _HEADER.unpack_from(packet)
        key = _Key(channel, number)
        if kind == _Kind.OPEN:
            self._put(_Kind.OPENED, key)
            if key.number == 0:  # others are the other end's alone, and numbered by it
                self._opened(key)
        elif kind == _Kind.OPENED:
            self._opened(key)
        elif kind == _Kind.RECEIPT:
            self._receipts.pop(message)()
        else:
            self._coming.setdefault(key, bytearray()).extend(packet[HEADER_BYTES:])
            if kind != _Kind.PART:
                if kind == _Kind.LAST_WANTS_RECEIPT:
                    self._put(_Kind.RECEIPT, key, message)
                self._receive(Channel(channel), bytes(self._coming.pop(key)))

    def _open(self, key: _Key, waiting: _Waiting) -> None:
        self._opening[key] = [waiting]
        self._put(_Kind.OPEN, key)

    def _opened(self, key: _Key) -> None:
        if key.number == 0:
            self._kept.add(key.channel)
        for waiting in self._opening.pop(key, []):
            self._transmit(key, waiting)

    def _transmit(self, key: _Key, waiting: _Waiting) -> None:
        self._messages += 1
        size = self._link.mtu - HEADER_BYTES
        message, last = waiting.message, _Kind.LAST
        if waiting.received is not None:
            self._receipts[self._messages] = waiting.received
            last = _Kind.LAST_WANTS_RECEIPT
        parts = [message[at : at + size] for at in range(0, len(message), size)] or [b""]
        for part in parts[:-1]:
            self._put(_Kind.PART, key, self._messages, part)
        self._put(last, key, self._messages, parts[-1])
        if waiting.sent is not None:
            waiting.sent()

    def _put(self, kind: _Kind, key: _Key, message: int = 0, content: bytes = b"") -> None:
        header = _HEADER.pack(kind, key.channel, key.number, message)
        self._outbox.append(header.ljust(HEADER_BYTES, b"\0") + content)
        if len(self._outbox) == 1:
            self._push()

    def _push(self) -> None:
        while self._outbox:
            if not self._link.send(self._outbox[0]):
                self._env.call_later(_FULL, self._push)
                return
            self._outbox.popleft()
