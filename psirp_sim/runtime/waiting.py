"""Waiting for something to change, until it does, time is up, or the client closes."""

# A time limit is part of what these promise.
# ruff: noqa: ASYNC109

from __future__ import annotations

import asyncio
from collections.abc import Callable

from psirp_sim.runtime.client_errors import ClientClosed

LOOK = 0.02
"""Seconds after which a condition is looked at again when nothing was heard meanwhile."""


class Waiting:
    """Whoever waits for something at one client."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._closed = False
        self._all: dict[asyncio.Future[None], None] = {}
        self._watching: dict[asyncio.Future[None], None] = {}
        """Those of them who look at something that may have changed."""

    async def wait(self, future: asyncio.Future[None]) -> None:
        """Until the future has a result; ClientClosed if the client closes before."""
        if self._closed:
            raise self.end()
        self._all[future] = None
        try:
            await future
        finally:
            del self._all[future]

    async def until(self, condition: Callable[[], bool], timeout: float | None) -> None:
        """Until the condition holds; TimeoutError when it does not in time."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(timeout):
            while not condition():
                future = loop.create_future()
                self._watching[future] = None
                alarm = loop.call_later(LOOK, tell, future)
                try:
                    await self.wait(future)
                finally:
                    alarm.cancel()
                    del self._watching[future]

    def look_again(self) -> None:
        """Something has changed."""
        for future in self._watching:
            tell(future)

    def close(self) -> None:
        """Nobody waits any longer."""
        self._closed = True
        for future in self._all:
            if not future.done():
                future.set_exception(self.end())
                future.exception()  # should its waiter be cancelled just now, nobody looks at it

    def end(self) -> ClientClosed:
        return ClientClosed(f"the client of {self._node} is closed")


def tell(future: asyncio.Future[None]) -> None:
    """Whoever waits for it may go on."""
    if not future.done():
        future.set_result(None)
