"""GET /t/TOPIC: any reader gets the latest version, and whoever discovers it there follows it."""

import asyncio
import time
from contextlib import asynccontextmanager
from email.utils import formatdate
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st
from yarl import URL

from identifiers import Position, PublisherId, identify
from push_hub import create_app
from push_hub.app import HUB
from push_hub.links import parse_link_headers
from push_hub.settings import Publisher
from tests.ports import free_port
from tests.push_hub.carriers import NotedCarrier
from tests.push_hub.test_upstream import FOLLOWING, follower
from tests.push_hub.world import chosen, run, served, until, until_async, world

QUIET = {"poll_shortest": 1000.0, "poll_longest": 1000.0}
BODY = b"\x00\xff<feed/>\r\n"
OTHER = PublisherId(b"o" * 16)


@asynccontextmanager
async def read(w, topic, method="GET", **headers):
    """Ask for a topic exactly as it is spelled."""
    url = URL(f"{w.hub_url}/t/{topic}", encoded=True)
    async with w.client.request(method, url, headers=headers) as answer:
        yield answer


async def raw(w, target, method="GET"):
    """What a client sends that thinks about nothing."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(w.hub_url.rpartition(":")[2]))
    try:
        head = f"{method} {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
        writer.write(head.encode("latin-1"))
        answer = await asyncio.wait_for(reader.read(), 30)
    finally:
        writer.close()
    return int(answer.split()[1]), answer.partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize("follow", [True, False])
def test_a_reader_gets_the_bytes_of_a_topic_nobody_knew(tmp_path, follow):
    async def main():
        async with world(tmp_path, **({**FOLLOWING, **QUIET} if follow else {})) as w:
            topic = w.site.put("/feed", BODY, "Application/Atom+XML; x=Y")
            async with read(w, topic) as answer:
                assert answer.status == 200
                assert await answer.read() == BODY
                assert answer.headers["Content-Type"] == "Application/Atom+XML; x=Y"
                links = parse_link_headers(answer.headers.getall("Link"), "http://none/")
                assert {(link.href, *link.rels) for link in links} == {
                    ("https://hub.example/hub", "hub"),
                    (f"https://hub.example/t/{topic}", "self"),
                }
                assert answer.headers["Cache-Control"] == "public, max-age=10"
                assert answer.headers["Content-Security-Policy"].startswith("sandbox")
                position = str((await w.hub.store.latest(1)).position)
                assert answer.headers["ETag"] == f'"{position}"'
            async with read(w, topic, "HEAD") as answer:
                assert answer.status == 200
                assert answer.headers["Content-Length"] == str(len(BODY))
                assert await answer.read() == b""
            assert len(w.site.fetches("/feed")) == 1

    run(main())


def test_whoever_has_the_latest_version_is_told_so(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            topic = w.site.put("/feed", b"1")
            async with read(w, topic) as answer:
                etag, modified = answer.headers["ETag"], answer.headers["Last-Modified"]
            for headers, status in (
                ({"If-None-Match": etag}, 304),
                ({"If-None-Match": f'"x", W/{etag}'}, 304),
                ({"If-None-Match": "*"}, 304),
                ({"If-None-Match": '"x"', "If-Modified-Since": modified}, 200),
                ({"If-Modified-Since": modified}, 304),
                ({"If-Modified-Since": formatdate(time.time() - 5000, usegmt=True)}, 200),
                ({"If-Modified-Since": "yesterday"}, 200),
            ):
                async with read(w, topic, **headers) as answer:
                    assert (answer.status, headers) == (status, headers)
                    assert answer.headers["ETag"] == etag
                    assert await answer.read() == (b"" if status == 304 else b"1")
            w.site.put("/feed", b"2")
            await w.ping(topic)
            await until(lambda: w.hub.counters["updates"] == 2, "the second version")
            # The same second, perhaps, and another version all the same.
            for headers in ({"If-None-Match": etag}, {"If-Modified-Since": modified}):
                async with read(w, topic, **headers) as answer:
                    assert await answer.read() == b"2"

    run(main())


@pytest.mark.parametrize(
    ("sent", "spelled"),
    [
        ("http://{site}//a%2Fb/%7E?x=http://y/?z&%20", None),
        ("http:/{site}//a%2Fb/?", "http://{site}//a%2Fb/?"),
        ("HTTP://{site}/a/../b", None),
    ],
)
def test_the_url_survives_exactly(tmp_path, sent, spelled):
    async def main():
        async with world(tmp_path) as w:
            site = w.site.url.removeprefix("http://")
            topic = identify((spelled or sent).format(site=site))
            await w.hub.publish(topic, "text/plain", b"this one")
            assert await raw(w, f"/t/{sent.format(site=site)}") == (200, b"this one")
            assert await raw(w, f"http://h:1/t/{sent.format(site=site)}") == (200, b"this one")

    run(main())


@pytest.mark.parametrize(
    "target",
    [
        "/t/x", "/t/http:", "/t/http://", "/t/ftp://x/", "/t/http://[", "/t/http://u@x/", "/%74/http://x/",
        "/t/http://x/%zz", "/t/https://hub.example/t/http://x/",
        "/t/https://hub.example/./t/http://x/",
    ],
)  # fmt: skip
def test_what_is_no_topic_gets_one_clear_line(tmp_path, target):
    async def main():
        async with world(tmp_path) as w:
            status, text = await raw(w, target)
            assert status == 400
            assert text.count(b"\n") <= 1
            assert (await w.hub.store.statistics()).topics == 0

    run(main())


@settings(max_examples=10, deadline=None)
@given(st.lists(st.text("htps:/?#%2F.x@[]&\\;\"'<>{}|^`~", max_size=30), min_size=40, max_size=40))
def test_whatever_is_asked_for_is_answered(paths):
    async def main(directory):
        async with world(Path(directory), topic_hosts=("ours.example",)) as w:
            for path in paths:
                for target in (f"/t/{path}", f"/t/http://x/{path}"):
                    status, _ = await raw(w, target)
                    assert status in (400, 403, 404), target
            assert (await w.hub.store.statistics()).topics == 0

    with TemporaryDirectory() as directory:
        run(main(directory))


def test_a_topic_that_does_not_come_is_a_504(tmp_path):
    async def main():
        async with world(tmp_path, reader_patience=0.3) as w:

            async def never(request):
                await asyncio.sleep(1)
                return web.Response()

            w.site.hooks["/slow"] = never
            async with read(w, f"{w.site.url}/slow") as answer:
                assert answer.status == 504
                assert answer.headers["Retry-After"] == "10"
                text = await answer.text()
                assert text == "there is no version of this topic yet: it has not come in time\n"

    run(main())


@pytest.mark.parametrize("follow", [True, False])
def test_a_topic_that_cannot_be_fetched_says_why_at_once(tmp_path, follow):
    async def main():
        more = {**FOLLOWING, **QUIET} if follow else {}
        async with world(tmp_path, reader_patience=30.0, **more) as w:
            began = time.monotonic()
            for _ in range(2):
                async with read(w, f"{w.site.url}/missing") as answer:
                    assert answer.status == 504
                    assert "the topic answered 404" in await answer.text()
            assert time.monotonic() - began < 25

    run(main())


def test_hosts_that_are_not_served_are_refused(tmp_path):
    async def main():
        async with (
            world(tmp_path, topic_hosts=("ours.example",)) as w,
            read(w, "http://theirs.example/") as answer,
        ):
            assert answer.status == 403
            assert "theirs.example" in await answer.text()

    run(main())


def test_a_reader_counts_for_a_while_and_the_topic_is_followed(tmp_path):
    async def main():
        carrier = NotedCarrier()
        async with follower(tmp_path, carrier=carrier, reader_lease=1.0) as (w, _):
            topic = w.site.put("/t", b"1")
            async with read(w, topic) as answer:
                assert answer.status == 200
            assert carrier.history[0] == ("joined", topic, "reader")

            async def reads(body):
                async with read(w, topic) as answer:
                    return await answer.read() == body

            w.site.put("/t", b"2")
            await until_async(lambda: reads(b"2"), "the second version")
            await until(lambda: not carrier.readers, "the end of the lease")

            async def over():
                return await w.hub.store.following(1) is None

            await until_async(over, "the end of following")

    run(main())


def test_a_topic_that_nobody_saw_to_for_long_is_looked_at_first(tmp_path):
    async def main():
        async with world(tmp_path, poll_shortest=0.0, reader_lease=0.2) as w:
            topic = w.site.put("/t", b"1")
            async with read(w, topic) as answer:
                assert await answer.read() == b"1"
            await until(lambda: not w.hub.interest.topics(), "the end of the lease")
            w.site.put("/t", b"2")
            async with read(w, topic) as answer:
                assert await answer.read() == b"2"
            await until(lambda: not w.hub.interest.topics(), "the end of the lease")
            del w.site.pages["/t"]
            async with read(w, topic) as answer:  # an old version is better than none
                assert (answer.status, await answer.read()) == (200, b"2")

    run(main())


def test_content_sent_here_is_served_without_a_fetch(tmp_path):
    async def main():
        async with world(tmp_path, publishers=(Publisher("token", "http"),)) as w:
            topic = f"{w.site.url}/t"
            await w.hub.publish(identify(topic), "text/plain", b"sent")
            async with read(w, topic) as answer:
                assert await answer.read() == b"sent"
            assert w.site.requests == []

    run(main())


def test_the_carrier_brings_what_a_reader_asks_for(tmp_path):
    async def main():
        carrier = NotedCarrier()
        async with world(tmp_path, carrier=carrier) as w:
            topic = w.site.put("/t", b"not this")
            carrier.carried[topic] = "the fabric"

            async def brought():
                await until(lambda: carrier.readers, "the reader")
                await w.hub.accept(
                    identify(topic), "text/plain", b"this", trace_id="0" * 32,
                    position=Position(OTHER, 1, 1),
                )  # fmt: skip

            bringing = asyncio.create_task(brought())
            async with read(w, topic) as answer:
                assert await answer.read() == b"this"
                assert answer.headers["ETag"] == f'"{Position(OTHER, 1, 1)}"'
            await bringing
            assert carrier.admissions == [(topic, "reader")]
            assert w.site.requests == []
            async with read(w, topic) as answer:
                assert answer.status == 200
            assert len(carrier.admissions) == 1

    run(main())


def test_the_carrier_may_refuse_a_reader(tmp_path):
    async def main():
        carrier = NotedCarrier()
        async with world(tmp_path, carrier=carrier) as w:
            carrier.refusals["http://x.example/"] = "the zone says no"
            async with read(w, "http://x.example/") as answer:
                assert (answer.status, await answer.text()) == (403, "the zone says no\n")
            assert carrier.readers == {}
            assert w.hub.interest.topics() == frozenset()

    run(main())


def test_a_slow_carrier_keeps_no_reader_waiting(tmp_path):
    async def main():
        carrier = NotedCarrier()
        carrier.hold()
        async with world(tmp_path, carrier=carrier, reader_patience=0.2) as w:
            carrier.carried["http://x.example/"] = "the fabric"
            async with read(w, "http://x.example/") as answer:
                assert answer.status == 504

    run(main())


def test_readers_cannot_make_the_hub_follow_everything(tmp_path):
    async def main():
        async with world(tmp_path, reader_topics=2) as w:
            for n in range(3):
                async with read(w, w.site.put(f"/{n}", b"x")) as answer:
                    assert answer.status == (200 if n < 2 else 429)
            async with read(w, f"{w.site.url}/0") as answer:
                assert answer.status == 200
        (tmp_path / "other").mkdir()
        async with world(tmp_path / "other", reader_patience=0.0) as w:
            statuses = set()
            for n in range(1_000):  # 101, where it takes no time to ask
                async with read(w, f"{w.site.url}/missing/{n}") as answer:
                    statuses.add(answer.status)
                if 429 in statuses:
                    break
            assert statuses == {504, 429}

    run(main())


def test_a_subscriber_that_discovers_the_address_is_pushed_to_by_that_name(tmp_path):
    async def main():
        port = free_port()
        own = f"http://127.0.0.1:{port}"
        carrier = NotedCarrier()
        async with world(tmp_path, port=port, public_url=own, carrier=carrier) as w:
            topic = w.site.put("/feed?a=1", b"1")
            w.site.pages["/feed"] = w.site.pages.pop("/feed?a=1")
            async with read(w, topic) as answer:
                links = parse_link_headers(answer.headers.getall("Link"), "http://none/")
            found = {rel: link.href for link in links for rel in link.rels}
            assert found == {"hub": f"{own}/hub", "self": f"{own}/t/{topic}"}
            await w.subscribe(found["self"])
            assert w.reader.verifications[0].query["hub.topic"] == found["self"]
            w.site.put("/feed", b"2")
            await w.ping(topic)
            await until(lambda: w.reader.received, "the delivery")
            (got,) = w.reader.received
            assert got.body == b"2"
            assert f'<{found["self"]}>; rel="self"' in got.headers["Link"]
            # One topic, fetched from where it is.
            (record,) = await w.hub.store.topics()
            assert (record.canonical, record.fetch_url) == (topic, topic)
            assert len(carrier.readers) == 2
            stream = {"topic": found["self"]}
            async with w.client.get(f"{w.hub_url}/stream", params=stream) as events:
                while not (line := await events.content.readline()).startswith(b"data:"):
                    pass
                assert found["self"].encode() in line
            await w.post(mode="unsubscribe", topic=found["self"], callback=f"{w.reader.url}/cb")
            await until(lambda: not any("/cb" in name for _, name in carrier.readers), "the end")

    run(main())


@pytest.mark.parametrize("spelling", ["topic", "fetch"])
def test_a_topic_first_named_by_our_address_is_fetched_from_its_own(tmp_path, spelling):
    async def main():
        async with world(tmp_path) as w:
            topic = w.site.put("/~feed", b"1").replace("~", "%7E")
            await w.subscribe(f"https://hub.example/t/{topic}")
            await w.ping(topic if spelling == "topic" else f"https://hub.example/t/{topic}")
            await until(lambda: w.reader.received, "the delivery")
            (record,) = await w.hub.store.topics()
            assert record.fetch_url == topic

    run(main())


def test_our_address_inside_itself_cannot_be_subscribed_to(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            own = "https://hub.example/t/"
            status, text = await w.post(
                mode="subscribe", topic=f"{own}{own}http://x.example/", callback=f"{w.reader.url}/"
            )
            assert status == 400
            assert "name the topic" in text
            query = {"topic": f"{own}{own}http://x.example/"}
            async with w.client.get(f"{w.hub_url}/stream", params=query) as answer:
                assert answer.status == 400

    run(main())


def test_it_works_where_the_hub_is_mounted_below_a_path(tmp_path):
    async def main():
        hub = create_app(chosen(public_url="http://site.example/websub"), tmp_path)
        app = web.Application()
        app.add_subapp("/websub/", hub)
        async with served(app) as url, aiohttp.ClientSession() as client:
            await hub[HUB].publish(identify("http://x.example//y?z"), "text/plain", b"it")
            target = URL(f"{url}/websub/t/http://x.example//y?z", encoded=True)
            async with client.get(target) as answer:
                assert await answer.read() == b"it"
                own = "<http://site.example/websub/t/http://x.example//y?z>"
                assert own in answer.headers["Link"]

    run(main())
