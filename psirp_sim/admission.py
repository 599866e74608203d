"""Whom a fabric node lets in: strangers who say hello under the fabric's key."""

from __future__ import annotations

from psirp_sim.node import FabricNode
from psirp_sim.runtime.durations import SECOND
from psirp_sim.wire.control import NEIGHBOUR, Hello
from psirp_sim.wire.data import MalformedPacket
from psirp_sim.wire.sealing import WrongKey


class Admission:
    """Implements `runtime.accepting.Policy` for a node."""

    def __init__(self, core: FabricNode, most: int) -> None:
        """At most that many links."""
        self._core = core
        self.most = most
        # The neighbour's next hello says that it hears us; one may be lost, and one is under way.
        self.patience = 3 * core.settings.hello_interval + 2 * SECOND

    def neighbour(self, packet: bytes) -> str | None:
        if not self._core.begun or packet[:2] != NEIGHBOUR:
            return None
        try:
            message = self._core.settings.keys.open(packet[2:])
        except (MalformedPacket, WrongKey):
            return None
        # Our own may come back to us: from a relay, or to a node that was told its own address.
        if not isinstance(message, Hello) or message.node == self._core.env.node:
            return None
        return message.node

    def works(self, link: str) -> bool:
        known = self._core.neighbours.links.get(link)
        return known is not None and known.up
