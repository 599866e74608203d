"""Dynamic update (RFC 2136): a change of a zone, carried out by its primary server."""

from __future__ import annotations

from collections import defaultdict

import dns.name
import dns.rcode
import dns.rdata
import dns.update

from bootstrap.errors import BootstrapError, NameServerFailed
from bootstrap.registration.changes import Change
from bootstrap.registration.exchange import Connection

_PREREQUISITES = (
    dns.rcode.YXDOMAIN,
    dns.rcode.YXRRSET,
    dns.rcode.NXRRSET,
    dns.rcode.NXDOMAIN,
)


class ChangedMeanwhile(BootstrapError):
    """The records are not what the change expected; nothing was changed."""


async def update(connection: Connection, zone: dns.name.Name, change: Change) -> None:
    """Carry out a change of the DNS zone; durable at the server when it returns."""
    answer = await connection.ask(message(zone, change))
    code = answer.rcode()
    shown = zone.to_text(omit_final_dot=True)
    if code == dns.rcode.NOERROR:
        return
    if code in _PREREQUISITES:
        raise ChangedMeanwhile(f"the records of {shown} were changed by somebody else meanwhile")
    if code == dns.rcode.REFUSED:
        raise connection.refused(f"an update of {shown}")
    if code in (dns.rcode.NOTAUTH, dns.rcode.NOTZONE):
        raise NameServerFailed(
            f"{connection.name} is not the primary server of {shown}"
            f" ({dns.rcode.to_text(code)}): name that one"
        )
    if code == dns.rcode.NOTIMP:
        raise NameServerFailed(
            f"{connection.name} does no dynamic updates: paste what psph zone-records prints"
        )
    raise NameServerFailed(
        f"{connection.name} did not carry out an update of {shown}: {dns.rcode.to_text(code)}"
    )


def message(zone: dns.name.Name, change: Change) -> dns.update.UpdateMessage:
    """The change as a message, not signed yet."""
    result = dns.update.UpdateMessage(zone)
    expected: defaultdict[dns.name.Name, list[dns.rdata.Rdata]] = defaultdict(list)
    for record in change.expected:
        expected[record.name].append(record.rdata)
    for name, rdatas in expected.items():
        result.present(name, *rdatas)
    for record in change.removed:
        result.delete(record.name, record.rdata)
    for record in change.added:
        result.add(record.name, change.ttl, record.rdata)
    return result
