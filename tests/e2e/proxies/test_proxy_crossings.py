"""Topics cross between three domains, in all directions, and neither side notices the fabric."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack

from tests.e2e.proxies.around import run, until
from tests.e2e.proxies.names import BLOG, A, B, C
from tests.push_hub.feeds.documents import atom

BODIES = [
    (b"\x00\xff\r\n\x1a binary \n\n", 'application/x-odd+thing; a="b c"; q=1'),
    (b"", "text/plain; charset=iso-8859-15"),
    (os.urandom(1 << 20), "application/octet-stream"),
    ("straße".encode("latin-1"), "text/html;charset=ISO-8859-1"),
]


def test_three_domains_follow_each_other(world):
    """Each subscribes to the topics of the two others, before there is anything to read."""
    topics = {domain: f"http://news.{domain}/each-other" for domain in (A, B, C)}
    pairs = [(reader, origin) for reader in topics for origin in topics if reader != origin]

    async def story(around):
        callbacks = {pair: around.callback(f"{pair[0]}-of-{pair[1]}") for pair in pairs}
        async with AsyncExitStack() as stack:
            browsers = {}
            for pair in pairs:
                reader, topic = pair[0], topics[pair[1]]
                browsers[pair] = await stack.enter_async_context(around.browser(reader, topic))
                await around.subscribe(reader, topic, callbacks[pair])
                await around.is_brought(reader, topic)
            assert not any(callback.posts for callback in callbacks.values())

            positions = {domain: [] for domain in topics}
            for body, kind in BODIES:
                for domain, topic in topics.items():
                    positions[domain].append(
                        await around.publish(domain, topic, domain.encode() + body, kind)
                    )
            for pair in pairs:
                callback, browser, origin = callbacks[pair], browsers[pair], pair[1]
                await until(
                    lambda c=callback, b=browser: len(c.posts) == len(b.updates) == len(BODIES),
                    lambda c=callback, b=browser: f"{len(c.posts)} {len(b.updates)}",
                )
                expected = [origin.encode() + body for body, _ in BODIES]
                kinds = [kind for _, kind in BODIES]
                assert callback.bodies == browser.bodies == expected
                assert [post.content_type for post in callback.posts] == kinds
                assert [update["content_type"] for update in browser.updates] == kinds
                # The origin's hub numbered them, and nobody else did.
                assert [post.position for post in callback.posts] == positions[origin]
                assert browser.positions == positions[origin]
                assert not browser.notices
            for pair in pairs:
                await around.unsubscribe(pair[0], topics[pair[1]], callbacks[pair])
        for domain, topic in topics.items():
            # A hub notices that a browser has gone when it has something to say to it.
            await around.publish(domain, topic, b"nobody reads this")
        for domain, topic in topics.items():
            await around.is_released(topic, domain, *(each for each in topics if each != domain))
        for pair in pairs:
            assert len(callbacks[pair].posts) == len(BODIES)

    run(world, story)


def test_a_feed_that_is_pinged_in_one_domain_is_posted_in_the_other(world):
    async def story(around):
        topic, reader = around.site(f"news.{B}", "/feed.xml"), around.callback("feed")
        links = f'<{topic}>; rel="self", <{world.hub(B)}/hub>; rel="hub"'
        first, second = atom(("a", "1")), atom(("b", "2"), ("a", "1"))
        around.put("/feed.xml", first, Link=links)
        await around.subscribe(A, topic, reader)
        await around.is_brought(A, topic)
        around.put("/feed.xml", second, Link=links)
        await around.ping(B, topic)
        await until(lambda: reader.posts)
        # What was there before is not pushed; what is new comes as the site has it.
        assert reader.bodies == [second]
        assert reader.posts[0].content_type == "application/atom+xml"
        versions = (await around.topic(B, topic))["versions"]
        assert reader.posts[0].position == versions[0]["position"]
        # Only its own hub ever fetches it.
        at_a = (await around.topic(A, topic))["versions"]
        assert at_a[0]["position"] == versions[0]["position"]
        assert {each["origin"] for each in at_a} == {"received"}
        await around.unsubscribe(A, topic, reader)
        await around.is_released(topic, B, A)

    run(world, story)


def test_a_site_without_a_hub_is_polled_because_somebody_elsewhere_asked(world):
    async def story(around):
        topic, reader = around.site(BLOG, "/quiet.txt"), around.callback("quiet")
        around.put("/quiet.txt", b"first", "text/plain")
        await around.subscribe(A, topic, reader)
        await around.is_brought(A, topic)
        assert "/quiet.txt" in around.fetches
        for number in range(2):
            body = f"version {number}".encode()
            around.put("/quiet.txt", body, "text/plain")
            await until(lambda body=body: body in reader.bodies)
        assert reader.bodies == [b"version 0", b"version 1"]
        await around.unsubscribe(A, topic, reader)
        await around.is_released(topic, BLOG, A)

    run(world, story)
