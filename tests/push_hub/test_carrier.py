"""A hub and its carrier: who is asked before a callback is, and who is told of whom."""

import asyncio

import pytest
from aiohttp import web

from identifiers import Position, PublisherId, identify
from push_hub.carrying import Carrying
from push_hub.lifecycle import State
from push_hub.naming import Naming
from tests.push_hub.carriers import NotedCarrier
from tests.push_hub.world import run, until, until_async, world

TOPIC = "http://elsewhere.example/feed"


async def ended(w, topic, state, path="/cb"):
    async def holds():
        found = await w.subscription(topic, path)
        return found is not None and found.state is state

    await until_async(holds, state)
    return await w.subscription(topic, path)


def test_a_callback_is_asked_once_the_carrier_is_ready(tmp_path):
    async def main():
        carrier = NotedCarrier()
        async with world(tmp_path, carrier=carrier) as w:
            gate = carrier.hold()
            callback = f"{w.reader.url}/cb"
            status, _ = await w.post(mode="subscribe", topic=TOPIC, callback=callback)
            assert status == 202
            await until(lambda: carrier.admissions, "the admission")
            assert w.reader.verifications == []
            assert carrier.readers == {}
            gate.set()
            await ended(w, TOPIC, State.ACTIVE)
            await until(lambda: carrier.readers, "the news of the reader")
            found = await w.subscription(TOPIC)
            assert carrier.readers == {(TOPIC, callback): found.expires_at}

    run(main())


def test_a_renewal_is_not_admitted_again_and_says_how_long_it_lasts(tmp_path):
    async def main():
        carrier = NotedCarrier()
        async with world(tmp_path, carrier=carrier) as w:
            await w.subscribe(TOPIC, lease_seconds="100")
            key = (TOPIC, f"{w.reader.url}/cb")
            first = carrier.readers[key]
            await w.subscribe(TOPIC, lease_seconds="4000")
            await until(lambda: carrier.readers[key] > first + 3000, "the renewal")
            assert len(carrier.admissions) == 1

    run(main())


def test_the_reason_of_a_refusal_reaches_the_callback_and_the_store(tmp_path):
    async def main():
        carrier = NotedCarrier()
        carrier.refusals[TOPIC] = "the zone lets nobody read it"
        async with world(tmp_path, carrier=carrier) as w:
            callback = f"{w.reader.url}/cb"
            status, _ = await w.post(mode="subscribe", topic=TOPIC, callback=callback)
            assert status == 202
            await until(lambda: w.reader.denials, "the denial")
            said = w.reader.denials[0].query
            assert said["hub.topic"] == TOPIC
            assert said["hub.reason"] == "the zone lets nobody read it"
            found = await ended(w, TOPIC, State.DENIED)
            assert found.reason == "the zone lets nobody read it"
            assert w.reader.verifications == []
            assert carrier.readers == {}

    run(main())


def test_a_synchronous_client_gets_the_reason_at_once(tmp_path):
    async def main():
        carrier = NotedCarrier()
        carrier.refusals[TOPIC] = "not for you"
        async with world(tmp_path, carrier=carrier) as w:
            status, text = await w.post(
                mode="subscribe", topic=TOPIC, callback=f"{w.reader.url}/cb", verify="sync"
            )
            assert (status, text) == (409, "not for you\n")

    run(main())


@pytest.mark.parametrize("fault", ["hangs", "fails"])
def test_a_carrier_that_hangs_or_fails_stops_nobody(tmp_path, fault):
    async def main():
        carrier = NotedCarrier()
        if fault == "fails":
            carrier.error = RuntimeError("no fabric")
            carrier.joined = carrier.left = carrier.told = None  # not even callable
        else:
            carrier.hold()
        async with world(tmp_path, carrier=carrier, admit_patience=0.1) as w:
            await w.subscribe(TOPIC)
            assert (await w.subscription(TOPIC)).state is State.ACTIVE

    run(main())


def test_many_callbacks_share_one_admission(tmp_path):
    async def main():
        carrier = NotedCarrier()
        async with world(tmp_path, carrier=carrier) as w:
            gate = carrier.hold()
            for n in range(200):
                await w.post(mode="subscribe", topic=TOPIC, callback=f"{w.reader.url}/{n}")
            gate.set()
            await until(lambda: len(carrier.readers) == 200, "all readers")
            # The last ones may have come to the door after it was opened.
            assert len(carrier.admissions) < 5
            assert {name for _, name in carrier.readers} == {
                f"{w.reader.url}/{n}" for n in range(200)
            }

    run(main())


@pytest.mark.parametrize("refusal", [None, "no"])
def test_who_waits_for_a_topic_gets_the_one_answer(refusal):
    async def main():
        carrier, carrying = NotedCarrier(), Carrying(Naming("http://hub.example"), 30.0)
        carrying.use(carrier)
        if refusal:
            carrier.refusals[TOPIC] = refusal
        gate = carrier.hold()
        waiting = [
            asyncio.create_task(carrying.admit(identify(TOPIC), f"reader {n}")) for n in range(1000)
        ]
        await until(lambda: carrier.admissions, "the admission")
        waiting.pop(0).cancel()  # the first to come is the first to go
        await asyncio.sleep(0)
        gate.set()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert {str(each) for each in results} == {str(refusal)}
        assert len(carrier.admissions) == 1
        await carrying.stop()

    run(main())


def test_pending_requests_are_admitted_after_a_restart(tmp_path):
    async def main():
        carrier = NotedCarrier()
        async with world(tmp_path, carrier=carrier) as w:
            carrier.hold()
            await w.post(mode="subscribe", topic=TOPIC, callback=f"{w.reader.url}/cb")
            await until(lambda: carrier.admissions, "the admission")
        again = NotedCarrier()
        again.refusals[TOPIC] = "no"

        # Given by `started`: before anything is verified.
        async with world(tmp_path, started=lambda hub: hub.carry(again)) as w:
            await until_async(w.settled, "the verification")
            assert len(again.admissions) == 1
            assert (await w.hub.store.subscriptions())[0].state is State.DENIED

    run(main())


def test_a_callback_that_does_not_confirm_has_left(tmp_path):
    async def main():
        carrier = NotedCarrier()
        async with world(tmp_path, carrier=carrier) as w:

            async def no(request):
                return web.Response(status=404)

            w.reader.verify = no
            await w.post(mode="subscribe", topic=TOPIC, callback=f"{w.reader.url}/cb")
            await ended(w, TOPIC, State.DENIED)
            await until(lambda: carrier.history, "the news")
            assert carrier.history == [("left", TOPIC, f"{w.reader.url}/cb")]

    run(main())


@pytest.mark.parametrize("way", ["unsubscribe", "lease", "operator", "gone"])
def test_whoever_leaves_is_told_of(tmp_path, way):
    async def main():
        carrier = NotedCarrier()
        async with world(tmp_path, carrier=carrier) as w:
            topic = w.site.put("/t", b"1")
            lease = "1" if way == "lease" else "1000"
            await w.subscribe(topic, lease_seconds=lease)
            assert carrier.history[0] == ("joined", topic, f"{w.reader.url}/cb")
            if way == "unsubscribe":
                await w.post(mode="unsubscribe", topic=topic, callback=f"{w.reader.url}/cb")
            elif way == "operator":
                await w.hub.drop((await w.subscription(topic)).id, "no more")
            elif way == "gone":

                async def gone(request):
                    return web.Response(status=410)

                w.reader.receive = gone
                await w.ping(topic)
            await until(lambda: not carrier.readers, "the end")
            assert carrier.history[-1] == ("left", topic, f"{w.reader.url}/cb")

    run(main())


def test_one_callback_with_two_spellings_is_two_readers(tmp_path):
    async def main():
        carrier = NotedCarrier()
        async with world(tmp_path, carrier=carrier) as w:
            other = TOPIC.replace("/feed", "/./feed")
            await w.subscribe(TOPIC)
            await w.subscribe(other)
            assert len(carrier.readers) == 2
            await w.post(mode="unsubscribe", topic=other, callback=f"{w.reader.url}/cb")
            await until(lambda: len(carrier.readers) == 1, "the end of one")
            assert list(carrier.readers) == [(TOPIC, f"{w.reader.url}/cb")]

    run(main())


def test_streams_join_and_leave_under_names_of_their_own(tmp_path):
    async def main():
        carrier = NotedCarrier()
        async with world(tmp_path, carrier=carrier, heartbeat=0.05) as w:
            query = [("topic", TOPIC), ("topic", f"{TOPIC}/2")]
            async with w.client.get(f"{w.hub_url}/stream", params=query) as one:
                await one.content.readline()
                async with w.client.get(f"{w.hub_url}/stream", params=query) as two:
                    await two.content.readline()
                    assert len(carrier.readers) == 4
                    assert len({name for _, name in carrier.readers}) == 2
                    assert set(carrier.readers.values()) == {None}
            await until(lambda: not carrier.readers, "the end of the streams")

    run(main())


def test_a_carrier_is_told_of_what_the_store_holds(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            for n in range(3):
                await w.subscribe(TOPIC, path=f"/{n}")
            await w.post(mode="unsubscribe", topic=TOPIC, callback=f"{w.reader.url}/2")
            await ended(w, TOPIC, State.UNSUBSCRIBED, "/2")
            expected = {
                (TOPIC, f"{w.reader.url}/{n}"): (await w.subscription(TOPIC, f"/{n}")).expires_at
                for n in (0, 1)
            }
        carrier = NotedCarrier()
        async with world(tmp_path, started=lambda hub: hub.carry(carrier)):
            await until(lambda: carrier.complete, "the last page")
            assert carrier.readers == expected

    run(main())


def test_what_happens_while_the_carrier_is_told_is_not_undone(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            await w.subscribe(TOPIC)
        async with world(tmp_path) as w:
            # A page is read, and before it is told the subscription ends.
            carrier, store = NotedCarrier(), w.hub.store
            read, hold = store.active, asyncio.Event()

            async def slow(**page):
                found = await read(**page)
                await hold.wait()
                return found

            store.active = slow
            w.hub.carry(carrier)
            await asyncio.sleep(0)
            (found,) = await store.subscriptions()
            await w.hub.drop(found.id, "over")
            await until(lambda: carrier.history, "the end")
            hold.set()
            await until(lambda: carrier.complete, "the last page")
            assert carrier.readers == {}
            assert [what for what, *_ in carrier.history] == ["left"]

    run(main())


def test_a_hub_has_one_carrier(tmp_path):
    async def main():
        async with world(tmp_path, carrier=NotedCarrier()) as w:
            with pytest.raises(RuntimeError, match="already"):
                w.hub.carry(NotedCarrier())

    run(main())


def test_what_the_carrier_brings_is_delivered_with_its_position(tmp_path):
    async def main():
        async with world(tmp_path, carrier=NotedCarrier()) as w:
            await w.subscribe(TOPIC)
            position = Position(PublisherId(b"o" * 16), 3, 9)
            accepted = await w.hub.accept(
                identify(TOPIC), "text/plain", b"news", position=position, trace_id="0" * 32
            )
            assert accepted is not None
            await until(lambda: w.reader.received, "the delivery")
            assert w.reader.received[0].headers["X-Hub-Position"] == str(position)

    run(main())
