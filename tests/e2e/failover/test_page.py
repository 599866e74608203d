"""A domain with two PSPHs, and the page of one of them in a browser while that is killed.

The page goes on at the other: it shows every version once and in order, and says where it is.
"""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from tests.e2e.failover.names import FIRST, SECOND, A, B
from tests.push_hub.browser import chromium, installed, opened
from tests.push_hub.feeds.documents import atom

pytestmark = pytest.mark.skipif(
    installed() is None, reason="Chromium is not installed: apt-get install chromium"
)

TEXTS, FEED, LATER = (f"http://news.{B}/{name}" for name in ("texts", "feed", "later"))
VERSIONS = 12
LIVE = "document.querySelector('#connection[data-state=live]')"
SHOWN = "[...document.querySelectorAll('#entries > li')].map((each) => each.innerText)"


class Publisher:
    """At the PSPH of the other domain: texts, and a feed that grows."""

    def __init__(self, session, world):
        self._session = session
        self._url = f"{world.hub(B)}/publish"
        self._token = world.token(B)
        self._entries = []

    async def version(self, number):
        self._entries.insert(0, (str(number), f"Entry {number}."))
        await self.send(TEXTS, "text/plain", f"Text {number}.".encode())
        await self.send(FEED, "application/atom+xml", atom(*self._entries))

    async def send(self, topic, content_type, body):
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": content_type}
        async with self._session.post(
            self._url, params={"topic": topic}, data=body, headers=headers
        ) as answer:
            assert answer.status == 201, await answer.text()


async def watch(page, topic):
    """Name a topic that cannot be fetched, and watch it all the same."""
    await page.type("#url", topic)
    await page.until("document.querySelector('#offers li button')")
    await page.click("#offers li button")
    await page.until(f"document.querySelector('#topics').innerText.includes({topic[7:]!r})")


def has(text):
    return f"{SHOWN}.some((each) => each.includes({text!r}))"


async def knows(session, hub, other):
    """Until a hub has heard of the other."""
    async with asyncio.timeout(60):
        while True:
            async with session.get(f"{hub}/hubs") as answer:
                if other in (await answer.json())["hubs"][1:]:
                    return
            await asyncio.sleep(0.1)


async def fail_over(world, address):
    home, other = (f"http://psph.{A}:{world.hub_ports[each]}" for each in (FIRST, SECOND))
    async with aiohttp.ClientSession() as session, opened(address) as page:
        await knows(session, world.hub(FIRST), other)
        await knows(session, world.hub(SECOND), home)
        await page.go(f"{home}/")
        for topic in (TEXTS, FEED):
            await watch(page, topic)
        await page.until(LIVE)
        assert await page.text("#connection") == "Live"
        publisher = Publisher(session, world)
        await publisher.version(1)
        await page.until(f"{has('Text 1.')} && {has('Entry 1.')}")
        for number in range(2, VERSIONS):
            await publisher.version(number)
            if number == VERSIONS // 3:
                await page.until(f"{has(f'Text {number}.')} && {has(f'Entry {number}.')}")
                await asyncio.to_thread(world.proxies[FIRST].kill)
            await asyncio.sleep(0.1)
        await page.until(LIVE)
        assert await page.text("#connection") == f"Live: goes on at another hub, {other[7:]}"
        await publisher.version(VERSIONS)
        last = (f"Text {VERSIONS}.", f"Entry {VERSIONS}.")
        await page.until(" && ".join(map(has, last)))
        shown = await page.evaluate(SHOWN)
        # What it is asked for now goes there, too.
        await watch(page, LATER)
        await page.until(LIVE)
        await publisher.send(LATER, "text/plain", b"Later.")
        await page.until(has("Later."))
        links = await page.evaluate(
            "[...document.querySelectorAll('#topics a, #all-topics')].map((each) => each.href)"
        )
        assert len(links) == 4
        assert all(each.startswith(f"{other}/topics") for each in links)
        assert page.exceptions == []
        assert await page.violations() == []
        return shown


@pytest.mark.timeout(300)
def test_the_page_goes_on_at_the_other_psph(world):
    with chromium(A) as address:
        shown = asyncio.run(fail_over(world, address))
    for word in ("Text", "Entry"):
        found = [each for each in shown if f"{word} " in each]
        assert len(found) == VERSIONS, shown
        # The newest stands on top.
        for number, each in zip(range(VERSIONS, 0, -1), found, strict=True):
            assert f"{word} {number}." in each, shown
    assert len(shown) == 2 * VERSIONS, shown  # and no word of a gap
