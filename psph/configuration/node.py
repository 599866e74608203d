"""What the configuration of a node may say. docs/configuration.md has every key."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from identifiers import ID_VERSION
from psirp_sim.publications.settings import PublicationSettings
from psirp_sim.rendezvous.settings import RendezvousSettings
from psirp_sim.runtime.accepting import link_name
from psirp_sim.runtime.durations import MILLISECOND
from psirp_sim.settings import FabricSettings
from psirp_sim.wire.control import MOST_LINKS
from psirp_sim.wire.data import LARGEST_PACKET
from psirp_sim.wire.sealing import FabricKeys
from psirp_sim.zfilters import SIZES, Scheme
from psph.configuration.addresses import parse_address
from psph.configuration.bootstrap import BootstrapConfiguration
from psph.configuration.chat import ChatConfiguration
from psph.configuration.dns import DnsConfiguration
from psph.configuration.hub import HubConfiguration, ProxyConfiguration
from psph.configuration.log import LogConfiguration
from psph.configuration.mobility import MobilityConfiguration
from psph.configuration.publications import PublicationConfiguration
from psph.configuration.rendezvous import RendezvousConfiguration
from psph.trace_writer import TraceSettings

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
_MAC = re.compile(r"([0-9a-f]{2}:){5}[0-9a-f]{2}")

Role = Literal["forwarder", "topology", "rendezvous", "dns", "hub", "proxy"]
FABRIC_ROLES = frozenset({"forwarder", "topology", "rendezvous", "proxy"})
ACCEPTED_BY_RENDEZVOUS = 64
"""Links a rendezvous server accepts when its configuration does not say how many."""


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
    """The node as a part of the fabric; the same at all nodes but for what is about links."""

    keys: Annotated[list[Annotated[str, Meta(min_length=8)]], Meta(min_length=1, max_length=2)]
    """The fabric's key; two while the first replaces the second."""
    link_seed: Annotated[str, Meta(min_length=1)]
    """All link ids follow from it."""
    listen: str | None = None
    """Where UDP links are heard; filled in when the file does not say."""
    link: list[LinkSettings] = []
    """At most 1,024, with those of the next two."""
    rendezvous: list[str] = []
    """Addresses of nodes that accept links: a link to each."""
    accept_links: Annotated[int, Meta(ge=0, le=MOST_LINKS)] | None = None
    """How many links others may make to this node; filled in when the file does not say."""
    hello_ms: Annotated[int, Meta(ge=10, le=60_000)] = 1_000
    m: int = 256
    k: int = 5
    d: int = 8
    largest_filter: int = 2048
    exact: bool = True
    choose: Literal["fpr", "fpa"] = "fpr"
    faults: bool = False
    """Whether links are watched and may be cut at the admin port."""

    def __post_init__(self) -> None:
        if self.listen is not None:
            parse_address(self.listen)
        for key in ("m", "largest_filter"):
            if getattr(self, key) not in SIZES:
                raise ValueError(f"{key} is one of {', '.join(map(str, SIZES))}")
        if self.m > self.largest_filter:
            raise ValueError("m is larger than largest_filter")
        Scheme(self.m, self.k, self.d)
        names = [link.name for link in self.link] + list(self.rendezvous_links())
        ends = [(link.address, link.interface, link.mac) for link in self.link]
        ends += [(address, None, None) for address in self.rendezvous]
        if len(set(names)) < len(names) or len(set(ends)) < len(ends):
            raise ValueError("two links have the same name, or lead to the same neighbour")
        if len(names) + (self.accept_links or 0) > MOST_LINKS:
            raise ValueError(f"a node has at most {MOST_LINKS} links, with those of accept_links")
        if len({link.interface is None for link in self.link}) > 1:
            raise ValueError("the links of a node are all over UDP or all Ethernet")
        if self.ethernet and (self.rendezvous or self.accept_links):
            raise ValueError("rendezvous and accept_links are for nodes whose links are over UDP")
        if self.ethernet and self.faults:
            raise ValueError("faults are for nodes whose links are over UDP")

    def filled_in(self, roles: Collection[str]) -> FabricConfiguration:
        """With what the file does not say and the roles of the node do."""
        accepts = "rendezvous" in roles and not self.ethernet
        room = MOST_LINKS - len(self.link) - len(self.rendezvous)
        most = min(ACCEPTED_BY_RENDEZVOUS, room) if accepts else 0
        # A copy: the table may be part of another configuration, too.
        return msgspec.structs.replace(
            self,
            listen=self.listen or self._listen_anywhere(roles),
            accept_links=most if self.accept_links is None else self.accept_links,
        )

    def _listen_anywhere(self, roles: Collection[str]) -> str:
        found_in_dns = "proxy" in roles and not self.link
        if not self.rendezvous and not found_in_dns:
            return "127.0.0.1:0"
        # Servers elsewhere must be reached from here; a socket of IPv6 reaches IPv4 as well.
        six = any(":" in host for host, _ in self.rendezvous_links().values())
        return "[::]:0" if six else "0.0.0.0:0"

    @property
    def ethernet(self) -> bool:
        """Whether the links are raw Ethernet frames."""
        return any(link.interface is not None for link in self.link)

    def rendezvous_links(self) -> dict[str, tuple[str, int]]:
        """The links to the addresses of `rendezvous`, by name."""
        links: dict[str, tuple[str, int]] = {}
        for index, text in enumerate(self.rendezvous):
            try:
                address = parse_address(text)
            except ValueError as error:
                raise ValueError(f"rendezvous[{index}] {error}") from error
            if address[1] == 0:
                raise ValueError(f"rendezvous[{index}] {text[:80]!r}: no link leads to port 0")
            name = link_name("rv", *address)
            if name in links:
                raise ValueError(f"rendezvous[{index}] {text[:80]!r} is named twice")
            links[name] = address
        return links

    def settings(
        self, rendezvous: RendezvousSettings, publications: PublicationSettings
    ) -> FabricSettings:
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
            rendezvous=rendezvous,
            publications=publications,
        )


class NodeConfiguration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    node: NodeSettings
    fabric: FabricConfiguration | None = None
    rendezvous: RendezvousConfiguration = RendezvousConfiguration()
    publications: PublicationConfiguration = PublicationConfiguration()
    traces: TraceSettings = TraceSettings()
    bootstrap: BootstrapConfiguration | None = None
    dns: DnsConfiguration | None = None
    hub: HubConfiguration = HubConfiguration()
    proxy: ProxyConfiguration = ProxyConfiguration()
    chat: ChatConfiguration = ChatConfiguration()
    log: LogConfiguration = LogConfiguration()
    mobility: MobilityConfiguration = MobilityConfiguration()

    def __post_init__(self) -> None:
        if "dns" in self.node.roles and self.dns is None:
            raise ValueError("a node with the role dns needs a table [dns]")
        if FABRIC_ROLES.intersection(self.node.roles) and self.fabric is None:
            raise ValueError(
                "a node with the role forwarder, topology, rendezvous or proxy needs a table"
                " [fabric]"
            )
        if "proxy" in self.node.roles and not self.publications.accept_unsigned:
            raise ValueError(
                "proxies ask each other unsigned, so a proxy needs publications.accept_unsigned;"
                " proxy.accept_unsigned says what is taken of zones without keys"
            )
        if self.fabric is not None:
            filled = self.fabric.filled_in(self.node.roles)
            msgspec.structs.force_setattr(self, "fabric", filled)
