"""Links over UDP: one socket a node, one remote address a link.

Two link drivers read the socket: the one in C (`fastpath`) once the core has installed a table,
where it was built; the one in Python otherwise, and while somebody taps the node. Each has a loop
cache of its own, so a packet may pass once more right after they changed places.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from psirp_sim.forwarding.table import ForwardingCounters, ForwardingTable
from psirp_sim.runtime import fastpath
from psirp_sim.runtime.accepting import SWEEP, AcceptedLinks, Policy, link_name
from psirp_sim.runtime.asyncio_node import BATCH, AsyncioNode, SocketCounters, SocketLink
from psirp_sim.runtime.environment import Core
from psirp_sim.runtime.fastpath import FastDriver, IpAddress
from psirp_sim.wire.control import NEIGHBOUR
from traces import TraceSink

Address = tuple[str, int]

BATCH_IN_C = 4 * BATCH
"""Packets the driver in C takes before the event loop gets its turn: a few milliseconds' work."""
BURST = 64
"""Packets the driver in Python reads before it does anything with them."""
MTU = 1_472
"""What fits into one Ethernet frame behind the IPv4 and UDP headers."""
LOOK_UP_EVERY = 60.0
"""Seconds after which the name of a neighbour's host is looked up again."""


@dataclass(slots=True)
class UdpCounters(SocketCounters):
    """What happened at the socket; strangers who are not let in count as strangers, too."""

    accepted_links: int = 0
    """Strangers who were let in."""
    refused_links: int = 0
    """Strangers who had the key, but there was no place for them."""
    wrong_hellos: int = 0
    """Control packets of strangers that were no hello under our key, or one that came before."""
    removed_links: int = 0
    """Accepted links that did not work, or not any more."""


class NamedLink(SocketLink):
    """A link to a host by name; its address is None until it was found."""

    __slots__ = ("host", "lookup")

    def __init__(self, node: UdpNode, name: str, host: Address, mtu: int) -> None:
        super().__init__(node, name, None, mtu)
        self.host = host
        self.lookup = node._loop.create_task(node._look_up(self))

    def send(self, packet: bytes) -> bool:
        return self.address is not None and super().send(packet)


class UdpNode(AsyncioNode):
    """Implements `environment.Environment` for one core.

    >>> async with UdpNode("a", ("127.0.0.1", 4001)) as node:
    ...     node.add_link("b", ("127.0.0.1", 4002))
    ...     core = node.run(MyCore)
    ...     await asyncio.sleep(60)
    """

    counters: UdpCounters

    def __init__(
        self,
        name: str,
        listen: Address,
        *,
        storage: Path | None = None,
        trace: TraceSink | None = None,
        seed: int | None = None,
        accelerate: bool | None = None,
    ) -> None:
        """Packets are forwarded in C where that was built, unless `accelerate` says otherwise."""
        super().__init__(name, storage=storage, trace=trace, seed=seed)
        if accelerate and fastpath.MISSING is not None:
            raise RuntimeError(f"{fastpath.MISSING}: build it, or do not ask for it")
        self._accelerate = fastpath.MISSING is None if accelerate is None else accelerate
        self.counters = UdpCounters()
        self._listen = listen
        self._by_address: dict[IpAddress, SocketLink] = {}
        self._largest = MTU
        self._fast: FastDriver | None = None
        self._fast_links_stale = True
        self._accepted: AcceptedLinks | None = None

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

    def _close_socket(self) -> None:
        for link in self._links.values():
            if isinstance(link, NamedLink):
                link.lookup.cancel()
        self._fast = None  # it knows the socket by its number, which will be another's
        super()._close_socket()

    @property
    def address(self) -> Address:
        """Where the node listens, with the port the system chose when none was asked for."""
        host, port = self._socket.getsockname()[:2]
        return host, port

    # Links

    def add_link(self, name: str, address: Address, mtu: int = MTU) -> None:
        """Packets from that address arrive over a link of that name, once the node is open.

        The name of a host is looked up at once, and again every minute, because hosts move; the
        link takes no packets until it has been found.
        """
        literal = self._literal(address)
        if literal is not None:
            self._make_way(literal)
        if name in self._links or literal in self._by_address:
            raise ValueError(f"{self.node} has a link {name!r} or one to {address} already")
        if literal is None:
            self._links[name] = NamedLink(self, name, address, mtu)
        else:
            self._links[name] = self._by_address[literal] = SocketLink(self, name, literal, mtu)
        self._links_changed()

    def _links_changed(self) -> None:
        self._largest = max([MTU, *(link.mtu for link in self._links.values())])
        self._fast_links_stale = True

    def remove_link(self, name: str) -> None:
        """The neighbour is none any more."""
        link = self._links.pop(name)
        if isinstance(link, NamedLink):
            link.lookup.cancel()
        if link.address is not None:
            del self._by_address[link.address]
        if self._accepted is not None:
            self._accepted.discard(name)
        self._links_changed()

    def _literal(self, address: Address) -> IpAddress | None:
        """The address as our socket calls it; None when it is the name of a host."""
        flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV | socket.AI_V4MAPPED
        try:
            found = socket.getaddrinfo(*address, self._socket.family, socket.SOCK_DGRAM, 0, flags)
        except socket.gaierror as error:
            if error.errno == socket.EAI_NONAME:
                return None
            raise ValueError(
                f"{self.node} listens at {self._listen[0]} and has no way to {address[0]}: {error}"
            ) from error
        return cast(IpAddress, found[0][4])

    async def _look_up(self, link: NamedLink) -> None:
        while True:
            try:
                found = await self._loop.getaddrinfo(
                    *link.host,
                    family=self._socket.family,
                    type=socket.SOCK_DGRAM,
                    flags=socket.AI_V4MAPPED,
                )
                self._locate(link, [cast(IpAddress, address) for *_, address in found])
            except (OSError, UnicodeError) as error:
                self.counters.lookup_errors += 1
                self.log("host.not_found", link=link.name, reason=error)
            await asyncio.sleep(LOOK_UP_EVERY)

    def _locate(self, link: NamedLink, found: list[IpAddress]) -> None:
        if link.address in found:
            return
        for address in found:
            self._make_way(address)
        free = [address for address in found if address not in self._by_address]
        if not free:
            raise OSError(f"{found[0]} is the address of another link")
        if link.address is not None:
            del self._by_address[link.address]
        link.address = free[0]
        self._by_address[link.address] = link
        self._fast_links_stale = True
        self.log("host.found", link=link.name, address=link.address)

    # Links that others make

    def accept_links(self, policy: Policy) -> None:
        """Let strangers in, as far as the policy goes; each is a link of its own."""
        self._accepted = AcceptedLinks(policy, self.now)
        self.call_later(SWEEP, self._sweep, self._accepted)

    def _sweep(self, accepted: AcceptedLinks) -> None:
        for name in accepted.expired():
            self._remove_accepted(name)
        if accepted is self._accepted:
            self.call_later(SWEEP, self._sweep, accepted)

    def _remove_accepted(self, name: str) -> None:
        self.remove_link(name)
        self.counters.removed_links += 1
        self.log("link.removed", link=name)

    def _make_way(self, address: IpAddress) -> None:
        """A link of our own leads to that address: it is the one that stays."""
        link = self._by_address.get(address)
        if link is not None and self._accepted is not None and link.name in self._accepted:
            self._remove_accepted(link.name)

    def _checks(self) -> int:
        """How many packets of strangers may be looked at now."""
        return 0 if self._accepted is None else self._accepted.checks()

    def _knocked(self, packet: bytes, source: IpAddress) -> None:
        """A control packet came from an address that was no link's when it was read."""
        link = self._by_address.get(source) or self._accept(packet, source)
        if link is None:
            self.counters.strangers += 1
        else:
            self._arrived(link.name, packet)

    def _accept(self, packet: bytes, source: IpAddress) -> SocketLink | None:
        accepted = self._accepted
        if accepted is None or len(packet) > MTU:
            return None
        neighbour = accepted.check(packet)
        if neighbour is None:
            self.counters.wrong_hellos += 1
            return None
        host, port, *rest = source
        name = link_name("in", host, port, rest[1] if rest else 0)
        place, instead_of = accepted.room()
        if name in self._links or not place:
            self.counters.refused_links += 1
            return None
        if instead_of is not None:
            self._remove_accepted(instead_of)
        link = self._links[name] = self._by_address[source] = SocketLink(self, name, source, MTU)
        accepted.add(name)
        self._links_changed()
        self.counters.accepted_links += 1
        self.log("link.accepted", link=name, neighbour=neighbour)
        return link

    # Forwarding

    @property
    def driver_name(self) -> str:
        return "python" if self._fast is None or self.tap is not None else "c"

    def install(self, table: ForwardingTable, counters: ForwardingCounters) -> None:
        super().install(table, counters)
        if self._accelerate:
            if self._fast is None:
                self._fast = FastDriver(self._socket.fileno(), self._socket.family)
            self._fast.install(table, counters)

    def inject(self, packet: bytes) -> bool:
        fast = self._fast
        if fast is None or self.tap is not None:
            return super().inject(packet)
        self._tell_links(fast)
        local, unsent, oversized, sent, errors = fast.inject(packet, bool(self._waiting))
        self.counters.oversized += oversized
        self.counters.sent += sent
        self.counters.send_errors += errors
        self._send_unsent(unsent)
        return local

    def _drain(self) -> None:
        core = self._core
        if core is None:
            return
        fast = self._fast
        if fast is None or self.tap is not None:
            self._drain_in_python(core)
        else:
            self._drain_in_c(fast, core)

    def _drain_in_c(self, fast: FastDriver, core: Core) -> None:
        self._tell_links(fast)
        up, unsent, knocks, received, strangers, oversized, sent, errors = fast.drain(
            BATCH_IN_C, bool(self._waiting), self._checks()
        )
        counters = self.counters
        counters.received += received
        counters.strangers += strangers
        counters.oversized += oversized
        counters.sent += sent
        counters.send_errors += errors
        self._send_unsent(unsent)
        for name, packet in up:
            self._guard(core.receive, name, packet)
        for packet, host, port, scope in knocks:
            self._knocked(packet, fast.address(host, port, scope))

    def _tell_links(self, fast: FastDriver) -> None:
        if self._fast_links_stale:
            fast.set_links(link for link in self._links.values() if link.address is not None)
            self._fast_links_stale = False

    def _send_unsent(self, unsent: list[tuple[str, bytes]]) -> None:
        """The kernel takes no more: they wait, or are refused, like all that is sent then."""
        if unsent:
            self.driver.send([(self._links[name], packet) for name, packet in unsent])

    # Forwarding in Python, each step for a whole burst: that keeps the processor's caches warm.

    def _drain_in_python(self, core: Core) -> None:
        links = self._by_address
        counters = self.counters
        take = self.driver.take
        checks = self._checks()
        for _ in range(BATCH // BURST):
            burst = self._receive_burst()
            copies: list[tuple[SocketLink, bytes]] = []
            up = []
            knocks: list[tuple[bytes, IpAddress]] = []
            for packet, source in burst:
                link = links.get(source)
                if link is None:
                    if len(knocks) < checks and packet[:2] == NEIGHBOUR:
                        knocks.append((packet, source))
                    else:
                        counters.strangers += 1
                elif len(packet) > link.mtu:
                    counters.oversized += 1
                else:
                    counters.received += 1
                    if self.tap is not None:
                        self._show(False, link.name, packet)
                    if take(link.name, packet, copies):
                        up.append((link.name, packet))
            if copies:
                self.driver.send(copies, self._send_burst(copies))
            for name, packet in up:
                self._guard(core.receive, name, packet)
            for packet, source in knocks:
                self._knocked(packet, source)
            checks -= len(knocks)
            if len(burst) < BURST:
                return

    def _receive_burst(self) -> list[tuple[bytes, IpAddress]]:
        burst: list[tuple[bytes, IpAddress]] = []
        receive = self._socket.recvfrom
        limit = self._largest + 1
        try:
            while len(burst) < BURST:
                burst.append(receive(limit))
        except BlockingIOError:
            pass
        except OSError:
            # An earlier packet was answered by an ICMP error; the socket itself is well.
            self.counters.send_errors += 1
        return burst

    def _send_burst(self, copies: list[tuple[SocketLink, bytes]]) -> int:
        """Send copies as long as nothing is in the way; how many were sent."""
        sent = 0
        if self._waiting or self.tap is not None:
            return sent
        send = self._socket.sendto
        try:
            for link, packet in copies:
                if link.address is None or len(packet) > link.mtu:
                    break
                send(packet, link.address)
                sent += 1
        except OSError:
            pass  # the link's own `send` will meet it again, and count it
        self.counters.sent += sent
        return sent
