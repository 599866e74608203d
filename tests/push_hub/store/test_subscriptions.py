"""Subscriptions in the store: nothing takes effect unconfirmed, nothing concurrent is lost."""

import asyncio

import pytest

from identifiers import identify
from push_hub.errors import Refused
from push_hub.lifecycle import Event, State
from push_hub.store.records import Caps
from tests.push_hub.store.stores import CAPS, TOPIC, claim, opened, publish, run, subscribe, wish

CALLBACK = "http://reader.example/cb"


def test_a_request_is_pending_until_confirmed(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            asked = await store.request(wish(secret=b"s"), 1000, CAPS, 5.0)
            before = await store.subscription(TOPIC, CALLBACK)
            assert before.state is State.PENDING
            assert (await publish(store)).deliveries == 0
            active = await store.confirm(asked, 7.0)
            assert (active.state, active.secret, active.expires_at) == (State.ACTIVE, b"s", 1007.0)
            assert await store.pending() == []

    run(main())


def test_a_failed_renewal_leaves_secret_and_lease(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            first = await subscribe(store, secret=b"old")
            asked = await store.request(wish(secret=b"new"), 5000, CAPS, 10.0)
            assert (await store.subscription(TOPIC, CALLBACK)).state is State.RENEWING
            after = await store.refuse(asked, "404", 11.0)
            assert after == first

    run(main())


def test_a_later_request_takes_the_place_of_an_earlier_one(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            first = await store.request(wish(secret=b"1"), 1000, CAPS, 0.0)
            second = await store.request(wish(secret=b"2"), 1000, CAPS, 0.0)
            assert await store.confirm(first, 0.0) is None
            assert await store.refuse(first, "late", 0.0) is None
            assert (await store.confirm(second, 0.0)).secret == b"2"

    run(main())


def test_unsubscribing_ends_only_when_confirmed(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            await subscribe(store)
            asked = await store.request(wish(mode="unsubscribe"), 0, CAPS, 1.0)
            assert (await publish(store)).deliveries == 1
            ended = await store.confirm(asked, 2.0)
            assert (ended.state, ended.waiting, ended.secret) == (State.UNSUBSCRIBED, 0, None)
            assert (await claim(store, now=3.0)).claimed == ()

    run(main())


def test_spellings_of_one_topic_are_subscriptions_of_their_own(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            for spelling in (TOPIC, "HTTP://EXAMPLE.com:80/feed"):
                await subscribe(store, topic=spelling)
            recorded = await publish(store)
            assert recorded.deliveries == 2
            claimed = (await claim(store)).claimed
            assert {each.topic for each in claimed} == {TOPIC, "HTTP://EXAMPLE.com:80/feed"}

    run(main())


def test_a_thousand_at_once_all_survive(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            await asyncio.gather(*[subscribe(store, f"http://r.example/{n}") for n in range(1000)])
        async with opened(tmp_path) as store:
            assert (await store.statistics()).subscriptions == {"active": 1000}
            assert (await publish(store)).deliveries == 1000

    run(main())


def test_leases_end(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            await subscribe(store, "http://r.example/1", lease=10)
            await subscribe(store, "http://r.example/2", lease=20)
            await publish(store, now=5.0)
            # Not expired yet by the sweep, but by the clock: it receives nothing.
            assert [d.callback for d in (await claim(store, now=15.0)).claimed] == [
                "http://r.example/2"
            ]
            ended = await store.expire(15.0)
            assert [(each.callback, each.state) for each in ended] == [
                ("http://r.example/1", State.EXPIRED)
            ]
            assert (await publish(store, b"y", now=16.0)).deliveries == 1
            assert (await publish(store, b"z", now=20.0)).deliveries == 0

    run(main())


def test_pending_verifications_survive(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            asked = await store.request(wish(verify_token="t"), 1000, CAPS, 0.0)
        async with opened(tmp_path) as store:
            assert await store.pending() == [asked]

    run(main())


def test_caps_are_kept_and_say_so(tmp_path):
    caps = Caps(subscriptions=3, subscriptions_per_host=2, topics=1)

    async def main():
        async with opened(tmp_path) as store:
            for n in range(2):
                await store.request(wish(f"http://a.example/{n}"), 1, caps, 0.0)
            with pytest.raises(Refused, match=r"a\.example:80 has 2"):
                await store.request(wish("http://a.example/2"), 1, caps, 0.0)
            with pytest.raises(Refused, match="topics"):
                await store.request(
                    wish("http://b.example/", topic="http://other.example/"), 1, caps, 0.0
                )
            await store.request(wish("http://b.example/"), 1, caps, 0.0)
            with pytest.raises(Refused, match="takes no more"):
                await store.request(wish("http://c.example/"), 1, caps, 0.0)
            # Renewing is no new subscription.
            await store.request(wish("http://a.example/0"), 1, caps, 0.0)

    run(main())


def test_the_hub_can_end_a_subscription(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            active = await subscribe(store)
            ended = await store.end(active.id, Event.DENIED, "spam", 1.0)
            assert (ended.state, ended.reason) == (State.DENIED, "spam")
            assert await store.end(active.id, Event.DENIED, "again", 1.0) is None

    run(main())


def test_what_ended_long_ago_is_forgotten_and_numbering_is_not(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            await subscribe(store, lease=10)
            await subscribe(store, "http://r.example/lasting")
            asked = await store.request(
                wish("http://r.example/no", topic="http://other.example/"), 10, CAPS, 0.0
            )
            await store.refuse(asked, "404", 1.0)
            await publish(store)
            await store.expire(50.0)
            assert await store.forget(1.0, but_topics=[]) == 0
            # The subscription that expired, the refused one, and the topic only that one wanted.
            assert await store.forget(60.0, but_topics=[]) == 3
            statistics = await store.statistics()
            assert statistics.subscriptions == {"active": 1}
            assert statistics.topics == 1
            assert (await publish(store, b"y")).update.position.version == 2

    run(main())


def test_what_is_watched_or_asked_for_again_is_not_forgotten(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            await subscribe(store, lease=10)
            await store.expire(20.0)
            await store.request(wish(), 10, CAPS, 30.0)
            watched = await store.ensure_topic(identify("http://watched.example/"), CAPS, 0.0)
            assert await store.forget(99.0, but_topics=[watched.id]) == 0

    run(main())
