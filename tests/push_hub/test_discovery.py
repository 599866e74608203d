"""Discovery: headers first, then each kind of document."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from push_hub.discovery import Discovery, discover

URL = "http://example.com/feed"
ATOM = b"""<?xml version="1.0"?>
<feed xmlns="http://www.w3.org/2005/Atom">
  <link rel="hub" href="http://hub.example/"/><link rel="self" href="/own"/>
  <link href="http://example.com/"/>
  <entry><link rel="hub" href="http://evil.example/"/></entry>
</feed>"""
RSS = b"""<rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom"><channel>
  <link>http://example.com/</link>
  <atom:link rel="hub" href="http://hub.example/"/><atom:link rel="self" href="/own"/>
  <item><atom:link rel="self" href="http://evil.example/"/></item>
</channel></rss>"""
HTML = b"""<!DOCTYPE html><html><head><base href="/sub/">
  <link rel=HUB href=http://hub.example/><link rel="self" href="own">
  <link rel="alternate" type="application/atom+xml" href="atom.xml">
  <link rel="alternate" hreflang="fr" href="fr.html"></head>
  <body><link rel="hub" href="http://evil.example/"></body></html>"""
JSON = json.dumps(
    {"version": "https://jsonfeed.org/version/1.1", "feed_url": "/own",
     "hubs": [{"type": "rssCloud", "url": "http://cloud/"},
              {"type": "WebSub", "url": "http://hub.example/"}]}
).encode()  # fmt: skip


@pytest.mark.parametrize(
    ("content_type", "body", "own"),
    [
        ("application/atom+xml", ATOM, "http://example.com/own"),
        ("text/xml; charset=utf-8", RSS, "http://example.com/own"),
        ("", RSS, "http://example.com/own"),
        ("text/html", HTML, "http://example.com/sub/own"),
        ("application/feed+json", JSON, "http://example.com/own"),
    ],
)
def test_each_kind_of_document(content_type, body, own):
    found = discover(URL, [], content_type, body)
    assert found.hubs == ("http://hub.example/",)
    assert found.self_url == own


def test_headers_come_first():
    headers = ["<http://first.example/>; rel=hub, <http://example.com/canon>; rel=self"]
    found = discover(URL, headers, "application/atom+xml", ATOM)
    assert found == Discovery(("http://first.example/",), "http://example.com/canon")


def test_a_home_page_offers_its_feeds():
    found = discover(URL, [], "text/html", HTML)
    assert found.alternates == ("http://example.com/sub/atom.xml",)


def test_entities_are_not_followed():
    body = b'<!DOCTYPE feed [<!ENTITY x SYSTEM "file:///etc/passwd">]>' + ATOM[21:]
    assert discover(URL, [], "application/atom+xml", body).hubs == ()


def test_what_has_no_links_says_nothing():
    assert discover(URL, [], "image/png", b"\x89PNG") == Discovery()


@given(st.sampled_from(["text/html", "text/xml", "application/json", ""]), st.binary())
def test_any_body_is_read(content_type, body):
    for start in (b"", ATOM[:200], RSS[:150], HTML[:120], JSON[:60]):
        discover(URL, [], content_type, start + body)
