"""Messages over one link: cut into packets, acknowledged, given up.

Links repeat what breaks and keep the order (preset `wifi-b`), so nothing is sent twice while one is
there. A subscriber goes without a word: what was sent to it then stays unacknowledged, and after
`patience` the wire is broken, as a connection is after some retransmissions. Opening one costs
nothing, as in the source, which left that out.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from struct import Struct

from psirp_sim.runtime.environment import Environment, Timer

HEADER_BYTES = 40
"""IPv4 and TCP without options."""
_HEADER = Struct("!BIQH")


class _Kind(IntEnum):
    PART = 1
    LAST = 2
    LAST_WANTS_WORD = 3
    ACKNOWLEDGED = 4


class Wire:
    """One end. Only an end with `patience` asks for acknowledgements."""

    def __init__(
        self,
        env: Environment,
        link: str,
        receive: Callable[[bytes], None],
        patience: int = 0,
        acknowledged: Callable[[int], None] = lambda number: None,
        broken: Callable[[], None] = lambda: None,
    ) -> None:
        self._env = env
        self._link = env.links[link]
        self._receive = receive
        self._patience = patience
        self._acknowledged = acknowledged
        self._broken = broken
        self._connection = 0
        self._number = 0
        self._open: dict[int, int] = {}
        """Not acknowledged yet, and since when."""
        self._timer: Timer | None = None
        self._coming = bytearray()
        self._expected = (0, 0)
        self.refused = 0
        """Packets for which the link's queue had no room."""

    def send(self, message: bytes) -> int:
        """The number it is acknowledged under."""
        self._number = number = self._number + 1
        size = self._link.mtu - HEADER_BYTES
        parts = [message[at : at + size] for at in range(0, len(message), size)] or [b""]
        last = _Kind.LAST_WANTS_WORD if self._patience else _Kind.LAST
        for index, part in enumerate(parts):
            kind = last if index == len(parts) - 1 else _Kind.PART
            self._put(kind, number, index, part)
        if self._patience:
            self._open[number] = self._env.now()
            if self._timer is None:
                self._timer = self._env.call_later(self._patience, self._look)
        return number

    def renew(self) -> None:
        """This end came anew: what the other one sent before and was not acknowledged never is."""
        self._connection += 1

    def receive(self, packet: bytes) -> None:
        kind, connection, number, index = _HEADER.unpack_from(packet)
        if connection < self._connection:
            return  # of the connection before
        if connection > self._connection:
            self._connection = connection
            self._open.clear()
        if kind == _Kind.ACKNOWLEDGED:
            if self._open.pop(number, None) is not None:
                self._acknowledged(number)
            return
        if index == 0:
            self._coming.clear()
        elif (number, index) != self._expected:
            return  # the link was gone for the packets before
        self._coming += packet[HEADER_BYTES:]
        self._expected = (number, index + 1)
        if kind == _Kind.PART:
            return
        if kind == _Kind.LAST_WANTS_WORD:
            self._put(_Kind.ACKNOWLEDGED, number, 0, b"")
        self._receive(bytes(self._coming))

    def _look(self) -> None:
        self._timer = None
        if not self._open:
            return
        waits = self._env.now() - next(iter(self._open.values()))
        if waits >= self._patience:
            self._open.clear()
            self._broken()
        else:
            self._timer = self._env.call_later(self._patience - waits, self._look)

    def _put(self, kind: _Kind, number: int, index: int, content: bytes) -> None:
        header = _HEADER.pack(kind, self._connection, number, index)
        if not self._link.send(header.ljust(HEADER_BYTES, b"\0") + content):
            self.refused += 1
