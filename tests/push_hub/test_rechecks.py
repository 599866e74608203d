"""A ping promises news: what a date in seconds, or a cache, hides from its fetch is found later."""

import getpass
import os
import shutil
import sqlite3
import time
from contextlib import asynccontextmanager, closing
from email.utils import formatdate, parsedate_to_datetime

import aiohttp
import pytest
from aiohttp import web

from push_hub.settings import Rate
from push_hub.store.backup import back_up
from tests.ports import free_port
from tests.push_hub.examples import running
from tests.push_hub.world import run, until, until_async, world

SOON = tuple(0.05 * n for n in range(1, 1_000))
"""Rechecks that go on for as long as a test takes."""

needs_nginx = pytest.mark.skipif(shutil.which("nginx") is None, reason="no nginx")


class Dated:
    """A page whose only validator is Last-Modified; the test says when it changes."""

    def __init__(self, w, path="/t"):
        self.url = w.site.url + path
        self.body, self.modified = b"", int(time.time())
        w.site.hooks[path] = self.answer

    async def answer(self, request):
        since = request.headers.get("If-Modified-Since")
        if since and self.modified <= parsedate_to_datetime(since).timestamp():
            return web.Response(status=304)
        date = formatdate(self.modified, usegmt=True)
        return web.Response(body=self.body, headers={"Last-Modified": date})


def got(w, body):
    return lambda: any(each.body == body for each in w.reader.received)


async def not_due(w):
    return (await w.hub.store.statistics()).fetches_due == 0


@pytest.mark.parametrize("age", [0, 3_600])
def test_two_changes_within_one_second_are_both_delivered(tmp_path, age):
    async def main():
        async with world(tmp_path) as w:
            page = Dated(w)
            page.modified -= age  # old enough to be kept as a validator, or not
            await w.subscribe(page.url)
            for body in (b"one", b"two"):
                page.body = body
                await w.ping(page.url)
                await until(got(w, body), f"delivery of {body}")

    run(main())


def test_only_a_strong_validator_is_sent_for_a_ping_and_all_of_them_for_a_poll(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            old = formatdate(0, usegmt=True)
            sent = {"/strong": '"a"', "/weak": 'W/"a"'}

            async def answer(request):
                headers = {"ETag": sent[request.path], "Last-Modified": old}
                return web.Response(body=request.path.encode(), headers=headers)

            def asked(path, n):
                headers = w.site.fetches(path)[n].headers
                names = ("Cache-Control", "If-None-Match", "If-Modified-Since")
                return tuple(headers.get(each) for each in names)

            for path, tag in sent.items():
                w.site.hooks[path] = answer
                topic = w.site.url + path
                await w.subscribe(topic, path)
                for n in range(2):
                    await w.ping(topic)
                    await until(lambda n=n, path=path: len(w.site.fetches(path)) == n + 1)
                    await until_async(lambda: not_due(w), "the end of the fetch")
                assert asked(path, 0) == ("no-cache", None, None)
                assert asked(path, 1) == ("no-cache", tag if path == "/strong" else None, None)
            for n, path in enumerate(sent, 1):
                await w.hub._intake.look(n)
                await until(lambda path=path: len(w.site.fetches(path)) == 3)
                assert asked(path, 2) == (None, sent[path], old)

    run(main())


@asynccontextmanager
async def nginx(directory, text):
    """nginx with a server of this text; its URL."""
    port = free_port()
    temporary = " ".join(
        f"{kind}_temp_path {directory}/{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (directory / "nginx.conf").write_text(
        f"user {getpass.getuser()}; daemon off; master_process off; pid {directory}/pid;"
        f" error_log stderr;\nevents {{}}\nhttp {{ access_log off; {temporary}\n"
        f"proxy_cache_path {directory}/cache keys_zone=c:1m;\n"
        f"server {{ listen 127.0.0.1:{port}; {text} }} }}\n"
    )
    command = (shutil.which("nginx"), "-p", directory, "-c", directory / "nginx.conf")
    async with running(*command, directory=directory), aiohttp.ClientSession() as client:

        async def serves():
            try:
                async with client.get(f"http://127.0.0.1:{port}/") as answer:
                    return answer.status > 0
            except aiohttp.ClientError:
                return False

        await until_async(serves, "nginx")
        yield f"http://127.0.0.1:{port}"


def cached(w):
    """A cache in front of the site that ignores the requests' Cache-Control, as nginx does."""
    return (
        f"location / {{ proxy_pass {w.site.url}; proxy_cache c; proxy_cache_valid 200 1h;"
        " proxy_cache_methods GET; }"
    )


@needs_nginx
@pytest.mark.parametrize(
    "headers",
    [{}, {"Last-Modified": formatdate(0, usegmt=True)}],
    ids=["weak tag", "strong tag and date"],
)
def test_what_a_cache_hides_is_found_when_the_cache_lets_go(tmp_path, headers):
    async def main():
        async with (
            world(tmp_path, recheck_after=SOON) as w,
            nginx(tmp_path, cached(w)) as front,
        ):
            # nginx passes a strong tag on and says nothing of its cache: the date gives it away.
            tag = {} if headers else {"ETag": 'W/"weak"'}
            w.site.put("/t", b"old", **headers, **tag)
            topic = f"{front}/t"
            await w.subscribe(topic)
            await w.ping(topic)
            await until(got(w, b"old"))
            w.site.put("/t", b"new", **headers, **tag)
            before = len(w.site.fetches("/t"))
            await w.ping(topic)
            await until(lambda: w.hub.counters["fetches_without_news"] >= 2, "a recheck")
            assert len(w.site.fetches("/t")) == before, "the cache let the hub through"
            shutil.rmtree(tmp_path / "cache")
            (tmp_path / "cache").mkdir()
            await until(got(w, b"new"), "the delivery")
            await until_async(lambda: not_due(w), "an end of the rechecks")

    run(main())


@needs_nginx
def test_a_file_of_nginx_that_changes_twice_in_a_second(tmp_path):
    """Its tag has the seconds and the size: both are the same."""

    async def main():
        root = tmp_path / "served"
        root.mkdir()
        async with world(tmp_path) as w, nginx(tmp_path, f"root {root};") as front:
            topic, now = f"{front}/feed", int(time.time())
            (root / "feed").write_bytes(b"-")
            await w.subscribe(topic)
            for body in (b"1", b"2"):
                (root / "feed").write_bytes(body)
                os.utime(root / "feed", (now, now))
                await w.ping(topic)
                await until(got(w, body), f"delivery of {body}")

    run(main())


def test_rechecks_end_and_a_sure_answer_needs_none(tmp_path):
    async def main():
        async with world(tmp_path, recheck_after=(0.05, 0.1, 0.15)) as w:
            topics = {"/dated": Dated(w, "/dated").url, "/sure": w.site.put("/sure", b"x")}
            for path, topic in topics.items():
                await w.subscribe(topic, path)
                await w.ping(topic)
                await until(lambda path=path: w.reader.at(path))
                await until_async(lambda: not_due(w), "the first fetch")
                # The ping of a thing that is there already.
                w.site.requests.clear()
                await w.ping(topic)
                await until(lambda path=path: w.site.fetches(path))
                await until_async(lambda: not_due(w), "rechecks")
                assert len(w.site.fetches(path)) == {"/dated": 4, "/sure": 1}[path]
                (found,) = [each for each in await w.hub.store.topics() if each.fetch_url == topic]
                assert (found.rechecks, bool(found.signalled)) == (0, False)
            assert w.hub.counters["rechecks"] == 3

    run(main())


def test_the_first_news_ends_the_rechecks(tmp_path):
    async def main():
        async with world(tmp_path, recheck_after=SOON) as w:
            page = Dated(w)
            await w.subscribe(page.url)
            await w.ping(page.url)
            await until(lambda: w.hub.counters["updates"] == 1)
            await w.ping(page.url)
            await until(lambda: w.hub.counters["rechecks"] >= 2)
            page.body = b"new"
            await until(got(w, b"new"))
            await until_async(lambda: not_due(w), "an end of the rechecks")

    run(main())


def test_rechecks_go_on_after_a_restart(tmp_path):
    async def main():
        async with world(tmp_path, recheck_after=(3_600.0,)) as w:
            page = Dated(w)
            page.body = b"old"
            await w.subscribe(page.url)
            await w.ping(page.url)
            await until(got(w, b"old"))
            await w.ping(page.url)
            await until(lambda: w.hub.counters["rechecks"] == 1)
            page.body = b"new"
            # What kill -9 would leave behind, and an hour passes.
            (tmp_path / "left").mkdir()
            back_up(tmp_path / "hub.sqlite", tmp_path / "left" / "hub.sqlite")
            with closing(sqlite3.connect(tmp_path / "left" / "hub.sqlite")) as left, left:
                left.execute("UPDATE topics SET fetch_due = fetch_due - 7200")
            async with world(tmp_path / "left") as again:
                await until(lambda: again.hub.counters["updates"] == 1, "the recheck")

    run(main())


def test_a_ping_does_not_wait_for_a_recheck(tmp_path):
    async def main():
        async with world(tmp_path, recheck_after=(3_600.0,)) as w:
            page = Dated(w)
            await w.subscribe(page.url)
            for _ in range(2):
                await w.ping(page.url)
                await until(lambda: w.hub.counters["fetches"] >= 1)
            await until(lambda: w.hub.counters["rechecks"] == 1)
            page.body = b"new"
            await w.ping(page.url)
            await until(got(w, b"new"))

    run(main())


def test_news_of_an_earlier_ping_does_not_end_the_rechecks_of_a_later_one(tmp_path):
    """A cache may show, for the ping of the third version, the second."""

    async def main():
        async with world(tmp_path, recheck_after=(3_600.0,)) as w:
            page = Dated(w)
            await w.subscribe(page.url)
            for body in (b"one", b"one", b"two"):
                before, page.body = w.hub.counters["fetches"], body
                await w.ping(page.url)
                await until(lambda before=before: w.hub.counters["fetches"] > before)
            await until(got(w, b"two"))
            await until(lambda: w.hub.counters["rechecks"] == 2)
            (found,) = await w.hub.store.topics()
            assert (found.rechecks, bool(found.signalled)) == (1, True)
            assert found.fetch_due > time.time() + 600

    run(main())


def test_rechecks_of_a_host_are_bounded(tmp_path):
    async def main():
        rate = Rate(per_second=0.001, burst=3)
        async with world(tmp_path, recheck_after=(0.05,), recheck_rate=rate) as w:
            pages = [Dated(w, f"/{n}") for n in range(8)]
            for n, page in enumerate(pages):
                await w.subscribe(page.url, f"/{n}")
            for fetches in (8, 16):
                await w.ping(*[page.url for page in pages])
                await until(lambda fetches=fetches: w.hub.counters["fetches"] >= fetches)
            await until_async(lambda: not_due(w), "rechecks")
            assert w.hub.counters["rechecks"] == 3
            assert w.hub.counters["rechecks_left_out"] == 5
            assert w.hub.counters["fetches"] == 16 + 3

    run(main())


def test_quick_pings_that_bring_news_are_all_fetched(tmp_path):
    async def main():
        async with world(tmp_path, ping_rate=Rate(per_second=0.001, burst=1)) as w:
            topic = w.site.put("/t", b"")
            await w.subscribe(topic)
            for n in range(15):
                w.site.put("/t", b"%d" % n)
                await w.ping(topic)
                await until(got(w, b"%d" % n), f"delivery {n}")
            # One that brings none uses up the burst: the next is postponed.
            await w.ping(topic)
            await until(lambda: w.hub.counters["fetches_without_news"] == 1)
            w.site.put("/t", b"late")
            await w.ping(topic)

            async def postponed():
                (found,) = await w.hub.store.topics()
                return found.fetch_due is not None and found.fetch_due > time.time() + 600

            await until_async(postponed, "the postponement")

    run(main())


def test_a_topic_cannot_bring_more_versions_than_its_rate(tmp_path):
    async def main():
        async with world(tmp_path, version_rate=Rate(per_second=0.001, burst=3)) as w:
            topic = w.site.put("/t", b"")
            await w.subscribe(topic)
            for n in range(10):
                w.site.put("/t", b"%d" % n)
                await w.ping(topic)
                await until(lambda n=n: w.hub.counters["updates"] >= min(n + 1, 3))

            async def postponed():
                (found,) = await w.hub.store.topics()
                return found.fetch_due is not None and found.fetch_due > time.time() + 600

            await until_async(postponed, "the postponement")
            assert w.hub.counters["updates"] == len(w.site.fetches("/t")) == 3

    run(main())
