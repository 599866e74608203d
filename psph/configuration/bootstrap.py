"""The name system as a node's configuration has it: whom to ask, and what to register."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import Meta

from bootstrap.errors import BootstrapError
from bootstrap.records import MAX_KEYS
from bootstrap.registration import RegistrarSettings, TsigKey, tsig, zone_key
from bootstrap.registration.settings import LONGEST_TTL, Target, host_name
from psph.configuration.addresses import parse_address
from psph.configuration.loading import ConfigurationError

_FOR_UPDATES = (
    "zones", "learn", "endpoint", "rendezvous", "tsig", "tsig_file", "retired_keys",
    "take_over_after_s",
)  # fmt: skip


class TsigConfiguration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A TSIG key in the file itself; the file is then a secret, too."""

    name: str
    secret: str
    algorithm: str = "hmac-sha256"

    def __post_init__(self) -> None:
        self.key()

    def key(self) -> TsigKey:
        return TsigKey.parse(self.name, self.secret, self.algorithm)


class BootstrapConfiguration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing is registered unless `update_server` is set."""

    nameservers: list[str] = []
    """Whom to ask; the system's when there are none."""
    update_server: str | None = None
    """The primary server of the zones."""
    zones: list[str] = []
    learn: list[str] = []
    endpoint: str | None = None
    """Where others reach this PSPH."""
    rendezvous: list[str] = []
    """Where others reach this node's rendezvous server."""
    tsig: TsigConfiguration | None = None
    tsig_file: str | None = None
    zone_key_files: Annotated[list[str], Meta(max_length=MAX_KEYS)] = []
    """The first signs; the other is published, too, while one replaces the other."""
    retired_keys: list[str] = []
    ttl_s: Annotated[int, Meta(ge=1, le=LONGEST_TTL)] = 300
    priority: Annotated[int, Meta(ge=0, le=65_535)] = 0
    weight: Annotated[int, Meta(ge=0, le=65_535)] = 10
    take_over_after_s: Annotated[float, Meta(ge=1, le=30 * 86_400)] | None = None

    def __post_init__(self) -> None:
        for server in (*self.nameservers, *filter(None, [self.update_server])):
            if parse_address(server)[1] == 0:
                raise ValueError(f"{server[:80]!r}: a name server has a port, and 0 is none")
        for name in (*self.zones, *self.learn):
            host_name(name)
        for text in (*self.rendezvous, *filter(None, [self.endpoint])):
            Target(*parse_address(text))
        for text in self.retired_keys:
            zone_key.parse_public(text)
        for path in (*self.zone_key_files, self.tsig_file or ""):
            if "\0" in path:
                raise ValueError("a key file is no path: it has a null character in it")
        if self.update_server is None:
            for key in _FOR_UPDATES:
                if getattr(self, key):
                    raise ValueError(f"{key} is for registering, which needs update_server")
        else:
            self._check_registering()

    def _check_registering(self) -> None:
        if self.endpoint is None:
            raise ValueError("update_server needs endpoint: where others reach this PSPH")
        if not self.zones and not self.learn:
            raise ValueError("update_server needs zones, or learn: what to register for")
        if (self.tsig is None) == (self.tsig_file is None):
            raise ValueError("update_server needs a TSIG key: either tsig or tsig_file")

    def check_files(self, directory: Path) -> None:
        """ConfigurationError when a key file cannot be used."""
        self.signing_key(directory)
        self.registrar_settings(directory)

    def signing_key(self, directory: Path) -> Ed25519PrivateKey | None:
        """The private key of the zone that signs; None where there is none."""
        if not self.zone_key_files:
            return None
        try:
            return zone_key.load(directory / self.zone_key_files[0]).private
        except (BootstrapError, ValueError) as error:
            raise ConfigurationError(f"bootstrap: {error}") from None

    def private_keys(self, directory: Path) -> list[Ed25519PrivateKey]:
        """All private keys of the zone: the one that signs, and the one it replaces."""
        try:
            keys = [zone_key.load(directory / each).private for each in self.zone_key_files]
        except (BootstrapError, ValueError) as error:
            raise ConfigurationError(f"bootstrap: {error}") from None
        return [each for each in keys if each is not None]

    def registrar_settings(self, directory: Path) -> RegistrarSettings | None:
        """As a Registrar wants it; None where nothing is to be registered.

        Reads the key files, which are relative to the directory.
        """
        if self.update_server is None:
            return None
        assert self.endpoint is not None
        try:
            if self.tsig is not None:
                key = self.tsig.key()
            else:
                assert self.tsig_file is not None
                key = tsig.load(directory / self.tsig_file)
            public = [zone_key.load(directory / each).public for each in self.zone_key_files]
            return RegistrarSettings(
                nameserver=parse_address(self.update_server),
                key=key,
                target=Target(*parse_address(self.endpoint)),
                zones=tuple(self.zones),
                learn=tuple(self.learn),
                rendezvous=tuple(Target(*parse_address(each)) for each in self.rendezvous),
                zone_keys=tuple(public),
                retired_keys=tuple(zone_key.parse_public(each) for each in self.retired_keys),
                ttl=self.ttl_s,
                priority=self.priority,
                weight=self.weight,
                take_over_after=self.take_over_after_s,
            )
        except (BootstrapError, ValueError) as error:
            raise ConfigurationError(f"bootstrap: {error}") from None
