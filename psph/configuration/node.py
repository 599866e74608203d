"""What the configuration of a node may say. docs/configuration.md has every key."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from identifiers import ID_VERSION
from psirp_sim.node import LARGEST_PACKET
from psirp_sim.runtime.durations import MILLISECOND
from psirp_sim.settings import FabricSettings
from psirp_sim.wire.control import MOST_LINKS, FabricKeys
from psirp_sim.zfilters import SIZES, Scheme
from psph.configuration.addresses import parse_address
from psph.trace_writer import TraceSettings

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
_MAC = re.compile(r"([0-9a-f]{2}:){5}[0-9a-f]{2}")

Role = Literal["forwarder", "topology"]
FABRIC_ROLES = frozenset({"forwarder", "topology"})


def _check_name(key: str, value: str) -> None:
    if not _NAME.fullmatch(value):
        raise ValueError(
            f"{key} {value[:80]!r} must be 1 to 63 lower-case letters, digits, '-' and '.'"
        )


class NodeSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who the node is."""

    name: str
    """Unique among all nodes that talk to each other; traces, logs and metrics carry it."""
    domain: str
    """The domain it belongs to, such as site-a.test."""
    roles: list[Role] = []
    """What it does."""
    data: str = "data"
    """The directory of everything it keeps; relative to the configuration file."""
    power_safe: bool = False
    """Whether what it keeps must survive a power failure, and not only the process."""
    admin: str = "127.0.0.1:0"
    """Where it serves /healthz, /metrics and /fabric; port 0 lets the system choose."""

    def __post_init__(self) -> None:
        _check_name("name", self.name)
        _check_name("domain", self.domain)
        parse_address(self.admin)
        if "\0" in self.data:
            raise ValueError("data is no path: it has a null character in it")


class LinkSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A link to a neighbour: over UDP to an address, or as Ethernet frames to a MAC address."""

    name: str
    address: str | None = None
    interface: str | None = None
    mac: str | None = None
    mtu: Annotated[int, Meta(ge=LARGEST_PACKET, le=65_507)] | None = None

    def __post_init__(self) -> None:
        _check_name("name", self.name)
        if self.address is not None and self.interface is None and self.mac is None:
            if parse_address(self.address)[1] == 0:
                raise ValueError("a link leads to a port, and 0 is none")
        elif self.address is not None or self.interface is None or self.mac is None:
            raise ValueError("a link has an address, or an interface and a mac")
        elif not _MAC.fullmatch(self.mac):
            raise ValueError(f"{self.mac[:40]!r} is no MAC address: write 02:00:00:00:00:01")


class FabricConfiguration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The node as a part of the fabric; the same at all nodes but for `listen` and `link`."""

    keys: Annotated[list[Annotated[str, Meta(min_length=8)]], Meta(min_length=1, max_length=2)]
    """The fabric's key; two while the first replaces the second."""
    link_seed: Annotated[str, Meta(min_length=1)]
    """All link ids follow from it."""
    listen: str = "127.0.0.1:0"
    """Where UDP links are heard."""
    link: list[LinkSettings] = []
    """At most 1,024."""
    hello_ms: Annotated[int, Meta(ge=10, le=60_000)] = 1_000
    m: int = 256
    k: int = 5
    d: int = 8
    largest_filter: int = 2048
    exact: bool = True
    choose: Literal["fpr", "fpa"] = "fpr"

    def __post_init__(self) -> None:
        parse_address(self.listen)
        for key in ("m", "largest_filter"):
            if getattr(self, key) not in SIZES:
                raise ValueError(f"{key} is one of {', '.join(map(str, SIZES))}")
        if self.m > self.largest_filter:
            raise ValueError("m is larger than largest_filter")
        Scheme(self.m, self.k, self.d)
        names = [link.name for link in self.link]
        ends = [(link.address, link.interface, link.mac) for link in self.link]
        if len(set(names)) < len(names) or len(set(ends)) < len(ends):
            raise ValueError("two links have the same name, or lead to the same neighbour")
        if len(names) > MOST_LINKS:
            raise ValueError(f"a node has at most {MOST_LINKS} links")
        if len({link.interface is None for link in self.link}) > 1:
            raise ValueError("the links of a node are all over UDP or all Ethernet")

    def settings(self) -> FabricSettings:
        """As the cores want it."""
        return FabricSettings(
            keys=FabricKeys(*self.keys),
            link_seed=self.link_seed.encode(),
            scheme=Scheme(self.m, self.k, self.d),
            hello_interval=self.hello_ms * MILLISECOND,
            allow_exact=self.exact,
            largest_filter=self.largest_filter,
            table_choice=self.choose,
            id_version=str(ID_VERSION),
        )


class NodeConfiguration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    node: NodeSettings
    fabric: FabricConfiguration | None = None
    traces: TraceSettings = TraceSettings()

    def __post_init__(self) -> None:
        if FABRIC_ROLES.intersection(self.node.roles) and self.fabric is None:
            raise ValueError("a node with the role forwarder or topology needs a table [fabric]")
