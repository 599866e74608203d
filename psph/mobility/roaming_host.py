"""What clients that move need of the host they are on: one database and its thread, connections.

A program with one client has a host for it; one with a thousand lets them share one.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp

from psirp_sim.runtime.linkless import LinklessNode
from psirp_sim.runtime.seats import Seat, Seats
from psph.mobility.connections import AT_ONCE, Connections
from push_hub.connecting import USER_AGENT


class Enough(Exception):
    """Raised by who consumes and wants no more: this event and later ones count as not consumed."""


class _Node(LinklessNode):
    def _core_failed(self) -> None:
        if not isinstance(sys.exc_info()[1], Enough):
            super()._core_failed()


class RoamingHost:
    """An asynchronous context manager."""

    def __init__(self, state: Path | None = None, addresses: Sequence[str] = ()) -> None:
        """`state`: the file of all clients here; without one nothing is kept. `addresses`: those of
        the host that clients connect from, in turn; without any the system chooses."""
        self._node = _Node("roam", storage=state)
        self._addresses = tuple(addresses)
        self._ways: list[Connections] = []
        self._seated = 0
        self._stack = AsyncExitStack()
        self.seats = Seats()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._node)
        self._node.run(lambda env: self.seats)
        turns = asyncio.Semaphore(AT_ONCE)
        for address in self._addresses or (None,):
            session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0, local_addr=None if address is None else (address, 0)
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": USER_AGENT},
            )
            self._ways.append(Connections(session, turns))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()
        for way in self._ways:
            await way.session.close()

    def seat(self, name: str) -> Seat:
        """The environment of the client of that name."""
        return Seat(self._node, name)

    def way(self) -> Connections:
        """The connections of one more client."""
        self._seated += 1
        return self._ways[self._seated % len(self._ways)]

    def call(self, call: Callable[..., None], *args: object) -> None:
        """Call a client; what it raises is counted and logged."""
        self._node.call_core(call, *args)
