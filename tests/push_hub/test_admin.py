"""The operator's endpoints: only with the token, in pages, and they do what they say."""

import pytest
from aiohttp import web

from tests.push_hub.world import run, until, until_async, world

TOKEN = "the token"
WITH = {"Authorization": f"Bearer {TOKEN}"}


async def ask(w, path, method="GET", headers=WITH, **query):
    async with w.client.request(
        method, f"{w.hub_url}/admin/{path}", params=query, headers=headers
    ) as answer:
        kind = answer.headers["Content-Type"]
        return answer.status, await (answer.json() if "json" in kind else answer.text())


@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}, {"Authorization": "Bearer "},
     {"Authorization": "Bearer \xff\u0100".encode().decode("latin-1")}],
)  # fmt: skip
@pytest.mark.parametrize("token", [TOKEN, ""])
def test_nothing_without_the_token(tmp_path, headers, token):
    async def main():
        async with world(tmp_path, admin_token=token) as w:
            topic = w.site.put("/t", b"1")
            await w.subscribe(topic)
            for path, method in (
                ("topics", "GET"), ("topics/1", "GET"), ("topic", "GET"), ("subscriptions", "GET"),
                ("subscriptions/1", "GET"), ("subscriptions/1", "DELETE"), ("queue", "GET"),
                ("replay", "POST"),
            ):  # fmt: skip
                status, text = await ask(w, path, method, headers)
                assert status == 401
                assert "Bearer TOKEN" in text
            assert (await w.subscription(topic)).state == "active"

    run(main())


def test_lists_come_in_pages_and_without_secrets(tmp_path):
    async def main():
        async with world(tmp_path, admin_token=TOKEN) as w:
            topics = [w.site.put(f"/{n}", b"1") for n in range(3)]
            for n, topic in enumerate(topics):
                await w.subscribe(topic, f"/cb{n}", secret="very secret")
            _, first = await ask(w, "subscriptions", limit=2)
            assert [each["id"] for each in first["subscriptions"]] == [1, 2]
            assert first["subscriptions"][0]["callback"] == f"{w.reader.url}/cb0"
            assert first["subscriptions"][0]["signed"]
            _, second = await ask(w, "subscriptions", limit=2, after=first["next"])
            assert [each["id"] for each in second["subscriptions"]] == [3]
            assert second["next"] is None
            assert "very secret" not in str((first, second))
            _, found = await ask(w, "subscriptions", topic=topics[1])
            assert [each["topic"] for each in found["subscriptions"]] == [topics[1]]
            _, found = await ask(w, "topics")
            assert [each["topic"] for each in found["topics"]] == topics
            _, found = await ask(w, "topic", topic=topics[0])
            assert found["subscribers"] == 1
            assert found["following"] is None
            assert found["versions"] == []

    run(main())


def test_what_is_not_there_or_makes_no_sense_is_said(tmp_path):
    async def main():
        async with world(tmp_path, admin_token=TOKEN) as w:
            for expected, path, method, query in (
                (404, "topics/9", "GET", {}),
                (404, "subscriptions/9", "GET", {}),
                (404, "subscriptions/9", "DELETE", {}),
                (404, "replay", "POST", {"topic": "http://example.com/"}),
                (400, "topic", "GET", {"topic": "no url"}),
                (400, "topics", "GET", {"after": "-1"}),
                (400, "queue", "GET", {"limit": "x" * 100}),
            ):
                status, text = await ask(w, path, method, **query)
                assert (status, text.count("\n")) == (expected, 1), path

    run(main())


def test_a_dropped_subscription_is_told_why(tmp_path):
    async def main():
        async with world(tmp_path, admin_token=TOKEN) as w:
            topic = w.site.put("/t", b"1")
            await w.subscribe(topic)
            status, ended = await ask(w, "subscriptions/1", "DELETE", reason="abuse")
            assert (status, ended["state"]) == (200, "denied")
            await until(lambda: w.reader.denials, "the denial")
            assert w.reader.denials[0].query["hub.reason"] == "abuse"
            assert (await ask(w, "subscriptions/1", "DELETE"))[0] == 409

    run(main())


def test_updates_are_replayed_to_one_or_all(tmp_path):
    async def main():
        async with world(tmp_path, admin_token=TOKEN) as w:
            topic = w.site.put("/t", b"1")
            await w.subscribe(topic, "/a")
            await w.subscribe(topic, "/b")
            for n in (1, 2):
                w.site.put("/t", b"%d" % n)
                await w.ping(topic)
                await until(lambda n=n: w.hub.counters["deliveries_delivered"] == 2 * n)
            first = w.reader.at("/a")[0]
            assert await ask(w, "replay", "POST", topic=topic, subscription=2) == (
                200, {"deliveries": 1},
            )  # fmt: skip
            await until(lambda: w.hub.counters["deliveries_delivered"] == 5)
            assert len(w.reader.at("/b")) == 3
            assert w.reader.at("/b")[-1].body == b"2"
            _, found = await ask(w, "topic", topic=topic)
            old = found["versions"][-1]["position"]
            assert (await ask(w, "replay", "POST", topic=topic, position=old))[1] == {
                "deliveries": 2
            }
            await until(lambda: w.hub.counters["deliveries_delivered"] == 7)
            again = w.reader.at("/a")[-1]
            assert again.body == b"1"
            assert again.headers["X-Hub-Delivery"] == first.headers["X-Hub-Delivery"]
            await until_async(lambda: _empty(w), "an empty queue")

    run(main())


def test_the_queue_says_what_waits_and_why(tmp_path):
    async def main():
        async with world(tmp_path, admin_token=TOKEN) as w:

            async def busy(request):
                return web.Response(status=503, headers={"Retry-After": "100"})

            w.reader.receive = busy
            topic = w.site.put("/t", b"1")
            await w.subscribe(topic)
            await w.ping(topic)
            await until(lambda: w.hub.counters["deliveries_retry"] == 1)
            _, found = await ask(w, "queue")
            (waiting,) = found["deliveries"]
            assert waiting["attempt"] == 1
            assert not waiting["in_flight"]
            assert waiting["last_failure"] == "the callback answered 503"

    run(main())


async def _empty(w):
    return (await ask(w, "queue"))[1]["deliveries"] == []
