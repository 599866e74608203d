"""Links over Ethernet, without IP: one socket a node, an interface and a MAC address a link.

Our frames have an ethertype of their own. Behind the Ethernet header stand

    0-1    length of the packet: Ethernet pads short frames, so where one ends says nothing
    2-     packet, then perhaps padding

Linux only, and the process needs CAP_NET_RAW.
"""

from __future__ import annotations

import re
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from struct import Struct

from psirp_sim.runtime.asyncio_node import (
    BATCH,
    AsyncioNode,
    SocketAddress,
    SocketCounters,
    SocketLink,
)
from traces import TraceSink

ETHERTYPE = 0x88B5
"""IEEE 802 sets it aside for local experiments."""
LENGTH = Struct(">H")
MTU = 1_500 - LENGTH.size
"""What fits into an ordinary frame behind the length."""

_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", re.ASCII | re.IGNORECASE)


class EthernetUnavailable(OSError):
    """This process cannot send raw frames; the message says what to do."""


@dataclass(slots=True)
class EthernetCounters(SocketCounters):
    """What happened at the socket."""

    cut_off: int = 0
    """Frames that end before the packet in them."""


class EthernetNode(AsyncioNode):
    """Implements `environment.Environment` for one core.

    >>> async with EthernetNode("a") as node:
    ...     node.add_link("b", "eth0", "02:00:00:00:00:0b")
    ...     core = node.run(MyCore)
    ...     await asyncio.sleep(60)
    """

    counters: EthernetCounters

    def __init__(
        self,
        name: str,
        *,
        storage: Path | None = None,
        trace: TraceSink | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(name, storage=storage, trace=trace, seed=seed)
        self.counters = EthernetCounters()
        self._by_address: dict[tuple[str, bytes], str] = {}
        self._largest = 0

    async def _open_socket(self) -> socket.socket:
        if sys.platform != "linux":
            raise EthernetUnavailable("Ethernet links need Linux: use UDP links on this system")
        try:
            # Of this ethertype, on every interface; the kernel makes and removes the headers.
            return socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETHERTYPE))
        except PermissionError as error:
            raise EthernetUnavailable(
                "Ethernet links need the capability CAP_NET_RAW: run as root, grant it, "
                "or use UDP links"
            ) from error

    def add_link(self, name: str, interface: str, mac: str, mtu: int = MTU) -> None:
        """Frames from that neighbour on that interface arrive over a link of that name.

        The interface may come and go; while it is away, sending fails and is counted.
        """
        neighbour = parse_mac(mac)
        if name in self._links or (interface, neighbour) in self._by_address:
            raise ValueError(
                f"{self.node} has a link {name!r} or one to {mac} on {interface} already"
            )
        self._links[name] = SocketLink(self, name, (interface, ETHERTYPE, 0, 0, neighbour), mtu)
        self._by_address[interface, neighbour] = name
        self._largest = max(link.mtu for link in self._links.values())

    def remove_link(self, name: str) -> None:
        """The neighbour is none any more."""
        interface, *_, neighbour = self._links.pop(name).address
        del self._by_address[interface, neighbour]

    def _send(self, packet: bytes, address: SocketAddress) -> bool:
        return super()._send(enclose(packet), address)

    def _drain(self) -> None:
        receive = self._socket.recvfrom
        names = self._by_address
        counters = self.counters
        limit = LENGTH.size + self._largest  # what lies behind is padding, or too long anyway
        for _ in range(BATCH):
            try:
                frame, (interface, _, addressee, _, mac) = receive(limit)
            except BlockingIOError:
                return
            except OSError:
                # An interface went down; the socket itself is well.
                counters.send_errors += 1
                continue
            # An interface that listens to everything also shows what is meant for others.
            name = names.get((interface, mac)) if addressee == socket.PACKET_HOST else None
            if name is None:
                counters.strangers += 1
                continue
            length = int.from_bytes(frame[: LENGTH.size])
            packet = frame[LENGTH.size : LENGTH.size + length]
            if length > self._links[name].mtu:
                counters.oversized += 1
            elif len(frame) < LENGTH.size or len(packet) < length:
                counters.cut_off += 1
            else:
                self._arrived(name, packet)


def enclose(packet: bytes) -> bytes:
    """What stands behind the Ethernet header of a frame with that packet."""
    return LENGTH.pack(len(packet)) + packet


def parse_mac(text: str) -> bytes:
    """The six bytes of an address such as ``02:00:00:00:00:0b``."""
    if _MAC.fullmatch(text) is None:
        raise ValueError(f"{text[:40]!r} is no MAC address: write it as 02:00:00:00:00:0b")
    return bytes.fromhex(text.replace(":", ""))
