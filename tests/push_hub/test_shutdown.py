"""Stopping a hub: what is in flight ends, what does not stays in the queue."""

import asyncio

from aiohttp import web

from tests.push_hub.world import run, until, world


def test_deliveries_in_flight_end_before_the_hub_does(tmp_path):
    async def main():
        ended = []
        async with world(tmp_path) as w:

            async def slow(request):
                await asyncio.sleep(0.3)
                ended.append(request.path)
                return web.Response()

            w.reader.receive = slow
            topic = w.site.put("/t", b"1")
            for n in range(5):
                await w.subscribe(topic, f"/{n}")
            await w.ping(topic)
            await until(lambda: len(w.reader.received) == 5)
            store = w.hub.store
            before = dict((await store.statistics()).subscriptions)
            await w.hub.__aexit__(None, None, None)
            assert len(ended) == 5
            assert await store.queue() == []
            assert dict((await store.statistics()).subscriptions) == before
            await w.hub.__aenter__()  # the world stops it again
            assert w.hub.counters["deliveries_repeated"] == 0
        assert len(w.reader.received) == 5

    run(main())


def test_what_does_not_end_in_time_is_delivered_by_the_next_one(tmp_path):
    async def main():
        async with world(tmp_path, callback_timeout=1.5) as w:

            async def hang(request):
                await asyncio.sleep(20)

            w.reader.receive = hang
            topic = w.site.put("/t", b"1")
            await w.subscribe(topic)
            await w.ping(topic)
            await until(lambda: w.reader.received)
            await w.hub.__aexit__(None, None, None)
            (waiting,) = await w.hub.store.queue()
            assert waiting.callback == f"{w.reader.url}/cb"
            w.reader.receive = None
            await w.hub.__aenter__()
            await until(lambda: len(w.reader.received) >= 2)
            ids = {each.headers["X-Hub-Delivery"] for each in w.reader.received}
            assert len(ids) == 1

    run(main())
