"""Callback URLs: the subscriber's own query survives, the hub's parameters are appended."""

from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from push_hub.callbacks import check_callback, denial_url, host_of, verification_url, with_query


def ask(callback, **changes):
    given = {"mode": "subscribe", "topic": "http://a.example/?q=1&r=2", "challenge": "c",
             "lease_seconds": 60, **changes}  # fmt: skip
    return verification_url(callback, **given)


@pytest.mark.parametrize(
    ("callback", "begins"),
    [
        ("http://h/cb", "http://h/cb?hub.mode="),
        ("http://h/cb?", "http://h/cb?hub.mode="),
        ("http://h/cb?a=1", "http://h/cb?a=1&hub.mode="),
        ("http://h/cb?a=1&", "http://h/cb?a=1&hub.mode="),
        ("http://h/cb?b&a=%20+;x", "http://h/cb?b&a=%20+;x&hub.mode="),
        ("http://h/cb?hub.mode=mine", "http://h/cb?hub.mode=mine&hub.mode="),
    ],
)
def test_the_own_query_is_kept(callback, begins):
    assert ask(callback).startswith(begins)


def test_what_a_verification_asks():
    query = parse_qsl(urlsplit(ask("http://h/", verify_token="t k")).query)
    assert query == [
        ("hub.mode", "subscribe"),
        ("hub.topic", "http://a.example/?q=1&r=2"),
        ("hub.challenge", "c"),
        ("hub.lease_seconds", "60"),
        ("hub.verify_token", "t k"),
    ]


def test_what_a_denial_says():
    url = denial_url("http://h/?x=1", topic="http://a.example/", reason="not served here")
    assert parse_qsl(urlsplit(url).query) == [
        ("x", "1"),
        ("hub.mode", "denied"),
        ("hub.topic", "http://a.example/"),
        ("hub.reason", "not served here"),
    ]


def test_only_escapes_of_unreserved_characters_are_decoded():
    assert check_callback("http://h/%7Eme/%2Fa%41?%2d=%26") == "http://h/~me/%2FaA?-=%26"


@pytest.mark.parametrize(
    ("callback", "host"),
    [
        ("http://Reader.Example/x", "reader.example:80"),
        ("https://reader.example/x", "reader.example:443"),
        ("http://reader.example:8080", "reader.example:8080"),
        ("http://[2001:DB8::1]:81/", "[2001:db8::1]:81"),
    ],
)
def test_hosts_are_counted_in_one_spelling(callback, host):
    assert host_of(callback) == host


@given(st.lists(st.tuples(st.text(), st.text())), st.sampled_from(["", "?", "?a=1", "?a&b=;"]))
def test_parameters_come_back_after_any_query(parameters, query):
    parameters = [(n.encode(errors="replace").decode(), v.encode(errors="replace").decode())
                  for n, v in parameters]  # fmt: skip
    url = with_query(f"http://h/{query}", parameters)
    found = parse_qsl(urlsplit(url).query, keep_blank_values=True)
    assert found[len(found) - len(parameters) :] == parameters
