"""What a name server serves, to whom it gives rights, and its limits."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network

Network = IPv4Network | IPv6Network

ALGORITHMS = ("hmac-sha224", "hmac-sha256", "hmac-sha384", "hmac-sha512")
"""Of TSIG keys; the older ones are not worth supporting any more."""


@dataclass(frozen=True, slots=True)
class Key:
    """A TSIG key (RFC 8945): a secret shared with those who may do what its name is listed for."""

    name: str
    secret: bytes
    algorithm: str = "hmac-sha256"

    def __repr__(self) -> str:
        return f"Key({self.name!r}, {self.algorithm!r})"


@dataclass(frozen=True, slots=True)
class ZoneSettings:
    """A zone, and by the names of their keys who may read all of it and who may change it."""

    origin: str
    records: tuple[str, ...]
    """Lines of a master file, relative to the origin."""
    transfer: tuple[str, ...] = ()
    update: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """What strangers, and those who may change a zone, can make the server hold or do."""

    records: int = 100_000
    """That a zone may grow to by updates."""
    connections: int = 200
    """Over TCP, at the same time."""
    connections_per_client: int = 20
    idle: float = 10.0
    """Seconds to wait for a whole message on a connection."""
    connection: float = 120.0
    """Seconds that a connection may last, with whatever is sent on it."""
    waiting_updates: int = 100
    """Authorised updates that may wait to be written; a client repeats those beyond."""
    answers_per_second: int = 500
    """Over UDP to one network (/24, /56): beyond it, answers are dropped or sent to TCP."""
    unlimited: tuple[Network, ...] = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
    """Networks for which the last one does not count: nobody else can send from loopback."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """All that a `NameServer` is told."""

    zones: tuple[ZoneSettings, ...]
    listen: tuple[tuple[str, int], ...] = (("127.0.0.1", 0),)
    """UDP and TCP on the same port; 0 lets the system choose."""
    keys: tuple[Key, ...] = ()
    limits: Limits = Limits()
