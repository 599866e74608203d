"""Readers that know nothing of us follow a site of another domain at /t/ of their PSPH."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request

import feedparser

from tests.e2e.domains import PSPH
from tests.e2e.node_process import PATIENCE
from tests.e2e.proxies.around import run, until
from tests.e2e.proxies.names import A, B
from tests.push_hub.feeds.documents import atom


def fetch(url, etag=None):
    """As the simplest program in the world does: status, ETag and body."""
    request = urllib.request.Request(url, headers={} if etag is None else {"If-None-Match": etag})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.headers["ETag"], answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["ETag"], error.read()


def test_a_polling_client_and_a_feed_reader_follow_a_site_of_another_domain(world):
    async def story(around):
        topic = around.site(f"news.{B}", "/polled.xml")
        address = f"{world.hub(A)}/t/{topic}"
        links = f'<{topic}>; rel="self", <{world.hub(B)}/hub>; rel="hub"'
        first, second = atom(("a", "1")), atom(("b", "2"), ("a", "1"))
        around.put("/polled.xml", first, Link=links)

        status, etag, body = await asyncio.to_thread(fetch, address)
        assert (status, body) == (200, first)
        assert await asyncio.to_thread(fetch, address, etag) == (304, etag, b"")
        parsed = await asyncio.to_thread(feedparser.parse, address)
        assert [entry.id for entry in parsed.entries] == ["urn:a"]

        around.put("/polled.xml", second, Link=links)
        await around.ping(B, topic)

        async def changed():
            return (await asyncio.to_thread(fetch, address, etag))[0] == 200

        await until(changed)
        status, newer, body = await asyncio.to_thread(fetch, address, etag)
        assert (status, body) == (200, second)
        assert newer != etag
        again = await asyncio.to_thread(feedparser.parse, address, etag=parsed.etag)
        assert [entry.id for entry in again.entries] == ["urn:b", "urn:a"]
        unchanged = await asyncio.to_thread(feedparser.parse, address, etag=again.etag)
        assert unchanged.status == 304

        # It was fetched by the hub of its own domain only, and nobody reads it for ever.
        at_a = await around.topic(A, topic)
        assert {each["origin"] for each in at_a["versions"]} == {"received"}
        assert f'"{at_a["versions"][0]["position"]}"' == again.etag
        await around.is_released(topic, B, A)

    run(world, story)


def test_a_subscriber_that_only_does_discovery_is_pushed_to(world):
    """The address below /t/ names our hub, and itself as the topic."""

    async def story(around):
        topic = f"http://news.{B}/discovered?q=a&b=%C3%A4"
        await around.publish(B, topic, b"what was there before")
        address = f"{world.hub(A)}/t/{topic}"
        status, headers, body = await around.get(address)
        assert (status, body) == (200, b"what was there before")
        assert f'<{world.hub(A)}/hub>; rel="hub"' in headers["Link"]
        reader = await asyncio.create_subprocess_exec(
            *PSPH, "subscribe", "--json", "--count", "2", "--timeout", str(PATIENCE), address,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            async with asyncio.timeout(PATIENCE):
                assert b"subscribed" in await reader.stderr.readline()
            positions = [await around.publish(B, topic, body) for body in (b"one", b"two")]
            async with asyncio.timeout(PATIENCE):
                printed, told = await reader.communicate()
        finally:
            if reader.returncode is None:
                reader.kill()
                await reader.communicate()
        assert reader.returncode == 0, told
        said = [json.loads(line) for line in printed.splitlines()]
        assert [each["position"] for each in said] == positions
        assert [each["topic"] for each in said] == [address] * 2
        await around.is_released(topic, B, A)

    run(world, story)
