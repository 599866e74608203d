"""`psph publish --wait`: what became of a ping, from a real hub."""

from __future__ import annotations

import asyncio
import json

import pytest
from aiohttp import web
from click.testing import CliRunner

from psph.commands.publish import publish
from push_hub.retries import RetrySchedule
from tests.push_hub.feeds.documents import atom
from tests.push_hub.world import run, served, until, world

ATOM = "application/atom+xml"
HOURS = RetrySchedule(first=7_200.0)


async def published(w, topic, *options):
    """Exit code and lines of a publication at the hub, without the first line."""
    line = [topic, "--hub", f"{w.hub_url}/hub", "--wait", *options]
    done = await asyncio.to_thread(CliRunner().invoke, publish, line)
    took, *lines = done.output.splitlines()
    assert took == f"{w.hub_url}/hub took the ping for {topic} (204)", done.output
    return done.exit_code, [each.strip() for each in lines]


def test_it_tells_what_was_new_and_that_it_was_delivered(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            topic = w.site.put("/t", atom(("a", "1"), ("b", "2")), ATOM)
            await w.subscribe(topic, "/one")
            await w.subscribe(topic, "/two")
            code, (fetched, deliveries) = await published(w, topic)
            assert code == 0
            publisher = w.hub.store.identity.publisher
            assert fetched == f"fetched: new version {publisher}.1.1, 2 new entries"
            assert deliveries == "deliveries: 2 done"
            assert len(w.reader.received) == 2
            assert await published(w, topic) == (0, ["fetched: nothing new"])

    run(main())


def test_a_version_that_was_kept_back_is_news_by_the_ping(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            topic = w.site.put("/t", b"x")
            await w.subscribe(topic)
            await w.hub._intake.look(1)
            await until(lambda: w.hub.counters["updates"] == 1)
            code, (fetched, deliveries) = await published(w, topic)
            assert (code, deliveries) == (0, "deliveries: 1 done")
            assert fetched.endswith(".1.1")

    run(main())


def test_deliveries_that_are_owed_and_when_they_are_tried_again(tmp_path):
    async def main():
        async with world(tmp_path, delivery_retries=HOURS) as w:
            topic = w.site.put("/t", b"x")

            async def fail(request):
                return web.Response(status=500 if request.path == "/two" else 200)

            w.reader.receive = fail
            await w.subscribe(topic, "/one")
            await w.subscribe(topic, "/two")
            code, (_, deliveries) = await published(w, topic, "--timeout", "600")
            assert code == 0
            assert deliveries.startswith("deliveries: 1 done, 1 owed, next attempt in ")
            # The answer has the number of the callbacks, and not their addresses.
            url = f"{w.hub_url}/topics?url={topic}&format=json"
            async with w.client.get(url) as answer:
                latest = (await answer.json())["latest"]
            counts = {name: latest[name] for name in ("delivered", "owed", "retrying")}
            assert counts == {"delivered": 1, "owed": 1, "retrying": 1}

    run(main())


def test_nothing_new_and_when_it_is_fetched_again(tmp_path):
    async def main():
        async with world(tmp_path, recheck_after=(7_200.0,)) as w:
            topic = w.site.put("/t", b"x", ETag="none")
            await w.subscribe(topic)
            await w.ping(topic)
            await until(lambda: w.reader.received)
            code, (line,) = await published(w, topic, "--timeout", "600")
            assert code == 0
            words = "fetched: nothing new; a cache may have answered: the hub fetches it again in "
            assert line.startswith(words)

    run(main())


def test_it_waits_for_a_recheck_that_is_due_in_time(tmp_path):
    async def main():
        async with world(tmp_path, recheck_after=(0.2, 0.4)) as w:
            answers = iter([b"old", b"old", b"old", b"new"])

            async def answer(request):
                return web.Response(body=next(answers), headers={"Age": "1"})

            w.site.hooks["/t"] = answer
            topic = f"{w.site.url}/t"
            await w.subscribe(topic)
            await w.ping(topic)
            await until(lambda: w.reader.received)
            code, (fetched, deliveries) = await published(w, topic, "--timeout", "60")
            assert (code, deliveries) == (0, "deliveries: 1 done")
            assert fetched.endswith(".1.2")

    run(main())


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (500, "fetch failed: the topic answered 500; the hub tries again in "),
        (410, "fetch failed: the topic answered 410; given up until the next ping"),
    ],
)
def test_a_fetch_that_failed(tmp_path, status, words):
    async def main():
        async with world(tmp_path, fetch_retries=HOURS) as w:

            async def fail(request):
                return web.Response(status=status)

            w.site.hooks["/t"] = fail
            await w.subscribe(f"{w.site.url}/t")
            code, (line,) = await published(w, f"{w.site.url}/t", "--timeout", "600")
            assert code == 1
            assert line.startswith(words)

    run(main())


def test_a_fetch_that_does_not_end(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            ended = asyncio.Event()

            async def hang(request):
                await ended.wait()
                return web.Response()

            w.site.hooks["/t"] = hang
            await w.subscribe(f"{w.site.url}/t")
            code, (line,) = await published(w, f"{w.site.url}/t", "--timeout", "0.2")
            ended.set()
            assert (code, "has not ended" in line) == (1, True)

    run(main())


def test_a_topic_that_the_hub_does_not_know(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            code, (line,) = await published(w, w.site.put("/t", b"x"))
            assert code == 1
            assert line.startswith("not fetched: the hub does not know the topic")

    run(main())


def test_json(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            topic = w.site.put("/t", b"x")
            await w.subscribe(topic)
            hub = f"{w.hub_url}/hub"
            line = [topic, "--hub", hub, "--wait", "--json"]
            done = await asyncio.to_thread(CliRunner().invoke, publish, line)
            (answer,) = json.loads(done.output)
            report = answer.pop("report")
            assert answer == {"hub": hub, "topic": topic, "status": 204}
            assert report["positions"] == [f"{w.hub.store.identity.publisher}.1.1"]
            del report["positions"]
            assert report == {
                "outcome": "news", "reason": None, "new_entries": None, "delivered": 1, "owed": 0,
                "next_s": None,
            }  # fmt: skip

    run(main())


@pytest.mark.parametrize("text", ["<html>", "[]", '{"now": 1}', '{"fetch": 1, "latest": 2}'])
def test_a_hub_of_another_kind(text):
    async def main():
        async def answer(request):
            return web.Response(text=text if request.method == "GET" else "")

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", answer)
        async with served(app) as url:
            line = ["http://example.com/t", "--hub", f"{url}/hub", "--wait"]
            done = await asyncio.to_thread(CliRunner().invoke, publish, line)
            assert done.exit_code == 1
            took, line = done.output.splitlines()
            assert took == f"{url}/hub took the ping for http://example.com/t (200)"
            assert line == f"  unknown: the hub {url}/hub does not say what becomes of a ping"

    run(main())
