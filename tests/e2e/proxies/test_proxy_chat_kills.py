"""Two `psph chat` processes talk while the PSPH of either domain is killed, in turn.

Every message is there once and in order, at both ends.
"""

from __future__ import annotations

import asyncio
import os

import pytest

from psph.chat.tokens import token_of
from tests.e2e.proxies.around import run, until
from tests.e2e.proxies.names import A, B
from tests.e2e.serving import PSPH

MESSAGES = 200
KILLS = 2
"""Of each PSPH."""
DOWN = 1.0
PAUSE = 0.02
"""Between two lines: the talk has to last for as long as there is something to kill."""


class Talker:
    """A `psph chat` whose input is written and whose output is read here."""

    def __init__(self, world, me, other, *how):
        self.me, self.other = me, other
        key = world.keys[me.partition("@")[2]].private
        self._arguments = [*PSPH, "chat", me, "--with", other, *how]
        self._environment = {**os.environ, "PSPH_CHAT_TOKEN": token_of(key, me)}
        self.lines, self.notes = [], []

    async def __aenter__(self):
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            *self._arguments, env=self._environment, stdin=pipe, stdout=pipe, stderr=pipe
        )
        streams = (self._process.stdout, self.lines), (self._process.stderr, self.notes)
        self._reading = [asyncio.create_task(self._read(*each)) for each in streams]
        return self

    async def _read(self, stream, into):
        while line := await stream.readline():
            into.append(line.decode().rstrip("\n"))

    async def __aexit__(self, *_):
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await asyncio.gather(*self._reading)

    async def talk(self):
        for number in range(MESSAGES):
            # Every third is like the one before it: those are two, too.
            self._process.stdin.write(f"{number - (number % 3 == 1)}\n".encode())
            await asyncio.sleep(PAUSE)

    @property
    def expected(self):
        return [f"{number - (number % 3 == 1)}" for number in range(MESSAGES)]

    def of(self, jid):
        return [line.partition(": ")[2] for line in self.lines if line.startswith(f"{jid}: ")]

    async def end(self):
        self._process.stdin.close()
        async with asyncio.timeout(60):
            assert await self._process.wait() == 0, self.notes


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
                for task in (hers.talk(), his.talk(), kill(hers, his)):
                    group.create_task(task)
            both = (hers, his)
            await until(
                lambda: all(len(each.lines) >= 2 * MESSAGES for each in both),
                lambda: [(len(each.of(alice)), len(each.of(bob)), each.notes) for each in both],
            )
            for each in both:
                await each.end()
            for each in both:
                assert each.of(alice) == hers.expected
                assert each.of(bob) == his.expected
                assert sum("trying again" in note for note in each.notes) >= KILLS
                assert not any("missing" in note for note in each.notes)
        for zone in (A, B):
            await until(lambda zone=zone: asyncio.to_thread(world.is_joined, zone))

    run(world, story)
