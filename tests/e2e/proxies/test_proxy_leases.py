"""Nobody has to say goodbye: what is leased ends by itself, along the whole chain."""

from __future__ import annotations

import asyncio

from tests.e2e.proxies.around import run, until
from tests.e2e.proxies.names import A, B, C


def test_a_subscription_whose_lease_ends_releases_the_chain(world):
    async def story(around):
        topic, reader = f"http://news.{B}/leased", around.callback("leased")
        await around.subscribe(A, topic, reader, lease_seconds=6)
        assert reader.asked[0]["hub.lease_seconds"] == "6"
        await around.publish(B, topic, b"in time")
        await until(lambda: reader.posts)
        await around.is_released(topic, B, A)
        await around.publish(B, topic, b"too late")
        await around.is_released(topic, B, A)
        assert reader.bodies == [b"in time"]

    run(world, story)


def test_a_psph_that_is_gone_for_good_is_not_published_for(world):
    async def story(around):
        topic, reader = f"http://news.{B}/abandoned", around.callback("abandoned")
        await around.subscribe(C, topic, reader)
        await around.is_brought(C, topic)
        await around.publish(B, topic, b"while it lived")
        await until(lambda: reader.posts)
        world.proxies[C].kill()
        try:
            await until(lambda: _is_closed(around, topic), lambda: around.status(B))
            missed = [await around.publish(B, topic, f"missed {n}".encode()) for n in range(3)]
        finally:
            # It lives in the other tests; and its readers may come back later than the lease.
            world.proxies[C].launch()
            await asyncio.to_thread(world.proxies[C].ready)
        # Killed between a delivery and the note of its answer, it delivers the first one again.
        await until(lambda: len(_positions(reader)) == 4, lambda: reader.bodies)
        assert _positions(reader)[1:] == missed
        await around.unsubscribe(C, topic, reader)
        await around.is_released(topic, B, C)

    run(world, story)


async def _is_closed(around, topic):
    return await around.published(B, topic) is None


def _positions(reader):
    """In the order of their first delivery."""
    return list(dict.fromkeys(post.position for post in reader.posts))
