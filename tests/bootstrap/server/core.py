"""The rules of the server without its sockets: a message in, a message out, at a chosen time."""

from __future__ import annotations

from functools import cache
from unittest.mock import patch

import dns.message
import dns.name
import dns.rcode
import dns.update

from bootstrap.server.authority import Authority, Update
from bootstrap.server.reading import Malformed
from bootstrap.server.settings import Key, Limits, ServerSettings, ZoneSettings
from bootstrap.server.updating import Denied
from bootstrap.server.zone import origin_of, parse_zone
from tests.bootstrap.name_servers import KEY, POWERLESS

ZONE = "site-a.test"
LINES = (
    "@ 300 IN SOA ns hostmaster 1 3600 600 86400 60",
    "@ 300 IN NS ns",
    '@ 300 IN TXT "of the apex"',
    "ns 300 IN A 192.0.2.1",
    "ns 300 IN AAAA 2001:db8::1",
    "News 300 IN A 192.0.2.2",
    "_psirp._tcp 120 IN SRV 0 5 8080 psph",
    "psph 300 IN A 192.0.2.3",
    "www 300 IN CNAME web",
    "web 300 IN CNAME news",
    "outside 300 IN CNAME www.example.com.",
    "nowhere 300 IN CNAME missing",
    "loop 300 IN CNAME pool",
    "pool 300 IN CNAME loop",
    "into 300 IN CNAME host.child",
    "child 300 IN NS ns.child",
    "child 300 IN NS ns.elsewhere.example.",
    "ns.child 300 IN A 192.0.2.4",
    "a.deep.name 300 IN A 192.0.2.5",
    '*.wild 300 IN TXT "caught"',
    "exact.wild 300 IN A 192.0.2.6",
    "*.alias 300 IN CNAME news",
)
NOW = 1_700_000_000


@cache
def _parsed(lines):
    return parse_zone(origin_of(ZONE), lines)


class Core:
    """An authority and its clock; updates are adopted as if they had been kept."""

    def __init__(self, lines=LINES, now=NOW, **limits):
        self.settings = ServerSettings(
            zones=(ZoneSettings(ZONE, tuple(lines), (KEY.name,), (KEY.name,)),),
            keys=tuple(Key(each.name, each.secret, each.algorithm) for each in (KEY, POWERLESS)),
            limits=Limits(**limits),
        )
        self.origin = origin_of(ZONE)
        self.authority = Authority(self.settings, [_parsed(tuple(lines))])
        self.now = now

    @property
    def zone(self):
        return self.authority.hosted[self.origin].zone

    def handle(self, wire, tcp=False):
        """The messages that come back, as bytes."""
        received = self.authority.receive(wire, tcp=tcp, now=self.now)
        if received is None:
            return []
        if not isinstance(received, Update):
            return list(received.messages)
        rcode = dns.rcode.NOERROR
        try:
            change = self.authority.decide(received)
        except Denied as denied:
            rcode = denied.rcode
        except Malformed:
            rcode = dns.rcode.FORMERR
        else:
            if change is not None:
                self.authority.adopt(change)
        return [self.authority.acknowledge(received, rcode)]

    def ask(self, name, kind="A", *, tcp=False, **options):
        """An answer, for a name relative to the zone."""
        question = dns.message.make_query(dns.name.from_text(name, self.origin), kind, **options)
        (wire,) = self.handle(question.to_wire(), tcp)
        answer = dns.message.from_wire(wire)
        assert question.is_response(answer)
        return answer

    def update(self, *, key=KEY, zone=ZONE):
        """An update to be filled in, for `send`."""
        return dns.update.UpdateMessage(zone, keyring=key.dnspython if key else None)

    def send(self, update):
        """The rcode of the answer to an update, signed now."""
        (wire,) = self.handle(signed(update, self.now))
        return dns.message.from_wire(wire, keyring=False).rcode()


def at(now):
    """For dnspython, which reads the machine's clock to sign and to check, it is that time."""
    return patch("time.time", return_value=float(now))


def signed(message, now):
    """The bytes of a message, signed at that time."""
    with at(now):
        return message.to_wire()


def texts(section):
    """The records of a section, one by one, without regard to their order."""
    return sorted(
        f"{rrset.name} {rrset.ttl} {dns.rdatatype.to_text(rrset.rdtype)} {rdata}"
        for rrset in section
        for rdata in rrset
    )
