"""`psph chat` as a process of a test."""

from __future__ import annotations

import asyncio
import os
from itertools import zip_longest

from psph.chat.tokens import token_of
from tests.e2e.serving import PSPH


class Talker:
    """A `psph chat` whose input is written and whose output is read here."""

    def __init__(self, world, me, other, *how):
        self.me, self.other = me, other
        key = world.keys[me.partition("@")[2]].private
        self._arguments = [*PSPH, "chat", me, "--with", other, *how]
        self._environment = {**os.environ, "PSPH_CHAT_TOKEN": token_of(key, me)}
        self.lines, self.notes, self.said = [], [], []

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

    def say(self):
        """The next message. Every third is like the one before it: those are two, too."""
        number = len(self.said)
        self.said.append(f"{number - (number % 3 == 1)}")
        self._process.stdin.write(f"{self.said[-1]}\n".encode())

    def of(self, jid):
        """What it has shown of somebody's."""
        return [line.partition(": ")[2] for line in self.lines if line.startswith(f"{jid}: ")]

    async def end(self):
        self._process.stdin.close()
        async with asyncio.timeout(60):
            assert await self._process.wait() == 0, self.notes


def _difference(shown, said):
    """Around the first one that is not what was said."""
    pairs = zip_longest(shown, said)
    first = next(number for number, (one, other) in enumerate(pairs) if one != other)
    around = slice(max(0, first - 3), first + 6)
    return first, shown[around], said[around]


def check(*talkers):
    """Every message was shown once and in order, at both ends, and none feared to be lost."""
    for each in talkers:
        for other in talkers:
            shown = each.of(other.me)
            assert shown == other.said, (each.me, other.me, _difference(shown, other.said))
        assert not any("missing" in note for note in each.notes), each.notes
