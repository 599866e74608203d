"""What a PSPH makes of a transferred zone."""

import dns.name
import dns.zone
import pytest

from bootstrap.registration.transfer import Transferred, zones_of


def hosts(origin, *lines):
    name = dns.name.from_text(origin)
    head = [
        "@ 300 IN SOA ns.elsewhere.test. hostmaster 1 2 3 4 5",
        "@ 300 IN NS ns.elsewhere.test.",
    ]
    zone = dns.zone.from_text("\n".join([*head, *lines]) + "\n", name, relativize=False)
    return Transferred(name, 1, zone).hosts()


def test_hosts_have_addresses_or_aliases():
    assert hosts(
        "Example.com",
        "@ 300 IN A 192.0.2.1",
        "WWW 300 IN CNAME @",
        "six 300 IN AAAA 2001:db8::1",
        "mail 300 IN MX 0 six",
        "text 300 IN TXT x",
        "* 300 IN A 192.0.2.1",
        "*.wild 300 IN A 192.0.2.1",
        "_psirp._tcp 300 IN SRV 0 0 80 www",
        "_x 300 IN A 192.0.2.1",
        "xn--bcher-kva 300 IN A 192.0.2.1",
        "a\\.b 300 IN A 192.0.2.1",
        "\\255 300 IN A 192.0.2.1",
    ) == ("example.com", "six.example.com", "www.example.com", "xn--bcher-kva.example.com")


def test_what_is_delegated_is_not_the_zones():
    assert hosts(
        "example.com",
        "sub 300 IN NS ns.sub",
        "ns.sub 300 IN A 192.0.2.1",
        "deep.er.sub 300 IN A 192.0.2.1",
        "subway 300 IN A 192.0.2.1",
    ) == ("subway.example.com",)


@pytest.mark.parametrize(
    ("origin", "names", "zones"),
    [
        ("example.com", ("www.example.com", "example.com"), ("example.com",)),
        ("test", ("a.one.test", "b.one.test", "two.test"), ("one.test", "two.test")),
        # Everybody under a private suffix is a zone of its own.
        ("github.io", ("a.github.io", "b.github.io"), ("a.github.io", "b.github.io")),
        # The zone of the hosts is above: what we may write is below.
        ("sub.example.com", ("www.sub.example.com",), ("sub.example.com",)),
        ("example.com", (), ()),
    ],
)
def test_where_to_register(origin, names, zones):
    assert zones_of(origin, names) == zones
