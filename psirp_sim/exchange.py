"""What a node sends and opens: data packets along filters, and sealed messages in them.

Everything that leaves a node, and is not forwarded for others, passes here. Who gets what comes in
is decided in `node`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from psirp_sim.forwarding.table import ForwardingTable
from psirp_sim.runtime.environment import Environment
from psirp_sim.wire.control import NEIGHBOUR, Fragment
from psirp_sim.wire.data import HEADER, LARGEST_PACKET, SAMPLED, Protocol, encode, payload_of
from psirp_sim.wire.message import Message
from psirp_sim.wire.publications import unpack
from psirp_sim.wire.sealing import FabricKeys, Reassembly, pieces
from psirp_sim.zfilters import ZFilter
from traces import Stage, TraceEvent

_PUBLICATION = bytes((Protocol.PUBLICATION,))


class Exchange:
    """The packets of one node."""

    def __init__(
        self,
        env: Environment,
        keys: Callable[[], FabricKeys],
        counters: Counter[str],
        *,
        domain: str,
        at_home: Callable[[str, bytes], None],
    ) -> None:
        """`at_home` takes a packet that is for this node too."""
        self._env = env
        self._keys = keys
        self._counters = counters
        self._domain = domain
        self._at_home = at_home
        self._reassembly = Reassembly()
        self._next_packet = env.random.getrandbits(64)

    # Out

    def send(
        self, filters: Sequence[ZFilter], protocol: int, payload: bytes, sampled: bool = False
    ) -> None:
        """Send a payload along the trees of these filters; forwarding nodes write traces of
        packets that are `sampled`."""
        payload = bytes((protocol,)) + payload
        for zfilter in filters:
            packet = encode(zfilter, self._packet_id(sampled), payload)
            if self._env.inject(packet):
                self._env.call_later(0, self._at_home, "", packet)

    def along(self, filters: list[ZFilter], message: Message) -> None:
        """Send a message to whoever the filters lead to."""
        if not filters:
            return  # too far for any packet
        room = LARGEST_PACKET - HEADER - 1 - max(each.length for each in filters)
        try:
            cut = self._pieces(message, room)
        except ValueError as error:
            # Limits keep messages short; should one not be, it must not stop whoever sends it.
            self._counters["too_long"] += 1
            self._env.log("message.not_sent", type=type(message).__name__, reason=error)
            return
        for piece in cut:
            self.send(filters, Protocol.CONTROL, piece)

    def to_neighbour(self, link: str, message: Message) -> None:
        """Send a message over one link."""
        way = self._env.links.get(link)
        if way is None:
            return
        for piece in self._pieces(message, way.mtu - len(NEIGHBOUR)):
            way.send(NEIGHBOUR + piece)

    def _packet_id(self, sampled: bool) -> bytes:
        number = self._next_packet + 1
        if sampled:
            number += (SAMPLED - number) & 0xFF
        elif number & 0xFF == SAMPLED:
            number += 1
        self._next_packet = number & (1 << 64) - 1
        return self._next_packet.to_bytes(8)

    def _pieces(self, message: Message, room: int) -> list[bytes]:
        name = self._env.random.getrandbits(64).to_bytes(8)
        return list(pieces(self._keys(), message, name, room))

    # In

    def open(self, source: str, sealed: bytes) -> Message | None:
        """The message; None for a fragment of one that is not complete yet."""
        message = self._keys().open(sealed)
        if isinstance(message, Fragment):
            whole = self._reassembly.add(source, message)
            return None if whole is None else self._keys().open(whole)
        return message

    def trace_way(
        self,
        table: ForwardingTable,
        arrived: str,
        packet: bytes,
        neighbour_of: Callable[[str], str | None],
    ) -> bool:
        """Write traces of where a sampled packet went; whether it is for this node too."""
        out, local = table.leads(packet)
        payload = payload_of(packet)
        names = unpack(payload[1:]).names if payload[:1] == _PUBLICATION else None
        if names is None:
            return local
        for index in out:
            peer = neighbour_of(table.links[index])
            if table.links[index] != arrived and peer is not None:
                self._env.trace.emit(
                    TraceEvent(
                        sid=names[0],
                        rid=names[1],
                        stage=Stage.FORWARDED,
                        node=self._env.node,
                        domain=self._domain,
                        peer=peer,
                        wall_ns=self._env.wall(),
                        mono_ns=self._env.now(),
                        bytes=len(packet),
                    )
                )
        return local
