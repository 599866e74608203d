"""Topics that a carrier brings are left to it, and only for as long as it does."""

import asyncio

from identifiers import Position, PublisherId, identify
from push_hub.following import Way
from tests.push_hub.carriers import NotedCarrier
from tests.push_hub.test_upstream import FOLLOWING, follower, other_hub
from tests.push_hub.world import run, until, world

WORDS = "the fabric, from site-b.test"
QUIET = {"poll_shortest": 1000.0, "poll_longest": 1000.0}


async def bring(w, topic, version, body):
    return await w.hub.accept(
        identify(topic), "text/plain", body, trace_id="0" * 32,
        position=Position(PublisherId(b"o" * 16), 1, version),
    )  # fmt: skip


def test_what_is_carried_is_neither_fetched_nor_polled_nor_followed(tmp_path):
    async def main():
        carrier = NotedCarrier()
        async with follower(tmp_path, carrier=carrier, poll_every=0.1) as (w, way):
            topic = w.site.put("/t", b"1")
            carrier.carried[topic] = WORDS
            await w.subscribe(topic)
            followed = await way(Way.CARRIED)
            assert (followed.reason, followed.hub, followed.due) == (WORDS, None, None)
            await w.ping(topic)
            assert w.hub.counters["pings_carried"] == 1
            assert await bring(w, topic, 1, b"brought") is not None
            await until(lambda: w.reader.received, "the delivery")
            # What another topic with a ping takes is time enough for a fetch of this one.
            other = w.site.put("/other", b"1")
            await w.subscribe(other, path="/other")
            await w.ping(other)
            await until(lambda: w.reader.at("/other"), "the other delivery")
            assert w.site.fetches("/t") == []
            # It was received from elsewhere lately, and is shown as carried all the same.
            await way(Way.CARRIED)
            query = {"url": topic, "format": "json"}
            async with w.client.get(f"{w.hub_url}/topics", params=query) as answer:
                shown = await answer.json()
            assert shown["following"]["way"] == "carried"
            assert shown["watched"] == [f"carried here: {WORDS}"]

    run(main())


def test_a_ping_for_a_relative_does_not_fetch_what_is_carried(tmp_path):
    async def main():
        carrier = NotedCarrier()
        async with world(tmp_path, carrier=carrier) as w:
            topic, alias = w.site.put("/t", b"1"), w.site.put("/alias", b"1")
            await w.subscribe(topic)
            await w.subscribe(alias, path="/alias")
            found = await w.hub.store.topic(identify(topic))
            await w.hub.store.relate(found.id, identify(alias))
            carrier.carried[topic] = WORDS
            await w.ping(alias)
            await until(lambda: w.reader.at("/alias"), "the delivery")

            async def skipped():
                return (await w.hub.store.topic_by_id(found.id)).fetch_due is None

            for _ in range(1000):
                if await skipped():
                    break
                await asyncio.sleep(0.01)
            assert await skipped()
            assert w.site.fetches("/t") == []

    run(main())


def test_a_topic_that_is_not_carried_any_more_is_followed_again(tmp_path):
    async def main():
        carrier = NotedCarrier()
        async with follower(tmp_path, carrier=carrier, **QUIET) as (w, way):
            topic = w.site.put("/t", b"1")
            carrier.carried[topic] = WORDS
            await w.subscribe(topic)
            await bring(w, topic, 1, b"1")
            await until(lambda: len(w.reader.received) == 1, "what was brought")
            await way(Way.CARRIED)
            w.site.put("/t", b"2")
            del carrier.carried[topic]
            w.hub.carrier_changed(identify(topic))
            await way(Way.POLLED)
            await until(lambda: len(w.reader.received) == 2, "what was fetched")
            assert w.reader.received[1].body == b"2"

    run(main())


def test_the_carrier_is_asked_again_without_being_told_to(tmp_path):
    async def main():
        carrier = NotedCarrier()
        async with follower(tmp_path, carrier=carrier, **QUIET) as (w, way):
            topic = w.site.put("/t", b"1")
            await w.subscribe(topic)
            await way(Way.POLLED)
            carrier.carried[topic] = WORDS
            assert (await way(Way.CARRIED)).interval is None
            carrier.carried[topic] = "the fabric, from site-c.test"

            async def said():
                return (await way(Way.CARRIED)).reason

            for _ in range(1000):
                if await said() == "the fabric, from site-c.test":
                    break
                await asyncio.sleep(0.01)
            assert await said() == "the fabric, from site-c.test"
            carrier.carried.clear()
            await way(Way.POLLED)

    run(main())


def test_the_hub_of_a_topic_that_becomes_carried_is_let_go(tmp_path):
    async def main():
        carrier = NotedCarrier()
        async with (
            follower(tmp_path, carrier=carrier, **QUIET) as (w, way),
            other_hub(tmp_path) as (there, hub),
        ):
            topic = w.site.put("/t", b"1", Link=f'<{there}/hub>; rel="hub"')
            await w.subscribe(topic)
            await way(Way.HUB)
            carrier.carried[topic] = WORDS
            w.hub.carrier_changed(identify(topic))
            assert (await way(Way.CARRIED)).token is None
            w.site.put("/t", b"2")
            async with w.client.post(
                f"{there}/hub", data={"hub.mode": "publish", "hub.url": topic}
            ) as answer:
                assert answer.status == 204
            await until(lambda: hub.counters["deliveries_gone"] == 1, "the end over there")
            assert w.reader.received == []

    run(main())


def test_pings_that_came_in_vain_are_made_up_for(tmp_path):
    async def main():
        carrier = NotedCarrier()
        async with world(tmp_path, carrier=carrier, **{**FOLLOWING, **QUIET}) as w:
            topic = w.site.put("/t", b"1")
            await w.subscribe(topic)
            await w.ping(topic)
            await until(lambda: len(w.reader.received) == 1, "the first version")
            carrier.carried[topic] = WORDS
            w.site.put("/t", b"2")
            await w.ping(topic)
            carrier.carried.clear()
            w.hub.carrier_changed(identify(topic))
            await until(lambda: len(w.reader.received) == 2, "the second")
            assert w.reader.received[1].body == b"2"

    run(main())


def test_a_carrier_that_cannot_say_brings_nothing(tmp_path):
    async def main():
        carrier = NotedCarrier()
        carrier.brings = None  # not even callable
        async with world(tmp_path, carrier=carrier) as w:
            topic = w.site.put("/t", b"1")
            await w.subscribe(topic)
            await w.ping(topic)
            await until(lambda: w.reader.received, "the delivery")

    run(main())
