"""Which topics are followed, and what is kept about them; what is no news at the beginning."""

from dataclasses import replace

import pytest

from identifiers import identify
from push_hub.following import Way, described
from push_hub.store.records import Origin
from tests.push_hub.store.stores import CAPS, TOPIC, claim, opened, publish, run, subscribe

URL = identify(TOPIC)


async def begin(store, now=100.0, asked_before=100.0, told_before=50.0, watched=()):
    return await store.begin_following(
        now, asked_before=asked_before, told_before=told_before, watched=watched
    )


async def fetch(store, body=b"x", **more):
    """As the hub does: a fetch for the latest ping, which finds this."""
    found = await store.topic(URL)
    return await publish(store, body, fetched_serial=found.ping_serial, **more)


def test_only_what_is_wanted_and_not_told_of_is_followed(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            topic = await store.ensure_topic(URL, CAPS, 0.0)
            assert await begin(store) == 0
            assert await begin(store, watched={topic.id}) == 1
            assert await begin(store, watched={topic.id}) == 0
            assert await store.end_following(told_before=50.0, watched={topic.id}) == 0
            assert await store.end_following(told_before=50.0, watched=()) == 1
            await subscribe(store, now=10.0)
            assert await begin(store, asked_before=-1.0) == 0
            assert await begin(store) == 1
            assert [each.way for each in await store.due_following(100.0)] == [Way.LOOKING]

    run(main())


def test_pings_and_content_sent_here_count_as_told(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            await subscribe(store, now=0.0)
            await store.ping([(URL, "0" * 32)], CAPS, 60.0, create=False)
            assert await begin(store) == 0
            assert await begin(store, told_before=70.0) == 1
            await publish(store, origin=Origin.PUBLISHED, now=80.0)
            assert await store.end_following(told_before=70.0, watched=()) == 1
            assert await begin(store, told_before=70.0) == 0

    run(main())


def test_what_is_kept_comes_back_and_tokens_lead_to_it(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            topic = await store.ensure_topic(URL, CAPS, 0.0)
            await begin(store, watched={topic.id})
            record = replace(
                await store.following(topic.id), way=Way.HUB, hub="http://hub.example/",
                token="token", secret=b"secret", lease_until=7.0, due=5.0, reason="why",
            )  # fmt: skip
            await store.follow(record)
            await store.pushed(topic.id, 6.0)
        async with opened(tmp_path) as store:
            assert await store.following_by_token("token") == replace(record, last_push_at=6.0)
            assert await store.following_by_token("other") is None
            assert await store.due_following(4.0) == []
            assert (await store.statistics()).following == {"hub": 1}
            shown = str(described(record))
            assert "secret" not in shown
            assert "token" not in shown

    run(main())


@pytest.mark.parametrize("signalled", [False, True])
def test_a_first_version_is_owed_when_somebody_says_that_it_is_news(tmp_path, signalled):
    async def main():
        async with opened(tmp_path) as store:
            await subscribe(store, now=0.0)
            topic = await store.topic(URL)
            await store.refetch(topic.id, 0.5, "0" * 32, signalled=signalled)
            assert (await fetch(store)).deliveries == int(signalled)

    run(main())


def test_a_version_kept_back_is_released_by_a_ping_to_those_who_were_there(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            await subscribe(store, "http://early.example/", now=0.0)
            topic = await store.topic(URL)
            await store.refetch(topic.id, 0.5, "0" * 32, signalled=False)
            assert (await fetch(store)).deliveries == 0
            await subscribe(store, "http://late.example/", now=2.0)
            nothing = {"etag": None, "last_modified": None}
            await store.refetch(topic.id, 3.0, "0" * 32, signalled=False)
            assert await store.fetched(topic.id, 2, 3.0, **nothing) == 0
            await store.ping([(URL, "0" * 32)], CAPS, 4.0, create=False)
            assert await store.fetched(topic.id, 3, 4.0, **nothing) == 1
            claimed = (await claim(store, now=5.0)).claimed
            assert [each.callback for each in claimed] == ["http://early.example/"]
            await store.ping([(URL, "0" * 32)], CAPS, 6.0, create=False)
            assert await store.fetched(topic.id, 4, 6.0, **nothing) == 0

    run(main())


def test_strangers_cannot_crowd_out_the_names_of_a_site(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            await subscribe(store, topic="https://www.example.com/feed", now=0.0)
            for n in range(30):
                other = identify(f"http://evil{n}.example.net/")
                evil = await store.ensure_topic(other, CAPS, 0.0)
                await store.relate(evil.id, identify(TOPIC))
            own = await store.topic(identify("https://www.example.com/feed"))
            await store.relate(own.id, identify(TOPIC))
            known = await store.ping([(URL, "0" * 32)], CAPS, 1.0, create=False)
            assert own.id in [each.id for each in known]
            assert len(known) == 11

    run(main())


def test_names_are_joined_through_one_another_within_a_zone_only(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            urls = ["http://example.com/f", "https://example.com/f", "https://www.example.com/f",
                    "http://other.example.net/"]  # fmt: skip
            topics = [await store.ensure_topic(identify(each), CAPS, 0.0) for each in urls]
            await store.relate(topics[0].id, identify(urls[1]))
            await store.relate(topics[1].id, identify(urls[2]))
            await store.relate(topics[2].id, identify(urls[3]))

            async def reached(url):
                found = await store.ping([(identify(url), "0" * 32)], CAPS, 1.0, create=False)
                return {each.canonical for each in found}

            assert await reached(urls[0]) == set(urls[:3])
            assert await reached(urls[2]) == set(urls)
            assert await reached(urls[3]) == set(urls[2:])

    run(main())
