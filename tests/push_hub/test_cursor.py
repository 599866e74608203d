"""Streams that resume with the id of their last event: all topics go on exactly there, or say that
they cannot."""

import asyncio
import random
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from identifiers import Position, PublisherId
from push_hub.cursor import Cursor, Log
from push_hub.store.records import Identity
from tests.push_hub.carriers import NotedCarrier
from tests.push_hub.test_resuming import X, Y, accept, at, caught_up, recalled, texts
from tests.push_hub.test_streams import browser, publish
from tests.push_hub.world import run, world

BUSY, QUIET, NEW = (f"http://example.com/{name}" for name in ("busy", "quiet", "new"))
HUB = PublisherId(b"h" * 16)


async def read(b, count):
    """The next events: (kind, topic, version) each, and the last id among them."""
    found, last = [], None
    for _ in range(count):
        event = await b.event()
        position = event.data.get("position") or event.data["resumes"]
        version = position and Position.parse(position).version
        found.append((event.kind, event.data["topic"], version))
        last = event.id or last
    return found, last


async def publish_many(w, topic, count):
    for n in range(count):
        await publish(w, b"%d" % n, topic)


def news(topic, *versions):
    return [("message", topic, version) for version in versions]


def test_a_quiet_topic_beside_a_busy_one_loses_nothing(tmp_path):
    """The busy topic's version has left the history, and is higher than any of the quiet one."""

    async def main():
        async with world(tmp_path) as w:
            await publish_many(w, QUIET, 2)
            await publish_many(w, BUSY, 12)
            async with browser(w, BUSY, QUIET) as b:
                first, last = await read(b, 2)
            assert first == news(QUIET, 2) + news(BUSY, 12)
            await publish_many(w, QUIET, 1)
            await publish_many(w, BUSY, 130)
            async with browser(w, BUSY, QUIET, last_event_id=last) as b:
                found, _ = await read(b, 102)
            assert found == [("gap", BUSY, 43), *news(QUIET, 3), *news(BUSY, *range(43, 143))]

    run(main())


def test_an_id_goes_on_in_every_topic_where_the_log_was(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            for topic in (BUSY, QUIET, BUSY, QUIET, BUSY):
                await publish(w, topic=topic)
            async with browser(w, BUSY, QUIET, after=["", "now"]) as b:
                await read(b, 1)
                await publish_many(w, QUIET, 1)
                _, last = await read(b, 1)
            await publish_many(w, BUSY, 2)
            await publish_many(w, QUIET, 1)
            # Also of a topic that had nothing then, and of one that was not in the stream.
            await publish_many(w, NEW, 2)
            async with browser(w, BUSY, QUIET, NEW, last_event_id=last) as b:
                found, last = await read(b, 5)
                assert found == news(BUSY, 4, 5) + news(QUIET, 4) + news(NEW, 1, 2)
        # A hub that was restarted has the same log.
        async with world(tmp_path) as w:
            await publish_many(w, QUIET, 1)
            async with browser(w, BUSY, QUIET, NEW, last_event_id=last) as b:
                assert (await read(b, 1))[0] == news(QUIET, 5)

    run(main())


def test_an_id_of_a_sibling_hub_is_a_reset_in_each_topic(tmp_path):
    """It recorded the same versions in another order: its numbers are those of other updates."""

    async def main():
        (tmp_path / "one").mkdir()
        (tmp_path / "other").mkdir()
        async with world(tmp_path / "one") as one, world(tmp_path / "other") as other:
            for w, order in ((one, (BUSY, QUIET)), (other, (QUIET, BUSY))):
                for topic in order:
                    await accept(w, at(1), at(2), at(3), topic=topic)
            async with browser(one, BUSY, QUIET, NEW, after=[*texts(at(1), at(1)), ""]) as b:
                found, last = await read(b, 4)
            assert found == news(BUSY, 2, 3) + news(QUIET, 2, 3)
            await accept(other, at(4), topic=QUIET)
            async with browser(other, BUSY, QUIET, NEW, last_event_id=last) as b:
                assert (await read(b, 5))[0] == [
                    ("reset", BUSY, 3), ("reset", QUIET, 4), ("reset", NEW, None),
                    *news(BUSY, 3), *news(QUIET, 4),
                ]  # fmt: skip
                await accept(other, at(1), at(2), topic=NEW)
                assert (await read(b, 2))[0] == news(NEW, 1, 2)
            # With a Position for each topic nothing is lost there.
            async with browser(other, BUSY, QUIET, after=texts(at(3), at(3))) as b:
                assert (await read(b, 1))[0] == news(QUIET, 4)

    run(main())


def unknown_ids(identity, seq):
    publisher, epoch = identity.publisher, identity.epoch
    return [
        f"{publisher}.{epoch}.1",  # a Position
        f"{publisher}-{epoch + 1}-1",  # another epoch: what was lost since is not known
        f"{publisher}-{epoch}-{seq + 1}",  # not given yet
        f"{publisher}-{epoch}-{2**63}",
        f"{publisher}-{epoch}--1",
        f"{publisher}-{epoch}-1-after",  # only good with the `after` that its stream had
        f"{publisher}-{epoch}-" + "1" * 4_000,
        "x" * 8_000,
        "now",
        "\u00e9",
    ]


@pytest.mark.parametrize("which", range(10))
def test_what_is_no_id_of_this_log_is_a_reset_in_each_topic(tmp_path, which):
    async def main():
        async with world(tmp_path) as w:
            await publish_many(w, BUSY, 3)
            await publish_many(w, QUIET, 1)
            ids = unknown_ids(w.hub.store.identity, await w.hub.store.last_seq())
            async with browser(w, BUSY, QUIET, last_event_id=ids[which]) as b:
                found, _ = await read(b, 4)
            assert found == [
                ("reset", BUSY, 3), ("reset", QUIET, 1), *news(BUSY, 3), *news(QUIET, 1),
            ]  # fmt: skip

    run(main())


def test_a_notice_about_an_id_has_no_position_that_the_reader_knew(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            position = await publish(w, topic=BUSY)
            async with browser(w, BUSY, last_event_id="x") as b:
                event = await b.event()
            assert (event.kind, event.id) == ("reset", None)
            assert event.data == {"topic": BUSY, "after": None, "resumes": position}

    run(main())


def test_a_browser_repeats_the_after_it_began_with(tmp_path):
    """What that says counts where the log knows less: the hub is behind the reader, or has never
    heard of the publisher."""

    async def main():
        carrier = NotedCarrier()
        async with world(tmp_path, carrier=carrier) as w:
            await accept(w, at(1), at(2), topic=BUSY)
            await accept(w, at(1, Y), topic=QUIET)
            after = texts(at(4), at(7))
            async with browser(w, BUSY, QUIET, after=after) as b:
                assert (await b.event()).kind == "reset"  # of X nothing is known in QUIET
                found, last = await read(b, 1)
                assert found == news(QUIET, 1)
            await accept(w, at(3), at(4), at(5), topic=BUSY)
            carrier.elsewhere = [recalled(8)]
            await accept(w, at(9), topic=QUIET)
            async with browser(w, BUSY, QUIET, after=after, last_event_id=last) as b:
                found = [await b.event() for _ in range(3)]
            positions = [each.position for each in found]
            assert positions == texts(at(5), at(8), at(9))
            # What is not in the log has no id.
            assert [each.id is None for each in found] == [False, True, False]
            # Without `after`, the hub cannot know that the eighth is missing.
            async with browser(w, BUSY, QUIET, last_event_id=last) as b:
                found, _ = await read(b, 4)
            assert found == [
                ("reset", BUSY, 5), ("reset", QUIET, 9), *news(BUSY, 5), *news(QUIET, 9),
            ]  # fmt: skip

    run(main())


def test_versions_recorded_in_another_order_are_not_sent_after_later_ones(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            await accept(w, at(1), at(4), topic=BUSY)
            async with browser(w, BUSY, after=texts(at(1))) as b:
                found, last = await read(b, 2)
            assert found == [("gap", BUSY, 4), *news(BUSY, 4)]
            await accept(w, at(2), at(3), at(5), topic=BUSY)
            async with browser(w, BUSY, last_event_id=last) as b:
                assert (await read(b, 1))[0] == news(BUSY, 5)

    run(main())


def test_only_the_topic_whose_history_is_too_short_has_a_gap(tmp_path):
    async def main():
        async with world(tmp_path, history=3) as w:
            await accept(w, at(1), topic=BUSY)
            async with browser(w, BUSY, QUIET) as b:
                _, last = await read(b, 1)
            await accept(w, at(1, Y), topic=QUIET)
            await accept(w, *(at(n) for n in range(2, 8)), topic=BUSY)
            async with browser(w, BUSY, QUIET, last_event_id=last) as b:
                found, _ = await read(b, 5)
                assert found == [("gap", BUSY, 5), *news(QUIET, 1), *news(BUSY, 5, 6, 7)]
                # Said once; what comes then goes on as usual.
                await accept(w, at(8), topic=BUSY)
                assert (await read(b, 1))[0] == news(BUSY, 8)

    run(main())


def test_events_come_in_the_order_of_the_log(tmp_path):
    """However many publishers record at the same time: who resumes after one has all before it."""

    async def main():
        async with world(tmp_path) as w, browser(w, BUSY, QUIET, NEW) as b:
            await caught_up(b)
            topics = [BUSY, QUIET, NEW] * 20
            await asyncio.gather(*(publish(w, topic=topic) for topic in topics))
            log = Log(w.hub.store.identity)
            found = [log.read((await b.event()).id).seq for _ in topics]
            assert found == list(range(1, len(topics) + 1))

    run(main())


def test_the_first_update_of_a_topic_is_not_sent_after_later_ones(tmp_path, monkeypatch):
    """It is recorded while the history of another topic is read."""

    async def main():
        async with world(tmp_path) as w:
            await publish_many(w, BUSY, 1)
            page = type(w.hub.store).log_page
            recorded = False

            async def later(self, *arguments):
                nonlocal recorded
                if not recorded:
                    recorded = True
                    await publish(w, topic=QUIET)
                    await publish(w, topic=BUSY)
                return await page(self, *arguments)

            monkeypatch.setattr(type(w.hub.store), "log_page", later)
            # Not from memory, which has nothing after a restart.
            monkeypatch.setattr("push_hub.recent.Recent.after", lambda *_: None)
            async with browser(w, BUSY, QUIET) as b:
                assert (await read(b, 3))[0] == news(BUSY, 1) + news(QUIET, 1) + news(BUSY, 2)

    run(main())


def test_an_update_is_sent_although_its_publisher_left(tmp_path):
    """Otherwise the next one's id would say that its reader has it."""

    async def main():
        async with world(tmp_path) as w, browser(w, BUSY, QUIET) as b:
            await publish_many(w, BUSY, 1)
            await publish_many(w, QUIET, 1)
            assert (await read(b, 2))[0] == news(BUSY, 1) + news(QUIET, 1)
            record, engine = w.hub.store.record, w.hub.store._engine
            asked, go_on = asyncio.Event(), threading.Event()

            async def held(*arguments, **named):
                before = asyncio.create_task(engine.write(lambda _: go_on.wait(60)))
                await asyncio.sleep(0)
                asked.set()
                recorded = await record(*arguments, **named)
                await before
                return recorded

            w.hub.store.record = held
            leaving = asyncio.create_task(publish(w, topic=QUIET))
            await asked.wait()
            leaving.cancel()
            await asyncio.wait({leaving})
            assert leaving.cancelled()
            w.hub.store.record = record
            go_on.set()
            await publish_many(w, BUSY, 1)
            assert (await read(b, 2))[0] == news(QUIET, 2) + news(BUSY, 2)

    run(main())


@pytest.mark.parametrize("seed", range(4))
def test_any_number_of_cuts_gives_every_version_once_or_a_gap(tmp_path, seed):
    """Own and received topics, holes in what is received, a short history, restarts of the hub; a
    reader that resumes with its last id, as a browser does, or with a Position of each topic."""
    chance, history = random.Random(seed), 6
    topics = [f"http://example.com/{n}" for n in range(5)]
    latest = dict.fromkeys(topics, 0)
    recorded = {topic: [] for topic in topics}
    had, last = dict.fromkeys(topics, 0), None
    told = {}  # by topic: the version that comes after a gap
    positions, began = dict.fromkeys(topics, ""), ()

    async def make(w, topic, step=1):
        latest[topic] += step
        recorded[topic].append(latest[topic])
        if topic in topics[:2]:
            await publish(w, topic=topic)
        else:
            await accept(w, at(latest[topic]), topic=topic)

    async def make_news(w):
        for _ in range(chance.randrange(12)):
            topic = chance.choice(topics[: chance.choice((1, 5))])  # the first is busy
            await make(w, topic, 1 if topic in topics[:2] else chance.choice((1, 1, 1, 3)))

    async def read_one(b):
        nonlocal last
        event = await b.event()
        topic = event.data["topic"]
        if event.kind == "gap":
            resumes = told[topic] = Position.parse(event.data["resumes"]).version
            missed = range(had[topic] + 1, resumes)
            assert missed, "a gap without a reason"
            assert not set(missed) & set(recorded[topic][-history:])
            return
        assert event.kind == "message"
        version = Position.parse(event.position).version
        assert version == told.pop(topic, had[topic] + 1)
        had[topic], positions[topic], last = version, event.position, event.id

    async def read_some(w, most):
        nonlocal began, last
        if chance.random() < 0.3:
            began, last = list(positions.values()), None
        async with browser(w, *topics, after=began, last_event_id=last) as b:
            while had != latest and most:
                await read_one(b)
                most -= 1

    async def main():
        async with world(tmp_path, history=history) as w:
            for topic in topics:
                await make(w, topic)
            await read_some(w, len(topics))
        for _ in range(6):
            async with world(tmp_path, history=history) as w:
                for _ in range(8):
                    await make_news(w)
                    await read_some(w, chance.randrange(8))
        async with world(tmp_path, history=history) as w:
            await read_some(w, 1_000)
        assert had == latest

    run(main())


@given(st.integers(0, 2**63 - 1), st.integers(1, 2**63 - 1), st.booleans())
def test_an_id_is_read_as_it_was_written(epoch, seq, with_after):
    log, cursor = Log(Identity(HUB, epoch)), Cursor(seq, with_after)
    text = log.write(cursor)
    assert log.read(text) == cursor
    assert len(text) <= 78
    assert Log(Identity(HUB, epoch + 1)).read(text) is None
    assert Log(Identity(X, epoch)).read(text) is None


@given(st.text())
def test_any_text_is_an_id_or_none(text):
    assert Log(Identity(HUB, 1)).read(text) is None
