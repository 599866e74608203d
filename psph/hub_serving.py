"""What `psph hub` and the role `hub` of `psph serve` have in common: sockets, and speed."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from aiohttp import web

from psph.errors import PsphError
from push_hub.errors import StoreError

_BACKLOG = 4_096
"""Connections that wait to be taken: a thousand clients may come at once, with several each."""
_ACCEPT_PASSES = 4
"""Passes of the event loop from accepting a connection to serving it: two, and some more."""


@asynccontextmanager
async def serving(
    host: str, port: int, make: Callable[[str], web.Application]
) -> AsyncIterator[str]:
    """Serve the application that `make` makes for a URL; that URL."""
    # Bound before the hub starts, because its links name the port.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise PsphError(f"the hub cannot run: {error}") from error
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{listening.getsockname()[1]}"
    runner = web.AppRunner(make(url), access_log=None, shutdown_timeout=2)
    try:
        try:
            await runner.setup()
            await web.SockSite(runner, listening, backlog=_BACKLOG).start()
        except (OSError, StoreError) as error:
            raise PsphError(f"the hub cannot run: {error}") from error
        yield url
    finally:
        await stop_accepting(listening)
        await runner.cleanup()
        listening.close()


async def stop_accepting(listening: socket.socket) -> None:
    """Accept no more connections, and hand over those that were accepted.

    A server of asyncio that closes in the pass of the event loop in which it accepts a connection
    neither serves nor closes that connection (Python 3.11).
    """
    with suppress(RuntimeError, ValueError):  # uvloop has no such fault, and keeps its reader
        asyncio.get_running_loop().remove_reader(listening)
    for _ in range(_ACCEPT_PASSES):
        await asyncio.sleep(0)


def be_quick() -> None:
    """Settings of the interpreter that suit a hub."""
    # The store's thread lets go of the interpreter with every statement; by default it waits 5 ms
    # for a busy event loop to hand it back.
    sys.setswitchinterval(0.0005)
    # A delivery makes and drops hundreds of objects, hardly any of them in cycles.
    gc.freeze()
    gc.set_threshold(20_000, 50, 50)
