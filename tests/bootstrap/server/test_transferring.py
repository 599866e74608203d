"""Whole zones: AXFR as a series of messages, IXFR where nothing or everything is new."""

from __future__ import annotations

import dns.message
import dns.name
import dns.query
import dns.rcode
import dns.rdatatype
import dns.rrset
import dns.xfr
import dns.zone
import pytest

from tests.bootstrap.name_servers import KEY, POWERLESS
from tests.bootstrap.server.core import LINES, NOW, ZONE, Core, at, signed, texts


@pytest.fixture
def core():
    return Core()


def request(kind="AXFR", key=KEY, zone=ZONE, serial=None):
    made = dns.message.make_query(zone, kind)
    if serial is not None:
        soa = f"ns. hostmaster. {serial} 1 1 1 1"
        made.authority.append(dns.rrset.from_text(f"{zone}.", 0, "IN", "SOA", soa))
    if key is not None:
        made.use_tsig(key.dnspython)
    return made


def received(core, made, tcp=True):
    """The messages, each checked against the one before it."""
    messages, context = [], None
    with at(NOW):
        for wire in core.handle(made.to_wire(), tcp):
            message = dns.message.from_wire(
                wire, KEY.dnspython, made.mac, xfr=True, tsig_ctx=context, multi=True
            )
            context = message.tsig_ctx
            messages.append(message)
    return messages


def records(messages):
    return [
        f"{rrset.name} {rrset.ttl} {dns.rdatatype.to_text(rrset.rdtype)} {rdata}"
        for message in messages
        for rrset in message.answer
        for rdata in rrset
    ]


def test_a_small_zone_in_one_message(core):
    (message,) = received(core, request())
    sent = records([message])
    assert (
        sent[0] == sent[-1] == f"{ZONE}. 300 SOA ns.{ZONE}. hostmaster.{ZONE}. 1 3600 600 86400 60"
    )
    assert len(sent) == len(LINES) + 1
    assert f"News.{ZONE}. 300 A 192.0.2.2" in sent  # as it was spelled
    assert f"ns.child.{ZONE}. 300 A 192.0.2.4" in sent  # what lies below a delegation, too


def test_a_large_zone_in_many_messages_is_all_there():
    lines = [f'n{n} 60 IN TXT "{n}{"x" * 200}"' for n in range(3000)]
    core = Core([*LINES, *lines])
    messages = received(core, request())
    assert len(messages) > 10
    assert all(message.had_tsig for message in messages)
    zone = dns.zone.Zone(ZONE, relativize=False)
    with dns.xfr.Inbound(zone, dns.rdatatype.AXFR) as inbound:
        done = [inbound.process_message(message) for message in messages]
    assert done == [False] * (len(messages) - 1) + [True]
    assert len(zone.nodes) == len(core.zone.nodes)
    assert sum(1 for _ in zone.iterate_rdatas()) == core.zone.count


def test_a_set_too_large_for_a_message_of_a_series_is_split():
    lines = [f'big 60 IN TXT "{n:03d}{"x" * 240}"' for n in range(120)]
    messages = received(Core([*LINES, *lines]), request())
    assert sum(len(records([message])) for message in messages) == len(LINES) + 120 + 1


@pytest.mark.parametrize(
    ("key", "rcode"), [(None, dns.rcode.REFUSED), (POWERLESS, dns.rcode.REFUSED)]
)
@pytest.mark.parametrize("kind", ["AXFR", "IXFR"])
@pytest.mark.parametrize("tcp", [True, False])
def test_only_with_rights(core, key, rcode, kind, tcp):
    (wire,) = core.handle(signed(request(kind, key), NOW), tcp)
    answer = dns.message.from_wire(wire, keyring=False)
    assert answer.rcode() == rcode
    assert not answer.answer


def test_only_whole_zones_of_ours(core):
    for zone in ("example.com", f"news.{ZONE}", f"child.{ZONE}"):
        (message,) = received(core, request(zone=zone))
        assert message.rcode() == dns.rcode.NOTAUTH


def test_not_over_udp(core):
    (message,) = received(core, request(), tcp=False)
    assert message.rcode() == dns.rcode.FORMERR
    assert not message.answer
    (message,) = received(core, request("IXFR", serial=0), tcp=False)
    assert [line.split()[2] for line in records([message])] == ["SOA"]


def test_what_is_new(core):
    (message,) = received(core, request("IXFR", serial=1))
    assert len(records([message])) == 1
    (message,) = received(core, request("IXFR", serial=2**32 - 5))
    assert len(records([message])) == len(LINES) + 1
    (wire,) = core.handle(signed(request("IXFR"), NOW), True)
    assert dns.message.from_wire(wire, keyring=False).rcode() == dns.rcode.FORMERR


def test_a_transfer_shows_one_version(core):
    """What changes while it runs belongs to the next version."""
    made = request()
    reply = core.authority.receive(signed(made, NOW), tcp=True, now=NOW)
    messages = iter(reply.messages)
    update = core.update()
    update.delete("news")
    assert core.send(update) == dns.rcode.NOERROR
    (message,) = [dns.message.from_wire(wire, keyring=False, xfr=True) for wire in messages]
    assert f"News.{ZONE}. 300 A 192.0.2.2" in texts(message.answer)
    assert core.zone.serial == 2
