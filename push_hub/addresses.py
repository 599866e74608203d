"""Which addresses the hub may connect to when a stranger names the URL.

Only addresses of the public internet, unless an allow-list names their network. There are two
lists, for topics and for callbacks, because they open different doors: a fetch shows an answer to
subscribers, a delivery only sends.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from push_hub.errors import AddressRefused

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Translators turn these into the IPv4 address in their last 32 bits (RFC 6052). The prefix for
# local use, 64:ff9b:1::/48, is not here: where its addresses lead only its network knows.
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
# What is not public, whatever the tables of the running Python say: they differ by version.
_SPECIAL: Final = tuple(
    ipaddress.ip_network(text)
    for text in (
        "100.64.0.0/10", "192.0.0.0/24", "192.88.99.0/24", "198.18.0.0/15", "240.0.0.0/4",
        "2001::/23", "2001:db8::/32", "3fff::/20",
    )
)  # fmt: skip
_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
# Deprecated, but some stacks still take the last 32 bits for an IPv4 address.
_COMPATIBLE: Final = ipaddress.IPv6Network("::/96")


@dataclass(frozen=True, slots=True)
class AddressPolicy:
    """`purpose` and `option` are for the refusal's sentence: what for, and what would allow it."""

    allowed: tuple[Network, ...]
    purpose: str
    option: str

    def check(self, text: str) -> None:
        """Pass, or raise AddressRefused. `text` is an address, with a zone id perhaps."""
        try:
            address = ipaddress.ip_address(text.partition("%")[0])
        except ValueError:
            raise AddressRefused(f"{text!r} is not an IP address") from None
        if any(not self._permits(each) for each in _meanings(address)):
            raise AddressRefused(
                f"{address} is not on the public internet, so no {self.purpose} goes there: "
                f"allow its network with {self.option} if it should"
            )

    def check_host(self, host: str) -> None:
        """Refuse a host that is an address and not permitted; names are checked on connecting."""
        try:
            ipaddress.ip_address(host.strip("[]").partition("%")[0])
        except ValueError:
            return
        self.check(host.strip("[]"))

    def _permits(self, address: Address) -> bool:
        if any(address.version == each.version and address in each for each in self.allowed):
            return True
        if any(address.version == each.version and address in each for each in _SPECIAL):
            return False
        if isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL_UNICAST:
            return False
        return (
            address.is_global
            and not address.is_multicast
            and not address.is_reserved
            and not address.is_unspecified
        )


def _meanings(address: Address) -> Iterable[Address]:
    """The addresses that a packet to this one may end up at."""
    if isinstance(address, ipaddress.IPv4Address):
        return (address,)
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    if address.sixtofour is not None:
        return (address, address.sixtofour)
    if address.teredo is not None:
        return (address, *address.teredo)
    if address in _NAT64:
        # is_global says no to the prefix itself; what counts is where it leads.
        return (ipaddress.IPv4Address(int(address) & 0xFFFFFFFF),)
    if address in _COMPATIBLE and int(address) > 1:
        return (address, ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return (address,)


def parse_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Networks in CIDR form, as on the command line; an address alone is its own network."""
    return tuple(ipaddress.ip_network(text, strict=False) for text in texts)


def client_address(remote: str, forwarded: Iterable[str], trusted: Iterable[Network]) -> str:
    """Who a request comes from: the last address that is not a proxy we trust.

    Addresses to the left of that one are whatever the client likes to claim.
    """
    networks = tuple(trusted)
    claimed = [part.strip() for header in forwarded for part in header.split(",")]
    client = remote
    while claimed and _within(client, networks):
        client = claimed.pop()
    return client[:64]


def client_key(client: str) -> str:
    """What limits per client count by: whoever has one IPv6 address has its whole /64."""
    try:
        address = ipaddress.ip_address(client.partition("%")[0])
    except ValueError:
        return client
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))


def _within(text: str, networks: tuple[Network, ...]) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return any(address.version == each.version and address in each for each in networks)
