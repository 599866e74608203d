"""Clients that share a host: one database and its connections, each with a state of its own."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from psph.mobility.connections import Connections
from psph.mobility.roaming_host import Enough, RoamingHost
from tests.psph.mobility.clients import Reader
from tests.psph.mobility.places import give, places, until
from tests.psph.mobility.test_moves import run


def test_clients_of_one_host_move_and_come_back_each_for_itself(tmp_path):
    async def main():
        state = tmp_path / "clients"
        async with places(tmp_path, 2) as (a, b):
            await give((a, b), 1)
            async with AsyncExitStack() as stack:
                host = await stack.enter_async_context(
                    RoamingHost(state, ["127.0.0.2", "127.0.0.3"])
                )
                readers = [
                    await stack.enter_async_context(Reader(host=host, name=str(number)))
                    for number in range(20)
                ]
                for reader in readers:
                    await reader.prepare(a.url)
                    await reader.move(a.url)
                for reader in readers:
                    await reader.live()
                await give((a, b), 2, 3)
                await until(lambda: all(reader.seen == [2, 3] for reader in readers))
                ids = {reader.client.id for reader in readers}
                assert len(ids) == 20
                await asyncio.gather(*(reader.move_out() for reader in readers[1:]))
                await give((a, b), 4, 5)
                await asyncio.gather(*(reader.move(b.url) for reader in readers[1:]))
                await until(lambda: all(reader.seen == [2, 3, 4, 5] for reader in readers))
            async with (
                RoamingHost(state) as host,
                Reader(host=host, name="0") as first,
                Reader(host=host, name="7") as other,
            ):
                assert {first.client.id, other.client.id} < ids
                await give((a, b), 6)
                await first.move(b.url)
                await other.move(a.url)
                await until(lambda: first.seen == other.seen == [6])

    run(main)


def test_what_comes_together_and_is_more_than_enough_is_consumed_as_far_as_it_was(tmp_path):
    """The one that was too much, and those that came with it, come again."""

    async def main():
        class Sated(Reader):
            def note(self, event):
                if len(self.seen) == 3:
                    raise Enough
                super().note(event)

        state = tmp_path / "client"
        async with places(tmp_path, 2) as (a, b):
            await give((a, b), 1)
            async with Sated(state=state) as reader:
                await reader.move(a.url)
                await reader.live()
                await reader.move_out()
                await give((a, b), *range(2, 12))
                await reader.move(b.url)
                await until(lambda: reader.seen == [2, 3, 4])
            async with Reader(state=state) as reader:
                await reader.move(b.url)
                await until(lambda: reader.seen[-1:] == [11])
                assert reader.seen == list(range(5, 12))

    run(main)


def test_turns_to_connect_pass_on_when_they_are_over_or_take_too_long():
    async def main():
        connections = Connections(None, asyncio.Semaphore(1))
        taken = []

        async def connect(name, seconds):
            async with connections.turn():
                taken.append(name)
                await asyncio.sleep(seconds)

        slow = asyncio.create_task(connect("slow", 60))
        await until(lambda: taken == ["slow"])
        await asyncio.wait_for(connect("next", 0), 30)
        await asyncio.wait_for(connect("last", 0), 30)
        assert taken == ["slow", "next", "last"]
        slow.cancel()

    run(main)
