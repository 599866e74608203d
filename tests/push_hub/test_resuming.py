"""Streams that go on at another hub than the one they began at: nothing twice, nothing left out."""

import asyncio
import base64
import json
from contextlib import AsyncExitStack

import pytest

from identifiers import Position, PublisherId, identify
from push_hub.carrier import Recalled
from push_hub.recalling import between
from tests.push_hub.carriers import NotedCarrier
from tests.push_hub.feeds.documents import atom
from tests.push_hub.test_streams import OTHER, TOPIC, browser
from tests.push_hub.world import PATIENCE, run, until, world

X, Y = PublisherId(b"x" * 16), PublisherId(b"y" * 16)
ATOM = "application/atom+xml"


def at(version, publisher=X, epoch=1):
    return Position(publisher, epoch, version)


def recalled(version, publisher=X, epoch=1, body=b"again", content_type="text/plain"):
    return Recalled(at(version, publisher, epoch), content_type, body, "")


async def accept(w, *positions, topic=TOPIC, body=b"live"):
    for position in positions:
        await w.hub.accept(
            identify(topic), "text/plain", body, position=position, trace_id="ab" * 16
        )


async def events(b, count):
    """Each as its kind and what it is about."""
    found = []
    for _ in range(count):
        event = await b.event()
        if event.kind == "message":
            found.append(event.position)
        else:
            found.append((event.kind, event.data["after"], event.data["resumes"]))
    return found


async def caught_up(b):
    """All that was recorded before has come."""
    while await asyncio.wait_for(b.response.content.readline(), PATIENCE) != b": caught up\n":
        pass


def texts(*positions):
    return [str(each) for each in positions]


def gap(after, resumes, kind="gap"):
    return (kind, str(after), str(resumes))


def test_what_was_missed_is_had_from_elsewhere_before_the_next_version(tmp_path):
    async def main():
        carrier = NotedCarrier()
        carrier.elsewhere = [recalled(n) for n in range(50, 60)]
        async with (
            world(tmp_path, carrier=carrier) as w,
            browser(w, after=texts(at(57))) as b,
        ):
            await accept(w, at(60), at(61))
            assert await events(b, 4) == texts(at(58), at(59), at(60), at(61))
            assert carrier.questions == [(TOPIC, at(57), at(60))]
            kept = await w.hub.store.versions(1, 9)
            assert [each.position for each in kept] == [at(61), at(60)]
            assert w.hub.counters["recalled"] == 2

    run(main())


def test_what_cannot_be_had_any_more_is_a_gap(tmp_path):
    async def main():
        carrier = NotedCarrier()
        carrier.elsewhere = [recalled(59)]
        async with (
            world(tmp_path, carrier=carrier) as w,
            browser(w, after=texts(at(57))) as b,
        ):
            await accept(w, at(62))
            assert await events(b, 4) == [
                gap(at(57), at(59)), str(at(59)), gap(at(59), at(62)), str(at(62)),
            ]  # fmt: skip

    run(main())


@pytest.mark.parametrize("fault", ["none", "error", "late"])
def test_a_carrier_that_cannot_help_stops_nobody(tmp_path, fault):
    async def main():
        carrier = None if fault == "none" else NotedCarrier()
        if fault == "error":
            carrier.recall_error = OSError("the fabric is away")
        if fault == "late":
            carrier.recall_gate = asyncio.Event()
        async with (
            world(tmp_path, carrier=carrier, recall_patience=0.1) as w,
            browser(w, after=texts(at(57))) as b,
        ):
            await accept(w, at(60))
            assert await events(b, 2) == [gap(at(57), at(60)), str(at(60))]

    run(main())


def test_a_hub_that_is_behind_the_reader_repeats_nothing(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            await accept(w, at(1), at(2), at(3))
            async with browser(w, after=texts(at(5))) as b:
                await accept(w, at(4), at(5), at(6))
                await accept(w, at(1, Y))
                assert await events(b, 2) == texts(at(6), at(1, Y))
            # Another publisher took over after what the hub has: that was not seen elsewhere.
            async with browser(w, after=texts(at(9))) as b:
                assert await events(b, 1) == texts(at(1, Y))

    run(main())


def test_many_who_miss_the_same_are_one_question(tmp_path, monkeypatch):
    monkeypatch.setattr("push_hub.recalling._KEPT", 600.0)

    async def main():
        carrier = NotedCarrier()
        carrier.elsewhere = [recalled(n) for n in range(1, 60)]
        carrier.recall_gate = asyncio.Event()
        async with world(tmp_path, carrier=carrier) as w, AsyncExitStack() as stack:
            readers = [
                await stack.enter_async_context(browser(w, after=texts(at(57)))) for _ in range(20)
            ]
            await accept(w, at(60))
            await until(lambda: carrier.questions, "the question")
            carrier.recall_gate.set()
            for b in readers:
                assert await events(b, 3) == texts(at(58), at(59), at(60))
            # Also one that comes later, but soon.
            async with browser(w, after=texts(at(57))) as b:
                assert await events(b, 3) == texts(at(58), at(59), at(60))
            assert len(carrier.questions) == 1

    run(main())


@pytest.mark.parametrize("changes", [{"history": 200}, {"history": 200, "recall_bytes": 20}])
def test_more_than_a_page_is_asked_for_in_pages(tmp_path, changes):
    async def main():
        carrier = NotedCarrier()
        carrier.elsewhere = [recalled(n, body=b"0123456789") for n in range(1, 151)]
        async with (
            world(tmp_path, carrier=carrier, **changes) as w,
            browser(w, after=texts(at(1))) as b,
        ):
            await accept(w, at(151))
            assert await events(b, 150) == texts(*(at(n) for n in range(2, 152)))
            assert len(carrier.questions) == (75 if "recall_bytes" in changes else 3)

    run(main())


def test_no_more_is_had_from_elsewhere_than_the_history_may_hold(tmp_path):
    async def main():
        carrier = NotedCarrier()
        carrier.elsewhere = [recalled(n) for n in range(1, 151)]
        async with (
            world(tmp_path, carrier=carrier, history=70) as w,
            browser(w, after=texts(at(1))) as b,
        ):
            await accept(w, at(151))
            seen = await events(b, 130)
            assert seen == [
                *texts(*(at(n) for n in range(2, 130))), gap(at(129), at(151)), str(at(151)),
            ]  # fmt: skip

    run(main())


def test_versions_recorded_in_another_order_come_in_their_own(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            await accept(w, at(1), at(4), at(2), at(3))
            async with browser(w, after=texts(at(1))) as b:
                await accept(w, at(5))
                assert await events(b, 4) == texts(at(2), at(3), at(4), at(5))

    run(main())


def test_a_publisher_that_this_hub_never_heard_of_is_asked_for(tmp_path):
    async def main():
        carrier = NotedCarrier()
        carrier.elsewhere = [recalled(58), recalled(59)]
        async with world(tmp_path, carrier=carrier) as w:
            await accept(w, at(1, Y), at(2, Y))
            async with browser(w, after=texts(at(57))) as b:
                assert await events(b, 4) == texts(at(58), at(59), at(1, Y), at(2, Y))
            assert carrier.questions == [(TOPIC, at(57), None), (TOPIC, at(59), None)]
            carrier.elsewhere.clear()
            async with browser(w, after=texts(at(70))) as b:
                assert await events(b, 2) == [gap(at(70), at(2, Y), "reset"), str(at(2, Y))]
                # Should it come after all, it goes on where it was.
                await accept(w, at(71))
                assert await events(b, 1) == texts(at(71))

    run(main())


def test_publishers_of_long_ago_keep_nobody_waiting(tmp_path):
    async def main():
        carrier = NotedCarrier()
        carrier.recall_gate = asyncio.Event()
        gone = [at(9, PublisherId(bytes([n]) * 16)) for n in range(20)]
        async with world(tmp_path, carrier=carrier, recall_patience=0.3) as w:
            await accept(w, at(1), at(2))
            # One that is known here is enough to go on.
            async with browser(w, after=[",".join(texts(*gone, at(1)))]) as b:
                assert await events(b, 1) == texts(at(2))
            assert not carrier.questions
            # Where none is, those heard of last are asked for.
            async with browser(w, after=[",".join(texts(*gone))]) as b:
                assert await events(b, 2) == [gap(gone[-1], at(2), "reset"), str(at(2))]
            assert carrier.questions == [(TOPIC, each, None) for each in gone[-2:]]

    run(main())


def test_what_another_publisher_sent_after_ours_is_sent(tmp_path):
    async def main():
        carrier = NotedCarrier()
        async with world(tmp_path, carrier=carrier) as w:
            await accept(w, at(56), at(57), at(1, Y), at(2, Y))
            async with browser(w, after=texts(at(57))) as b:
                assert await events(b, 2) == texts(at(1, Y), at(2, Y))
            assert not carrier.questions

    run(main())


@pytest.mark.parametrize("known", [False, True])
def test_the_first_of_a_topic_may_be_another_publishers(tmp_path, known):
    async def main():
        carrier = NotedCarrier()
        carrier.elsewhere = [recalled(58)] if known else []
        async with (
            world(tmp_path, carrier=carrier) as w,
            browser(w, after=texts(at(57))) as b,
        ):
            await caught_up(b)
            await accept(w, at(3, Y), at(4, Y))
            first = str(at(58)) if known else gap(at(57), at(3, Y), "reset")
            assert await events(b, 3) == [first, *texts(at(3, Y), at(4, Y))]

    run(main())


def test_a_position_of_each_publisher(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            await accept(w, at(1), at(1, Y), at(2), at(2, Y), at(3), at(3, Y))
            both = f"{at(3)},{at(1, Y)},{at(2)}"
            async with browser(w, after=[both]) as b:
                assert await events(b, 2) == texts(at(2, Y), at(3, Y))
            async with browser(w, TOPIC, OTHER, after=[both, ""]) as b:
                assert await events(b, 2) == texts(at(2, Y), at(3, Y))
            # One that nobody knows does not make the others forgotten.
            stranger = at(9, PublisherId(b"z" * 16))
            async with browser(w, after=[f"{stranger},{at(3, Y)},{at(2)}"]) as b:
                assert await events(b, 1) == texts(at(3))

    run(main())


def test_a_new_epoch_is_a_reset_said_once(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            await accept(w, at(1, epoch=2), at(2, epoch=2))
            async with browser(w, after=texts(at(57))) as b:
                assert await events(b, 2) == [
                    gap(at(57), at(2, epoch=2), "reset"), str(at(2, epoch=2)),
                ]  # fmt: skip
                await accept(w, at(3, epoch=2))
                assert await events(b, 1) == texts(at(3, epoch=2))
            async with browser(w, after=texts(at(1, epoch=2))) as b:
                await accept(w, at(1, epoch=3))
                assert await events(b, 4) == [
                    *texts(at(2, epoch=2), at(3, epoch=2)),
                    gap(at(3, epoch=2), at(1, epoch=3), "reset"),
                    str(at(1, epoch=3)),
                ]

    run(main())


def test_versions_of_a_publisher_of_which_nothing_is_kept_are_not_lost_silently(tmp_path):
    async def main():
        carrier = NotedCarrier()
        async with world(tmp_path, carrier=carrier, history=3) as w:
            await accept(w, *(at(n) for n in range(1, 6)), *(at(n, Y) for n in range(1, 5)))
            async with browser(w, after=texts(at(2))) as b:
                assert await events(b, 2) == [gap(at(2), at(2, Y), "reset"), str(at(2, Y))]
            carrier.elsewhere = [recalled(n) for n in range(1, 6)]
            async with browser(w, after=texts(at(3))) as b:
                assert await events(b, 3) == texts(at(4), at(5), at(2, Y))
            async with browser(w, after=texts(at(5))) as b:
                assert await events(b, 1) == texts(at(2, Y))

    run(main())


def test_feeds_come_whole_to_those_who_ask(tmp_path):
    async def main():
        carrier = NotedCarrier()
        body = atom(("a", "One"))
        newer = atom(("b", "Two"), ("a", "One"))
        carrier.elsewhere = [
            recalled(1, body=body, content_type=ATOM), recalled(2, body=newer, content_type=ATOM),
        ]  # fmt: skip
        # A stream that is left is noticed at its next heartbeat.
        async with world(tmp_path, carrier=carrier, heartbeat=0.1) as w:
            for whole in (True, False):
                params = {"topic": TOPIC, "after": str(at(1, Y)), "content": "whole"}
                if not whole:
                    del params["content"]
                async with w.client.get(f"{w.hub_url}/stream", params=params) as response:
                    await until(lambda: len(w.hub.streams) == 1, "the stream")
                    if whole:
                        await w.hub.accept(
                            identify(TOPIC), ATOM, body, position=at(2, Y), trace_id="ab" * 16
                        )
                    line = b""
                    while not line.startswith(b"data:"):
                        line = await asyncio.wait_for(response.content.readline(), 30)
                    data = json.loads(line[5:])
                    if whole:
                        assert base64.b64decode(data["body_b64"]) == body
                    else:
                        assert [each["title"] for each in data["entries"]] == ["One"]
                await until(lambda: len(w.hub.streams) == 0, "its end")
            # Of versions from elsewhere, entries are what is new since the one before.
            async with browser(w, OTHER, after=texts(Position(X, 1, 1))) as b:
                carrier.elsewhere = [
                    recalled(2, body=body, content_type=ATOM),
                    recalled(3, body=newer, content_type=ATOM),
                ]
                await accept(w, at(4), topic=OTHER)
                titles = [
                    [entry["title"] for entry in (await b.event()).data["entries"]]
                    for _ in range(2)
                ]
                assert titles == [["One"], ["Two"]]

    run(main())


@pytest.mark.parametrize(
    "query",
    [
        "after=" + ",".join(str(at(1, PublisherId(bytes([n]) * 16))) for n in range(65)),
        f"after={at(1)},",
        f"after={X}.1.{2**63}",
        "content=all",
    ],
)
def test_bad_positions_get_a_reason(tmp_path, query):
    async def main():
        async with (
            world(tmp_path) as w,
            w.client.get(f"{w.hub_url}/stream?topic={TOPIC}&{query}") as answer,
        ):
            assert answer.status == 400
            assert await answer.text()

    run(main())


def test_only_what_was_asked_for_is_taken_from_an_answer():
    answer = [recalled(5), recalled(3), recalled(3), recalled(4, Y), recalled(1), recalled(9)]
    assert [each.position for each in between(answer, at(2), at(6))] == [at(3), at(5)]
    assert [each.position for each in between(answer, at(4), None)] == [at(5), at(9)]
