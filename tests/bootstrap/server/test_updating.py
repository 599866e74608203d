"""Dynamic update: RFC 2136 sections 3.1 to 3.4, without sockets."""

from __future__ import annotations

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.rrset
import dns.update
import pytest

from bootstrap.server.updating import decide
from tests.bootstrap.name_servers import POWERLESS, TsigKey
from tests.bootstrap.server.core import LINES, ZONE, Core, signed

NOERROR, FORMERR, NXDOMAIN, REFUSED = 0, 1, 3, 5
YXDOMAIN, YXRRSET, NXRRSET, NOTAUTH, NOTZONE = 6, 7, 8, 9, 10


@pytest.fixture
def core():
    return Core()


def shown(core, name):
    """The records of a name as the zone has them, by type."""
    node = core.zone.node(dns.name.from_text(name, core.origin)) or {}
    return {
        dns.rdatatype.to_text(kind): (each.ttl, sorted(str(rdata) for rdata in each))
        for kind, each in node.items()
    }


def raw(update, section, name, rdclass, kind, ttl=0, data=None):
    """Add a record that the library would not make."""

    class Raw(dns.rrset.RRset):
        def to_wire(self, file, compress=None, origin=None, **_):
            dns.name.from_text(name, dns.name.from_text(ZONE)).to_wire(file, compress, origin)
            body = data or b""
            file.write(kind.to_bytes(2, "big") + rdclass.to_bytes(2, "big"))
            file.write(ttl.to_bytes(4, "big") + len(body).to_bytes(2, "big") + body)
            return 1

    update.sections[section].append(Raw(dns.name.from_text(name), 1, 1))


# --- the zone section and rights ---


def test_the_zone_must_be_ours(core):
    update = core.update(zone="example.com")
    update.add("x", 60, "A", "192.0.2.9")
    assert core.send(update) == NOTAUTH
    update = core.update(zone=f"child.{ZONE}")
    update.add("x", 60, "A", "192.0.2.9")
    assert core.send(update) == NOTAUTH


@pytest.mark.parametrize("key", [None, TsigKey("nobody", b"a secret that nobody has")])
@pytest.mark.parametrize(
    ("kind", "rdclass", "count"),
    [("NS", "IN", 1), ("SOA", "IN", 2), ("SOA", "IN", 0), ("SOA", "ANY", 1), ("SOA", "NONE", 1)],
)
def test_the_zone_section_is_one_soa(core, key, kind, rdclass, count):
    update = core.update(key=key)
    zone = dns.rrset.RRset(
        core.origin, dns.rdataclass.from_text(rdclass), dns.rdatatype.from_text(kind)
    )
    update.sections[0] = [zone] * count
    assert core.send(update) == FORMERR


@pytest.mark.parametrize("key", [None, POWERLESS])
def test_without_rights_nothing_changes_and_nothing_is_learned(core, key):
    before = core.zone
    for name in ("news", "missing"):
        update = core.update(key=key)
        update.present(name)
        update.add("x", 60, "A", "192.0.2.9")
        assert core.send(update) == REFUSED
    assert core.zone is before


# --- prerequisites, 3.2 ---


@pytest.mark.parametrize(
    ("require", "rcode"),
    [
        (lambda update: update.present("news"), NOERROR),
        (lambda update: update.present("missing"), NXDOMAIN),
        (lambda update: update.present("deep.name"), NXDOMAIN),  # it has no records of its own
        (lambda update: update.present("NEWS", "A"), NOERROR),
        (lambda update: update.present("news", "AAAA"), NXRRSET),
        (lambda update: update.present("missing", "A"), NXRRSET),
        (lambda update: update.absent("missing"), NOERROR),
        (lambda update: update.absent("news"), YXDOMAIN),
        (lambda update: update.absent("news", "AAAA"), NOERROR),
        (lambda update: update.absent("news", "A"), YXRRSET),
        (lambda update: update.present("news", "A", "192.0.2.2"), NOERROR),
        (lambda update: update.present("news", "A", "192.0.2.3"), NXRRSET),
        (lambda update: update.present("news", "A", "192.0.2.2", "192.0.2.3"), NXRRSET),
        (lambda update: update.present("child", "NS", "ns.child"), NXRRSET),  # one of two
        (
            lambda update: update.present("child", "NS", "NS.child", "ns.elsewhere.example."),
            NOERROR,
        ),
        (lambda update: update.present("missing", "A", "192.0.2.2"), NXRRSET),
        (lambda update: update.present("www.example.com."), NOTZONE),
        (lambda update: raw(update, 1, "news", 255, 255, ttl=1), FORMERR),
        (lambda update: raw(update, 1, "news", 255, 1, data=b"1234"), FORMERR),
        (lambda update: raw(update, 1, "missing", 254, 255, ttl=1), FORMERR),
        (lambda update: raw(update, 1, "missing", 254, 1, data=b"1234"), FORMERR),
        (lambda update: raw(update, 1, "news", 1, 1, ttl=1, data=b"\xc0\0\2\2"), FORMERR),
        (lambda update: raw(update, 1, "news", 1, 1, data=b"123"), FORMERR),
        (lambda update: raw(update, 1, "news", 1, 255, data=b"123"), FORMERR),
        (lambda update: raw(update, 1, "news", 3, 1, data=b"\xc0\0\2\2"), FORMERR),
    ],
)
def test_prerequisites(core, require, rcode):
    update = core.update()
    require(update)
    update.add("x", 60, "A", "192.0.2.9")
    assert core.send(update) == rcode
    assert bool(shown(core, "x")) == (rcode == NOERROR)
    assert core.zone.serial == (2 if rcode == NOERROR else 1)


def test_all_prerequisites_must_hold(core):
    update = core.update()
    update.present("news")
    update.absent("news")
    update.add("x", 60, "A", "192.0.2.9")
    assert core.send(update) == YXDOMAIN


# --- changes, 3.4 ---


@pytest.mark.parametrize(
    ("change", "rcode"),
    [
        (lambda update: update.add("www.example.com.", 60, "A", "192.0.2.9"), NOTZONE),
        (lambda update: update.delete("www.example.com."), NOTZONE),
        (lambda update: raw(update, 2, "y", 1, 255), FORMERR),
        (lambda update: raw(update, 2, "y", 1, 252), FORMERR),
        (lambda update: raw(update, 2, "y", 1, 1, data=b"123"), FORMERR),
        (lambda update: raw(update, 2, "y", 1, 1), FORMERR),
        (lambda update: raw(update, 2, "y", 255, 1, ttl=1), FORMERR),
        (lambda update: raw(update, 2, "y", 255, 1, data=b"1234"), FORMERR),
        (lambda update: raw(update, 2, "y", 255, 252), FORMERR),
        (lambda update: raw(update, 2, "y", 254, 255), FORMERR),
        (lambda update: raw(update, 2, "y", 254, 1, ttl=1, data=b"1234"), FORMERR),
        (lambda update: raw(update, 2, "y", 3, 1, data=b"1234"), FORMERR),
        (lambda update: update.add("y", 60, "DNAME", "example.com."), REFUSED),
        (lambda update: update.add("y", 60, "NSEC", "z A"), REFUSED),
    ],
)
def test_one_bad_change_and_none_is_made(core, change, rcode):
    before = core.zone
    update = core.update()
    update.add("x", 60, "A", "192.0.2.9")
    change(update)
    update.delete("news")
    assert core.send(update) == rcode
    assert core.zone is before


def test_adding(core):
    update = core.update()
    update.add("new", 60, "A", "192.0.2.9", "192.0.2.8")
    update.add("news", 90, "A", "192.0.2.9")
    update.add("NEWS", 90, "TXT", '"x y" z')
    assert core.send(update) == NOERROR
    assert shown(core, "new") == {"A": (60, ["192.0.2.8", "192.0.2.9"])}
    assert shown(core, "news") == {
        "A": (90, ["192.0.2.2", "192.0.2.9"]),  # one TTL for all of them
        "TXT": (90, ['"x y" "z"']),
    }
    assert core.zone.serial == 2
    assert core.ask("new").answer


def test_what_is_there_already_changes_nothing(core):
    before = core.zone
    update = core.update()
    update.add("news", 300, "A", "192.0.2.2")
    update.delete("missing")
    update.delete("news", "AAAA")
    update.delete("news", "A", "192.0.2.77")
    assert core.send(update) == NOERROR
    assert core.zone is before


def test_adding_and_removing_again_changes_nothing(core):
    before = core.zone
    update = core.update()
    update.add("x", 300, "A", "192.0.2.2")
    update.delete("x")
    assert core.send(update) == NOERROR
    assert core.zone is before


def test_another_ttl_is_a_change(core):
    update = core.update()
    update.add("news", 301, "A", "192.0.2.2")
    assert core.send(update) == NOERROR
    assert shown(core, "news") == {"A": (301, ["192.0.2.2"])}
    assert core.zone.serial == 2
    update = core.update()
    raw(update, 2, "news", 1, 1, ttl=2**31, data=b"\xc0\0\2\2")
    assert core.send(update) == NOERROR
    assert shown(core, "news") == {"A": (0, ["192.0.2.2"])}


def test_removing(core):
    update = core.update()
    update.delete("ns", "AAAA")
    update.delete("child", "NS", "NS.child")
    update.delete("a.deep.name")
    assert core.send(update) == NOERROR
    assert shown(core, "ns") == {"A": (300, ["192.0.2.1"])}
    assert shown(core, "child") == {"NS": (300, ["ns.elsewhere.example."])}
    assert core.ask("deep.name").rcode() == NXDOMAIN  # nothing is below it any more
    update = core.update()
    update.delete("child", "NS", "ns.elsewhere.example.")
    assert core.send(update) == NOERROR
    assert shown(core, "child") == {}
    assert core.ask("ns.child").answer  # no delegation hides it any more


def test_changes_are_made_in_their_order(core):
    update = core.update()
    update.replace("news", 60, "A", "192.0.2.50")
    update.delete("www")
    update.add("www", 60, "A", "192.0.2.51")
    assert core.send(update) == NOERROR
    assert shown(core, "news") == {"A": (60, ["192.0.2.50"])}
    assert shown(core, "www") == {"A": (60, ["192.0.2.51"])}


def test_an_alias_stands_alone(core):
    before = core.zone
    update = core.update()
    update.add("news", 60, "CNAME", "psph")
    update.add("www", 60, "A", "192.0.2.9")
    update.add("@", 60, "CNAME", "psph")
    assert core.send(update) == NOERROR  # and each of them was ignored
    assert core.zone is before
    update = core.update()
    update.add("www", 60, "CNAME", "psph")
    assert core.send(update) == NOERROR
    assert shown(core, "www") == {"CNAME": (60, [f"psph.{ZONE}."])}


def test_the_apex_keeps_what_makes_it_one(core):
    update = core.update()
    update.delete("@")
    update.delete("@", "NS")
    update.delete("@", "SOA")
    update.delete("@", "NS", "ns")
    raw(update, 2, "@", 254, 6, data=core.zone.soa[0].to_wire())
    assert core.send(update) == NOERROR
    assert set(shown(core, "@")) == {"SOA", "NS"}
    assert shown(core, "@")["NS"] == (300, [f"ns.{ZONE}."])
    update = core.update()
    update.add("@", 300, "NS", "ns2")
    update.delete("@", "NS", "ns")
    assert core.send(update) == NOERROR
    assert shown(core, "@")["NS"] == (300, [f"ns2.{ZONE}."])


def soa(serial):
    return f"ns2 hostmaster {serial} 1 2 3 4"


@pytest.mark.parametrize(
    ("old", "new", "after"),
    [(1, 5, 5), (1, 2**31, 2**31), (5, 4, 5), (5, 5, 5), (2**32 - 1, 3, 3), (1, 2**31 + 1, 1)],
)
def test_the_serial_only_goes_forward(old, new, after):
    core = Core([LINES[0].replace(" 1 3600", f" {old} 3600"), *LINES[1:]])
    update = core.update()
    update.add("@", 300, "SOA", soa(new))
    assert core.send(update) == NOERROR
    assert core.zone.serial == after
    named = core.zone.soa[0].mname.labels[0]
    assert named == (b"ns2" if after == new != old else b"ns")


def test_a_soa_elsewhere_and_a_delegated_wildcard_are_ignored(core):
    before = core.zone
    update = core.update()
    update.add("*.x", 300, "NS", "ns")
    update.add("news", 300, "SOA", soa(9))
    assert core.send(update) == NOERROR
    assert core.zone is before


def test_the_serial_wraps_around_without_zero():
    core = Core([LINES[0].replace(" 1 3600", f" {2**32 - 1} 3600"), *LINES[1:]])
    update = core.update()
    update.add("x", 60, "A", "192.0.2.9")
    assert core.send(update) == NOERROR
    assert core.zone.serial == 1


def test_a_given_serial_is_not_raised_again(core):
    update = core.update()
    update.add("x", 60, "A", "192.0.2.9")
    update.add("@", 300, "SOA", soa(77))
    assert core.send(update) == NOERROR
    assert core.zone.serial == 77


# --- limits ---


def test_a_zone_does_not_grow_without_end():
    core = Core(records=len(LINES) + 2)
    update = core.update()
    update.add("x", 60, "A", "192.0.2.9", "192.0.2.8")
    assert core.send(update) == NOERROR
    full = core.zone
    update = core.update()
    update.add("x", 60, "A", "192.0.2.7")
    assert core.send(update) == REFUSED
    assert core.zone is full
    update = core.update()
    update.delete("x", "A", "192.0.2.9")
    update.add("x", 60, "A", "192.0.2.7")
    assert core.send(update) == NOERROR


def test_a_zone_that_was_configured_larger_can_be_changed_but_not_grow():
    core = Core(records=1)
    update = core.update()
    update.replace("news", 60, "A", "192.0.2.7")
    assert core.send(update) == NOERROR
    update = core.update()
    update.add("news", 60, "A", "192.0.2.8")
    assert core.send(update) == REFUSED


def test_one_set_does_not_outgrow_an_answer(core):
    update = core.update()
    for n in range(120):
        update.add("big", 60, "TXT", f'"{n:03d}{"x" * 240}"')
    assert core.send(update) == NOERROR
    assert len(core.ask("big", "TXT", tcp=True).answer[0]) == 120
    before = core.zone
    update = core.update()
    for n in range(20):
        update.add("big", 60, "TXT", f'"more {n:03d}{"x" * 240}"')
    assert core.send(update) == REFUSED
    assert core.zone is before


# --- the same message again ---


def test_a_message_that_comes_again_is_answered_and_not_obeyed_again(core):
    update = core.update()
    update.add("x", 60, "A", "192.0.2.9")
    wire = signed(update, core.now)
    (first,) = core.handle(wire)
    assert dns.message.from_wire(first, keyring=False).rcode() == NOERROR
    gone = core.update()
    gone.delete("x")
    assert core.send(gone) == NOERROR
    core.now += 5
    (again,) = core.handle(wire)
    assert dns.message.from_wire(again, keyring=False).rcode() == NOERROR
    assert shown(core, "x") == {}


def test_a_refusal_that_comes_again_stays_one(core):
    update = core.update()
    update.present("later")
    update.add("x", 60, "A", "192.0.2.9")
    wire = signed(update, core.now)
    (first,) = core.handle(wire)
    assert dns.message.from_wire(first, keyring=False).rcode() == NXDOMAIN
    between = core.update()
    between.add("later", 60, "A", "192.0.2.9")
    assert core.send(between) == NOERROR
    (again,) = core.handle(wire)
    assert dns.message.from_wire(again, keyring=False).rcode() == NXDOMAIN


def test_what_was_done_is_said(core):
    update = core.update()
    update.add("x", 60, "TXT", '"line\\010end"')
    update.delete("news", "A")
    update.delete("child", "NS", "ns.child")
    received = core.authority.receive(signed(update, core.now), tcp=True, now=core.now)
    change = decide(core.zone, received.request, 1000)
    assert change.done == (
        f'added x.{ZONE} 60 TXT "line\\010end"',
        f"removed news.{ZONE} A",
        f"removed child.{ZONE} 300 NS ns.child.{ZONE}.",
    )
    assert not any("\n" in line for line in change.done)
