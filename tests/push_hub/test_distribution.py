"""websub.md points 11 to 14 over real HTTP: what is delivered, how, and how often."""

import asyncio
import socket
import time

import pytest
from aiohttp import web

from push_hub.lifecycle import State
from push_hub.retries import RetrySchedule
from push_hub.signatures import verified
from push_hub.store.backup import back_up
from tests.push_hub.feeds.documents import atom
from tests.push_hub.world import run, until, world
from traces import MemorySink, Stage, check

ATOM = "application/atom+xml; charset=utf-8"


async def published(w, body, path="/t", content_type="text/plain"):
    """Change the topic and wait until the hub has seen it."""
    count = w.hub.counters["updates"]
    topic = w.site.put(path, body, content_type)
    await w.ping(topic)
    await until(lambda: w.hub.counters["updates"] > count, "the update")


def test_a_delivery_has_the_content_and_an_allow_list_of_headers(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            topic = w.site.put("/t", b"\x00\xffbytes", "Text/X-Odd; a=B", **{"X-Secret": "no"})
            await w.subscribe(topic)
            await w.ping(topic)
            await until(lambda: w.reader.received)
            (got,) = w.reader.received
            assert got.body == b"\x00\xffbytes"
            assert got.headers.getall("Link") == [
                f'<https://hub.example/hub>; rel="hub", <{topic}>; rel="self"'
            ]
            assert got.headers["Content-Type"] == "Text/X-Odd; a=B"
            assert set(got.headers) == {
                "Host", "User-Agent", "Accept", "Accept-Encoding", "Content-Type",
                "Content-Length", "Link", "X-Hub-Delivery", "X-Hub-Position",
            }  # fmt: skip
            latest = await w.hub.store.latest(1)
            assert got.headers["X-Hub-Position"] == str(latest.position)

    run(main())


@pytest.mark.parametrize(
    ("fields", "algorithm"),
    [({}, "sha256"), ({"signature": "sha512"}, "sha512"), ({"verify": "async"}, "sha1")],
)
def test_a_secret_signs(tmp_path, fields, algorithm):
    async def main():
        async with world(tmp_path) as w:
            topic = w.site.put("/t", b"hello")
            await w.subscribe(topic, secret="geheim", **fields)
            await w.ping(topic)
            await until(lambda: w.reader.received)
            header = w.reader.received[0].headers["X-Hub-Signature"]
            assert header.startswith(f"{algorithm}=")
            assert verified(header, b"geheim", b"hello")

    run(main())


def test_nothing_is_pushed_at_subscription_time(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            topic = w.site.put("/t", b"1")
            await w.subscribe(topic, "/early")
            await published(w, b"1")
            await w.subscribe(topic, "/late")
            await published(w, b"2")
            await until(lambda: len(w.reader.received) == 3)
            assert [each.body for each in w.reader.at("/late")] == [b"2"]

    run(main())


def test_spellings_of_a_topic_are_delivered_each_under_its_own(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            topic = w.site.put("/t", b"1")
            spelled = topic.replace("/t", "/%74").replace("http", "HTTP")
            await w.subscribe(topic, "/a")
            await w.subscribe(spelled, "/b")
            await w.ping(topic)
            await until(lambda: len(w.reader.received) == 2)
            assert f'<{spelled}>; rel="self"' in w.reader.at("/b")[0].headers["Link"]

    run(main())


def test_new_entries_only_where_asked_for(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            topic = w.site.put("/t", atom(("a", "1")), ATOM)
            await w.subscribe(topic, "/all")
            await published(w, atom(("a", "1")), content_type=ATOM)
            await w.subscribe(topic, "/new", entries="new")
            await published(w, atom(("b", "2"), ("a", "1")), content_type=ATOM)
            await until(lambda: len(w.reader.received) == 3)
            (got,) = w.reader.at("/new")
            assert b"urn:b" in got.body
            assert b"urn:a" not in got.body
            assert w.reader.at("/all")[1].body == atom(("b", "2"), ("a", "1"))

    run(main())


def test_superseding_loses_no_new_entry(tmp_path):
    async def main():
        patient = RetrySchedule(first=0.05, factor=1.0, attempts=10_000)
        async with world(tmp_path, delivery_retries=patient) as w:
            failing, taken = True, []

            async def answer(request):
                if failing:
                    return web.Response(status=500)
                taken.append(w.reader.received[-1].body)
                return web.Response()

            w.reader.receive = answer
            topic = w.site.put("/t", atom(), ATOM)
            await w.subscribe(topic, entries="new")
            await published(w, atom(("a", "1")), content_type=ATOM)
            await until(lambda: w.reader.received)
            await published(w, atom(("b", "2"), ("a", "1")), content_type=ATOM)
            await published(w, atom(("c", "3"), ("b", "2"), ("a", "1")), content_type=ATOM)
            failing = False
            # The attempt that was under way, if any, has what was new when it began.
            await until(lambda: b"urn:c" in b"".join(taken))
            assert [b"".join(taken).count(b"urn:%c" % key) for key in b"abc"] == [1, 1, 1]

    run(main())


@pytest.mark.parametrize("status", [200, 201, 204, 299])
def test_2xx_is_success(tmp_path, status):
    async def main():
        async with world(tmp_path) as w:

            async def answer(request):
                return web.Response(status=status)

            w.reader.receive = answer
            topic = w.site.put("/t", b"1")
            await w.subscribe(topic)
            await w.ping(topic)
            await until(lambda: w.hub.counters["deliveries_delivered"] == 1)

    run(main())


@pytest.mark.parametrize("status", [301, 302, 307, 400, 404, 500, 503])
def test_everything_else_is_retried_under_the_same_id_and_then_dropped(tmp_path, status):
    async def main():
        async with world(tmp_path) as w:

            async def answer(request):
                return web.Response(status=status, headers={"Location": "/elsewhere"})

            w.reader.receive = answer
            topic = w.site.put("/t", b"1")
            await w.subscribe(topic)
            await w.ping(topic)
            await until(lambda: w.hub.counters["deliveries_dropped"] == 1)
            assert len(w.reader.received) == 4
            assert len({each.headers["X-Hub-Delivery"] for each in w.reader.received}) == 1
            assert {each.path for each in w.reader.received} == {"/cb"}
            record = await w.subscription(topic)
            assert record.state is State.ACTIVE
            assert record.last_failure == f"the callback answered {status}"
            w.reader.receive = None
            await published(w, b"2")
            await until(lambda: w.hub.counters["deliveries_delivered"] == 1)

    run(main())


def test_410_ends_the_subscription(tmp_path):
    async def main():
        async with world(tmp_path) as w:

            async def gone(request):
                return web.Response(status=410)

            w.reader.receive = gone
            topic = w.site.put("/t", b"1")
            await w.subscribe(topic)
            await w.ping(topic)
            await until(lambda: w.hub.counters["deliveries_gone"] == 1)
            assert (await w.subscription(topic)).state is State.UNSUBSCRIBED

    run(main())


def test_retry_after_is_honoured(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            times = []

            async def busy(request):
                times.append(time.monotonic())
                if len(times) == 1:
                    return web.Response(status=503, headers={"Retry-After": "1"})
                return web.Response()

            w.reader.receive = busy
            topic = w.site.put("/t", b"1")
            await w.subscribe(topic)
            await w.ping(topic)
            await until(lambda: len(times) == 2)
            assert times[1] - times[0] >= 1

    run(main())


def test_slow_and_dead_callbacks_delay_nobody(tmp_path):
    async def main():
        async with world(tmp_path, callback_timeout=100.0) as w:
            release = asyncio.Event()

            async def answer(request):
                if request.path.startswith("/slow"):
                    await release.wait()
                return web.Response()

            w.reader.receive = answer
            topic = w.site.put("/t", b"1")
            with socket.socket() as silent:
                silent.bind(("127.0.0.1", 0))
                for n in range(3):
                    await w.subscribe(topic, f"/slow{n}")
                    await w.subscribe(topic, f"/fast{n}")
                for body in (b"1", b"2", b"3"):
                    await published(w, body)
                    await until(lambda body=body: all(
                        w.reader.at(f"/fast{n}")[-1:] and w.reader.at(f"/fast{n}")[-1].body == body
                        and w.reader.at(f"/slow{n}") for n in range(3)
                    ))  # fmt: skip
                # In flight stays one; the middle one was superseded, the last one follows.
                assert [each.body for each in w.reader.at("/slow0")] == [b"1"]
                release.set()
                await until(lambda: len(w.reader.at("/slow0")) == 2)
                assert w.reader.at("/slow0")[1].body == b"3"
                assert w.hub.counters["superseded"] == 3

    run(main())


def test_what_waits_for_a_host_that_does_not_answer_is_given_back(tmp_path):
    async def main():
        async with world(tmp_path) as w:

            async def hang_up(request):
                request.transport.abort()
                return web.Response()

            w.reader.receive = hang_up
            topic = w.site.put("/t", b"1")
            for n in range(30):  # more than a host has slots
                await w.subscribe(topic, f"/{n}")
            await w.ping(topic)
            await until(lambda: w.hub.counters["deliveries_released"] > 0)
            w.reader.receive = None
            await until(lambda: w.hub.counters["deliveries_delivered"] == 30)

    run(main())


def test_connections_are_reused(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            peers = set()

            async def note(request):
                peers.add(request.transport.get_extra_info("peername"))
                return web.Response(text="thanks")

            w.reader.receive = note
            topic = w.site.put("/t", b"0")
            await w.subscribe(topic)
            for n in range(10):
                await published(w, b"%d" % n)
                await until(lambda n=n: w.hub.counters["deliveries_delivered"] == n + 1)
            assert len(peers) <= 2

    run(main())


def test_a_large_body_arrives_whole(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            body = bytes(range(256)) * 20_000
            topic = w.site.put("/t", body, "application/octet-stream")
            await w.subscribe(topic, secret="s")
            await w.ping(topic)
            await until(lambda: w.reader.received)
            assert w.reader.received[0].body == body

    run(main())


def test_what_was_owed_is_delivered_after_a_restart(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            released = asyncio.Event()

            async def hang(request):
                await released.wait()
                return web.Response()

            w.reader.receive = hang
            topic = w.site.put("/t", b"1")
            await w.subscribe(topic)
            await w.ping(topic)
            await until(lambda: w.reader.received)
            first = w.reader.received[0].headers["X-Hub-Delivery"]
            # What kill -9 would leave behind at this moment: nothing is finished.
            (tmp_path / "left").mkdir()
            back_up(tmp_path / "hub.sqlite", tmp_path / "left" / "hub.sqlite")
            async with world(tmp_path / "left") as again:
                await until(lambda: len(w.reader.received) >= 2)
                assert w.reader.received[1].headers["X-Hub-Delivery"] == first
                assert again.hub.counters["deliveries_repeated"] == 1
                released.set()

    run(main())


def test_the_stages_of_an_update_are_traced(tmp_path):
    sink = MemorySink()

    async def main():
        async with world(tmp_path, trace=sink) as w:
            topic = w.site.put("/t", b"1")
            await w.subscribe(topic)
            await w.ping(topic)
            await until(lambda: w.hub.counters["deliveries_delivered"] == 1)

    run(main())
    for event in sink.events:
        check(event)
    assert [event.stage for event in sink.events] == [
        Stage.SUBSCRIBED, Stage.PING_RECEIVED, Stage.FETCHED, Stage.PUSHED,
    ]  # fmt: skip
    assert len({event.trace_id for event in sink.events[1:]}) == 1


def test_an_update_finds_a_callback_that_is_back_and_then_the_others_of_its_host(tmp_path):
    """Over sockets, with retries that no test waits for."""
    never = RetrySchedule(first=10_000, longest=10_000)

    async def main():
        async with world(tmp_path, delivery_retries=never, probe_every=0.05) as w:

            async def broken(request):
                return web.Response(status=500)

            w.reader.receive = broken
            quiet, busy = w.site.put("/quiet", b"1"), w.site.put("/busy", b"1")
            for topic, path in ((quiet, "/cb/quiet"), (busy, "/cb/busy")):
                await w.subscribe(topic, path)
                await w.ping(topic)
            await until(lambda: w.hub.counters["deliveries_retry"] == 2)
            w.site.put("/busy", b"2")
            await w.ping(busy)
            await until(lambda: w.hub.counters["deliveries_probed"] == 1, "a probe that fails")
            w.reader.receive = None
            w.site.put("/busy", b"3")
            await w.ping(busy)
            await until(lambda: w.hub.counters["deliveries_delivered"] == 2, "both")
            assert [each.body for each in w.reader.received[-2:]] == [b"3", b"1"]
            assert {each.path for each in w.reader.received[-2:]} == {"/cb/busy", "/cb/quiet"}
            assert w.hub.counters["deliveries_retry"] == 2

    run(main())
