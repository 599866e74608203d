"""A UDP node whose links can be watched and cut: for demonstrations and for trying what happens.

What comes over a link that is cut, and what is to go over it, is lost without a word, as when
somebody pulls the cable: the node and its neighbour find out from the silence. Every packet passes
through Python here, because that is where it is counted; other nodes forward in C.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from psirp_sim.runtime.asyncio_node import SocketAddress, SocketLink
from psirp_sim.runtime.fastpath import IpAddress
from psirp_sim.runtime.udp import Address, UdpNode
from psirp_sim.wire.data import HEADER, Kind, Protocol
from psirp_sim.zfilters import descriptor_length
from traces import TraceSink

_DATA = bytes((Kind.DATA,))
_PUBLICATION = int(Protocol.PUBLICATION)


@dataclass(slots=True)
class LinkTraffic:
    """What passed one link; packets that were lost because it is cut only count as such."""

    cut: bool = False
    sent: int = 0
    """Data packets, in which everything travels that is for more than the neighbour."""
    received: int = 0
    publications: int = 0
    """Those of them, either way, that carry a piece of a publication."""
    lost: int = 0
    fill: float | None = None
    """The share of bits that is set in the filter of the last publication."""


class FaultyNode(UdpNode):
    """A `UdpNode` that lets its links be cut."""

    def __init__(
        self,
        name: str,
        listen: Address,
        *,
        storage: Path | None = None,
        trace: TraceSink | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(name, listen, storage=storage, trace=trace, seed=seed, accelerate=False)
        self._traffic: dict[str, LinkTraffic] = {}

    def traffic(self, link: str) -> LinkTraffic:
        """What passed a link since the node began."""
        found = self._traffic.get(link)
        if found is None:
            for gone in self._traffic.keys() - self._links.keys():
                del self._traffic[gone]
            found = self._traffic[link] = LinkTraffic()
        return found

    def cut(self, link: str, cut: bool) -> None:
        """Cut a link, or mend it. KeyError when there is no such link."""
        if link not in self._links:
            raise KeyError(link)
        self.traffic(link).cut = cut

    def _receive_burst(self) -> list[tuple[bytes, IpAddress]]:
        burst = super()._receive_burst()
        return [each for each in burst if self._passes(each[0], each[1], outgoing=False)]

    def _send(self, packet: bytes, address: SocketAddress) -> bool:
        # Whoever sends does not learn that the packet is lost.
        return not self._passes(packet, address, outgoing=True) or super()._send(packet, address)

    def _send_burst(self, copies: list[tuple[SocketLink, bytes]]) -> int:
        return 0  # each by its link, so that it is counted

    def _passes(self, packet: bytes, address: IpAddress, *, outgoing: bool) -> bool:
        link = self._by_address.get(address)
        if link is None:
            return True
        traffic = self.traffic(link.name)
        if traffic.cut:
            traffic.lost += 1
            return False
        if packet[1:2] == _DATA:
            _note(traffic, packet, outgoing)
        return True


def _note(traffic: LinkTraffic, packet: bytes, outgoing: bool) -> None:
    if outgoing:
        traffic.sent += 1
    else:
        traffic.received += 1
    length = descriptor_length(packet[3]) if len(packet) > HEADER else 0
    payload = HEADER + length
    if length and len(packet) > payload and packet[payload] == _PUBLICATION:
        traffic.publications += 1
        bits = int.from_bytes(packet[HEADER:payload], "little").bit_count()
        traffic.fill = round(bits / (8 * length), 4)
