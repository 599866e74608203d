"""Publishers in the fabric: those with the zone's key reach the web, and nobody else does."""

from __future__ import annotations

import urllib.request
from contextlib import AsyncExitStack

from psph.proxy.mapping import CONTENT_TYPE, TOPIC
from tests.e2e.proxies.around import run, until
from tests.e2e.proxies.fabric_user import STRANGERS_KEY, fabric_user, publish
from tests.e2e.proxies.names import A, B


def metric(world, key, name, what):
    """What /metrics of a PSPH says."""
    address = f"http://127.0.0.1:{world.proxies[key].admin}/metrics"
    with urllib.request.urlopen(address, timeout=20) as answer:
        lines = answer.read().decode().splitlines()
    line = f'{name}_total{{what="{what}"}} '
    return sum(float(each.removeprefix(line)) for each in lines if each.startswith(line))


def test_what_is_forged_is_dropped_and_counted(world):
    topic, other = f"http://news.{B}/forged", f"http://news.{B}/something-else"
    zone_key = world.keys[B].private
    forgeries = [
        # How it is signed, the topic it says it is of, and where it is counted.
        (STRANGERS_KEY, topic, "psph_publications", "wrong_key"),
        (None, topic, "psph_publications", "no_signature"),
        (zone_key, other, "psph_proxy_events", "wrong_topic"),
        (zone_key, "no URL at all", "psph_proxy_events", "no_topic"),
    ]

    async def story(around):
        reader = around.callback("forged")
        async with AsyncExitStack() as stack:
            browser = await stack.enter_async_context(around.browser(A, topic))
            await around.subscribe(A, topic, reader)
            before = await around.publish(B, topic, b"true")
            for number, (key, said, name, what) in enumerate(forgeries):
                known = metric(world, A, name, what)
                forger = await stack.enter_async_context(fabric_user(world, f"forger{number}"))
                await publish(forger, topic, b"false", {TOPIC: said}, key=key)
                await until(
                    lambda known=known, name=name, what=what: metric(world, A, name, what) > known,
                    lambda: around.status(A),
                )
            status = await around.status(A)
            counted = status["counters"] | status["publications"]
            assert all(counted[what] for _, _, _, what in forgeries)
            after = await around.publish(B, topic, b"true again")
            await until(lambda: len(reader.posts) == 2 and len(browser.updates) == 2)
            assert [post.position for post in reader.posts] == browser.positions == [before, after]
            assert reader.bodies == [b"true", b"true again"]
            await around.unsubscribe(A, topic, reader)

    run(world, story)


def test_a_native_publisher_with_the_key_of_the_zone_reaches_the_web(world):
    topic = f"http://sensors.{B}/temperature"

    async def story(around):
        async with AsyncExitStack() as stack:
            readers, browsers = {}, {}
            for domain in (A, B):
                readers[domain] = around.callback(f"native-{domain}")
                browsers[domain] = await stack.enter_async_context(around.browser(domain, topic))
                await around.subscribe(domain, topic, readers[domain])
                await around.is_brought(domain, topic)
            native = await stack.enter_async_context(fabric_user(world, "native"))
            positions = []
            for degrees in (20, 21, 22):
                metadata = {TOPIC: topic, CONTENT_TYPE: "application/x-degrees"}
                body, key = f"{degrees}".encode(), world.keys[B].private
                positions.append(await publish(native, topic, body, metadata, key=key))
                # A publisher that is new has listeners from the first version they get.
                await until(lambda body=body: all(body in each.bodies for each in readers.values()))
            for domain in (A, B):
                reader, browser = readers[domain], browsers[domain]
                await until(
                    lambda reader=reader, browser=browser: (
                        len(reader.posts) >= 3 and len(browser.updates) >= 3
                    ),
                    lambda reader=reader, browser=browser: (reader.bodies, browser.bodies),
                )
                assert reader.bodies == browser.bodies == [b"20", b"21", b"22"]
                assert [post.position for post in reader.posts] == browser.positions == positions
                kinds = {post.content_type for post in reader.posts}
                assert kinds == {"application/x-degrees"}
                await around.unsubscribe(domain, topic, reader)

    run(world, story)
