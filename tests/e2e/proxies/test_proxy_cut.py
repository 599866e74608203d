"""Cut off from the fabric, a PSPH serves its own domain; when it is back, all is made good."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from tests.e2e.proxies.around import run, until
from tests.e2e.proxies.names import A, B


@pytest.mark.parametrize("cut", [A, B])
def test_after_a_cut_nothing_is_lost_or_doubled(world, cut):
    """Topics of both domains, read in both, go on while one domain is away."""
    topics = {domain: f"http://news.{domain}/cut-{cut}" for domain in (A, B)}

    async def story(around):
        readers, browsers, other = {}, {}, B if cut == A else A
        async with AsyncExitStack() as stack:
            for origin, topic in topics.items():
                for domain in topics:
                    pair = (origin, domain)
                    readers[pair] = around.callback(f"cut-{cut}-{origin}-{domain}")
                    browsers[pair] = await stack.enter_async_context(around.browser(domain, topic))
                    await around.subscribe(domain, topic, readers[pair])
                    await around.is_brought(domain, topic)
            positions = {origin: [] for origin in topics}
            bodies = []

            async def publish(word):
                bodies.append(word.encode())
                for origin, topic in topics.items():
                    positions[origin].append(await around.publish(origin, topic, bodies[-1]))

            def have(pairs, count):
                return all(
                    len(readers[each].posts) >= count and len(browsers[each].updates) >= count
                    for each in pairs
                )

            def say():
                return {
                    pair: (len(readers[pair].posts), len(browsers[pair].updates))
                    for pair in readers
                }

            await publish("before")
            await until(lambda: have(readers, 1), say)
            world.gates.cut(cut)
            try:
                for number in range(5):
                    await publish(f"meanwhile {number}")
                await until(lambda: not _has_links(world, cut))
                at_home = [(domain, domain) for domain in topics]
                await until(lambda: have(at_home, 6), say)
                # Nobody outside is heard to want the topic any more: the lease has ended.
                await until(lambda: is_closed(around, other, topics[other]))
                await publish("still away")
                await until(lambda: have(at_home, 7), say)
                assert not any(have([pair], 2) for pair in readers if pair not in at_home)
            finally:
                world.gates.heal(cut)
            await until(lambda: have(readers, 7), say)
            await publish("after")
            await until(lambda: have(readers, 8), say)
            for (origin, domain), reader in readers.items():
                assert reader.bodies == browsers[origin, domain].bodies == bodies
                assert [post.position for post in reader.posts] == positions[origin]
                assert browsers[origin, domain].positions == positions[origin]
                assert not browsers[origin, domain].notices
                await around.unsubscribe(domain, topics[origin], reader)

    run(world, story)


async def is_closed(around, key, topic):
    return await around.published(key, topic) is None


def _has_links(world, key):
    status = world.proxies[key].ask("/fabric/status")
    return any(link["up"] for link in status["links"])
