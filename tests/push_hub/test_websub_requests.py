"""Points 1 to 7 of websub.md where test_subscribing.py does not prove them, in each dialect."""

import asyncio
import hmac
import time

import pytest
from aiohttp import web

from push_hub.leases import LeaseBounds
from push_hub.lifecycle import State
from tests.push_hub.dialects import DIALECTS, TOPIC, ask, change, each_dialect
from tests.push_hub.world import run, until, until_async, world


class TestPoint1:
    """The form."""

    @each_dialect
    @pytest.mark.parametrize(
        ("secret", "taken"), [("x" * 199, True), ("x" * 200, False), ("\u00e9" * 100, False)]
    )
    def test_a_secret_has_less_than_200_bytes(self, tmp_path, dialect, secret, taken):
        async def main():
            async with world(tmp_path) as w:
                if taken:
                    await ask(w, dialect, secret=secret)
                    return
                status, text = await w.post(
                    mode="subscribe", topic=TOPIC, callback=f"{w.reader.url}/cb", secret=secret,
                    **DIALECTS[dialect],
                )  # fmt: skip
                assert (status, text) == (400, "hub.secret must be shorter than 200 bytes\n")
                assert w.reader.verifications == []

        run(main())

    @pytest.mark.parametrize("lease", ["-1", "1.5", "x", "0", "\u0663", "1e3", "+5"])
    def test_a_lease_is_a_positive_integer_and_ignored_on_unsubscribe(self, tmp_path, lease):
        async def main():
            async with world(tmp_path) as w:
                wish = {"topic": TOPIC, "callback": f"{w.reader.url}/cb", "lease_seconds": lease}
                status, text = await w.post(mode="subscribe", **wish)
                assert status == 400
                assert "hub.lease_seconds" in text
                await w.subscribe(TOPIC)
                await ask(w, "websub", mode="unsubscribe", lease_seconds=lease, secret="x" * 999)
                assert (await w.subscription(TOPIC)).state is State.UNSUBSCRIBED

        run(main())

    @each_dialect
    def test_utf8_and_what_is_unknown(self, tmp_path, dialect):
        async def main():
            async with world(tmp_path) as w:
                topic = "http://127.0.0.1:1/f\u00fctter?q=\u2713&hub.mode=x"
                await ask(w, dialect, topic=topic, future="1", x="y")
                assert w.reader.verifications[-1].query["hub.topic"] == topic
                assert (await w.subscription(topic)).state is State.ACTIVE

        run(main())


class TestPoint2:
    """The key is (topic, callback); only what is verified changes anything."""

    @each_dialect
    def test_a_verified_repeat_overrides(self, tmp_path, dialect):
        async def main():
            async with world(tmp_path) as w:
                topic = w.site.put("/t", b"x")
                await ask(w, dialect, topic=topic, secret="old", lease_seconds="100")
                await ask(w, dialect, topic=topic, secret="new", lease_seconds="200")
                assert (await w.hub.store.statistics()).subscriptions == {"active": 1}
                assert (await w.subscription(topic)).lease_seconds == 200
                await change(w, b"x")
                await until(lambda: w.reader.received)
                name, _, value = w.reader.received[0].headers["X-Hub-Signature"].partition("=")
                assert value == hmac.new(b"new", b"x", name).hexdigest()
                await asyncio.sleep(0.05)
                assert len(w.reader.received) == 1

        run(main())

    @each_dialect
    @pytest.mark.parametrize("mode", ["subscribe", "unsubscribe"])
    def test_a_refused_repeat_changes_nothing(self, tmp_path, dialect, mode):
        async def main():
            async with world(tmp_path) as w:
                topic = w.site.put("/t", b"x")
                await ask(w, dialect, topic=topic, secret="old")

                async def refuse(request):
                    return web.Response(status=404)

                w.reader.verify = refuse
                status, _ = await w.post(
                    mode=mode, topic=topic, callback=f"{w.reader.url}/cb", secret="stolen",
                    **DIALECTS[dialect],
                )  # fmt: skip
                assert status == (409 if dialect == "push-0.3-sync" else 202)
                await until_async(w.settled, "the verification")
                await change(w, b"x")
                await until(lambda: w.reader.received)
                name, _, value = w.reader.received[0].headers["X-Hub-Signature"].partition("=")
                assert value == hmac.new(b"old", b"x", name).hexdigest()

        run(main())

    def test_callbacks_and_topics_are_apart(self, tmp_path):
        async def main():
            async with world(tmp_path) as w:
                one, two = w.site.put("/t", b"1"), w.site.put("/u", b"2")
                for topic, path in ((one, "/a"), (one, "/b"), (two, "/a")):
                    await w.subscribe(topic, path)
                await w.post(mode="unsubscribe", topic=one, callback=f"{w.reader.url}/a")
                await until_async(w.settled, "the end")
                await w.ping(one, two)
                await until(lambda: len(w.reader.received) == 2)
                got = sorted((each.path, each.body) for each in w.reader.received)
                assert got == [("/a", b"2"), ("/b", b"1")]

        run(main())


class TestPoint3:
    """The exact callback."""

    @each_dialect
    @pytest.mark.parametrize(
        ("path", "used"),
        [
            ("/cb?a=1&a=2&b=", "/cb?a=1&a=2&b="),
            ("/cb?hub.topic=mine&x=%2F%20+%26", "/cb?hub.topic=mine&x=%2F%20+%26"),
            ("/%7Eme/%41?k=%5F", "/~me/A?k=_"),
            ("/a%2fb//c/./d", "/a%2fb//c/./d"),
        ],
    )
    def test_it_is_asked_and_delivered_to_as_it_is_spelled(self, tmp_path, dialect, path, used):
        async def main():
            async with world(tmp_path) as w:
                paths = []

                async def note(request):
                    paths.append(request.raw_path)
                    return web.Response()

                w.reader.receive = note
                topic = w.site.put("/t", b"x")
                await ask(w, dialect, topic=topic, path=path)
                asked = w.reader.verifications[-1].raw_path
                separator = "&" if "?" in used else "?"
                assert asked.startswith(f"{used}{separator}hub.mode=subscribe&")
                await change(w, b"x")
                await until(lambda: paths)
                assert paths == [used]

        run(main())


class TestPoint4:
    """What a request is answered."""

    @pytest.mark.parametrize(
        ("verify", "status"),
        [
            (["sync"], 204),
            (["sync", "async"], 204),  # django-push sends both, and means the first
            (["async", "sync"], 202),
            (["async"], 202),
            (["async,sync"], 202),
            (["future", "sync"], 204),
            (["never"], 400),
        ],
    )
    def test_only_sync_is_answered_after_the_verification(self, tmp_path, verify, status):
        async def main():
            async with world(tmp_path) as w:
                fields = {"mode": "subscribe", "topic": TOPIC, "callback": f"{w.reader.url}/cb"}
                got, _ = await w.post(*[("hub.verify", each) for each in verify], **fields)
                assert got == status
                if status == 204:
                    assert len(w.reader.verifications) == 1

        run(main())

    @pytest.mark.parametrize("verify", ["sync", "async"])
    def test_03_refuses_fragments(self, tmp_path, verify):
        async def main():
            async with world(tmp_path) as w:
                callback = f"{w.reader.url}/cb"
                wishes = [
                    {"topic": f"{TOPIC}#part", "callback": callback},
                    {"topic": TOPIC, "callback": f"{callback}#part"},
                ]
                for wish in wishes:
                    status, text = await w.post(mode="subscribe", verify=verify, **wish)
                    assert (status, "fragment" in text) == (400, True)

        run(main())

    def test_it_is_accepted_before_anybody_asks_the_callback(self, tmp_path):
        async def main():
            async with world(tmp_path) as w:
                accepted = asyncio.Event()

                async def slow(request):
                    await accepted.wait()
                    return web.Response(text=request.query["hub.challenge"])

                w.reader.verify = slow
                status, _ = await w.post(
                    mode="subscribe", topic=TOPIC, callback=f"{w.reader.url}/cb"
                )
                assert status == 202
                assert not await w.settled()
                accepted.set()
                await until_async(w.settled, "the verification")
                assert (await w.subscription(TOPIC)).state is State.ACTIVE

        run(main())


class TestPoint7:
    """Leases."""

    @each_dialect
    @pytest.mark.parametrize(
        ("asked", "granted"),
        [(None, "864000"), ("1", "300"), ("86400", "86400"), ("9" * 18, "2592000")],
    )
    def test_they_are_bounded_and_told(self, tmp_path, dialect, asked, granted):
        async def main():
            async with world(tmp_path, leases=LeaseBounds()) as w:
                more = {} if asked is None else {"lease_seconds": asked}
                await ask(w, dialect, **more)
                assert w.reader.verifications[-1].query["hub.lease_seconds"] == granted
                assert (await w.subscription(TOPIC)).lease_seconds == int(granted)

        run(main())

    def test_they_run_from_the_verification_request(self, tmp_path):
        async def main():
            async with world(tmp_path) as w:
                asked = []

                async def slow(request):
                    asked.append(time.time())
                    await asyncio.sleep(0.5)
                    return web.Response(text=request.query["hub.challenge"])

                w.reader.verify = slow
                begun = time.time()
                await ask(w, "websub", lease_seconds="100")
                expires = (await w.subscription(TOPIC)).expires_at
                assert begun <= expires - 100 <= asked[0]

        run(main())
