"""What does not cross, and who is told: refused topics, large content, zones without a fabric."""

from __future__ import annotations

from identifiers import scope_id
from tests.e2e.proxies.around import run, until
from tests.e2e.proxies.names import LARGEST, LIAR, PLAIN, PRIVATE, A, B, C


def test_a_topic_that_stays_at_home_is_denied_with_the_reason(world):
    async def story(around):
        topic, outside, at_home = f"{PRIVATE}diary", around.callback("out"), around.callback("home")
        await around.ask(A, topic, outside)
        await until(lambda: outside.denied)
        assert outside.denied == ["this topic stays at home"]
        assert not outside.asked
        # At home it is a topic like any other, and stays there when it has news.
        await around.subscribe(B, topic, at_home)
        await around.publish(B, topic, b"dear diary")
        await until(lambda: at_home.posts)
        assert await around.published(B, topic) is None
        assert (await around.status(B))["counters"]["requests_refused"] >= 1
        await around.is_released(topic, B, A)
        await around.unsubscribe(B, topic, at_home)
        assert not outside.posts

    run(world, story)


def test_oversized_content_is_refused_and_nothing_breaks(world):
    async def story(around):
        topic, reader = f"http://news.{B}/large", around.callback("large")
        await around.subscribe(A, topic, reader)
        before = await around.publish(B, topic, b"before")
        status, answer = await around.post(B, topic, bytes(LARGEST + 1))
        assert status == 413, answer
        largest = await around.publish(B, topic, bytes(LARGEST))
        after = await around.publish(B, topic, b"after")
        await until(lambda: len(reader.posts) == 3)
        assert [post.position for post in reader.posts] == [before, largest, after]
        assert reader.bodies == [b"before", bytes(LARGEST), b"after"]
        await around.unsubscribe(A, topic, reader)
        await around.is_released(topic, B, A)

    run(world, story)


def test_a_website_that_is_too_large_is_left_out_and_the_next_version_crosses(world):
    async def story(around):
        topic, reader = around.site(f"news.{B}", "/grows"), around.callback("grows")
        around.put("/grows", b"small", "text/plain")
        await around.subscribe(A, topic, reader)
        await around.is_brought(A, topic)
        around.put("/grows", bytes(LARGEST + 1), "text/plain")
        await around.ping(B, topic)

        async def is_noticed():
            return (await around.topic(B, topic))["last_error"]

        await until(is_noticed)
        around.put("/grows", b"small again", "text/plain")
        await around.ping(B, topic)
        await until(lambda: reader.posts)
        assert reader.bodies == [b"small again"]
        await around.unsubscribe(A, topic, reader)
        await around.is_released(topic, B, A)

    run(world, story)


def test_a_domain_without_a_fabric_is_plain_websub_and_says_so(world):
    async def story(around):
        topic, reader = around.site(f"news.{PLAIN}", "/feed"), around.callback("plain")
        links = f'<{topic}>; rel="self", <{world.hub(A)}/hub>; rel="hub"'
        around.put("/feed", b"first", "text/plain", Link=links)
        await around.subscribe(A, topic, reader)
        said = {"state": "plain WebSub", "note": f"{PLAIN} has no fabric: no records in DNS"}
        await until(lambda: _is_said(around, A, topic, said), lambda: around.status(A))
        around.put("/feed", b"second", "text/plain", Link=links)
        await around.ping(A, topic)
        await until(lambda: b"second" in reader.bodies)
        versions = (await around.topic(A, topic))["versions"]
        assert {each["origin"] for each in versions} == {"fetched"}
        await around.unsubscribe(A, topic, reader)

    run(world, story)


def test_a_zone_whose_announcement_lies_is_not_believed(world):
    async def story(around):
        topic, reader = around.site(f"news.{LIAR}", "/feed"), around.callback("liar")
        around.put("/feed", b"first", "text/plain")
        await around.subscribe(C, topic, reader)
        lie, truth = scope_id(B), scope_id(LIAR)
        note = (
            f"the records of {LIAR} are refused: TXT _psirp.{LIAR} says sid={lie}, but the scope id"
            f" of {LIAR} is {truth}: refused"
        )
        said = {"state": "plain WebSub", "note": note}
        await until(lambda: _is_said(around, C, topic, said), lambda: around.status(C))
        around.put("/feed", b"second", "text/plain")
        await around.ping(C, topic)
        await until(lambda: b"second" in reader.bodies)
        await around.unsubscribe(C, topic, reader)

    run(world, story)


async def _is_said(around, key, topic, said):
    return await around.wanted(key, topic) == said
