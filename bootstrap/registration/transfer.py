"""Zone transfer (AXFR, RFC 5936): what a PSPH learns about the zones it may answer for."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import dns.exception
import dns.message
import dns.name
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.tsig
import dns.xfr
import dns.zone

from bootstrap.errors import NameServerFailed
from bootstrap.registration.exchange import Connection
from bootstrap.registration.tsig import TsigKey
from identifiers import InvalidTopic, is_address, normalise_host, zone_of_host

MOST_BYTES = 32 << 20
MOST_RECORDS = 200_000
"""A zone beyond either is not for learning hosts from."""
_ADDRESSES = (dns.rdatatype.A, dns.rdatatype.AAAA, dns.rdatatype.CNAME)


@dataclass(frozen=True, slots=True)
class Transferred:
    """A zone as it was at one serial."""

    origin: dns.name.Name
    serial: int
    zone: dns.zone.Zone

    def hosts(self) -> tuple[str, ...]:
        """Hosts with an address or an alias, in normal form and order.

        What lies below a delegation is another zone's. Wildcards are no hosts, and names with an
        underscore in front belong to services.
        """
        cuts = {
            name
            for name, node in self.zone.nodes.items()
            if name != self.origin
            and node.get_rdataset(dns.rdataclass.IN, dns.rdatatype.NS) is not None
        }
        found = set()
        for name, node in self.zone.nodes.items():
            if any(label.startswith((b"_", b"*")) for label in name.labels):
                continue
            if not any(node.get_rdataset(dns.rdataclass.IN, kind) for kind in _ADDRESSES):
                continue
            if cuts and self._below(name, cuts):
                continue
            try:
                host = normalise_host(name.to_text(omit_final_dot=True))
            except InvalidTopic:
                continue
            if not is_address(host):
                found.add(host)
        return tuple(sorted(found))

    def _below(self, name: dns.name.Name, cuts: set[dns.name.Name]) -> bool:
        while name != self.origin and len(name) > len(self.origin):
            if name in cuts:
                return True
            name = name.parent()
        return False


def zones_of(origin: str, hosts: tuple[str, ...]) -> tuple[str, ...]:
    """Where a PSPH registers for hosts of a DNS zone: the zones they are in, as far as the DNS
    zone has them, else the DNS zone itself."""
    found = set()
    for host in hosts:
        zone = zone_of_host(host)
        inside = zone == origin or zone.endswith(f".{origin}")
        found.add(zone if inside else origin)
    return tuple(sorted(found))


async def transfer(connection: Connection, zone: str, time_limit: float) -> Transferred:
    """All of a zone; Refused when the key may not have it."""
    origin = dns.name.from_text(f"{zone}.")
    question = dns.message.make_query(origin, dns.rdatatype.AXFR, flags=0)
    with connection.failures():
        async with asyncio.timeout(time_limit):
            await connection.send(question)
            result = await _receive(connection, question, origin)
    soa = result.get_soa()
    return Transferred(origin, int(soa.serial), result)


async def learn_hosts(
    server: tuple[str, int], key: TsigKey, zone: str, *, time_limit: float = 30.0
) -> tuple[str, ...]:
    """The hosts of a zone that have an A, AAAA or CNAME record."""
    async with Connection(server, key, time_limit) as connection:
        return (await transfer(connection, zone, time_limit)).hosts()


async def _receive(
    connection: Connection, question: dns.message.Message, origin: dns.name.Name
) -> dns.zone.Zone:
    zone = dns.zone.Zone(origin, relativize=False)
    size = records = 0
    first, signing = True, None
    with dns.xfr.Inbound(zone, dns.rdatatype.AXFR) as inbound:
        while True:
            wire = await connection.receive()
            answer = dns.message.from_wire(
                wire,
                keyring=question.keyring,
                request_mac=question.mac,
                xfr=True,
                origin=None,
                tsig_ctx=signing,
                multi=True,
            )
            if first:
                _check(connection, origin, answer)
            size += len(wire)
            records += sum(map(len, answer.answer))
            if size > MOST_BYTES or records > MOST_RECORDS:
                raise NameServerFailed(
                    f"{connection.name} has more in {origin.to_text(True)} than is learned from:"
                    f" at most {MOST_RECORDS:,} records and {MOST_BYTES >> 20} MiB"
                )
            if not question.is_response(answer, xfr_continuation=not first):
                raise NameServerFailed(f"{connection.name} answered something else than was asked")
            done = inbound.process_message(answer)
            # RFC 8945 lets a server sign some messages only, but the first and the last always.
            if (first or done) and not answer.had_tsig:
                raise NameServerFailed(
                    f"{connection.name} transferred {origin.to_text(True)} without signature"
                )
            if done:
                return zone
            first, signing = False, answer.tsig_ctx


def _check(connection: Connection, origin: dns.name.Name, answer: dns.message.Message) -> None:
    code, zone = answer.rcode(), origin.to_text(omit_final_dot=True)
    if code == dns.rcode.REFUSED:
        raise connection.refused(f"a transfer of {zone}")
    if code == dns.rcode.NOTAUTH:
        raise NameServerFailed(
            f"{connection.name} does not serve {zone} (NOTAUTH): name the primary server of the"
            " zone"
        )
    if code != dns.rcode.NOERROR:
        raise NameServerFailed(
            f"{connection.name} did not transfer {zone}: {dns.rcode.to_text(code)}"
        )
