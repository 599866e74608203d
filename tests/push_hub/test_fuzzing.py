"""Whatever is sent to the hub, or served to it: never a 500, never a fault in its log."""

from __future__ import annotations

import asyncio
import json
import logging
from urllib.parse import quote_from_bytes

import pytest
from aiohttp import web
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from push_hub.discovery import discover
from push_hub.feeds import read_feed, trim
from push_hub.links import parse_link_headers
from push_hub.news import find_news
from push_hub.settings import Publisher, Rate
from tests.push_hub.world import PATIENCE, until, world

MANY = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
PLENTY = Rate(per_second=1e6, burst=1_000_000)


@pytest.fixture
def alive(tmp_path, caplog):
    """A running hub; afterwards nothing that looks like a fault may be in the log."""
    loop = asyncio.new_event_loop()
    running = world(
        tmp_path, client_rate=PLENTY, ping_rate=PLENTY, verification_rate=PLENTY,
        publishers=(Publisher("token", "http"),), admin_token="admin",
    )  # fmt: skip
    with caplog.at_level(logging.INFO):
        w = loop.run_until_complete(running.__aenter__())
        w.run = loop.run_until_complete
        try:
            yield w
        finally:
            loop.run_until_complete(running.__aexit__(None, None, None))
            loop.close()
    faults = [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.WARNING or record.exc_info
    ]
    assert faults == []


async def status_of(w, request):
    """Send bytes as they are; the status, or None when the hub hung up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(w.hub_url.rpartition(":")[2]))
    try:
        writer.write(request)
        line = await asyncio.wait_for(reader.readline(), PATIENCE)
    except ConnectionError:
        return None
    finally:
        writer.close()
    return int(line.split()[1]) if line else None


def form_request(body, content_type=b"application/x-www-form-urlencoded"):
    head = b"POST /hub HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
    return (
        head + b"Content-Type: %s\r\nContent-Length: %d\r\n\r\n" % (content_type, len(body)) + body
    )


WORDS = st.one_of(
    st.sampled_from(
        ["subscribe", "unsubscribe", "publish", "sync", "async", "new", "sha1", "sha999", "0", "-1",
         "86400", "9" * 30, "１２", "", "http://", "http://[", "http://[::1", "http://a b/",
         "http://é.example/", "http://xn--a/", "http://topic.example/x", "http://h:99999/",
         "http://u:p@h/", "//x", "file:///etc/passwd", "http://topic.example/%zz%00", "\ud800",
         "http://topic.example/\r\nX: y", "http://" + "a" * 3000]
    ),
    st.text(max_size=30),
    st.text(max_size=20).map(lambda text: f"http://topic.example/{text}"),
)  # fmt: skip
NAMES = st.sampled_from(
    ["hub.mode", "hub.topic", "hub.url", "hub.url[]", "hub.callback", "hub.secret",
     "hub.lease_seconds", "hub.verify", "hub.verify_token", "hub.entries", "hub.signature", "x", ""]
)  # fmt: skip


def encoded(pairs):
    return b"&".join(
        quote_from_bytes(name.encode()).encode()
        + b"="
        + quote_from_bytes(value.encode(errors="surrogatepass")).encode()
        for name, value in pairs
    )


def test_forms(alive):
    callback = alive.reader.url + "/cb"

    @MANY
    @given(
        st.lists(st.tuples(NAMES, WORDS), max_size=8),
        st.sampled_from(["subscribe", "unsubscribe", "publish", None]),
        st.text(max_size=12),
    )
    def sent(pairs, mode, path):
        right = [] if mode is None else [
            ("hub.mode", mode), ("hub.callback", callback + path),
            ("hub.topic", "http://topic.example/"),
        ]  # fmt: skip
        names = {name for name, _ in right}
        pairs = right + [pair for pair in pairs if mode is None or pair[0] not in names]
        status = alive.run(status_of(alive, form_request(encoded(pairs))))
        assert status in (202, 204, 400, 403, 409, 413, 429), (status, pairs)

    sent()


def test_bytes_for_forms(alive):
    @MANY
    @given(st.binary(max_size=200), st.binary(max_size=30))
    @example(b"hub.mode=%ff%fe", b"application/x-www-form-urlencoded")
    @example(b"&".join([b"a=b"] * 1000), b"application/x-www-form-urlencoded")
    def sent(body, content_type):
        kinds = (
            b"application/x-www-form-urlencoded",
            content_type.replace(b"\r", b"").replace(b"\n", b""),
        )
        for kind in kinds:
            status = alive.run(status_of(alive, form_request(body, kind)))
            assert status is None or status < 500, status

    sent()


HEADERS = [
    "Last-Event-ID",
    "Authorization",
    "Content-Type",
    "Content-Encoding",
    "Accept",
    "Cookie",
    "X-Forwarded-For",
    "Range",
    "If-None-Match",
    "Expect",
    "Transfer-Encoding",
    "Upgrade",
    "X-Hub-Signature",
    "Sec-Fetch-Site",
    "Host",
    "Content-Length",
]
PATHS = [
    "/hub",
    "/stream",
    "/publish",
    "/",
    "/topics",
    "/topics/1",
    "/metrics",
    "/healthz",
    "/admin/topics",
    "/admin/replay",
    "/admin/subscriptions/1",
    "/upstream/abc",
    "/t/http://topic.example/",
    "/none",
]


def test_headers_and_queries(alive):
    text = st.text(
        st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=30
    )

    @MANY
    @given(
        st.sampled_from(["GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "NONSENSE"]),
        st.sampled_from(PATHS),
        st.lists(
            st.tuples(
                st.sampled_from(["topic", "after", "url", "limit", "position", "hub.mode"]), WORDS
            ),
            max_size=4,
        ),
        st.lists(st.tuples(st.sampled_from(HEADERS), text), max_size=4),
        st.sampled_from(["", "Bearer token", "Bearer admin", "Basic eDp5"]),
    )
    def sent(method, path, query, headers, right):
        lines = [f"{name}: {value}".encode("latin-1") for name, value in headers]
        if right:
            lines.append(f"Authorization: {right}".encode())
        target = f"{path}?".encode() + encoded(query)
        head = b"%s %s HTTP/1.1\r\nHost: h\r\n" % (method.encode(), target)
        request = head + b"".join(line + b"\r\n" for line in lines) + b"Connection: close\r\n\r\n"
        status = alive.run(status_of(alive, request + b"body"))
        assert status is None or status < 500, (status, request)

    sent()


# Feeds

PIECES = st.sampled_from(
    [
        '<?xml version="1.0"?>',
        '<?xml version="1.0" encoding="utf-7"?>',
        "<rss version='2.0'>",
        "<feed xmlns='http://www.w3.org/2005/Atom'>",
        "<channel>",
        "</channel>",
        "</rss>",
        "</feed>",
        "<entry>",
        "</entry>",
        "<item>",
        "</item>",
        "<id>1</id>",
        "<guid>1</guid>",
        "<title type='html'>",
        "</title>",
        "<link rel='self' href='http://[' />",
        "<link rel='hub' href='//x'/>",
        "<updated>9999-99-99</updated>",
        "<pubDate>Mon, 99 Foo 20265 99:99:99 +9999</pubDate>",
        "<content>",
        "</content>",
        "<![CDATA[",
        "]]>",
        "&amp;",
        "&nope;",
        "&#xffffffff;",
        "&#0;",
        "<!--",
        "-->",
        "<!DOCTYPE x [",
        "<!ENTITY a 'b'>",
        "]>",
        "\x00",
        "\ufeff",
        "\udc80",
        "é",
        "<a:b xmlns:a='x'>",
        "</a:b>",
        '{"version": ',
        '"items": [',
        "]}",
        "<html><head><link rel=hub href=x>",
        "<base href='http://['>",
        "<rdf:RDF>",
        "<summary>",
    ]
)
DOCUMENTS = st.one_of(
    st.binary(max_size=200),
    st.lists(st.one_of(PIECES, st.text(max_size=10)), max_size=25).map(
        lambda parts: (
            "".join(parts).encode(errors="surrogateescape")
            if all(
                0xDC80 <= ord(c) <= 0xDCFF or not 0xD800 <= ord(c) <= 0xDFFF
                for p in parts
                for c in p
            )
            else "".join(parts).encode(errors="replace")
        )
    ),
)
TYPES = st.sampled_from(
    [
        "application/atom+xml",
        "application/rss+xml; charset=utf-8",
        "text/xml; charset=utf-7",
        "application/feed+json",
        "application/json; charset=nope",
        "text/html",
        "text/plain",
        "",
        ";;;=",
        "text/xml; charset=" + "x" * 100,
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["id", "url", "title", "author", "content_html", "date_published", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=400, deadline=None)
@given(TYPES, DOCUMENTS)
def test_documents_are_read_without_a_fault(content_type, body):
    news = find_news(content_type, body, None, {})
    assert news is not None
    discover("http://topic.example/", (), content_type, body)
    if (feed := read_feed(content_type, body)) is not None:
        trim(body, feed, frozenset())


@settings(max_examples=200, deadline=None)
@given(JSON, st.sampled_from(["https://jsonfeed.org/version/1.1", "x"]))
def test_json_is_read_without_a_fault(items, version):
    for value in (items, [items], [{"id": items}]):
        body = json.dumps(
            {"version": version, "items": value, "title": items, "hubs": items}
        ).encode()
        assert find_news("application/feed+json", body, None, {}) is not None
        discover("http://topic.example/", (), "application/feed+json", body)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text(max_size=60), max_size=3))
def test_link_headers_are_read_without_a_fault(headers):
    parse_link_headers(headers, "http://topic.example/")


def test_documents_that_are_fetched(alive):
    answer = {}

    async def serve(request):
        return web.Response(body=answer["body"], headers=answer["headers"])

    alive.site.hooks["/t"] = serve
    topic = alive.site.url + "/t"
    alive.run(alive.subscribe(topic))
    header = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=40)

    @settings(MANY, max_examples=60)
    @given(DOCUMENTS, header, header, header, st.sampled_from(["", "gzip", "br", "x"]))
    def fetched(body, content_type, link, etag, encoding):
        answer["body"] = body
        answer["headers"] = {"Content-Type": content_type, "Link": link, "ETag": etag}
        if encoding:
            answer["headers"]["Content-Encoding"] = encoding
        count = alive.hub.counters

        def ended():
            return count["fetches"] + count["fetch_failures"]

        before = ended()
        alive.run(alive.ping(topic))
        alive.run(until(lambda: ended() > before))

    fetched()
