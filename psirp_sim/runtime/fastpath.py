"""The link driver in C, where it was built: the Python end of `_fastpath.c`.

What it does with a packet is what `driver.LinkDriver` does; it does so for whole bursts, and for
the socket as well. Here tables and links are put in the terms it understands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from socket import AF_INET, AddressFamily, inet_ntop, inet_pton

from psirp_sim.forwarding.table import REMEMBERED, ForwardingCounters, ForwardingTable, Row
from psirp_sim.runtime.asyncio_node import SocketLink
from psirp_sim.zfilters import MOST_EXACT_BITS

try:
    import psirp_sim.runtime._fastpath as _fastpath
except ImportError as error:
    MISSING: str | None = f"the link driver in C is not there: {error}"
    """Why there is none; None where there is one."""
else:
    MISSING = None

IpAddress = tuple[str, int] | tuple[str, int, int, int]
"""As the socket module has it, for IPv4 and IPv6."""


class FastDriver:
    """Forwards what arrives at one socket."""

    __slots__ = ("_driver", "_family", "decide", "drain", "inject")

    def __init__(self, fd: int, family: AddressFamily, remembered: int = REMEMBERED) -> None:
        self._driver = _fastpath.Driver(fd, remembered)
        self._family = family
        self.drain = self._driver.drain
        self.inject = self._driver.inject
        self.decide = self._driver.decide

    def install(self, table: ForwardingTable, counters: ForwardingCounters) -> None:
        """Use this table from now on; what was seen before is remembered."""
        self._driver.install(table.links, _rows(table.bloom), _rows(table.exact), counters.values)

    def set_links(self, links: Iterable[SocketLink]) -> None:
        """These are the links from now on."""
        self._driver.set_links(tuple(map(self._link, links)))

    def address(self, host: bytes, port: int, scope: int) -> IpAddress:
        """As the socket module has it."""
        text = inet_ntop(self._family, host)
        return (text, port) if self._family == AF_INET else (text, port, 0, scope)

    def _link(self, link: SocketLink) -> _fastpath.LinkAddress:
        host, port, *rest = link.address
        scope = rest[1] if rest else 0
        return link.name, self._family, inet_pton(self._family, host), port, scope, link.mtu


def _rows(rows: Mapping[int, Row]) -> tuple[_fastpath.Row, ...]:
    return tuple(_row(key, row) for key, row in rows.items())


def _row(key: int, row: Row) -> _fastpath.Row:
    # No filter is long enough for a higher bit, so a tag that has one matches nothing.
    reach = 1 << MOST_EXACT_BITS
    tags = [(tag, link) for tag, link in row.tags if tag < reach]
    return (
        key,
        tuple(_words(tag) for tag, _ in tags),
        tuple(link for _, link in tags),
        _words(row.local) if 0 < row.local < reach else None,
    )


def _words(tag: int) -> bytes:
    return tag.to_bytes(-(-tag.bit_length() // 64) * 8, "little")
