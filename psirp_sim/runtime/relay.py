"""Bad links between real sockets: a relay that two UDP nodes talk through, for tests.

Each node talks to its side of the relay and never learns that the other is not there itself.
What becomes of a packet on the way is decided by the simulator's own `Channel`; only its queue
of events runs by the real clock here instead of in virtual time.
"""

from __future__ import annotations

import asyncio
import socket
import time
from types import TracebackType
from typing import Literal, Self

from psirp_sim.runtime.asyncio_node import BATCH, SOCKET_BUFFER
from psirp_sim.runtime.durations import SECOND
from psirp_sim.runtime.simulator.channels import Channel
from psirp_sim.runtime.simulator.engine import Engine
from psirp_sim.runtime.simulator.profiles import LinkProfile
from psirp_sim.runtime.simulator.world import stream
from psirp_sim.runtime.udp import Address

End = Literal["a", "b"]
"""What the relay calls the two nodes."""

_USUAL = LinkProfile()


class Relay:
    """A link of two directions, each with a behaviour of its own.

    >>> async with Relay(a_to_b=LinkProfile(loss=Independent(0.1)), seed=1) as relay:
    ...     a.add_link("b", relay.a_side)
    ...     b.add_link("a", relay.b_side)
    ...     relay.connect(a.address, b.address)
    """

    def __init__(
        self,
        *,
        a_to_b: LinkProfile = _USUAL,
        b_to_a: LinkProfile = _USUAL,
        seed: int = 0,
        host: str = "127.0.0.1",
    ) -> None:
        """`host` is the literal address to listen on, with a port of its own for each side."""
        self._host = host
        self._engine = Engine()
        self.a_to_b = self._channel(seed, "a", "b", a_to_b)
        """Counters of this direction, and its profile, which may be replaced at any time."""
        self.b_to_a = self._channel(seed, "b", "a", b_to_a)
        self.strangers = 0
        """Packets from an address that is neither node's."""
        self._from: dict[str, Channel] = {"a": self.a_to_b, "b": self.b_to_a}
        self._sockets: dict[str, socket.socket] = {}
        self._nodes: dict[str, Address] = {}
        self._alarm: asyncio.TimerHandle | None = None

    def _channel(self, seed: int, sender: End, receiver: End, profile: LinkProfile) -> Channel:
        return Channel(
            self._engine,
            stream(seed, f"relay {sender}>{receiver}"),
            profile,
            number=0,
            sender=sender,
            name=receiver,
            reverse_name=sender,
            receive=self._arrived,
        )

    # Life

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            for end in self._from:
                opened = self._sockets[end] = socket.socket(family, socket.SOCK_DGRAM)
                opened.setblocking(False)
                for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                    opened.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER)
                opened.bind((self._host, 0))
        except OSError:
            self._close()
            raise
        for end, opened in self._sockets.items():
            self._loop.add_reader(opened, self._drain, end)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for opened in self._sockets.values():
            self._loop.remove_reader(opened)
        if self._alarm is not None:
            self._alarm.cancel()
        self._close()

    def _close(self) -> None:
        for opened in self._sockets.values():
            opened.close()

    # What a test says

    @property
    def a_side(self) -> Address:
        """Where node a believes node b to be."""
        return self._side("a")

    @property
    def b_side(self) -> Address:
        """Where node b believes node a to be."""
        return self._side("b")

    def connect(self, a: Address, b: Address) -> None:
        """The nodes listen there (literal addresses), or do from now on."""
        self._nodes.update(a=a, b=b)

    def cut(self, sender: End) -> None:
        """Nothing that this node sends passes any more, what is in flight included."""
        self._from[sender].blocked = True

    def heal(self, sender: End) -> None:
        """What this node sends passes again."""
        self._from[sender].blocked = False

    def _side(self, end: End) -> Address:
        host, port = self._sockets[end].getsockname()[:2]
        return host, port

    # Packets

    def _drain(self, sender: str) -> None:
        self._advance()
        receive = self._sockets[sender].recvfrom
        channel = self._from[sender]
        node = self._nodes.get(sender)
        for _ in range(BATCH):
            try:
                packet, source = receive(channel.mtu + 1)
            except OSError:  # nothing left, or a node that is not there
                break
            if source[:2] == node:
                channel.send(packet)
            else:
                self.strangers += 1
        self._advance()

    def _advance(self) -> None:
        """Let everything happen that is due, and wake up for what comes next."""
        self._engine.run_until(time.monotonic_ns())
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        due = self._engine.next_time
        if due is not None:
            self._alarm = self._loop.call_later(
                max(0, due - self._engine.now) / SECOND, self._advance
            )

    def _arrived(self, channel: Channel, packet: bytes) -> None:
        try:
            self._sockets[channel.name].sendto(packet, self._nodes[channel.name])
        except OSError:
            channel.counters.unheard += 1
        else:
            channel.counters.delivered += 1
