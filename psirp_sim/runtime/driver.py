"""The link driver in Python: applies a forwarding table to data packets.

The simulator and the UDP environment both use it; the C driver does the same, packet by packet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

from psirp_sim.forwarding.table import (
    HERE,
    Count,
    ForwardingCounters,
    ForwardingTable,
    LoopCache,
    sent_on,
)
from psirp_sim.runtime.environment import Link
from psirp_sim.wire.data import SAMPLED, Kind

_DATA = bytes((Kind.DATA,))
# On the way of every packet, where it shows that members of an enumeration are looked up slowly.
_RECEIVED = int(Count.RECEIVED)
PACKET_ID_END = 11

L = TypeVar("L", bound=Link)


class LinkDriver(Generic[L]):
    """Owns the table, the loop cache and the links of one node."""

    __slots__ = ("_cache", "_counts", "_index", "_links", "_table")

    def __init__(self, links: Mapping[str, L]) -> None:
        self._links = links
        self._cache = LoopCache()
        self._table: ForwardingTable | None = None

    def install(self, table: ForwardingTable, counters: ForwardingCounters) -> None:
        """Use this table from now on; what was seen before is remembered."""
        self._table = table
        self._counts = counters.values
        self._index = {name: index for index, name in enumerate(table.links)}

    def arrived(self, link: str, packet: bytes) -> bool:
        """Forward a packet that arrived; whether the core is to see it as well."""
        copies: list[tuple[L, bytes]] = []
        up = self.take(link, packet, copies)
        if copies:
            self.send(copies)
        return up

    def inject(self, packet: bytes) -> bool:
        """Send a packet of this node's own; whether it is for this node as well."""
        table = self._table
        if table is None:
            return False
        decision = table.decide(packet, HERE, self._cache)
        if not isinstance(decision, tuple):
            self._counts[decision] += 1
            return False
        out, local = decision
        copies: list[tuple[L, bytes]] = []
        self._address(packet, out, table, copies)
        self.send(copies)
        return local

    def take(self, link: str, packet: bytes, copies: list[tuple[L, bytes]]) -> bool:
        """As `arrived`, but the copies are left to `send`: those to be sent are added."""
        table = self._table
        if table is None or packet[1:2] != _DATA:
            return True
        counts = self._counts
        counts[_RECEIVED] += 1
        decision = table.decide(packet, self._index.get(link, HERE), self._cache)
        if not isinstance(decision, tuple):
            counts[decision] += 1
            return False
        out, local = decision
        if out:
            self._address(sent_on(packet), out, table, copies)
        if local:
            counts[Count.DELIVERED] += 1
        # The core writes a trace of where a sampled packet goes.
        return local or (bool(out) and packet[PACKET_ID_END] == SAMPLED)

    def send(self, copies: list[tuple[L, bytes]], sent: int = 0) -> None:
        """Hand copies to their links, but for the first ones, which are on their way already."""
        counts = self._counts
        counts[Count.FORWARDED] += sent
        for link, packet in copies[sent:]:
            counts[Count.FORWARDED if link.send(packet) else Count.REFUSED] += 1

    def _address(
        self,
        packet: bytes,
        out: Sequence[int],
        table: ForwardingTable,
        copies: list[tuple[L, bytes]],
    ) -> None:
        for index in out:
            link = self._links.get(table.links[index])
            if link is None:
                self._counts[Count.REFUSED] += 1
            else:
                copies.append((link, packet))
