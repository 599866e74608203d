"""Waiting in a loop that has to end when it is told to."""

import asyncio

import pytest

from push_hub.context import Tasks, woken
from tests.push_hub.world import run


def test_an_event_or_the_end_of_the_time():
    async def main():
        event = asyncio.Event()
        assert not await woken(event, 0.01)
        event.set()
        assert await woken(event, 0.01)
        assert await woken(event, None)

    run(main())


@pytest.mark.parametrize("turns", range(4))
def test_a_cancellation_that_comes_with_the_event_is_not_lost(turns):
    async def main():
        event, tasks = asyncio.Event(), Tasks()

        async def loop():
            while True:
                event.clear()
                await woken(event, 30.0)

        task = tasks.start(loop())
        await asyncio.sleep(0.01)
        event.set()
        for _ in range(turns):  # of the event loop, between the one and the other
            await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=10.0)
        assert done
        await tasks.stop()

    run(main())
