"""What the zone answers: RFC 1034, 2308, 4592, 6604, 8482, 9471, without sockets."""

from __future__ import annotations

import struct

import dns.edns
import dns.flags
import dns.message
import dns.opcode
import dns.rcode
import dns.rdatatype
import pytest

from tests.bootstrap.server.core import LINES, ZONE, Core, texts

SOA = f"{ZONE}. 60 SOA ns.{ZONE}. hostmaster.{ZONE}. 1 3600 600 86400 60"


@pytest.fixture
def core():
    return Core()


@pytest.mark.parametrize(
    ("name", "kind", "answer"),
    [
        ("news", "A", ["{}. 300 A 192.0.2.2"]),
        ("ns", "AAAA", ["{}. 300 AAAA 2001:db8::1"]),
        ("@", "TXT", ['{}. 300 TXT "of the apex"']),
        ("_psirp._tcp", "SRV", ["{}. 120 SRV 0 5 8080 psph.site-a.test."]),
        ("www", "CNAME", ["{}. 300 CNAME web.site-a.test."]),
        ("any.wild", "TXT", ['{}. 300 TXT "caught"']),
        ("a.b.wild", "TXT", ['{}. 300 TXT "caught"']),
    ],
)
def test_what_is_there(core, name, kind, answer):
    found = core.ask(name, kind)
    owner = ZONE if name == "@" else f"{name}.{ZONE}"
    assert texts(found.answer) == [line.format(owner) for line in answer]
    assert found.rcode() == dns.rcode.NOERROR
    assert found.flags & dns.flags.AA
    assert not found.flags & dns.flags.RA
    assert not found.authority


@pytest.mark.parametrize(
    ("name", "kind", "rcode"),
    [
        ("missing", "A", dns.rcode.NXDOMAIN),
        ("a.b.missing", "A", dns.rcode.NXDOMAIN),
        ("news", "AAAA", dns.rcode.NOERROR),
        ("deep.name", "A", dns.rcode.NOERROR),  # it has no records, but a name below it has
        ("name", "ANY", dns.rcode.NOERROR),
        ("wild", "A", dns.rcode.NOERROR),
        ("any.wild", "A", dns.rcode.NOERROR),
        ("exact.wild", "TXT", dns.rcode.NOERROR),
        ("below.exact.wild", "TXT", dns.rcode.NXDOMAIN),
    ],
)
def test_what_is_not_there_is_said_for_as_long_as_the_soa_says(core, name, kind, rcode):
    found = core.ask(name, kind)
    assert found.rcode() == rcode
    assert not found.answer
    assert texts(found.authority) == [SOA]
    assert found.flags & dns.flags.AA


def test_aliases_are_followed_inside_the_zone(core):
    found = core.ask("www", "A")
    assert [rrset.name.labels[0] for rrset in found.answer] == [b"www", b"web", b"news"]
    assert found.rcode() == dns.rcode.NOERROR
    assert texts(core.ask("x.alias", "A").answer) == [
        f"news.{ZONE}. 300 A 192.0.2.2",
        f"x.alias.{ZONE}. 300 CNAME news.{ZONE}.",
    ]


def test_an_alias_to_nowhere_is_a_name_that_does_not_exist(core):
    found = core.ask("nowhere", "A")
    assert found.rcode() == dns.rcode.NXDOMAIN
    assert texts(found.answer) == [f"nowhere.{ZONE}. 300 CNAME missing.{ZONE}."]
    assert texts(found.authority) == [SOA]


def test_an_alias_without_the_type(core):
    found = core.ask("www", "TXT")
    assert found.rcode() == dns.rcode.NOERROR
    assert len(found.answer) == 2
    assert texts(found.authority) == [SOA]


def test_an_alias_that_leaves_the_zone_or_goes_in_circles_ends_there(core):
    outside = core.ask("outside", "A")
    assert texts(outside.answer) == [f"outside.{ZONE}. 300 CNAME www.example.com."]
    assert not outside.authority
    circle = core.ask("loop", "A")
    assert [rrset.name.labels[0] for rrset in circle.answer] == [b"loop", b"pool"]
    chain = [f"c{n} 60 IN CNAME c{n + 1}" for n in range(40)]
    assert len(Core([*LINES, *chain]).ask("c0", "A").answer) == 16


@pytest.mark.parametrize("name", ["child", "host.child", "ns.child", "a.b.child"])
@pytest.mark.parametrize("kind", ["A", "NS", "ANY"])
def test_below_a_delegation_others_know_more(core, name, kind):
    found = core.ask(name, kind)
    assert found.rcode() == dns.rcode.NOERROR
    assert not found.flags & dns.flags.AA
    assert not found.answer
    assert texts(found.authority) == [
        f"child.{ZONE}. 300 NS ns.child.{ZONE}.",
        f"child.{ZONE}. 300 NS ns.elsewhere.example.",
    ]
    assert texts(found.additional) == [f"ns.child.{ZONE}. 300 A 192.0.2.4"]


def test_the_parent_itself_says_whether_a_child_is_signed(core):
    found = core.ask("child", "DS")
    assert found.flags & dns.flags.AA
    assert texts(found.authority) == [SOA]


def test_an_alias_into_a_delegation_is_ours_the_rest_is_not(core):
    found = core.ask("into", "A")
    assert found.flags & dns.flags.AA
    assert texts(found.answer) == [f"into.{ZONE}. 300 CNAME host.child.{ZONE}."]
    assert len(found.authority[0]) == 2


def test_addresses_of_targets_come_along(core):
    found = core.ask("_psirp._tcp", "SRV")
    assert texts(found.additional) == [f"psph.{ZONE}. 300 A 192.0.2.3"]
    servers = core.ask("@", "NS")
    assert texts(servers.additional) == [
        f"ns.{ZONE}. 300 A 192.0.2.1",
        f"ns.{ZONE}. 300 AAAA 2001:db8::1",
    ]


def test_any_gets_one_set_and_not_all(core):
    found = core.ask("ns", "ANY")
    assert len(found.answer) == 1
    alias = core.ask("www", "ANY")
    assert texts(alias.answer) == [f"www.{ZONE}. 300 CNAME web.{ZONE}."]


def test_case_is_kept_and_not_compared(core):
    found = core.ask("NeWs", "A")
    assert found.question[0].name.labels[0] == b"NeWs"
    assert found.answer[0].name.labels[0] == b"NeWs"  # as it was asked, for those who check
    assert found.answer
    (spelled,) = [name for name in core.zone.nodes if name.labels[0].lower() == b"news"]
    assert spelled.labels[0] == b"News"


def ask(core, question, tcp=False):
    (wire,) = core.handle(question.to_wire(), tcp)
    return dns.message.from_wire(wire)


def test_other_zones_and_classes_are_refused(core):
    for name in ("example.com", "test", ".", "www.nosite-a.test"):
        for kind in ("A", "NS", "SOA", "ANY"):
            found = ask(core, dns.message.make_query(name, kind))
            assert found.rcode() == dns.rcode.REFUSED
            assert not any(found.sections[1:])
            assert not found.flags & (dns.flags.AA | dns.flags.RA)
    chaos = dns.message.make_query("version.bind", "TXT", "CH")
    assert ask(core, chaos).rcode() == dns.rcode.REFUSED


@pytest.mark.parametrize("opcode", [dns.opcode.IQUERY, dns.opcode.STATUS, dns.opcode.NOTIFY, 15])
def test_other_opcodes_are_not_implemented(core, opcode):
    wire = struct.pack("!HHHHHH", 7, opcode << 11, 0, 0, 0, 0)
    (answer,) = core.handle(wire)
    assert struct.unpack("!HH", answer[:4]) == (7, 0x8000 | opcode << 11 | dns.rcode.NOTIMP)


def test_questions_for_what_is_no_data(core):
    for kind in ("MAILA", "MAILB", "TKEY", "OPT"):
        assert core.ask("news", kind).rcode() == dns.rcode.NOTIMP


def question(count=1, name=b"\x04news\x06site-a\x04test\0", rest=b"", counts=(0, 0, 0)):
    asked = (name + b"\0\1\0\1") * count
    return struct.pack("!HHHHHH", 99, 0x0100, count, *counts) + asked + rest


@pytest.mark.parametrize(
    "wire",
    [
        question(0),
        question(2),
        question(rest=b"\0"),
        question(name=b"\x04news"),
        question(name=b"\xc0\x0c"),
        question(name=b"\x41" + b"a" * 65 + b"\0"),
        question(name=(b"\x3f" + b"a" * 63) * 4 + b"\0"),
        question(counts=(1, 0, 0)),
        question(counts=(0, 0, 1), rest=b"\0\0\x29\x02\0\0\0\0\0\0\x09"),
        question(counts=(0, 0, 2), rest=b"\0\0\x29\x02\0\0\0\0\0\0\0" * 2),
        question(counts=(1, 0, 0), rest=b"\0\0\x29\x02\0\0\0\0\0\0\0"),
        question(counts=(0, 0, 1), rest=b"\1x\0\0\x29\x02\0\0\0\0\0\0\0"),
        question(counts=(0, 0, 1), rest=b"\0\0\x10\0\1\0\0\0\0\x10\0" + bytes(4096)),
    ],
)
def test_what_is_no_message_is_a_format_error(core, wire):
    (answer,) = core.handle(wire)
    assert answer == struct.pack("!HHHHHH", 99, 0x8100 | dns.rcode.FORMERR, 0, 0, 0, 0)


def test_nothing_is_said_to_answers_and_fragments(core):
    assert core.handle(b"") == []
    assert core.handle(bytes(11)) == []
    answer = bytearray(question())
    answer[2] |= 0x80
    assert core.handle(bytes(answer)) == []


def big(count):
    return [*LINES, *(f'big 300 IN TXT "{n:04d}{"x" * 96}"' for n in range(count))]


@pytest.mark.parametrize(
    ("options", "room"),
    [
        ({}, 512),
        ({"use_edns": 0, "payload": 100}, 512),
        ({"use_edns": 0, "payload": 800}, 800),
        ({"use_edns": 0, "payload": 1232}, 1232),
        ({"use_edns": 0, "payload": 65_000}, 1232),
    ],
)
def test_answers_over_udp_fit_or_say_that_they_do_not(options, room):
    sizes = []
    for count in range(1, 14):
        core = Core(big(count))
        question = dns.message.make_query(f"big.{ZONE}", "TXT", **options)
        (wire,) = core.handle(question.to_wire())
        answer = dns.message.from_wire(wire)
        assert len(wire) <= room
        (whole,) = core.handle(question.to_wire(), tcp=True)
        assert len(dns.message.from_wire(whole).answer[0]) == count
        if answer.flags & dns.flags.TC:
            assert not answer.answer
            assert len(whole) > room
        else:
            assert wire == whole
            sizes.append(count)
    assert sizes == list(range(1, len(sizes) + 1))
    assert 0 < len(sizes) < 13


def test_addresses_that_do_not_fit_are_left_out_unless_they_are_needed():
    many = [f"h{n}.child 300 IN A 192.0.2.{n}" for n in range(60)]
    targets = [f"srv 300 IN SRV 0 0 80 {'t' * 40}{n}" for n in range(6)]
    targets += [f"{'t' * 40}{n} 300 IN AAAA 2001:db8::{n}" for n in range(6)]
    core = Core([*LINES, *targets])
    helpful = core.ask("srv", "SRV")
    assert len(helpful.answer[0]) == 6
    assert not helpful.flags & dns.flags.TC
    assert len(helpful.additional) < 6
    core = Core([*LINES, *many, *(f"child 300 IN NS h{n}.child" for n in range(60))])
    assert core.ask("x.child", "A", use_edns=0).flags & dns.flags.TC
    assert len(core.ask("x.child", "A", tcp=True).additional) == 61


def test_edns(core):
    found = core.ask("news", use_edns=0, want_dnssec=True)
    assert found.edns == 0
    assert found.payload == 1232
    assert found.ednsflags & dns.flags.DO
    assert core.ask("news", use_edns=False).edns == -1
    wrong = core.ask("news", use_edns=1)
    assert wrong.rcode() == dns.rcode.BADVERS
    assert wrong.edns == 0
    assert not wrong.answer
    option = dns.edns.GenericOption(65_001, b"unknown")
    assert core.ask("news", use_edns=0, options=[option]).answer
