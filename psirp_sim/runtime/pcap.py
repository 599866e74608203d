"""What passes a node as a pcap file, for scapy and Wireshark: docs/wire.md.

Every packet is written as the Ethernet frame it would travel in, whatever kind of link it took,
between made-up addresses: one stands for the node, one for the far end of each of its links.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from struct import Struct

from blake3 import blake3

from psirp_sim.runtime.durations import SECOND
from psirp_sim.runtime.ethernet import ETHERTYPE, enclose

_FILE = Struct("<IHHiIII")
_RECORD = Struct("<IIII")
_NANOSECONDS = 0xA1B23C4D
MAGIC = _NANOSECONDS.to_bytes(4, "little")
"""What a capture begins with."""
_ETHERNET = 1
_LONGEST_FRAME = 1 << 17

_HERE, _THERE = b"\x02", b"\x06"
"""First bytes of addresses that nobody's hardware has (locally administered)."""


class PcapWriter:
    """Hands a pcap file to `write`, piece by piece: its header now, a piece for each packet."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        write(_FILE.pack(_NANOSECONDS, 2, 4, 0, 0, _LONGEST_FRAME, _ETHERNET))

    def packet(self, wall_ns: int, node: str, link: str, outgoing: bool, packet: bytes) -> None:
        """A packet left the node over that link, or arrived, when its wall clock showed that."""
        here, there = node_address(node), link_address(node, link)
        ends = there + here if outgoing else here + there  # the destination stands first
        frame = ends + ETHERTYPE.to_bytes(2) + enclose(packet)
        seconds, rest = divmod(wall_ns, SECOND)
        # The format counts seconds in 32 bits; a clock set before 1970 must not end the capture.
        record = _RECORD.pack(seconds & 0xFFFFFFFF, rest, len(frame), len(frame))
        self._write(record + frame)


@lru_cache(maxsize=1 << 12)
def node_address(node: str) -> bytes:
    """The MAC address that stands for a node in its captures."""
    return _HERE + _digest(node)


@lru_cache(maxsize=1 << 12)
def link_address(node: str, link: str) -> bytes:
    """The MAC address that stands for whoever is at the far end of a node's link."""
    return _THERE + _digest(f"{node}\0{link}")


def _digest(name: str) -> bytes:
    return blake3(name.encode(), derive_key_context="psph 1 capture address").digest(length=5)
