"""The same questions and updates to a BIND 9 and to the embedded server: the same answers."""

from __future__ import annotations

import random

import dns.flags
import dns.message
import dns.name
import dns.query
import dns.rcode
import dns.rdatatype
import dns.update
import dns.zone
import pytest

from tests.bootstrap.name_servers import bind, embedded, have_bind
from tests.bootstrap.server.core import LINES, ZONE, texts

pytestmark = pytest.mark.skipif(not have_bind(), reason="install the package bind9")

NAMES = [
    "@", "ns", "news", "NEWS", "_psirp._tcp", "_tcp", "psph", "www", "web", "outside", "nowhere",
    "child", "ns.child", "host.child", "into", "a.deep.name", "deep.name", "name", "x.name",
    "any.wild", "a.b.wild", "wild", "exact.wild", "x.exact.wild", "x.alias", "missing", "a.missing",
]  # fmt: skip
TYPES = ["A", "AAAA", "NS", "SOA", "TXT", "SRV", "CNAME", "DS", "MX", "TYPE65280"]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    zones = {ZONE: LINES}
    with (
        bind(tmp_path_factory.mktemp("theirs"), zones) as theirs,
        embedded(tmp_path_factory.mktemp("ours"), zones) as ours,
    ):
        yield theirs, ours


def ask(server, message):
    return dns.query.udp(message, server.host, 30, port=server.port)


def seen(answer):
    """What a resolver acts on. The authority section of an answer that is there is optional; BIND
    lets nobody keep that there is no SOA (TTL 0), and answers in the case of the zone."""
    flags = answer.flags & (dns.flags.AA | dns.flags.TC)
    negative = not answer.answer or answer.rcode() or not answer.flags & dns.flags.AA
    if answer.question[0].rdtype == dns.rdatatype.SOA:
        for rrset in answer.authority:
            rrset.ttl = 0
    authority = texts(answer.authority) if negative else []
    found = [text.lower() for text in texts(answer.answer)]
    return dns.rcode.to_text(answer.rcode()), flags, sorted(found), authority


@pytest.mark.parametrize("name", NAMES)
def test_questions(pair, name):
    for kind in TYPES:
        question = dns.message.make_query(
            dns.name.from_text(name, dns.name.from_text(ZONE)), kind, use_edns=0
        )
        theirs, ours = (ask(server, question) for server in pair)
        assert seen(ours) == seen(theirs), kind


def test_other_questions(pair):
    for name, kind in (("example.com", "A"), ("test", "SOA"), (".", "NS")):
        theirs, ours = (ask(server, dns.message.make_query(name, kind)) for server in pair)
        assert seen(ours)[0] == seen(theirs)[0] == "REFUSED"


OWNERS = ["@", "a", "A", "b.a", "c", "*.w", "d.c", "www", "child", "ns.child"]
DATA = {
    "A": ["192.0.2.1", "192.0.2.2", "192.0.2.3"],
    "TXT": ['"one"', '"two" "three"'],
    "CNAME": ["a", "c"],
    # Elsewhere: BIND would also look for the addresses of those in the zone.
    "NS": ["ns.example.", "ns2.example.", "ns3.example."],
    "SRV": ["0 0 80 a", "1 1 81 c"],
}


def fill(update, dice, step):
    """Anything RFC 2136 allows, and some of what it tells servers to ignore."""
    for _ in range(dice.choice([0, 0, 0, 1, 2])):
        name, kind = dice.choice(OWNERS), dice.choice(list(DATA))
        match dice.randrange(5):
            case 0:
                update.present(name)
            case 1:
                update.absent(name)
            case 2:
                update.present(name, kind)
            case 3:
                update.absent(name, kind)
            case 4:
                update.present(name, kind, *dice.sample(DATA[kind], dice.randint(1, 2)))
    for _ in range(dice.randint(1, 5)):
        name, kind = dice.choice(OWNERS), dice.choice(list(DATA))
        match dice.randrange(7):
            case 0:
                update.delete(name)
            case 1:
                update.delete(name, kind)
            case 2:
                update.delete(name, kind, dice.choice(DATA[kind]))
            case 3 if dice.random() < 0.3:
                serial = dice.choice([1, 1000 * (step + 1)])  # older, or newer than any before
                update.add("@", 300, "SOA", f"ns hostmaster {serial} {step} 2 3 60")
            case _:
                update.add(name, dice.choice([60, 60, 90]), kind, dice.choice(DATA[kind]))


def whole(server):
    zone = dns.zone.Zone(ZONE, relativize=False)
    request = dns.message.make_query(ZONE, "AXFR")
    request.use_tsig(server.key.dnspython)
    dns.query.inbound_xfr(server.host, zone, request, port=server.port, timeout=30)
    # BIND takes a new serial for some updates that end where they began; that is its own affair.
    return sorted(
        f"{str(name).lower()} {ttl} {dns.rdatatype.to_text(rdata.rdtype)}"
        f" {rdata.replace(serial=0) if rdata.rdtype == dns.rdatatype.SOA else rdata}"
        for name, ttl, rdata in zone.iterate_rdatas()
    )


@pytest.mark.parametrize("seed", range(3))
def test_updates(tmp_path, seed):
    """Long series of random updates leave the same zone behind, and a restart changes nothing."""
    dice = random.Random(seed)
    with bind(tmp_path) as theirs, embedded(tmp_path) as ours:
        for step in range(60):
            rcodes = []
            state = dice.getstate()
            for server in (theirs, ours):
                dice.setstate(state)
                update = dns.update.UpdateMessage(server.zone, keyring=server.key.dnspython)
                fill(update, dice, step)
                rcodes.append(dns.rcode.to_text(ask(server, update).rcode()))
            assert rcodes[0] == rcodes[1], (step, str(update))
            if step % 4 == 3:
                assert whole(ours) == whole(theirs), (step, str(update))
        assert whole(ours) == whole(theirs)
        before = whole(ours)
        for server in (theirs, ours):
            server.stop()
            server.start()
        assert whole(ours) == whole(theirs) == before
