"""The way out of a host for its clients: connections, opened a few at a time.

A thousand clients that lose their hub at once all want another at once. If all of them connected
together, each would wait for all the others, and many for too long; so they take turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

AT_ONCE = 48
LONGEST_TURN = 0.25
"""Seconds after which the next one begins: a hub may take its time to answer one of them."""


class Connections:
    """Of clients that share a session; those of several sessions may share `turns`."""

    def __init__(self, session: aiohttp.ClientSession, turns: asyncio.Semaphore) -> None:
        self.session = session
        self._turns = turns

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """To connect and be answered."""
        await self._turns.acquire()
        passed = False

        def pass_on() -> None:
            nonlocal passed
            if not passed:
                passed = True
                self._turns.release()

        timer = asyncio.get_running_loop().call_later(LONGEST_TURN, pass_on)
        try:
            yield
        finally:
            timer.cancel()
            pass_on()
