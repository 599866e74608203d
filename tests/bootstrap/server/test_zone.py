"""Zones as values: reading their lines, serials, names that exist without records."""

from __future__ import annotations

import dns.name
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bootstrap.server.zone import BadZone, Zone, newer, next_serial, origin_of, parse_zone
from tests.bootstrap.server.core import LINES, ZONE

ORIGIN = origin_of(ZONE)
BASE = ["@ 300 IN SOA ns hostmaster 1 3600 600 86400 60", "@ 300 IN NS ns"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "must be one line"),
        (" www A 192.0.2.1", "must be one line"),
        ("www 300 A 192.0.2.1\nx 300 A 192.0.2.1", "must be one line"),
        ("$INCLUDE /etc/passwd", "must be one line"),
        ("www 300 IN A", "cannot be read"),
        ("www 300 IN A 1.2.3", "cannot be read"),
        ("www 300 CH A 192.0.2.1", "cannot be read"),
        ("www 300 IN NOTYPE x", "cannot be read"),
        ("www.example.com. 300 IN A 192.0.2.1", "is not in the zone"),
        ("www 300 IN SOA ns hostmaster 1 3600 600 86400 60", "non-origin SOA"),
        ("www 300 IN DNAME example.com.", "DNAME records are not supported"),
        ("*.www 300 IN NS ns", "a wildcard cannot be delegated"),
        ("www 300 IN ANY x", "cannot be read"),
        ("ns 300 IN CNAME www", "can have no other"),
    ],
)
def test_a_line_that_cannot_be_served_is_named(line, message):
    with pytest.raises(BadZone, match=message) as caught:
        parse_zone(ORIGIN, [*BASE, "ns 300 IN A 192.0.2.1", line])
    assert "\n" not in str(caught.value)


def test_a_zone_without_soa_or_ns_is_none():
    with pytest.raises(BadZone, match="no SOA record"):
        parse_zone(ORIGIN, BASE[1:])
    with pytest.raises(BadZone, match="no NS record"):
        parse_zone(ORIGIN, BASE[:1])
    with pytest.raises(BadZone, match="two records"):
        parse_zone(ORIGIN, [*BASE, BASE[0].replace(" 1 ", " 2 ")])
    with pytest.raises(BadZone, match="two records"):
        parse_zone(ORIGIN, [*BASE, "x CNAME a", "x CNAME b"])


def test_short_lines_are_enough():
    zone = parse_zone(ORIGIN, ["@ SOA ns hostmaster 1 3600 600 86400 60", "@ NS ns", "x A 1.2.3.4"])
    assert [str(record) for record in zone.records()][-1] == "x.site-a.test 300 A 1.2.3.4"


@pytest.mark.parametrize("text", ["", "a..b", "x" * 64, "x." * 200])
def test_what_is_no_origin(text):
    if text:
        with pytest.raises(BadZone, match="is no name of a zone"):
            origin_of(text)
    else:
        assert origin_of(text) == dns.name.root


@pytest.mark.parametrize(
    ("serial", "other", "expected"),
    [
        (1, 0, True),
        (44, 0, True),
        (100, 44, True),
        (200, 100, True),
        (0, 4_294_967_295, True),
        (5, 4_294_967_290, True),
        (2**31 - 1, 0, True),
        (2**31, 0, False),  # undefined by RFC 1982: not taken for newer
        (0, 2**31, False),
        (7, 7, False),
        (0, 1, False),
    ],
)
def test_serial_arithmetic(serial, other, expected):
    assert newer(serial, other) is expected


@given(st.integers(0, 2**32 - 1))
def test_the_next_serial_is_newer_and_never_zero(serial):
    following = next_serial(serial)
    assert newer(following, serial)
    assert not newer(serial, following)
    assert 0 < following < 2**32


labels = st.sampled_from(["a", "b", "C", "*"])
names = st.lists(labels, min_size=1, max_size=4).map(lambda parts: ".".join(parts))


@given(st.lists(st.tuples(names, st.booleans()), max_size=20))
def test_changed_zones_are_those_built_at_once(steps):
    """Names that exist only because of others below them are counted right, whatever the order."""
    base = parse_zone(ORIGIN, BASE)
    zone, wanted = base, {}
    node = parse_zone(ORIGIN, [*BASE, "x 300 IN A 192.0.2.1"]).nodes[origin_of(f"x.{ZONE}")]
    for text, there in steps:
        name = dns.name.from_text(text, ORIGIN)
        zone = zone.with_nodes({name: node if there else {}})
        wanted[name] = there
    built = Zone.of(
        ORIGIN,
        [*base.records()]
        + [
            record
            for name, there in wanted.items()
            if there
            for record in parse_zone(ORIGIN, [*BASE, f"{name} 300 IN A 192.0.2.1"]).records()
            if record.name == name
        ],
    )
    assert set(zone.nodes) == set(built.nodes)
    assert zone.count == built.count == len(list(zone.records()))
    for text in ("a", "b.a", "c", "a.c", "*.a", "b.*"):
        name = dns.name.from_text(text, ORIGIN)
        assert zone.exists(name) == built.exists(name)
        below = any(other.is_subdomain(name) for other in zone.nodes)
        assert zone.exists(name) == below


def test_a_zone_does_not_change():
    zone = parse_zone(ORIGIN, LINES)
    with pytest.raises(TypeError):
        zone.nodes[ORIGIN] = {}
    with pytest.raises(TypeError):
        zone.soa.clear()
