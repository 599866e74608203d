"""Connections over TCP: each message has its length before it, and everything has a limit."""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from bootstrap.server.authority import Reply
from bootstrap.server.settings import Limits

_TURNS = 8
"""Of the event loop, from accepting a connection to serving it, and some more."""

Respond = Callable[[bytes, tuple[Any, ...]], Awaitable[Reply | None]]


class Connections:
    """Those that are open; a client that wants too many, or takes too long, is cut off."""

    def __init__(self, limits: Limits, respond: Respond) -> None:
        self._limits = limits
        self._respond = respond
        self._clients: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False
        self.refused = 0

    @property
    def open(self) -> int:
        return self._clients.total()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until its end."""
        peer = writer.get_extra_info("peername")
        task = asyncio.current_task()
        if peer is None or task is None or self._closed:  # gone before it began
            writer.transport.abort()
            return
        client = peer[0]
        if (
            self.open >= self._limits.connections
            or self._clients[client] >= self._limits.connections_per_client
        ):
            self.refused += 1
            writer.transport.abort()
            return
        self._clients[client] += 1
        self._tasks.add(task)
        try:
            async with asyncio.timeout(self._limits.connection):
                await self._converse(reader, writer, peer)
        except (TimeoutError, OSError, EOFError):
            pass
        except asyncio.CancelledError:
            # Only `close` cancels, and streams would log a task that ends like that.
            pass
        finally:
            self._tasks.discard(task)
            self._clients[client] -= 1
            if not self._clients[client]:
                del self._clients[client]
            await _close(writer)

    async def _converse(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: tuple[Any, ...]
    ) -> None:
        while True:
            async with asyncio.timeout(self._limits.idle):
                (length,) = struct.unpack("!H", await reader.readexactly(2))
                wire = await reader.readexactly(length)
            reply = await self._respond(wire, peer)
            if reply is None:
                return
            for message in reply.messages:
                writer.write(struct.pack("!H", len(message)) + message)
                await writer.drain()
                await asyncio.sleep(0)  # a long transfer lets others be answered

    async def close(self, server: asyncio.Server) -> None:
        """Take no more connections, and end those that are open."""
        self._closed = True
        # A server that is closed while it accepts a connection loses it, open (asyncio in Python
        # 3.11): so first no more are accepted, and those that were begin, and end at once.
        loop = asyncio.get_running_loop()
        for listening in server.sockets:
            with suppress(RuntimeError, ValueError):  # uvloop has no such fault, and keeps it
                loop.remove_reader(listening.fileno())
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        server.close()
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        with suppress(OSError):
            await server.wait_closed()


async def _close(writer: asyncio.StreamWriter) -> None:
    """What was written is sent, if the client takes it soon."""
    writer.close()
    try:
        async with asyncio.timeout(1.0):
            await writer.wait_closed()
    except (TimeoutError, OSError, asyncio.CancelledError):
        writer.transport.abort()
