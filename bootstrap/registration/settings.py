"""What a registrar is told: where it may write, what it writes, and how patient it is."""

from __future__ import annotations

from dataclasses import dataclass, field

from bootstrap.records import KEY_BYTES, MAX_KEYS
from bootstrap.registration.backoff import Backoff
from bootstrap.registration.tsig import TsigKey
from identifiers import InvalidTopic, is_address, normalise_host
from identifiers.errors import shown

LONGEST_TTL = 7 * 86_400


@dataclass(frozen=True, slots=True)
class Target:
    """Where an SRV record leads."""

    host: str
    port: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "host", host_name(self.host))
        if not 1 <= self.port <= 65_535:
            raise ValueError(f"{self.port} is no port: use 1 to 65535")

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class RegistrarSettings:
    """Of one PSPH. Times are seconds."""

    nameserver: tuple[str, int]
    """The server that takes updates: the primary of the zones."""
    key: TsigKey
    target: Target
    """The PSPH itself: it serves http://target/hub."""
    zones: tuple[str, ...] = ()
    """Where it registers: zones, or hosts in them."""
    learn: tuple[str, ...] = ()
    """DNS zones that are transferred; it registers for every zone that has a host in them."""
    rendezvous: tuple[Target, ...] = ()
    """The node's own rendezvous servers, announced and removed with it."""
    zone_keys: tuple[bytes, ...] = ()
    """Public keys to publish: the zone's, and the one that replaces it."""
    retired_keys: tuple[bytes, ...] = ()
    """Public keys to be taken out of the announcement."""
    ttl: int = 300
    priority: int = 0
    weight: int = 10
    """Not 0, so that PSPHs that were not told otherwise share the work evenly."""
    take_over_after: float | None = None
    """How long a peer must be out of reach before its record is removed; None: never."""
    time_limit: float = 5.0
    """For what is asked of the name server at once."""
    leave_limit: float = 3.0
    """For removing all records at the end."""
    longest_pause: float = 900.0
    """Records are looked at so often, however long their TTL."""
    backoff: Backoff = field(default_factory=Backoff)

    def __post_init__(self) -> None:
        if not self.zones and not self.learn:
            raise ValueError("a registrar needs zones to register for, or to learn from")
        for name in ("zones", "learn"):
            names = tuple(dict.fromkeys(host_name(each) for each in getattr(self, name)))
            object.__setattr__(self, name, names)
        for key in (*self.zone_keys, *self.retired_keys):
            if len(key) != KEY_BYTES:
                raise ValueError(f"a zone key has {KEY_BYTES} bytes, not {len(key)}")
        if len(set(self.zone_keys)) > MAX_KEYS:
            raise ValueError(f"a zone has at most {MAX_KEYS} keys: the new one and the old one")
        if set(self.zone_keys) & set(self.retired_keys):
            raise ValueError("a key is to be published and retired at once")
        if not 1 <= self.ttl <= LONGEST_TTL:
            raise ValueError(f"a TTL has 1 to {LONGEST_TTL} seconds, not {self.ttl}")
        for name in ("priority", "weight"):
            if not 0 <= getattr(self, name) <= 65_535:
                raise ValueError(f"{name} is 0 to 65535, not {getattr(self, name)}")
        for name in ("time_limit", "leave_limit", "longest_pause"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be more than 0 seconds")
        if self.take_over_after is not None and self.take_over_after <= 0:
            raise ValueError("take_over_after must be more than 0 seconds, or absent")

    def pause(self, ttl: int) -> float:
        """Between two looks at records with this TTL: one may fail before it ends."""
        return min(0.4 * ttl, 0.4 * self.ttl, self.longest_pause)


def host_name(text: str) -> str:
    """A domain name in normal form; SRV records lead from names to names."""
    try:
        host = normalise_host(text)
    except InvalidTopic as error:
        raise ValueError(str(error)) from None
    if is_address(host):
        raise ValueError(f"{shown(text)} is an address: DNS records need a name here")
    return host
