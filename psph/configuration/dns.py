"""The name server as a node's configuration has it."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from bootstrap.server.settings import Key, Limits, ServerSettings, ZoneSettings
from bootstrap.server.zone import BadZone, origin_of, parse_zone
from psph.configuration.addresses import parse_address

_LIMITS = Limits()
_SHORTEST_SECRET = 16

Algorithm = Literal["hmac-sha224", "hmac-sha256", "hmac-sha384", "hmac-sha512"]


class DnsKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A TSIG key: a secret shared with those who may transfer or update zones."""

    name: str
    secret: str
    """In base64, as BIND and dig write it."""
    algorithm: Algorithm = "hmac-sha256"

    def __post_init__(self) -> None:
        origin_of(self.name)
        self.settings()

    def settings(self) -> Key:
        """As the server wants it."""
        try:
            secret = base64.b64decode(self.secret, validate=True)
        except (binascii.Error, ValueError) as error:
            raise ValueError(f"the secret of the key {self.name[:80]!r} is not base64") from error
        if len(secret) < _SHORTEST_SECRET:
            raise ValueError(
                f"the secret of the key {self.name[:80]!r} has {len(secret)} bytes:"
                f" at least {_SHORTEST_SECRET}"
            )
        return Key(self.name, secret, self.algorithm)


class DnsZone(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A zone that is served."""

    origin: str
    records: list[str]
    """Lines of a master file, relative to the origin; one SOA and one NS at least."""
    transfer: list[str] = []
    """Names of the keys that may have all of it (AXFR)."""
    update: list[str] = []
    """Names of the keys that may change it (RFC 2136)."""

    def __post_init__(self) -> None:
        parse_zone(origin_of(self.origin), self.records)

    def settings(self) -> ZoneSettings:
        """As the server wants it."""
        return ZoneSettings(
            self.origin, tuple(self.records), tuple(self.transfer), tuple(self.update)
        )


class DnsConfiguration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The name server: its zones, and who may do what."""

    zone: list[DnsZone]
    listen: Annotated[list[str], Meta(min_length=1)] = msgspec.field(
        default_factory=lambda: ["127.0.0.1:0"]
    )
    """Each for UDP and TCP."""
    key: list[DnsKey] = []
    most_records: Annotated[int, Meta(ge=1, le=10_000_000)] = _LIMITS.records
    most_connections: Annotated[int, Meta(ge=1, le=100_000)] = _LIMITS.connections
    most_connections_per_client: Annotated[int, Meta(ge=1, le=100_000)] = (
        _LIMITS.connections_per_client
    )
    idle_s: Annotated[int, Meta(ge=1, le=3_600)] = int(_LIMITS.idle)
    connection_s: Annotated[int, Meta(ge=1, le=86_400)] = int(_LIMITS.connection)
    answers_per_second: Annotated[int, Meta(ge=1, le=10_000_000)] = _LIMITS.answers_per_second

    def __post_init__(self) -> None:
        for address in self.listen:
            parse_address(address)
        if not self.zone:
            raise ValueError("a name server without a zone: add a table [[dns.zone]]")
        origins = [origin_of(zone.origin) for zone in self.zone]
        keys = [origin_of(key.name) for key in self.key]
        if len(set(origins)) < len(origins) or len(set(keys)) < len(keys):
            raise ValueError("two zones have the same origin, or two keys the same name")
        for zone in self.zone:
            for name in (*zone.transfer, *zone.update):
                if origin_of(name) not in keys:
                    raise BadZone(
                        f"the zone {zone.origin} gives rights to the key {name[:80]!r}, which is"
                        " not there: add a table [[dns.key]] for it"
                    )

    def settings(self) -> ServerSettings:
        """As the server wants it."""
        return ServerSettings(
            zones=tuple(zone.settings() for zone in self.zone),
            listen=tuple(parse_address(address) for address in self.listen),
            keys=tuple(key.settings() for key in self.key),
            limits=Limits(
                records=self.most_records,
                connections=self.most_connections,
                connections_per_client=self.most_connections_per_client,
                idle=self.idle_s,
                connection=self.connection_s,
                answers_per_second=self.answers_per_second,
            ),
        )
