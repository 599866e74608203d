"""Points 8 to 14 of websub.md where other files do not prove them, in each dialect."""

import asyncio
import hashlib
import hmac

import pytest
from aiohttp import web

from tests.push_hub.dialects import DIALECTS, ask, change, each_dialect
from tests.push_hub.feeds.documents import atom, json_feed, rss
from tests.push_hub.world import run, until, world


class TestPoint8:
    """Pings."""

    def test_topics_may_be_repeated_under_either_name(self, tmp_path):
        async def main():
            async with world(tmp_path) as w:
                topics = [w.site.put(f"/{n}", b"%d" % n) for n in range(4)]
                for n, topic in enumerate(topics):
                    await w.subscribe(topic, f"/{n}")
                names = ["hub.url", "hub.topic", "hub.url", "hub.topic"]
                nobody = ("hub.url", "http://nobody.example/")
                status, text = await w.post(
                    *zip(names, topics, strict=True), nobody, mode="publish"
                )
                assert (status, text) == (204, "")
                await until(lambda: len(w.reader.received) == 4)
                assert {each.body for each in w.reader.received} == {b"0", b"1", b"2", b"3"}

        run(main())

    @pytest.mark.parametrize("url", ["", "ftp://h/", "nonsense", "http://"])
    def test_a_bad_ping_gets_a_reason(self, tmp_path, url):
        async def main():
            async with world(tmp_path) as w:
                status, text = await w.post(("hub.url", url), mode="publish")
                assert status == 400
                assert "hub.url" in text

        run(main())


class TestPoint9:
    """Fetches."""

    def test_if_modified_since_in_polls(self, tmp_path):
        async def main():
            async with world(tmp_path) as w:
                date = "Thu, 01 Jan 2026 00:00:00 GMT"
                seen = []

                async def dated(request):
                    seen.append(request.headers.get("If-Modified-Since"))
                    if seen[-1] == date:
                        return web.Response(status=304)
                    return web.Response(body=b"x", headers={"Last-Modified": date})

                w.site.hooks["/t"] = dated
                topic = f"{w.site.url}/t"
                await w.subscribe(topic)
                await w.ping(topic)
                await until(lambda: w.hub.counters["updates"] == 1)
                for _ in range(2):  # what a 304 does not repeat is still known
                    count = len(seen)
                    await w.hub._intake.look(1)
                    await until(lambda count=count: len(seen) > count)
                await until(lambda: w.hub.counters["fetches_without_news"] == 2)
                assert seen == [None, date, date]

        run(main())

    def test_a_site_that_never_ends_is_given_up_on(self, tmp_path):
        async def main():
            async with world(tmp_path, fetch_timeout=0.3) as w:

                async def drip(request):
                    response = web.StreamResponse()
                    await response.prepare(request)
                    try:
                        for _ in range(100):
                            await response.write(b"x")
                            await asyncio.sleep(0.05)
                    except ConnectionError:
                        pass
                    return response

                w.site.hooks["/t"] = drip
                topic = f"{w.site.url}/t"
                await w.subscribe(topic)
                await w.ping(topic)
                await until(lambda: w.hub.counters["fetch_failures"] >= 1)
                (record,) = await w.hub.store.topics()
                assert record.last_error == "timed out"

        run(main())


class TestPoint11:
    """Deliveries."""

    @pytest.mark.parametrize("algorithm", ["sha1", "sha256", "sha384", "sha512"])
    @pytest.mark.parametrize("way", ["hub", "subscription"])
    def test_the_signature_can_be_chosen(self, tmp_path, algorithm, way):
        async def main():
            settings = {"signature": algorithm} if way == "hub" else {}
            async with world(tmp_path, **settings) as w:
                topic = w.site.put("/t", b"x")
                wish = {"signature": algorithm} if way == "subscription" else {}
                await w.subscribe(topic, secret="s\u00e9cret", **wish)
                await change(w, b"x")
                await until(lambda: w.reader.received)
                digest = hmac.new("s\u00e9cret".encode(), b"x", getattr(hashlib, algorithm))
                header = w.reader.received[0].headers["X-Hub-Signature"]
                assert header == f"{algorithm}={digest.hexdigest()}"

        run(main())

    @each_dialect
    def test_each_gets_the_links_of_its_own_spelling(self, tmp_path, dialect):
        async def main():
            async with world(tmp_path) as w:
                topic = w.site.put("/t", b"x").replace("http://", "HTTP://")
                await ask(w, dialect, topic=topic)
                await change(w, b"x")
                await until(lambda: w.reader.received)
                assert w.reader.received[0].headers.getall("Link") == [
                    f'<https://hub.example/hub>; rel="hub", <{topic}>; rel="self"'
                ]

        run(main())


class TestPoint12:
    """Entries already delivered may be left out, where that is asked for."""

    @each_dialect
    @pytest.mark.parametrize("make", [atom, rss])
    def test_only_new_entries(self, tmp_path, dialect, make):
        async def main():
            async with world(tmp_path) as w:
                kind = "application/atom+xml" if make is atom else "application/rss+xml"
                topic = w.site.put("/t", make(("a", "1")), kind)
                await ask(w, dialect, topic=topic, path="/new", entries="new")
                await ask(w, dialect, topic=topic, path="/all")
                await change(w, make(("a", "1")), content_type=kind)
                await until(lambda: len(w.reader.received) == 2)
                await change(w, make(("b", "2"), ("a", "1")), content_type=kind)
                await until(lambda: len(w.reader.received) == 4)
                new, whole = w.reader.at("/new")[1], w.reader.at("/all")[1]
                assert whole.body == make(("b", "2"), ("a", "1"))
                assert b"urn:b" in new.body
                assert b"urn:a" not in new.body
                assert new.headers["Content-Type"] == kind

        run(main())


class TestPoint14:
    """Any content, byte for byte."""

    @pytest.mark.parametrize(
        ("content_type", "body"),
        [
            ("application/atom+xml; charset=utf-8", atom(("a", "1"))),
            ("application/rss+xml", rss(("a", "1"))),
            ("application/feed+json", json_feed(("a", "1"))),
            ("application/json", b'{"any": "json"}'),
            ("text/plain; charset=iso-8859-1", "gr\u00fc\u00df".encode("latin-1")),
            ("text/html; charset=utf-8", b"<!doctype html><title>x</title>"),
            ("image/png", bytes(range(256)) * 100),
            ("application/octet-stream", b""),
        ],
    )
    def test_it_is_delivered_as_it_is(self, tmp_path, content_type, body):
        async def main():
            async with world(tmp_path) as w:
                topic = w.site.put("/t", body, content_type)
                for dialect in DIALECTS:
                    await ask(w, dialect, topic=topic, path=f"/{dialect}", secret="s")
                await w.ping(topic)
                await until(lambda: len(w.reader.received) == len(DIALECTS))
                assert {each.body for each in w.reader.received} == {body}
                types = {each.headers["Content-Type"] for each in w.reader.received}
                assert types == {content_type}

        run(main())
