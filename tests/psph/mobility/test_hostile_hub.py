"""A hub that lies to a client that moves: it is left with a reason, and costs nothing else."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from psph.hub_serving import serving
from psph.mobility.roamer import HubUnusable
from tests.psph.mobility.places import TOPIC, give, places, until
from tests.psph.mobility.test_moves import Reader


@asynccontextmanager
async def hostile(*, topics=b"", messages=b"", name='{"proxy": "http://x.test", "version": 1}'):
    """Streams that say this, and stay open."""

    def streaming(content):
        async def stream(request):
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(content)
            await asyncio.sleep(3_600)

        return stream

    def make(url):
        app = web.Application()

        async def who(request):
            return web.Response(text=name)

        async def take(request):
            return web.Response(status=202)

        app.router.add_get("/mobility", who)
        app.router.add_get("/stream", streaming(topics))
        app.router.add_post("/mobility/stream", streaming(messages))
        app.router.add_post("/mobility/messages", take)
        return app

    async with serving("127.0.0.1", 0, make) as url:
        yield url


@pytest.mark.parametrize(
    ("topics", "messages"),
    [
        (b"event: base\ndata: nonsense\n\n", b""),
        (b'event: base\ndata: {"topic": "%s", "base": ["1"]}\n\n' % TOPIC.encode(), b""),
        (b'data: {"topic": 1}\n\n', b""),
        (b'event: gap\ndata: {"topic": "x", "after": "", "resumes": ""}\n\n', b""),
        (b"data: " + b"[" * 100_000 + b"\n\n", b""),
        (b"", b"event: packed\ndata: !!!\n\n"),
    ],
)
def test_a_hub_that_makes_no_sense_is_left(tmp_path, topics, messages):
    async def main():
        lost = []
        async with (
            places(tmp_path, 1) as (good,),
            hostile(topics=topics, messages=messages) as bad,
            Reader(lost=lost.append) as reader,
        ):
            await give((good,), 1)
            await reader.move(bad)
            await until(lambda: lost)
            assert "it sent" in lost[0]
            assert reader.stage == "detached"
            await reader.move(good.url)
            await until(lambda: reader.stage == "live", 90)
            await give((good,), 2)
            await until(lambda: reader.seen == [2])

    asyncio.run(main())


def test_answers_that_nobody_asked_for_change_nothing(tmp_path):
    async def main():
        said = (
            b'event: mobility\ndata: {"type": "moved_out", "call": 1}\n\n'
            b'event: mobility\ndata: {"type": "alive"}\n\n'
            b"event: mobility\ndata: {\n\n"
            b"event: packed\ndata: gA==\n\n"
            b'event: mobility\ndata: {"type": "refused", "call": 0, "code": "superseded"}\n\n'
        )
        async with hostile(messages=said) as bad, Reader() as reader:
            await reader.move(bad)
            await until(lambda: reader.client.counters["malformed"] >= 3)
            assert reader.stage == "moving in"

    asyncio.run(main())


@pytest.mark.parametrize("name", ["", "[]", '{"proxy": 1}', "x" * 100_000])
def test_who_has_no_mobility_proxy_is_not_moved_to(name):
    async def main():
        async with hostile(name=name) as bad, Reader() as reader:
            with pytest.raises(HubUnusable, match="no mobility proxy"):
                await reader.move(bad)

    asyncio.run(main())
