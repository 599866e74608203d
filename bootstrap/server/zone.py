"""A zone at one moment: an immutable value, so that an answer or a transfer sees one version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import dns.exception
import dns.name
import dns.rdata
import dns.rdataclass
import dns.rdataset
import dns.rdatatype
import dns.rdtypes.ANY.SOA
import dns.zonefile
from dns.name import Name
from dns.rdata import Rdata
from dns.rdataset import ImmutableRdataset, Rdataset
from dns.rdatatype import CNAME, NS, SOA, RdataType

LARGEST_SET = 32_768
"""Bytes of the records of one name and type: they have to fit into one answer over TCP."""
UNSUPPORTED = frozenset(
    RdataType.make(name)
    for name in ("DNAME", "RRSIG", "NSEC", "NSEC3", "NSEC3PARAM", "DNSKEY", "SIG", "NXT", "KEY")
)
"""Types that would change how other names are answered: no DNSSEC, no DNAME here."""

Node = Mapping[RdataType, ImmutableRdataset]
"""The records of one name, by type."""


class BadZone(ValueError):
    """A zone that cannot be served; the message says which record and why."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record; names in it are absolute."""

    name: Name
    ttl: int
    rdata: Rdata

    def __str__(self) -> str:
        kind = dns.rdatatype.to_text(self.rdata.rdtype)
        return f"{self.name.to_text(True)} {self.ttl} {kind} {self.rdata.to_text()}"


def origin_of(text: str) -> Name:
    """The name of a zone as people write it."""
    try:
        return dns.name.from_text(text)
    except (dns.exception.DNSException, UnicodeError) as error:
        raise BadZone(f"{text[:80]!r} is no name of a zone: {error}") from error


def newer(serial: int, other: int) -> bool:
    """Whether a serial comes after another in the arithmetic of RFC 1982."""
    return 0 < (serial - other) % 2**32 < 2**31


def next_serial(serial: int) -> int:
    """The one after it; 0 is left out, because some take it for "no serial"."""
    return (serial + 1) % 2**32 or 1


class Zone:
    """Names are absolute and compared without regard to case; their case is kept."""

    def __init__(
        self,
        origin: Name,
        nodes: Mapping[Name, Node],
        cuts: frozenset[Name],
        below: Mapping[Name, int],
        count: int,
    ) -> None:
        """For `Zone.of` and `with_nodes`."""
        self.origin = origin
        self.nodes = nodes
        self._cuts = cuts
        """Names that are delegated to others."""
        self._below = below
        """How many names with records are below a name: it exists, even with none of its own."""
        self.count = count
        """Records."""

    @classmethod
    def of(cls, origin: Name, records: Iterable[Record]) -> Zone:
        """A zone with these records; raises BadZone unless it has one SOA and a name server."""
        nodes: dict[Name, dict[RdataType, Rdataset]] = {}
        for record in records:
            _check(origin, record)
            node = nodes.setdefault(record.name, {})
            if record.rdata.rdtype in (SOA, CNAME) and record.rdata.rdtype in node:
                raise BadZone(f"{record.name} has two records of a type that allows one")
            add_to(node, record)
        zone = cls(origin, {}, frozenset(), {}, 0).with_nodes(
            {name: freeze(node) for name, node in nodes.items()}
        )
        apex = zone.nodes.get(origin, {})
        if SOA not in apex or NS not in apex:
            lacking = "SOA" if SOA not in apex else "NS"
            raise BadZone(f"the zone {origin} has no {lacking} record of its own: add one for @")
        for name, fixed in zone.nodes.items():
            if CNAME in fixed and len(fixed) > 1:
                raise BadZone(f"{name} has a CNAME record, and so it can have no other")
        return zone

    def with_nodes(self, changed: Mapping[Name, Node]) -> Zone:
        """A copy in which these names have these records; an empty node takes the name out."""
        nodes, below, count = dict(self.nodes), dict(self._below), self.count
        for name, node in changed.items():
            old = nodes.get(name)
            count += _size(node) - _size(old or {})
            if node:
                nodes[name] = node  # under the spelling it has, if it is there
            else:
                nodes.pop(name, None)
            if (old is None) != (not node):
                for ancestor in self._between(name):
                    below[ancestor] = below.get(ancestor, 0) + (1 if node else -1)
                    if not below[ancestor]:
                        del below[ancestor]
        cuts = {name for name, node in changed.items() if NS in node} - {self.origin}
        return Zone(
            self.origin,
            MappingProxyType(nodes),
            (self._cuts - changed.keys()) | cuts,
            MappingProxyType(below),
            count,
        )

    def _between(self, name: Name) -> Iterator[Name]:
        """The ancestors of a name, from its parent to the origin."""
        while len(name) > len(self.origin):
            name = name.parent()
            yield name

    def node(self, name: Name) -> Node | None:
        """The records of a name."""
        return self.nodes.get(name)

    def exists(self, name: Name) -> bool:
        """Whether a name has records, or a name below it has."""
        return name in self.nodes or name in self._below

    def cut(self, name: Name) -> Name | None:
        """The delegation a name is at or below: the highest name with NS records under the apex."""
        if not self._cuts:
            return None
        found = [each for each in (name, *self._between(name)) if each in self._cuts]
        return found[-1] if found else None

    def wildcard(self, name: Name) -> Node | None:
        """What a name that does not exist gets from the wildcard of its closest ancestor
        (RFC 4592)."""
        for ancestor in self._between(name):
            if self.exists(ancestor):
                return self.nodes.get(dns.name.Name((b"*", *ancestor.labels)))
        return None

    @cached_property
    def soa(self) -> ImmutableRdataset:
        return self.nodes[self.origin][SOA]

    @property
    def serial(self) -> int:
        return soa_of(self.soa).serial

    @cached_property
    def negative(self) -> ImmutableRdataset:
        """The SOA as it goes with "there is no such thing", which may be kept that long
        (RFC 2308)."""
        lasting = min(self.soa.ttl, soa_of(self.soa).minimum)
        return ImmutableRdataset(dns.rdataset.from_rdata(lasting, self.soa[0]))

    def with_serial(self, serial: int) -> Zone:
        """A copy with another serial."""
        apex = self.nodes[self.origin]
        rdata = soa_of(self.soa).replace(serial=serial)
        changed = ImmutableRdataset(dns.rdataset.from_rdata(self.soa.ttl, rdata))
        return self.with_nodes({self.origin: {**apex, SOA: changed}})

    def records(self) -> Iterator[Record]:
        """All of them, the SOA first."""
        yield Record(self.origin, self.soa.ttl, self.soa[0])
        for name, node in self.nodes.items():
            for kind, rdataset in node.items():
                if kind != SOA:
                    for rdata in rdataset:
                        yield Record(name, rdataset.ttl, rdata)


def soa_of(rdataset: Sequence[Rdata] | Rdataset) -> dns.rdtypes.ANY.SOA.SOA:
    """The data of a SOA record."""
    rdata = rdataset[0]
    assert isinstance(rdata, dns.rdtypes.ANY.SOA.SOA)
    return rdata


def add_to(node: dict[RdataType, Rdataset], record: Record) -> None:
    """Add a record; all of one type have the TTL of the last (RFC 2181 5.2)."""
    kind = record.rdata.rdtype
    rdataset = node.get(kind)
    if rdataset is None:
        rdataset = node[kind] = Rdataset(dns.rdataclass.IN, kind)
    rdataset.add(record.rdata)
    rdataset.ttl = record.ttl


def thaw(node: Node) -> dict[RdataType, Rdataset]:
    """A copy of the node that can be changed."""
    return {kind: dns.rdataset.from_rdata_list(each.ttl, list(each)) for kind, each in node.items()}


def freeze(node: Mapping[RdataType, Rdataset]) -> Node:
    """The node as a value."""
    return MappingProxyType(
        {
            kind: each if isinstance(each, ImmutableRdataset) else ImmutableRdataset(each)
            for kind, each in node.items()
        }
    )


def too_large(rdataset: Rdataset) -> bool:
    """Whether the records of one name and type would not fit into an answer."""
    return sum(len(rdata.to_wire() or b"") + 12 for rdata in rdataset) > LARGEST_SET


def parse_record(origin: Name, line: str) -> Record:
    """One line of a master file, such as `www 300 IN A 192.0.2.1`; without a TTL it has 300."""
    said = f"the record {line[:100]!r} of the zone {origin}"
    if "\n" in line or not line.strip() or line[0] in " \t;$(":
        raise BadZone(f"{said} must be one line that begins with a name, or with @")
    try:
        rrsets = dns.zonefile.read_rrsets(line, rdclass=None, default_ttl=300, origin=origin)
    except (dns.exception.DNSException, ValueError) as error:
        raise BadZone(f"{said} cannot be read: {str(error) or type(error).__name__}") from error
    if not rrsets:  # which is how the reader takes what does not belong there
        raise BadZone(f"{said} is not in the zone, or not NAME TTL IN TYPE DATA")
    record = Record(rrsets[0].name, rrsets[0].ttl, rrsets[0][0])
    _check(origin, record)
    return record


def parse_zone(origin: Name, lines: Iterable[str]) -> Zone:
    """The zone of a configuration."""
    return Zone.of(origin, [parse_record(origin, line) for line in lines])


def _check(origin: Name, record: Record) -> None:
    kind = record.rdata.rdtype
    if not record.name.is_subdomain(origin):
        raise BadZone(f"{record.name} is not in the zone {origin}")
    if kind == SOA and record.name != origin:
        raise BadZone(f"{record.name} has a SOA record, but only {origin} itself may have one")
    if kind == NS and record.name.is_wild():
        raise BadZone(f"{record.name}: a wildcard cannot be delegated")
    if kind in UNSUPPORTED or dns.rdatatype.is_metatype(kind):
        raise BadZone(f"{record.name}: {dns.rdatatype.to_text(kind)} records are not supported")


def _size(node: Node) -> int:
    return sum(len(rdataset) for rdataset in node.values())
