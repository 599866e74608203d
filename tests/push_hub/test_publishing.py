"""websub.md points 8 to 10 over real HTTP: pings, fetches, content sent directly."""

import asyncio
import gzip
import time
import zlib

import pytest
from aiohttp import web

from identifiers import identify
from push_hub import Hub, Publisher
from push_hub.settings import Rate
from push_hub.store import SqliteStore
from push_hub.store.backup import back_up
from tests.push_hub.feeds.documents import atom
from tests.push_hub.world import Site, chosen, run, served, until, until_async, world

ATOM = "application/atom+xml; charset=utf-8"


async def idle(w):
    async def nothing_due():
        return (await w.hub.store.statistics()).fetches_due == 0

    await until_async(nothing_due, "fetches")


@pytest.mark.parametrize("field", ["hub.url", "hub.topic"])
def test_a_ping_is_followed_by_a_fetch_and_deliveries(tmp_path, field):
    async def main():
        async with world(tmp_path) as w:
            topic = w.site.put("/t", b"hello")
            await w.subscribe(topic)
            assert await w.post((field, topic), mode="publish") == (204, "")
            await until(lambda: w.reader.received, "the delivery")
            assert w.reader.received[0].body == b"hello"

    run(main())


def test_a_ping_nobody_cares_about_is_answered_and_forgotten(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            await w.ping(w.site.put("/t", b"hello"))
            await asyncio.sleep(0.1)
            assert w.site.requests == []
            assert (await w.hub.store.statistics()).topics == 0

    run(main())


def test_a_hub_of_certain_hosts_follows_their_topics_unasked(tmp_path):
    async def main():
        async with world(tmp_path, topic_hosts=("127.0.0.1",)) as w:
            await w.ping(w.site.put("/t", b"hello"))
            await until(lambda: w.hub.counters["updates"] == 1)

    run(main())


def test_fetches_are_conditional_and_say_who_asks_for_how_many(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            topic = w.site.put("/t", b"hello")
            await w.subscribe(topic)
            await w.ping(topic)
            await until(lambda: w.reader.received)
            await w.ping(topic)
            await until(lambda: w.hub.counters["fetches_without_news"] == 1)
            first, second = w.site.fetches("/t")
            assert "1 subscribers" in first.headers["User-Agent"]
            assert "https://hub.example/hub" in first.headers["User-Agent"]
            assert second.headers["If-None-Match"]
            assert len(w.reader.received) == 1

    run(main())


def test_pings_coalesce_and_no_update_is_missed(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            gate, begun = asyncio.Event(), asyncio.Event()
            versions = [b"old"]

            async def slow(request):
                body = versions[-1]
                begun.set()
                await gate.wait()
                return web.Response(body=body)

            w.site.hooks["/t"] = slow
            topic = f"{w.site.url}/t"
            await w.subscribe(topic)
            await w.ping(topic)
            await begun.wait()
            versions.append(b"new")  # the running fetch has read the old one already
            for _ in range(20):
                await w.ping(topic)
            gate.set()
            await until(lambda: w.reader.received and w.reader.received[-1].body == b"new")
            await idle(w)
            assert len(w.site.fetches("/t")) == 2

    run(main())


def test_a_fetch_that_ends_while_the_next_ones_are_looked_up_is_not_made_again(tmp_path):
    class SlowToTell(SqliteStore):
        """Reads what is due, and tells it later than a loaded machine would."""

        async def due_fetches(self, now, limit):
            found = await super().due_fetches(now, limit)
            await asyncio.sleep(0.05)
            return found

    async def main():
        site, updates = Site(), []
        app = web.Application()
        app.router.add_get("/{path:.*}", site.answer)
        async with served(app) as site.url:
            topics = [identify(site.put(f"/{n}", b"hello")) for n in range(8)]
            host = topics[0].host
            store = await SlowToTell.open(tmp_path / "hub.sqlite")
            async with Hub(chosen(topic_hosts=(host,)), store) as hub:
                hub.listen(updates.append)
                for topic in topics:
                    await hub.ping((topic,))
                    await asyncio.sleep(0.02)
                await until(lambda: len(updates) >= 8, "updates")
                await asyncio.sleep(0.3)
            await store.close()
            assert len(updates) == len(site.requests) == 8

    run(main())


def test_feeds_are_news_by_their_entries(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            topic = w.site.put("/f", atom(("a", "1")), ATOM)
            await w.subscribe(topic)
            await w.ping(topic)
            await until(lambda: w.hub.counters["updates"] == 1)
            w.site.put("/f", atom(("a", "1"), title="Other title"), ATOM)
            await w.ping(topic)
            await until(lambda: w.hub.counters["fetches_without_news"] == 1)
            w.site.put("/f", atom(("b", "2"), ("a", "1")), ATOM)
            await w.ping(topic)
            await until(lambda: len(w.reader.received) == 2)
            assert w.reader.received[1].body == atom(("b", "2"), ("a", "1"))

    run(main())


def test_redirects_are_followed_and_join_the_spellings(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            new = w.site.put("/new", b"moved here")

            async def moved(request):
                raise web.HTTPMovedPermanently("/new")

            w.site.hooks["/old"] = moved
            old = f"{w.site.url}/old"
            await w.subscribe(old)
            await w.ping(old)
            await until(lambda: len(w.reader.received) == 1)
            assert f'<{old}>; rel="self"' in w.reader.received[0].headers["Link"]
            w.site.put("/new", b"changed here")
            await w.ping(new)
            await until(lambda: len(w.reader.received) == 2)
            assert w.reader.received[1].body == b"changed here"

    run(main())


def test_redirects_end(tmp_path):
    async def main():
        async with world(tmp_path) as w:

            async def loop(request):
                raise web.HTTPFound("/loop")

            w.site.hooks["/loop"] = loop
            topic = f"{w.site.url}/loop"
            await w.subscribe(topic)
            await w.ping(topic)
            await until(lambda: w.hub.counters["fetch_failures"] == 3)
            await idle(w)
            (record,) = await w.hub.store.topics()
            assert record.last_error == "more than 5 redirects"

    run(main())


def test_a_failing_topic_is_fetched_again_and_honours_retry_after(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            answers = iter([500, 503])

            async def flaky(request):
                status = next(answers, 200)
                return web.Response(status=status, text="ok", headers={"Retry-After": "0"})

            w.site.hooks["/t"] = flaky
            topic = f"{w.site.url}/t"
            await w.subscribe(topic)
            await w.ping(topic)
            await until(lambda: w.reader.received)
            assert len(w.site.fetches("/t")) == 3

    run(main())


def test_compressed_topics_are_read_and_bombs_are_not(tmp_path):
    async def main():
        async with world(tmp_path, max_body=1_000_000) as w:
            bodies = {
                "/gzip": gzip.compress(b"hello"),
                "/deflate": zlib.compress(b"hello"),
                "/bomb": gzip.compress(b"\0" * 50_000_000),
                "/short": gzip.compress(b"hello" * 1000)[:-20],
                "/large": b"x" * 1_000_001,
            }

            async def compressed(request):
                encoding = {"/large": "identity", "/deflate": "deflate"}.get(request.path, "gzip")
                return web.Response(
                    body=bodies[request.path], headers={"Content-Encoding": encoding}
                )

            for path in bodies:
                w.site.hooks[path] = compressed
                await w.subscribe(w.site.url + path, path)
            await w.ping(*[w.site.url + path for path in bodies])
            await until(lambda: len(w.reader.received) >= 2)
            await idle(w)
            assert [each.body for each in w.reader.received] == [b"hello", b"hello"]
            errors = {each.fetch_url: each.last_error for each in await w.hub.store.topics()}
            assert "larger than" in errors[f"{w.site.url}/bomb"]
            assert "larger than" in errors[f"{w.site.url}/large"]
            assert "cut short" in errors[f"{w.site.url}/short"]

    run(main())


def test_topics_are_polled_where_that_is_chosen(tmp_path):
    async def main():
        async with world(tmp_path, poll_every=0.2) as w:
            topic = w.site.put("/t", b"1")
            await w.subscribe(topic)
            # What it was like at the beginning is no news, and no ping says otherwise.
            await until(lambda: w.hub.counters["updates"] == 1)
            w.site.put("/t", b"2")
            await until(lambda: w.reader.received)
            assert w.reader.received[0].body == b"2"

    run(main())


def test_a_topic_without_news_is_not_fetched_more_often_than_its_rate(tmp_path):
    async def main():
        async with world(tmp_path, ping_rate=Rate(per_second=2, burst=2)) as w:
            topic = w.site.put("/t", b"1")
            await w.subscribe(topic)
            await w.ping(topic)
            await until(lambda: w.reader.received)
            begun = time.monotonic()
            for _ in range(10):
                await w.ping(topic)
                await asyncio.sleep(0.02)
            await idle(w)
            # Usually 4; on a machine that takes its time there may be more in it.
            assert len(w.site.fetches("/t")) <= 4 + 2 * (time.monotonic() - begun)

    run(main())


def test_a_ping_answered_before_a_crash_is_fetched_after_it(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            released = asyncio.Event()

            async def hang(request):
                await released.wait()
                return web.Response(text="at last")

            w.site.hooks["/t"] = hang
            topic = f"{w.site.url}/t"
            await w.subscribe(topic)
            await w.ping(topic)
            await until(lambda: w.site.fetches("/t"))
            # What kill -9 would leave behind at this moment: nothing is fetched.
            (tmp_path / "left").mkdir()
            back_up(tmp_path / "hub.sqlite", tmp_path / "left" / "hub.sqlite")
            async with world(tmp_path / "left") as again:
                await until(lambda: len(w.site.fetches("/t")) == 2, "another fetch")
                released.set()
                await until(lambda: again.hub.counters["updates"] == 1)

    run(main())


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/feed+json", b'{"version": "https://jsonfeed.org/version/1", "items": '
         b'[{"id": "\\ud800", "title": "\\udfff", "url": "\\u0000"}]}'),
        ("text/\xff\u2028", b"odd type"),
        ("application/atom+xml; charset=utf-7", atom(("a", "+ADw-script+AD4-"))),
        ("application/rss+xml; charset=no-such", b"<rss version='2.0'><channel><item/></channel>"),
        ("text/xml", b"<feed>" * 5_000),
    ],
)  # fmt: skip
def test_odd_documents_are_delivered_as_they_are(tmp_path, content_type, body):
    async def main():
        async with world(tmp_path) as w:
            topic = w.site.put("/t", body, content_type, ETag='"\xfc"')
            await w.subscribe(topic)
            await w.ping(topic)
            await until(lambda: w.reader.received, "the delivery")
            assert w.reader.received[0].body == body
            if content_type.isascii():
                assert w.reader.received[0].headers["Content-Type"] == content_type

    run(main())


class TestContentSentDirectly:
    """POST /publish with a token."""

    TOKENS = (
        Publisher("right", "http://example.com/"),
        Publisher("other", "http://other.example/"),
    )

    async def send(self, w, body, token="right", topic="http://example.com/feed"):
        headers = {"Content-Type": "text/x-news", "Authorization": f"Bearer {token}"}
        async with w.client.post(
            f"{w.hub_url}/publish", params={"topic": topic}, data=body, headers=headers
        ) as answer:
            return answer.status, await answer.text()

    def test_it_is_delivered_with_its_position(self, tmp_path):
        async def main():
            async with world(tmp_path, publishers=self.TOKENS) as w:
                await w.subscribe("http://example.com/feed")
                for n in range(1, 4):
                    status, text = await self.send(w, b"same")
                    assert status == 201
                    assert f'.1.{n}"' in text
                await until(lambda: len(w.reader.received) == 3)
                assert {each.body for each in w.reader.received} == {b"same"}
                assert w.reader.received[0].headers["Content-Type"] == "text/x-news"

        run(main())

    @pytest.mark.parametrize("token", ["wrong", "other", ""])
    def test_it_needs_a_token_for_the_topic(self, tmp_path, token):
        async def main():
            async with world(tmp_path, publishers=self.TOKENS) as w:
                assert (await self.send(w, b"x", token))[0] == 401
                assert (await w.hub.store.statistics()).updates == 0

        run(main())
