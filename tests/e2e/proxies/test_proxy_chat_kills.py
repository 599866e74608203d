"""Two `psph chat` processes talk while the PSPH of either domain is killed, in turn.

Every message is there once and in order, at both ends.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.e2e.proxies.around import run, until
from tests.e2e.proxies.names import A, B
from tests.e2e.talker import Talker, check
from tests.sizes import size

MESSAGES = size(100, 200)
KILLS = size(1, 2)
"""Of each PSPH."""
DOWN = 1.0
PAUSE = 0.02
"""Between two lines: the talk has to last for as long as there is something to kill."""


async def talk(talker):
    for _ in range(MESSAGES):
        talker.say()
        await asyncio.sleep(PAUSE)


@pytest.mark.timeout(420)
def test_every_message_is_once_and_in_order_at_both_ends_while_psphs_die(world):
    alice, bob = f"alice@{A}", f"bob@{B}"

    async def kill(talker, other):
        """The PSPH of either side in turn, in the middle of what is said."""
        for number in range(2 * KILLS):
            share = (number + 1) * MESSAGES // (2 * KILLS + 1)
            await until(lambda share=share: len(talker.of(talker.me)) >= share, lambda: other.notes)
            victim = world.proxies[(A, B)[number % 2]]
            await asyncio.to_thread(victim.kill)
            await asyncio.sleep(DOWN)
            victim.launch()
            await asyncio.to_thread(victim.ready)

    async def story(around):
        # One has its PSPH named, the other finds it in DNS.
        async with (
            Talker(world, alice, bob, "--hub", world.hub(A)) as hers,
            Talker(world, bob, alice, "--dns", f"127.0.0.1:{world.dns_port}") as his,
        ):
            await until(lambda: hers.notes and his.notes)
            async with asyncio.TaskGroup() as group:
                for task in (talk(hers), talk(his), kill(hers, his)):
                    group.create_task(task)
            both = (hers, his)
            await until(
                lambda: all(len(each.lines) >= 2 * MESSAGES for each in both),
                lambda: [(len(each.of(alice)), len(each.of(bob)), each.notes) for each in both],
            )
            for each in both:
                await each.end()
            check(*both)
            for each in both:
                assert sum("trying again" in note for note in each.notes) >= KILLS
        for zone in (A, B):
            await until(lambda zone=zone: asyncio.to_thread(world.is_joined, zone))

    run(world, story)
