"""A website of the world: its feeds, its pages, and what it takes from whom."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from demo.website import ENTRIES, LONGEST, SiteSettings, Website
from push_hub.feeds import read_feed
from tests.push_hub.world import served


class PingedHub:
    """Remembers which topics it was told of."""

    def __init__(self):
        self.pings = []
        self.status = 204
        self.app = web.Application()
        self.app.router.add_post("/hub", self._post)

    async def _post(self, request):
        form = await request.post()
        assert form["hub.mode"] == "publish"
        self.pings.append(form["hub.url"])
        return web.Response(status=self.status)


@asynccontextmanager
async def running(directory, hub, every=0.0, hub_url=None):
    async with served(hub.app) as its_url:
        hub_url = hub_url or its_url
        configuration = SiteSettings(
            "site-a.test", ["127.0.0.1:4711"], f"{hub_url}/hub", ["feed.xml", "notes.xml"],
            "http://127.0.0.1:4711", "site.json", every,
        )  # fmt: skip
        site = Website(configuration, directory)
        async with served(site.app) as url, site, aiohttp.ClientSession() as session:
            yield site, url, session


def run(main):
    asyncio.run(asyncio.wait_for(main, 60))


async def _feed(session, url):
    async with session.get(f"{url}/notes.xml") as answer:
        return read_feed(answer.content_type, await answer.read())


def test_an_entry_is_added_and_the_hub_is_told(tmp_path):
    async def main():
        hub = PingedHub()
        async with running(tmp_path, hub) as (_, url, session):
            async with session.post(f"{url}/notes.xml/publish", data="Title\nMore") as answer:
                assert answer.status == 201
                said = await answer.json()
            assert hub.pings == ["http://news.site-a.test:4711/notes.xml"]
            assert said["link"] == "http://127.0.0.1:4711/notes.xml/entries/2"
            entry = (await _feed(session, url)).entries[0]
            assert (entry.title, entry.link) == ("Title", said["link"])
            async with session.get(f"{url}/notes.xml/entries/2") as answer:
                assert "More" in await answer.text()
            async with session.get(f"{url}/") as answer:
                assert "Title" in await answer.text()
        async with running(tmp_path, PingedHub()) as (_, url, session):
            assert (await _feed(session, url)).entries[0].title == "Title", "kept on disk"

    run(main())


def test_a_feed_grows_by_itself_and_stays_short(tmp_path):
    async def main():
        hub = PingedHub()
        async with running(tmp_path, hub, every=0.001) as (site, _, _):
            while len(hub.pings) < ENTRIES + 5:
                await asyncio.sleep(0.01)
            assert len(site._feeds["feed.xml"]) == ENTRIES
            assert len(site._feeds["notes.xml"]) == 1

    run(main())


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        ("/notes.xml/publish", "", {}, 400),
        ("/notes.xml/publish", " \n ", {}, 400),
        ("/notes.xml/publish", "x" * (LONGEST + 1), {}, 400),
        ("/other.xml/publish", "x", {}, 404),
        ("/notes.xml/publish", "x", {"Origin": "http://stranger.example"}, 403),
    ],
)
def test_what_is_no_entry_is_refused(tmp_path, path, body, headers, status):
    async def main():
        hub = PingedHub()
        async with running(tmp_path, hub) as (_, url, session):
            async with session.post(url + path, data=body, headers=headers) as answer:
                assert answer.status == status
            assert hub.pings == []
            assert len((await _feed(session, url)).entries) == 1

    run(main())


def test_a_hub_that_is_away_is_said_to_be(tmp_path):
    async def main():
        hub = PingedHub()
        hub.status = 503
        async with running(tmp_path, hub) as (_, url, session):
            async with session.post(f"{url}/notes.xml/publish", data="x") as answer:
                assert answer.status == 502
                assert "its hub was not told" in await answer.text()
            assert (await _feed(session, url)).entries[0].title == "x", "it is there all the same"

    run(main())


def test_a_hub_that_is_not_reached_is_said_in_plain_words(tmp_path):
    async def main():
        nowhere = "http://127.0.0.1:1"
        async with (
            running(tmp_path, PingedHub(), hub_url=nowhere) as (_, url, session),
            session.post(f"{url}/notes.xml/publish", data="x") as answer,
        ):
            assert answer.status == 502
            said = await answer.text()
        assert said == "the entry is there, but its hub was not told: it does not answer\n"

    run(main())


@pytest.mark.parametrize("path", ["/notes.xml/entries/99", "/other.xml", "/notes.xml/entries/x"])
def test_what_is_not_there_is_not_found(tmp_path, path):
    async def main():
        async with (
            running(tmp_path, PingedHub()) as (_, url, session),
            session.get(url + path) as a,
        ):
            assert a.status == 404

    run(main())


def test_text_in_another_encoding_is_shown_as_far_as_it_can_be(tmp_path):
    async def main():
        async with running(tmp_path, PingedHub()) as (_, url, session):
            headers = {"Content-Type": "text/plain; charset=no-such-thing"}
            publish = session.post(f"{url}/notes.xml/publish", data=b"a\xffb", headers=headers)
            async with publish as answer:
                assert answer.status == 201
            assert (await _feed(session, url)).entries[0].title == "a\N{REPLACEMENT CHARACTER}b"

    run(main())


@settings(max_examples=20, deadline=None)
@given(st.text(min_size=1, max_size=60).filter(str.strip))
def test_any_text_makes_a_feed(tmp_path_factory, text):
    async def main():
        async with running(tmp_path_factory.mktemp("site"), PingedHub()) as (site, url, session):
            await site.publish("notes.xml", text)
            feed = await _feed(session, url)
            assert feed is not None
            assert len(feed.entries) == 2
            async with session.get(f"{url}/notes.xml/entries/2") as answer:
                assert answer.status == 200
                assert "<script" not in (await answer.text()).lower() or "<script" in text.lower()

    run(main())
