"""Links over UDP: one socket a node, one remote address a link."""

from __future__ import annotations

import socket
from pathlib import Path

from psirp_sim.runtime.asyncio_node import BATCH, AsyncioNode, SocketLink
from traces import TraceSink

Address = tuple[str, int]

MTU = 1_472
"""What fits into one Ethernet frame behind the IPv4 and UDP headers."""


class UdpNode(AsyncioNode):
    """Implements `environment.Environment` for one core.

    >>> async with UdpNode("a", ("127.0.0.1", 4001)) as node:
    ...     node.add_link("b", ("127.0.0.1", 4002))
    ...     core = node.run(MyCore)
    ...     await asyncio.sleep(60)
    """

    def __init__(
        self,
        name: str,
        listen: Address,
        *,
        storage: Path | None = None,
        trace: TraceSink | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(name, storage=storage, trace=trace, seed=seed)
        self._listen = listen
        self._by_address: dict[Address, str] = {}
        self._largest = MTU

    async def _open_socket(self) -> socket.socket:
        # Looked up here, once, so that no send ever waits for a name server.
        found = await self._loop.getaddrinfo(*self._listen, type=socket.SOCK_DGRAM)
        family, _, _, _, address = found[0]
        opened = socket.socket(family, socket.SOCK_DGRAM)
        try:
            opened.bind(address)
        except OSError:
            opened.close()
            raise
        return opened

    @property
    def address(self) -> Address:
        """Where the node listens, with the port the system chose when none was asked for."""
        host, port = self._socket.getsockname()[:2]
        return host, port

    def add_link(self, name: str, address: Address, mtu: int = MTU) -> None:
        """Packets from that address (a literal one) arrive over a link of that name."""
        if name in self._links or address in self._by_address:
            raise ValueError(f"{self.node} has a link {name!r} or one to {address} already")
        self._links[name] = SocketLink(self, name, address, mtu)
        self._by_address[address] = name
        self._largest = max(link.mtu for link in self._links.values())

    def remove_link(self, name: str) -> None:
        """The neighbour is none any more."""
        del self._by_address[self._links.pop(name).address]

    def _drain(self) -> None:
        receive = self._socket.recvfrom
        names = self._by_address
        counters = self.counters
        limit = self._largest + 1
        for _ in range(BATCH):
            try:
                packet, source = receive(limit)
            except BlockingIOError:
                return
            except OSError:
                # An earlier packet was answered by an ICMP error; the socket itself is well.
                counters.send_errors += 1
                continue
            name = names.get(source[:2])
            if name is None:
                counters.strangers += 1
            elif len(packet) > self._links[name].mtu:
                counters.oversized += 1
            else:
                self._arrived(name, packet)
