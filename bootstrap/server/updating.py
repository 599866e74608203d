"""Dynamic update (RFC 2136): what must hold before, and what changes, all of it or nothing."""

from __future__ import annotations

from dataclasses import dataclass

import dns.rcode
import dns.rdataclass
import dns.rdatatype
from dns.name import Name
from dns.rdata import Rdata
from dns.rdataclass import ANY as ANY_CLASS
from dns.rdataclass import IN
from dns.rdataclass import NONE as NO_CLASS
from dns.rdataset import Rdataset
from dns.rdatatype import ANY, CNAME, NS, SOA, RdataType

from bootstrap.server.reading import Malformed, Outline, Request
from bootstrap.server.zone import (
    UNSUPPORTED,
    Node,
    Record,
    Zone,
    add_to,
    freeze,
    newer,
    next_serial,
    soa_of,
    thaw,
    too_large,
)

_LONGEST_TTL = 2**31 - 1


class Denied(Exception):
    """The update does not happen; the rcode says it to the client, the text to the operator."""

    def __init__(self, rcode: int, reason: str) -> None:
        super().__init__(reason)
        self.rcode = rcode


@dataclass(frozen=True, slots=True)
class Change:
    """What an update makes of a zone."""

    before: Zone
    after: Zone
    names: frozenset[Name]
    """Those whose records differ."""
    done: tuple[str, ...]
    """What was done, for the log."""


def decide(zone: Zone, request: Request, most_records: int) -> Change | None:
    """What an authorised update does; None when it changes nothing. Raises Denied or Malformed."""
    _check_prerequisites(zone, request)
    return _Edit(zone, request, most_records).result()


def _check_prerequisites(zone: Zone, request: Request) -> None:
    """RFC 2136 3.2."""
    expected: dict[tuple[Name, RdataType], set[Rdata]] = {}
    for outline in request.sections[0]:
        name = request.name(outline)
        if outline.ttl:
            raise Malformed("a prerequisite with a TTL")
        if not name.is_subdomain(zone.origin):
            raise Denied(dns.rcode.NOTZONE, f"{name} is not in the zone")
        node = zone.node(name) or {}
        kind = RdataType.make(outline.kind)
        if outline.rdclass == IN:
            if dns.rdatatype.is_metatype(kind):
                raise Malformed("a prerequisite of no type of data")
            expected.setdefault((name, kind), set()).add(request.rdata(outline, IN))
            continue
        if outline.length:
            raise Malformed("a prerequisite with data")
        holds = bool(node) if kind == ANY else kind in node
        shown = f"{name} {dns.rdatatype.to_text(kind)}"
        if outline.rdclass == ANY_CLASS:
            if not holds:
                rcode = dns.rcode.NXDOMAIN if kind == ANY else dns.rcode.NXRRSET
                raise Denied(rcode, f"{shown} does not exist")
        elif outline.rdclass == NO_CLASS:
            if holds:
                rcode = dns.rcode.YXDOMAIN if kind == ANY else dns.rcode.YXRRSET
                raise Denied(rcode, f"{shown} exists")
        else:
            raise Malformed("a prerequisite of another class")
    for (name, kind), rdatas in expected.items():
        if set((zone.node(name) or {}).get(kind, ())) != rdatas:
            shown = f"{name} {dns.rdatatype.to_text(kind)}"
            raise Denied(dns.rcode.NXRRSET, f"{shown} is not what was expected")


class _Edit:
    """RFC 2136 3.4, on copies of the nodes it touches."""

    def __init__(self, zone: Zone, request: Request, most_records: int) -> None:
        self._zone = zone
        self._most_records = most_records
        self._nodes: dict[Name, dict[RdataType, Rdataset]] = {}
        self._done: list[str] = []
        steps = [self._read(request, outline) for outline in request.sections[1]]
        for name, outline, rdata in steps:
            self._apply(name, outline, rdata)

    def _read(self, request: Request, outline: Outline) -> tuple[Name, Outline, Rdata | None]:
        """The checks that come before the first change (3.4.1)."""
        name = request.name(outline)
        if not name.is_subdomain(self._zone.origin):
            raise Denied(dns.rcode.NOTZONE, f"{name} is not in the zone")
        kind, rdata = RdataType.make(outline.kind), None
        if outline.rdclass == ANY_CLASS:
            if outline.ttl or outline.length:
                raise Malformed("a removal with a TTL or with data")
            if dns.rdatatype.is_metatype(kind) and kind != ANY:
                raise Malformed("a removal of no type of data")
        elif outline.rdclass in (IN, NO_CLASS):
            if dns.rdatatype.is_metatype(kind) or (outline.rdclass == NO_CLASS and outline.ttl):
                raise Malformed("no type of data, or a removal with a TTL")
            if kind in UNSUPPORTED and outline.rdclass == IN:
                text = f"{dns.rdatatype.to_text(kind)} records are not supported"
                raise Denied(dns.rcode.REFUSED, text)
            rdata = request.rdata(outline, IN)
        else:
            raise Malformed("a change of another class")
        return name, outline, rdata

    def _apply(self, name: Name, outline: Outline, rdata: Rdata | None) -> None:
        """One change (3.4.2). Those that would make the zone senseless are ignored, as the RFC
        says."""
        node = self._node(name)
        kind = RdataType.make(outline.kind)
        if rdata is None:
            self._remove_sets(name, node, kind)
        elif outline.rdclass == NO_CLASS:
            self._remove(name, node, rdata)
        else:
            ttl = outline.ttl if outline.ttl <= _LONGEST_TTL else 0  # RFC 2181 8
            self._add(node, Record(name, ttl, rdata))

    def _node(self, name: Name) -> dict[RdataType, Rdataset]:
        if name not in self._nodes:
            self._nodes[name] = thaw(self._zone.node(name) or {})
        return self._nodes[name]

    def _add(self, node: dict[RdataType, Rdataset], record: Record) -> None:
        kind = record.rdata.rdtype
        if kind == SOA:
            # Only the zone's own, and only forward.
            old = node.get(SOA)
            if old is None or not newer(soa_of([record.rdata]).serial, soa_of(old).serial):
                return
        elif kind == CNAME:
            if any(other != CNAME for other in node):
                return
        elif CNAME in node or (kind == NS and record.name.is_wild()):  # RFC 4592 4.2
            return
        old = node.get(kind)
        if old is not None and record.rdata in old and old.ttl == record.ttl:
            return
        if kind in (SOA, CNAME):
            node.pop(kind, None)
        add_to(node, record)
        if too_large(node[kind]):
            shown = f"{record.name} {dns.rdatatype.to_text(kind)}"
            raise Denied(dns.rcode.REFUSED, f"the records of {shown} fit into no answer any more")
        self._done.append(f"added {record}")

    def _remove_sets(self, name: Name, node: dict[RdataType, Rdataset], kind: RdataType) -> None:
        """All records of a type, or of all; the apex keeps what makes it one."""
        for each in list(node) if kind == ANY else [kind]:
            if each not in node or (name == self._zone.origin and each in (SOA, NS)):
                continue
            del node[each]
            self._done.append(f"removed {name.to_text(True)} {dns.rdatatype.to_text(each)}")

    def _remove(self, name: Name, node: dict[RdataType, Rdataset], rdata: Rdata) -> None:
        kind = rdata.rdtype
        rdataset = node.get(kind)
        if kind == SOA or rdataset is None or rdata not in rdataset:
            return
        if kind == NS and name == self._zone.origin and len(rdataset) == 1:
            return
        record = Record(name, rdataset.ttl, rdata)
        rdataset.discard(rdata)  # type: ignore[no-untyped-call]
        if not rdataset:
            del node[kind]
        self._done.append(f"removed {record}")

    def result(self) -> Change | None:
        zone = self._zone
        nodes = {name: freeze(node) for name, node in self._nodes.items()}
        changed = {name: node for name, node in nodes.items() if _differs(zone.node(name), node)}
        if not changed:
            return None
        after = zone.with_nodes(changed)
        if after.count > max(self._most_records, zone.count):
            text = (
                f"the zone would have {after.count} records, and {self._most_records} is the most"
            )
            raise Denied(dns.rcode.REFUSED, text)
        if after.serial == zone.serial:
            after = after.with_serial(next_serial(zone.serial))
        names = frozenset(changed) | {zone.origin}
        return Change(zone, after, names, tuple(self._done))


def _differs(old: Node | None, new: Node) -> bool:
    """Equal sets of records with another TTL differ, too."""
    old = old or {}
    return old.keys() != new.keys() or any(
        old[kind] != new[kind] or old[kind].ttl != new[kind].ttl for kind in new
    )
