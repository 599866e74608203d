"""Topics: pings are numbers that fetches catch up with."""

from identifiers import identify
from tests.push_hub.store.stores import CAPS, TOPIC, opened, run

TRACE = "a" * 32


async def ping(store, *spellings, now=1.0, create=True):
    topics = [(identify(each), TRACE) for each in spellings or (TOPIC,)]
    return await store.ping(topics, CAPS, now, create=create)


async def fetched(store, topic, now=2.0, **more):
    await store.fetched(topic.id, topic.ping_serial, now, etag='"e"', last_modified=None, **more)


def test_a_ping_makes_a_fetch_due_that_survives(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            await ping(store)
        async with opened(tmp_path) as store:
            (due,) = await store.due_fetches(1.0, 10)
            assert (due.canonical, due.trace_id, due.ping_serial) == (TOPIC, TRACE, 1)
            await fetched(store, due)
            assert await store.due_fetches(9.0, 10) == []
            assert await store.next_fetch(0.0) is None
            after = await store.topic(identify(TOPIC))
            assert (after.etag, after.last_fetch_at) == ('"e"', 2.0)

    run(main())


def test_pings_during_a_fetch_lead_to_exactly_one_more(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            (topic,) = await ping(store)
            await ping(store)
            await ping(store)
            await fetched(store, topic)
            (again,) = await store.due_fetches(2.0, 10)
            assert again.ping_serial == 3
            await fetched(store, again)
            assert await store.due_fetches(9.0, 10) == []

    run(main())


def test_unknown_topics_are_not_kept_unless_asked_for(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            assert await ping(store, create=False) == []
            assert await store.topic(identify(TOPIC)) is None

    run(main())


def test_a_failed_fetch_is_tried_again_or_given_up_until_the_next_ping(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            (topic,) = await ping(store)
            await store.fetch_failed(
                topic.id, topic.ping_serial, 2.0, reason="timed out", retry_at=30.0
            )
            assert await store.due_fetches(29.0, 10) == []
            (due,) = await store.due_fetches(30.0, 10)
            assert (due.fetch_failures, due.last_error) == (1, "timed out")
            await store.fetch_failed(topic.id, due.ping_serial, 31.0, reason="gone", retry_at=None)
            assert await store.next_fetch(0.0) is None
            (topic,) = await ping(store, now=40.0)
            assert await store.next_fetch(0.0) == 40.0

    run(main())


def test_a_ping_does_not_wait_for_a_retry(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            (topic,) = await ping(store)
            await store.fetch_failed(topic.id, topic.ping_serial, 2.0, reason="x", retry_at=900.0)
            await ping(store, now=3.0)
            assert await store.next_fetch(0.0) == 3.0

    run(main())


def test_rechecks_are_counted_and_survive_until_there_is_news_or_none_is_left(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            (topic,) = await ping(store)
            await fetched(store, topic, now=2.0, recheck_at=4.0)
        async with opened(tmp_path) as store:
            assert await store.due_fetches(3.0, 10) == []
            (due,) = await store.due_fetches(4.0, 10)
            assert (due.signalled, due.rechecks) == (True, 1)
            await fetched(store, due, now=5.0)
            after = await store.topic(identify(TOPIC))
            assert (after.fetch_due, after.signalled, after.rechecks) == (None, False, 0)

    run(main())


def test_neither_a_ping_nor_a_look_waits_for_a_recheck(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            (topic,) = await ping(store)
            await fetched(store, topic, recheck_at=900.0)
            (topic,) = await ping(store, now=3.0)
            assert topic.fetch_due == 3.0
            await fetched(store, topic, recheck_at=900.0)
            await store.refetch(topic.id, 4.0, TRACE, signalled=False)
            assert (await store.topic(identify(TOPIC))).fetch_due == 4.0

    run(main())


def test_rechecks_are_counted_from_the_latest_ping_on(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            (topic,) = await ping(store)
            for rechecks in (1, 2):
                await fetched(store, topic, now=2.0, recheck_at=900.0)
                assert (await store.topic(identify(TOPIC))).rechecks == rechecks
            (topic,) = await ping(store)
            await ping(store)
            await fetched(store, topic, now=2.0, recheck_at=900.0)
            (due,) = await store.due_fetches(2.0, 10)
            assert (due.signalled, due.rechecks) == (True, 1)

    run(main())


def test_a_postponed_fetch_keeps_its_time_when_pinged_again(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            (topic,) = await ping(store)
            await store.postpone_fetch(topic.id, 50.0)
            await ping(store, now=2.0)
            assert await store.next_fetch(0.0) == 50.0

    run(main())


def test_the_publishers_spelling_is_fetched(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            await store.ensure_topic(identify("http://EXAMPLE.com:80/feed"), CAPS, 0.0)
            (topic,) = await ping(store, "http://Example.com/feed#x")
            assert topic.fetch_url == "http://Example.com/feed"

    run(main())


def test_a_ping_reaches_relatives(tmp_path):
    https = "https://example.com/feed"

    async def main():
        async with opened(tmp_path) as store:
            topic = await store.ensure_topic(identify(TOPIC), CAPS, 0.0)
            await store.relate(topic.id, identify(https))
            await store.ensure_topic(identify(https), CAPS, 0.0)
            assert {each.canonical for each in await ping(store, https)} == {https, TOPIC}
            assert {each.canonical for each in await ping(store, TOPIC)} == {https, TOPIC}

    run(main())
