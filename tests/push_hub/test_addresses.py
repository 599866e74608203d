"""The guard: private addresses in every disguise are refused, allow-lists open what they name."""

import pytest

from push_hub.addresses import AddressPolicy, client_address, parse_networks
from push_hub.errors import AddressRefused

PUBLIC = AddressPolicy((), "delivery", "--allow-callback")


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "64:ff9b::808:808"])
def test_the_public_internet_is_open(address):
    PUBLIC.check(address)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.8.8", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1",
        "169.254.169.254", "100.64.0.1", "192.0.2.1", "198.18.0.1", "224.0.0.1", "240.0.0.1",
        "255.255.255.255", "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12::1", "ff02::1",
        "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1",
        "64:ff9b:1::a00:1", "2002:7f00:1::", "2002:a00:1::", "2001:db8::1", "nonsense",
    ],
)  # fmt: skip
def test_everything_else_is_refused(address):
    with pytest.raises(AddressRefused):
        PUBLIC.check(address)


def test_a_refusal_says_what_would_allow_it():
    with pytest.raises(AddressRefused, match=r"10\.0\.0\.1 .* --allow-callback"):
        PUBLIC.check("10.0.0.1")


def test_an_allow_list_opens_its_networks_and_no_others():
    policy = AddressPolicy(parse_networks(["127.0.0.0/8", "fd00::1"]), "fetch", "--allow-fetch")
    policy.check("127.0.0.1")
    policy.check("::ffff:127.0.0.1")
    policy.check("fd00::1")
    for other in ("10.0.0.1", "fd00::2", "::1"):
        with pytest.raises(AddressRefused):
            policy.check(other)


def test_hosts_that_are_addresses_are_checked_before_anything_is_sent():
    PUBLIC.check_host("example.com")
    for host in ("127.0.0.1", "[::1]"):
        with pytest.raises(AddressRefused):
            PUBLIC.check_host(host)


@pytest.mark.parametrize(
    ("remote", "forwarded", "client"),
    [
        ("8.8.8.8", [], "8.8.8.8"),
        ("8.8.8.8", ["1.1.1.1"], "8.8.8.8"),
        ("127.0.0.1", [], "127.0.0.1"),
        ("127.0.0.1", ["1.1.1.1"], "1.1.1.1"),
        ("127.0.0.1", ["6.6.6.6, 1.1.1.1"], "1.1.1.1"),
        ("127.0.0.1", ["6.6.6.6", "1.1.1.1, 127.0.0.2"], "1.1.1.1"),
        ("127.0.0.1", ["nonsense"], "nonsense"),
    ],
)
def test_only_trusted_proxies_are_believed(remote, forwarded, client):
    assert client_address(remote, forwarded, parse_networks(["127.0.0.0/8"])) == client
    assert client_address(remote, forwarded, ()) == remote
