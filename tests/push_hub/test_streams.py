"""Browser streams over real HTTP: events, resuming, gaps, resets, slow browsers."""

import asyncio
import base64
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from identifiers import Position, PublisherId, identify
from tests.push_hub.feeds.documents import atom
from tests.push_hub.world import PATIENCE, run, until, world
from traces import MemorySink, Stage, check

TOPIC = "http://example.com/feed"
OTHER = "http://example.com/other"


@dataclass
class Event:
    kind: str
    id: str | None
    data: dict

    @property
    def position(self):
        return self.data["position"]


class Browser:
    """Reads a stream as the standard says."""

    def __init__(self, response):
        self.response = response

    async def event(self):
        kind, id_, data = "message", None, []
        while True:
            line = (await asyncio.wait_for(self.response.content.readline(), PATIENCE)).decode()
            assert line, "the stream ended"
            field, _, value = line.rstrip("\n").partition(": ")
            if line == "\n" and data:
                return Event(kind, id_, json.loads("\n".join(data)))
            if field == "event":
                kind = value
            elif field == "id":
                id_ = value
            elif field == "data":
                data.append(value)


@asynccontextmanager
async def browser(w, *topics, last_event_id=None, after=(), **more):
    params = [("topic", each) for each in topics or (TOPIC,)]
    params += [*(("after", each) for each in after), *more.items()]
    headers = {"Last-Event-ID": last_event_id} if last_event_id else {}
    async with w.client.get(f"{w.hub_url}/stream", params=params, headers=headers) as response:
        assert response.status == 200, await response.text()
        assert response.headers["Content-Type"].startswith("text/event-stream")
        assert response.headers["Access-Control-Allow-Origin"] == "*"
        yield Browser(response)


async def publish(w, body=b"x", topic=TOPIC, content_type="text/plain"):
    return str((await w.hub.publish(identify(topic), content_type, body)).update.position)


def test_an_update_becomes_an_event(tmp_path):
    sink = MemorySink()

    async def main():
        async with world(tmp_path, trace=sink) as w, browser(w, "HTTP://Example.com/feed") as b:
            position = await publish(w, b"\x00bytes")
            event = await b.event()
            assert (event.kind, event.position) == ("message", position)
            assert event.data["topic"] == "HTTP://Example.com/feed"
            assert event.data["position"] == position
            assert event.data["content_type"] == "text/plain"
            assert base64.b64decode(event.data["body_b64"]) == b"\x00bytes"
            assert len(event.data["trace_id"]) == 32

    run(main())
    for event in sink.events:
        check(event)
    assert [event.stage for event in sink.events] == [
        Stage.SUBSCRIBED, Stage.BROWSER_SENT, Stage.UNSUBSCRIBED,
    ]  # fmt: skip


def test_feeds_come_as_sanitised_entries(tmp_path):
    async def main():
        async with world(tmp_path) as w, browser(w) as b:
            title = "A &lt;b>bold&lt;/b>&#10;title\u2028"
            await publish(w, atom(("a", title)), content_type="application/atom+xml")
            (entry,) = (await b.event()).data["entries"]
            assert (entry["id"], entry["title"]) == ("urn:a", "A bold title")
            assert entry["link"] == "http://example.com/a"

    run(main())


def test_a_stream_begins_with_the_current_version(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            await publish(w, b"1")
            second = await publish(w, b"2")
            async with browser(w) as b:
                assert (await b.event()).position == second
                third = await publish(w, b"3")
                assert (await b.event()).position == third

    run(main())


def test_a_stream_resumes_without_loss_or_repeat(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            positions = [await publish(w, b"%d" % n) for n in range(120)]
            async with browser(w, after=[positions[9]]) as b:
                live = await publish(w, b"live")
                # History keeps a hundred; the tenth is gone with the first twenty.
                event = await b.event()
                assert event.kind == "gap"
                assert event.data["after"] == positions[9]
                seen = [(await b.event()).position]
                while seen[-1] != live:
                    seen.append((await b.event()).position)
            assert seen == [*positions, live][-len(seen) :]
            assert event.data["resumes"] == seen[0]
            async with browser(w, after=[positions[60]]) as b:
                for expected in [*positions[61:], live]:
                    event = await b.event()
                    assert (event.kind, event.position) == ("message", expected)

    run(main())


def test_many_topics_in_one_stream(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            a1, b1 = await publish(w, topic=TOPIC), await publish(w, topic=OTHER)
            a2, b2 = await publish(w, topic=TOPIC), await publish(w, topic=OTHER)
            async with browser(w, TOPIC, OTHER, after=[a1, b2]) as b:
                event = await b.event()
                assert (event.data["topic"], event.position) == (TOPIC, a2)
                live = await publish(w, topic=OTHER)
                event = await b.event()
                assert (event.data["topic"], event.position) == (OTHER, live)
            assert a1 == b1  # versions count per topic

    run(main())


def test_who_counts_versions_is_told_where_a_stream_has_caught_up(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            first, second, third = [await publish(w, b"%d" % n) for n in range(3)]
            async with browser(w, TOPIC, OTHER, after=["now", "now"], base="event") as b:
                told = [await b.event(), await b.event()]
                assert [each.kind for each in told] == ["base", "base"]
                assert told[0].data == {"topic": TOPIC, "base": [third]}
                assert told[1].data == {"topic": OTHER, "base": []}  # nothing is known of it
                fourth = await publish(w, b"3")
                assert (await b.event()).position == fourth
            async with browser(w, after=[second], base="event") as b:
                assert [(await b.event()).position for _ in range(2)] == [third, fourth]
                assert (await b.event()).data == {"topic": TOPIC, "base": [fourth]}
            async with browser(w, after=[""], base="event") as b:
                found = [(await b.event()).position for _ in range(4)]
                assert found == [first, second, third, fourth]
                assert (await b.event()).data["base"] == [fourth]
            async with browser(w, after=[""], base="event", last="2") as b:
                assert [(await b.event()).position for _ in range(2)] == [third, fourth]
                assert (await b.event()).data["base"] == [fourth]
            for wrong in ("0", "-1", "x", "1" * 9, "\u0664"):
                async with w.client.get(
                    f"{w.hub_url}/stream", params={"topic": TOPIC, "last": wrong}
                ) as answer:
                    assert (answer.status, (await answer.text())[:5]) == (400, "last:")

    run(main())


def test_another_numbering_is_a_reset(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            position = await publish(w)
            stranger = str(Position(PublisherId(b"s" * 16), 1, 5))
            async with browser(w, after=[stranger]) as b:
                event = await b.event()
                assert (event.kind, event.data["after"]) == ("reset", stranger)
                assert (await b.event()).position == position

    run(main())


def test_a_heartbeat_keeps_the_connection(tmp_path):
    async def main():
        async with world(tmp_path, heartbeat=0.05) as w, browser(w) as b:
            beats = 0
            while beats < 3:
                line = await asyncio.wait_for(b.response.content.readline(), PATIENCE)
                beats += line.startswith(b":")
            position = await publish(w)
            assert (await b.event()).position == position

    run(main())


@pytest.mark.parametrize("query", ["", "&base=event", "&heartbeat=event&base=event"])
def test_every_block_is_an_event(tmp_path, query):
    """Readers such as httpx-sse take each empty line for the end of an event, data or not."""

    async def main():
        async with world(tmp_path, heartbeat=0.05) as w:
            position, said = await publish(w), b""
            async with w.client.get(f"{w.hub_url}/stream?topic={TOPIC}{query}") as answer:
                while said.count(b"still here") + said.count(b"alive") < 3 or (
                    position.encode() not in said
                ):
                    said += await asyncio.wait_for(answer.content.readany(), PATIENCE)
            assert said.startswith(b"retry: 3000\n")
            *blocks, _ = said.split(b"\n\n")
            assert blocks
            for block in blocks:
                assert b"\ndata: " in b"\n" + block, block

    run(main())


def test_a_slow_browser_is_dropped_and_not_the_hub(tmp_path):
    async def main():
        async with (
            world(tmp_path, stream_buffer=300_000) as w,
            browser(w),
            browser(w) as fast,
        ):
            for n in range(60):
                position = await publish(w, bytes([n]) * 200_000)
                assert (await fast.event()).position == position
            await until(lambda: len(w.hub.streams) == 1)
            assert w.hub.counters["streams_dropped"] == 1

    run(main())


def test_streams_are_limited_and_forgotten(tmp_path):
    async def main():
        async with world(tmp_path, streams_at_once=1, heartbeat=0.1) as w:
            async with browser(w), w.client.get(f"{w.hub_url}/stream?topic={TOPIC}") as answer:
                assert answer.status == 429
                assert "too many streams" in await answer.text()
            # Noticed when the next heartbeat cannot be sent.
            await until(lambda: len(w.hub.streams) == 0)

    run(main())


@pytest.mark.parametrize(
    "query", ["", "topic=nonsense", f"topic={TOPIC}&after=x", "topic=mqtt://h/a",
              f"topic={TOPIC}&after=&after=", f"topic={TOPIC}&topic={OTHER}&after="],
)  # fmt: skip
def test_bad_queries_get_a_reason(tmp_path, query):
    async def main():
        async with world(tmp_path) as w, w.client.get(f"{w.hub_url}/stream?{query}") as answer:
            assert answer.status == 400
            assert await answer.text()

    run(main())
