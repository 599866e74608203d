"""What a zone answers to a question."""

from __future__ import annotations

import dns.rcode
import dns.rdatatype
from dns.name import Name
from dns.rdataset import Rdataset
from dns.rdatatype import AAAA, ANY, CNAME, DS, MX, NS, SOA, SRV, A

from bootstrap.server.writing import Response
from bootstrap.server.zone import Node, Zone

MOST_CNAMES = 16
"""That are followed for one answer."""


def answer(zone: Zone, response: Response) -> None:
    """Fill in the response to its question, whose name is in the zone."""
    assert response.question is not None
    name, kind = response.question.name, response.question.kind
    response.authoritative = True
    seen: set[Name] = set()
    while name.is_subdomain(zone.origin):
        cut = zone.cut(name)
        # What a parent says of the keys of a child stands at the cut, on our side of it.
        if cut is not None and not (cut == name and kind == DS):
            _refer(zone, response, cut)
            return
        node = zone.node(name)
        if node is None and not zone.exists(name):
            node = zone.wildcard(name)
            if node is None:
                response.rcode = dns.rcode.NXDOMAIN
        alias = (node or {}).get(CNAME)
        if node is None or alias is None or kind in (CNAME, ANY):
            _take(zone, response, name, node or {}, kind)
            return
        response.answer.append((name, alias))
        seen.add(name)
        name = alias[0].target
        if name in seen or len(seen) >= MOST_CNAMES:
            return


def _take(zone: Zone, response: Response, name: Name, node: Node, kind: int) -> None:
    """The records of a name, or that there are none of that type."""
    found: Rdataset | None
    if kind == ANY:
        # One set is enough (RFC 8482): all of them would serve only those who flood others.
        found = min(node.values(), key=len, default=None)
    else:
        found = node.get(dns.rdatatype.RdataType.make(kind))
    if found is None:
        response.authority.append((zone.origin, zone.negative))
        return
    response.answer.append((name, found))
    if kind in (SRV, NS, MX):
        _add_addresses(zone, response, found)


def _refer(zone: Zone, response: Response, cut: Name) -> None:
    """Those who know more are elsewhere; where their names are below the cut, so are their
    addresses known only here."""
    servers = zone.nodes[cut][NS]
    response.authoritative = bool(response.answer)  # for the alias that led here
    response.authority.append((cut, servers))
    response.glue = True
    _add_addresses(zone, response, servers)


def _add_addresses(zone: Zone, response: Response, pointing: Rdataset) -> None:
    added = {name for name, _ in response.additional}
    for rdata in pointing:
        target = rdata.exchange if rdata.rdtype == MX else rdata.target
        node = zone.node(target)
        if node is None or target in added or (not response.glue and zone.cut(target) is not None):
            continue
        added.add(target)
        response.additional += [(target, node[kind]) for kind in (A, AAAA) if kind in node]


def serial_only(zone: Zone, response: Response) -> None:
    """The SOA alone: enough for who has this version already, or who must come again over TCP."""
    response.authoritative = True
    response.answer.append((zone.origin, zone.nodes[zone.origin][SOA]))
