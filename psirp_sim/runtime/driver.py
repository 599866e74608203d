"""The link driver in Python: applies a forwarding table to data packets.

The simulator and the UDP environment both use it; the C driver does the same, packet by packet.
"""

from __future__ import annotations

from collections.abc import Mapping

from psirp_sim.forwarding.table import (
    HERE,
    Count,
    Decision,
    ForwardingCounters,
    ForwardingTable,
    LoopCache,
    sent_on,
)
from psirp_sim.runtime.environment import Link
from psirp_sim.wire.data import Kind

_DATA = bytes((Kind.DATA,))


class LinkDriver:
    """Owns the table, the loop cache and the links of one node."""

    __slots__ = ("_cache", "_counts", "_index", "_links", "_table")

    def __init__(self, links: Mapping[str, Link]) -> None:
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
        if self._table is None or packet[1:2] != _DATA:
            return True
        self._counts[Count.RECEIVED] += 1
        decision = self._table.decide(packet, self._index.get(link, HERE), self._cache)
        if isinstance(decision, Decision):
            if decision.links:
                self._send(decision, sent_on(packet))
            self._counts[Count.DELIVERED] += decision.local
            return decision.local
        self._counts[decision] += 1
        return False

    def inject(self, packet: bytes) -> bool:
        """Send a packet of this node's own; whether it is for this node as well."""
        if self._table is None:
            return False
        decision = self._table.decide(packet, HERE, self._cache)
        if isinstance(decision, Decision):
            self._send(decision, packet)
            return decision.local
        self._counts[decision] += 1
        return False

    def _send(self, decision: Decision, packet: bytes) -> None:
        assert self._table is not None
        names = self._table.links
        for index in decision.links:
            link = self._links.get(names[index])
            taken = link is not None and link.send(packet)
            self._counts[Count.FORWARDED if taken else Count.REFUSED] += 1
