"""What a subscription to a topic of another domain means: from when on, under which name."""

from __future__ import annotations

import hashlib
import hmac

from tests.e2e.proxies.around import run, until
from tests.e2e.proxies.names import A, B


def test_nothing_is_pushed_at_subscription_time(world):
    """Neither what is in the history already, nor what was published while nobody listened."""

    async def story(around):
        topic = f"http://news.{B}/joining"
        first, second = around.callback("joins-first"), around.callback("joins-second")
        await around.publish(B, topic, b"before anybody")
        await around.subscribe(A, topic, first)
        await around.publish(B, topic, b"one")
        await until(lambda: first.posts)
        await around.subscribe(A, topic, second)
        await around.publish(B, topic, b"two")
        await until(lambda: len(first.posts) == 2 and second.posts)
        for callback in (first, second):
            await around.unsubscribe(A, topic, callback)
        await around.is_released(topic, B, A)
        await around.publish(B, topic, b"missed")
        await around.publish(B, topic, b"missed, too")
        await around.subscribe(A, topic, first)
        last = await around.publish(B, topic, b"three")
        await until(lambda: first.posts[-1].position == last)
        assert first.bodies == [b"one", b"two", b"three"]
        assert second.bodies == [b"two"]
        # The history has no gap all the same: what was missed was fetched by the PSPH.
        versions = [each["position"] for each in (await around.topic(A, topic))["versions"]]
        numbers = [int(each.rpartition(".")[2]) for each in versions]
        assert numbers == sorted(range(numbers[-1], numbers[0] + 1), reverse=True)
        await around.unsubscribe(A, topic, first)
        await around.is_released(topic, B, A)

    run(world, story)


def test_a_subscriber_keeps_its_spelling_and_its_secret(world):
    """The publisher spells the topic in one way, the subscriber in another: it is the same."""

    async def story(around):
        published = f"http://news.{B}/~stra%C3%9Fe?b=2&a=1"
        spelled = f"HTTP://NEWS.{B.upper()}:80/%7Estra%c3%9fe?b=2&a=1"
        reader = around.callback("spelling")
        await around.subscribe(A, spelled, reader, secret="between us")
        assert reader.asked[0]["hub.topic"] == spelled
        await around.publish(B, published, b"the same topic")
        await until(lambda: reader.posts)
        post = reader.posts[0]
        assert f'<{spelled}>; rel="self"' in post.headers["Link"]
        assert f'<{world.hub(A)}/hub>; rel="hub"' in post.headers["Link"]
        method, _, signature = post.headers["X-Hub-Signature"].partition("=")
        digest = hmac.new(b"between us", post.body, getattr(hashlib, method)).hexdigest()
        assert signature == digest
        await around.unsubscribe(A, spelled, reader)
        await around.is_released(published, B, A)

    run(world, story)
