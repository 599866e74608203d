"""Updates: numbered once, kept within bounds, never taken twice."""

import asyncio

from identifiers import Position, PublisherId, identify
from push_hub.store.records import NewUpdate, Origin
from tests.push_hub.store.stores import (
    BOUNDS,
    CAPS,
    TOPIC,
    claim,
    opened,
    publish,
    result,
    run,
    subscribe,
)


def test_versions_count_from_one_per_topic_across_restarts(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            first = [(await publish(store, b"%d" % n)).update.position for n in range(3)]
            other = (await publish(store, topic="http://example.com/other")).update.position
        async with opened(tmp_path) as store:
            later = (await publish(store, b"later")).update.position
            assert later.publisher == store.identity.publisher
        assert [each.version for each in (*first, later)] == [1, 2, 3, 4]
        assert (other.version, other.epoch) == (1, 1)

    run(main())


def test_concurrent_updates_get_each_version_once(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            done = await asyncio.gather(*[publish(store, b"%d" % n) for n in range(50)])
            assert sorted(each.update.position.version for each in done) == list(range(1, 51))

    run(main())


def test_another_epoch_counts_from_one(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            await publish(store, b"1")
            assert (await publish(store, b"2", epoch=7)).update.position.version == 1
            position = (await publish(store, b"3", epoch=7)).update.position
            assert (position.epoch, position.version) == (7, 2)

    run(main())


def test_updates_from_elsewhere_keep_their_position_and_come_once(tmp_path):
    theirs = Position(PublisherId(b"p" * 16), 3, 17)

    async def main():
        async with opened(tmp_path) as store:
            await subscribe(store)
            first = await publish(store, position=theirs, origin=Origin.RECEIVED)
            assert first.update.position == theirs
            assert await publish(store, position=theirs, origin=Origin.RECEIVED) is None
            assert (await publish(store, b"own")).update.position.version == 1
            assert (await store.statistics()).deliveries == 1

    run(main())


def test_one_that_left_the_history_is_not_taken_for_new(tmp_path):
    publisher = PublisherId(b"p" * 16)

    async def main():
        async with opened(tmp_path) as store:
            for version in range(1, 16):
                await publish(store, position=Position(publisher, 1, version))
            assert await publish(store, position=Position(publisher, 1, 2)) is None

    run(main())


def test_history_is_bounded_by_number_and_bytes(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            for n in range(15):
                last = await publish(store, b"%d" % n)
            topic = last.update.topic_id
            kept = await store.history([topic], 0, 100)
            assert [each.position.version for each in kept] == list(range(6, 16))
            await publish(store, b"x" * (2 << 20))
            kept = await store.history([topic], 0, 100)
            assert [each.position.version for each in kept] == [16]

    run(main())


def test_what_is_owed_stays_whatever_the_history(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            await subscribe(store)
            for n in range(15):
                await publish(store, b"%d" % n, origin=Origin.PUBLISHED)
            seen = []
            done = []
            while claimed := (await claim(store, results=done)).claimed:
                seen.append((await store.update(claimed[0].seq)).body)
                done = [result(claimed[0])]
            assert seen == [b"%d" % n for n in range(15)]

    run(main())


def test_resuming_finds_positions_and_what_came_after(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            one = (await publish(store, b"1")).update
            other = (await publish(store, b"o", topic="http://example.com/other")).update
            two = (await publish(store, b"2")).update
            seq = await store.find(one.topic_id, one.position)
            assert seq == one.seq
            assert await store.history([one.topic_id], seq, 10) == [two]
            assert await store.history([one.topic_id, other.topic_id], seq, 10) == [other, two]
            assert await store.find(one.topic_id, Position(PublisherId(b"q" * 16), 1, 1)) is None
            huge = Position(one.position.publisher, 1, 2**64 - 1)
            assert await store.find(one.topic_id, huge) is None
            assert await store.latest(one.topic_id) == two
            assert await store.last_seq() == two.seq

    run(main())


def test_an_update_is_found_by_its_trace_id_among_the_last_of_its_topic(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            topic = (await store.ensure_topic(identify(TOPIC), CAPS, 0.0)).id
            other = (await store.ensure_topic(identify("http://example.com/o"), CAPS, 0.0)).id

            async def record(where, number):
                trace_id = f"{number:032x}"
                new = NewUpdate(where, Origin.PUBLISHED, "text/plain", b"", b"", trace_id)
                return (await store.record(new, 1.0, **BOUNDS)).update

            updates = [await record(topic, number) for number in range(5)]
            await record(other, 7)
            for within, found in [(5, [updates[0]]), (4, []), (100, [updates[0]])]:
                assert await store.traced(topic, updates[0].trace_id, within) == found
            assert await store.traced(topic, f"{7:032x}", 100) == []
            assert len(await store.traced(other, f"{7:032x}", 1)) == 1

    run(main())


def test_entries_know_since_when_they_are_new(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            topic = (await store.ensure_topic(identify(TOPIC), CAPS, 0.0)).id

            async def record(known, changed):
                new = NewUpdate(
                    topic, Origin.FETCHED, "text/xml", b"", b"", "0" * 32,
                    known=known, changed=frozenset(changed),
                )  # fmt: skip
                return (await store.record(new, 1.0, **BOUNDS)).update.seq

            first = await record({"a": b"1", "b": b"1"}, "ab")
            second = await record({"b": b"2", "c": b"1"}, "bc")
            third = await record({"c": b"1", "d": b"1"}, "d")
            assert await store.known_entries(topic) == {
                "a": b"1", "b": b"2", "c": b"1", "d": b"1",
            }  # fmt: skip
            assert await store.changed_since(topic, first) == set("bcd")
            assert await store.changed_since(topic, second) == set("d")
            assert await store.changed_since(topic, third) == set()

    run(main())
