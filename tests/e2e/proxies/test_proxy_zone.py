"""Three PSPHs under one registrable domain: each answers for its own hosts."""

from __future__ import annotations

from tests.e2e.proxies.around import run, until
from tests.e2e.proxies.names import BLOG, SHOP, A, B, C

OWN = {C: f"http://news.{C}/shared", BLOG: f"http://{BLOG}/shared", SHOP: f"http://{SHOP}/shared"}
"""By PSPH, a topic of the hosts it is configured for."""


def test_each_psph_of_a_zone_answers_for_its_own_hosts(world):
    async def story(around):
        readers = {}
        for key, topic in OWN.items():
            for domain in (A, B):
                readers[key, domain] = around.callback(f"{key}-{domain}")
                await around.subscribe(domain, topic, readers[key, domain])
                await around.is_brought(domain, topic)
        # Each one publishes its own, and nothing of the others'.
        for key in OWN:
            published = set((await around.status(key))["published"]) & set(OWN.values())
            assert published == {OWN[key]}
        positions = {
            key: await around.publish(key, topic, f"of {key}".encode())
            for key, topic in OWN.items()
        }
        for (key, domain), reader in readers.items():
            await until(lambda reader=reader: reader.posts)
            assert reader.bodies == [f"of {key}".encode()]
            assert reader.posts[0].position == positions[key]
            await around.unsubscribe(domain, OWN[key], reader)
        for key, topic in OWN.items():
            await around.is_released(topic, key, A, B)

    run(world, story)


def test_psphs_of_one_zone_follow_each_other(world):
    async def story(around):
        topic, reader = f"http://{SHOP}/neighbours", around.callback("neighbours")
        await around.subscribe(BLOG, topic, reader)
        await around.is_brought(BLOG, topic)
        # Sent to the wrong PSPH of the zone, it stays there: another one publishes the topic.
        await around.publish(C, topic, b"sent to the wrong one")
        position = await around.publish(SHOP, topic, b"offers")
        await until(lambda: reader.posts)
        assert reader.bodies == [b"offers"]
        assert reader.posts[0].position == position
        await around.unsubscribe(BLOG, topic, reader)
        await around.is_released(topic, SHOP, BLOG)
        assert len(reader.posts) == 1

    run(world, story)


def test_dns_names_all_psphs_of_the_zone(world):
    for key in OWN:
        state = world.proxies[key].ask("/bootstrap/status")[C]
        assert state["registered"], state
