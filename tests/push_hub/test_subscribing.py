"""websub.md points 1 to 7 over real HTTP: requests and the verification of intent."""

import asyncio
import socket

import pytest
from aiohttp import web

from push_hub.lifecycle import State
from tests.push_hub.world import run, until, until_async, world

TOPIC = "http://127.0.0.1:1/feed"


def test_a_subscription_is_verified_and_told_its_lease(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            await w.subscribe(TOPIC, "/cb?own=1&hub.mode=mine", lease_seconds="999999")
            (asked,) = w.reader.verifications
            assert asked.query_string.startswith("own=1&hub.mode=mine&hub.mode=subscribe&")
            assert asked.query["hub.topic"] == TOPIC
            assert asked.query["hub.lease_seconds"] == "5000"
            assert len(asked.query["hub.challenge"]) >= 32
            record = await w.subscription(TOPIC, "/cb?own=1&hub.mode=mine")
            assert record.state is State.ACTIVE
            assert record.lease_seconds == 5000

    run(main())


def test_each_challenge_is_used_once(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            await w.subscribe(TOPIC)
            await w.subscribe(TOPIC)
            one, two = [each.query["hub.challenge"] for each in w.reader.verifications]
            assert one != two

    run(main())


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_any_2xx_with_the_challenge_confirms(tmp_path, status):
    async def main():
        async with world(tmp_path) as w:

            async def answer(request):
                text = request.query["hub.challenge"]
                return web.Response(status=status, text=None if status == 204 else text)

            w.reader.verify = answer
            await w.post(mode="subscribe", topic=TOPIC, callback=f"{w.reader.url}/cb")
            await until_async(w.settled, "verification")
            # 204 has no body, so it cannot echo anything.
            expected = State.DENIED if status == 204 else State.ACTIVE
            assert (await w.subscription(TOPIC)).state is expected

    run(main())


@pytest.mark.parametrize(
    ("status", "change"),
    [(301, ""), (302, ""), (404, ""), (500, ""), (200, "x"), (200, "\n"), (200, None)],
)
def test_everything_else_refuses(tmp_path, status, change):
    async def main():
        async with world(tmp_path) as w:

            async def answer(request):
                text = request.query["hub.challenge"] + change if change is not None else "wrong"
                headers = {"Location": str(request.url)} if status < 400 else {}
                return web.Response(status=status, text=text, headers=headers)

            w.reader.verify = answer
            assert (await w.post(mode="subscribe", topic=TOPIC, callback=f"{w.reader.url}/cb"))[
                0
            ] == 202
            await until_async(w.settled, "verification")
            assert len(w.reader.verifications) == 1
            record = await w.subscription(TOPIC)
            assert record.state is State.DENIED
            assert "the callback" in record.reason

    run(main())


def test_an_endless_answer_is_not_read_to_its_end(tmp_path):
    async def main():
        async with world(tmp_path) as w:

            async def answer(request):
                response = web.StreamResponse()
                await response.prepare(request)
                try:
                    while True:
                        await response.write(b"x" * 65536)
                except ConnectionError:
                    pass
                return response

            w.reader.verify = answer
            await w.post(mode="subscribe", topic=TOPIC, callback=f"{w.reader.url}/cb")
            await until_async(w.settled, "verification")
            assert (await w.subscription(TOPIC)).state is State.DENIED

    run(main())


def test_a_failed_renewal_leaves_the_live_subscription(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            await w.subscribe(TOPIC, secret="old")
            before = await w.subscription(TOPIC)

            async def refuse(request):
                return web.Response(status=404)

            w.reader.verify = refuse
            await w.post(
                mode="subscribe", topic=TOPIC, callback=f"{w.reader.url}/cb", secret="stolen"
            )
            await until_async(w.settled, "verification")
            assert await w.subscription(TOPIC) == before

    run(main())


def test_unsubscribing_is_verified_too(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            await w.subscribe(TOPIC)
            await w.post(mode="unsubscribe", topic=TOPIC, callback=f"{w.reader.url}/cb")
            await until_async(w.settled, "verification")
            asked = w.reader.verifications[-1]
            assert asked.query["hub.mode"] == "unsubscribe"
            assert "hub.lease_seconds" not in asked.query
            assert (await w.subscription(TOPIC)).state is State.UNSUBSCRIBED

    run(main())


def test_leases_run_out(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            topic = w.site.put("/t", b"1")
            await w.subscribe(topic, "/long")
            await w.subscribe(topic, "/short", lease_seconds="1")
            await asyncio.sleep(1.1)
            await w.ping(topic)
            await until(lambda: w.reader.received)
            await asyncio.sleep(0.1)
            assert [each.path for each in w.reader.received] == ["/long"]

    run(main())


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"mode": "subscribe", "topic": TOPIC}, "hub.callback is missing"),
        ({"mode": "subscribe", "topic": TOPIC, "callback": "http://h/", "secret": "x" * 200},
         "200 bytes"),
        ({"mode": "subscribe", "topic": TOPIC, "callback": "http://10.0.0.1/"}, "allow-callback"),
        ({"mode": "subscribe", "topic": TOPIC, "callback": "http://[::1]/"}, "allow-callback"),
        ({}, "hub.mode is missing"),
    ],
)  # fmt: skip
def test_a_bad_request_gets_a_reason_in_plain_text(tmp_path, fields, words):
    async def main():
        async with world(tmp_path) as w:
            form = {f"hub.{name}": value for name, value in fields.items()}
            async with w.client.post(f"{w.hub_url}/hub", data=form) as answer:
                assert answer.status == 400
                assert answer.content_type == "text/plain"
                assert words in await answer.text()

    run(main())


def test_other_bodies_and_large_ones_are_refused(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            async with w.client.post(f"{w.hub_url}/hub", json={"hub.mode": "publish"}) as answer:
                assert answer.status == 400
            form = {"hub.mode": "publish", "hub.url": "x" * 300_000}
            async with w.client.post(f"{w.hub_url}/hub", data=form) as answer:
                assert answer.status == 413

    run(main())


def test_a_topic_that_is_not_served_is_denied_at_the_callback(tmp_path):
    async def main():
        async with world(tmp_path, topic_hosts=("example.com",)) as w:
            status, _ = await w.post(
                mode="subscribe", topic=TOPIC, callback=f"{w.reader.url}/cb?x=1"
            )
            assert status == 202
            await until(lambda: w.reader.denials, "the denial")
            query = w.reader.denials[0].query
            assert (query["x"], query["hub.mode"], query["hub.topic"]) == ("1", "denied", TOPIC)
            assert "does not serve" in query["hub.reason"]
            assert w.reader.verifications == []

    run(main())


def test_an_operator_can_end_a_subscription(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            await w.subscribe(TOPIC)
            record = await w.subscription(TOPIC)
            await w.hub.drop(record.id, "unwanted")
            await until(lambda: w.reader.denials, "the denial")
            assert w.reader.denials[0].query["hub.reason"] == "unwanted"
            assert (await w.subscription(TOPIC)).state is State.DENIED

    run(main())


class TestPubSubHubbub03:
    """Clients that send hub.verify."""

    def test_sync_is_answered_after_the_verification(self, tmp_path):
        async def main():
            async with world(tmp_path) as w:
                callback = f"{w.reader.url}/cb"
                wish = {"mode": "subscribe", "topic": TOPIC, "callback": callback}
                status, _ = await w.post(**wish, verify="sync", verify_token="t0k")
                assert status == 204
                assert w.reader.verifications[0].query["hub.verify_token"] == "t0k"
                assert (await w.subscription(TOPIC)).state is State.ACTIVE

                async def refuse(request):
                    return web.Response(status=404)

                w.reader.verify = refuse
                status, text = await w.post(**wish, verify="sync")
                assert status == 409
                assert "404" in text

        run(main())

    def test_async_is_answered_at_once(self, tmp_path):
        async def main():
            async with world(tmp_path) as w:
                await w.subscribe(TOPIC, verify="async")

        run(main())


def test_a_callback_that_cannot_be_reached_is_asked_again(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            with socket.socket() as unused:
                unused.bind(("127.0.0.1", 0))
                dead = f"http://127.0.0.1:{unused.getsockname()[1]}/cb"
                await w.post(mode="subscribe", topic=TOPIC, callback=dead)
                await until_async(w.settled, "verification")
            record = await w.hub.store.subscription(TOPIC, dead)
            assert record.state is State.DENIED
            assert "cannot connect" in record.reason

    run(main())


def test_what_was_pending_is_verified_after_a_restart(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            asked = asyncio.Event()

            async def hang(request):
                asked.set()
                await asyncio.sleep(30)

            w.reader.verify = hang
            await w.post(mode="subscribe", topic=TOPIC, callback=f"{w.reader.url}/cb")
            await asked.wait()
            callback = f"{w.reader.url}/cb"
            store = w.hub.store
            (pending,) = await store.pending()
            assert pending.callback == callback
        async with world(tmp_path) as w:
            # Its reader is gone: it is asked, in vain, and the request is settled.
            await until_async(w.settled, "verification")

    run(main())


def test_two_hundred_at_once_all_survive(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            answers = await asyncio.gather(
                *[
                    w.post(mode="subscribe", topic=TOPIC, callback=f"{w.reader.url}/{n}")
                    for n in range(200)
                ]
            )
            assert {status for status, _ in answers} == {202}
            await until_async(w.settled, "verifications")
            assert (await w.hub.store.statistics()).subscriptions == {"active": 200}

    run(main())
