"""Reading feeds: every kind, and no trick."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from push_hub.feeds import read_feed
from tests.push_hub.feeds.documents import atom, json_feed, rss

KINDS = [("application/atom+xml", atom), ("application/rss+xml; charset=utf-8", rss),
         ("application/feed+json", json_feed), ("text/xml", rss)]  # fmt: skip


@pytest.mark.parametrize(("content_type", "make"), KINDS)
def test_each_kind_of_feed(content_type, make):
    feed = read_feed(content_type, make(("a", "First"), ("b", "Second")))
    assert feed.title == "News"
    assert [(entry.key, entry.title) for entry in feed.entries] == [
        ("urn:a", "First"),
        ("urn:b", "Second"),
    ]


@pytest.mark.parametrize(("content_type", "make"), KINDS)
def test_a_digest_is_of_what_an_entry_says(content_type, make):
    one = read_feed(content_type, make(("a", "First"), ("b", "Second")))
    two = read_feed(content_type, make(("b", "Second"), ("a", "Changed")))
    assert one.entries[1].digest == two.entries[0].digest
    assert one.entries[0].digest != two.entries[1].digest


def test_entries_that_share_a_key_are_told_apart():
    feed = read_feed("text/xml", rss(("a", "1"), ("a", "2"), ("a", "3")))
    assert [entry.key for entry in feed.entries] == ["urn:a", "urn:a (2)", "urn:a (3)"]


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("text/plain", b"hello"),
        ("text/html", b"<html><body>feed</body></html>"),
        ("application/json", b'{"items": []}'),
        ("application/json", b'{"version": "https://jsonfeed.org/version/1", "items": [1]}'),
        ("application/json", b"[" * 100_000),
        ("image/png", b"\x89PNG\r\n"),
        ("application/atom+xml", b""),
        ("application/atom+xml", b"file:///etc/passwd"),
    ],
)
def test_everything_else_is_a_document(content_type, body):
    assert read_feed(content_type, body) is None


@pytest.mark.parametrize(
    "declaration",
    [
        '<!ENTITY x SYSTEM "file:///etc/passwd">',
        '<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;"><!ENTITY x "&b;&b;&b;&b;">',
        '<!ENTITY % p SYSTEM "http://evil.example/">',
    ],
)
def test_a_feed_that_declares_entities_is_not_read(declaration):
    body = f"<!DOCTYPE feed [{declaration}]>".encode() + atom(("a", "&x;"))[39:]
    assert read_feed("application/atom+xml", body) is None


def test_cdata_is_no_declaration():
    assert read_feed("text/xml", rss(("a", "<![CDATA[<b>x</b>]]>"))).entries[0].title == "<b>x</b>"


def test_a_feed_with_too_many_entries_is_a_document():
    assert read_feed("text/xml", rss(*[(n, "x") for n in range(2001)])) is None


@pytest.mark.parametrize(
    "body",
    [
        b"<feed>" * 100_000,
        b"<feed>" + b"<" * 500_000,
        b"<rss><channel><item><title>" + b"&" * 500_000,
        rss(*[(n, "x") for n in range(40_000)]),
        atom(("a", "x" * (4 << 20))),
    ],
)
def test_what_would_take_too_long_to_read_is_a_document(body):
    assert read_feed("text/xml", body) is None


def test_a_feed_that_is_not_well_formed_is_read_all_the_same():
    broken = rss(("a", "Q & A")).replace(b"</channel>", b"")
    assert [entry.title for entry in read_feed("text/xml", broken).entries] == ["Q & A"]


@given(st.sampled_from(KINDS), st.data())
def test_any_bytes_are_read(kind, data):
    content_type, make = kind
    body = bytearray(make(("a", "First"), ("b", "Second")))
    for _ in range(data.draw(st.integers(0, 5))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=6))
        if not body:
            break
    feed = read_feed(content_type, bytes(body))
    if feed is not None:
        keys = [entry.key for entry in feed.entries]
        assert len(set(keys)) == len(keys)


def test_a_date_of_publication_stands_in_for_one_of_change():
    """feedparser warns when it is asked for the other, and warnings are errors here."""
    dated = rss(("a", "x")).replace(
        b"</item>", b"<pubDate>Thu, 01 Jan 2026 00:00:00 GMT</pubDate></item>"
    )
    (entry,) = read_feed("application/rss+xml", dated).entries
    assert entry.published == "Thu, 01 Jan 2026 00:00:00 GMT"
