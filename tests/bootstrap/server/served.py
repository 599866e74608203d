"""A NameServer in the test's own event loop, with the limits a test wants."""

from __future__ import annotations

import asyncio
import struct
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import dns.asyncquery

from bootstrap.server.serving import NameServer
from bootstrap.server.settings import Key, Limits, ServerSettings, ZoneSettings
from tests.bootstrap.name_servers import KEY, POWERLESS
from tests.bootstrap.server.core import LINES, ZONE

PATIENCE = 30.0


def settings(lines=LINES, listen=(("127.0.0.1", 0),), **limits):
    return ServerSettings(
        zones=(ZoneSettings(ZONE, tuple(lines), (KEY.name,), (KEY.name,)),),
        listen=listen,
        keys=tuple(Key(each.name, each.secret, each.algorithm) for each in (KEY, POWERLESS)),
        limits=replace(Limits(), **limits),
    )


@asynccontextmanager
async def served(directory, chosen=None, **options):
    async with NameServer(chosen or settings(**options), directory / "zones.sqlite") as server:
        yield server


async def udp(server, message, **options):
    host, port = server.address
    return await dns.asyncquery.udp(message, host, PATIENCE, port=port, **options)


async def tcp(server, message, **options):
    host, port = server.address
    return await dns.asyncquery.tcp(message, host, PATIENCE, port=port, **options)


async def until(condition, what):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"never: {what}"
        await asyncio.sleep(0.01)


def framed(wire):
    return struct.pack("!H", len(wire)) + wire


async def read_message(reader):
    (length,) = struct.unpack("!H", await reader.readexactly(2))
    return await reader.readexactly(length)


@asynccontextmanager
async def connection(server):
    reader, writer = await asyncio.open_connection(*server.address)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


def run(main):
    return asyncio.run(asyncio.wait_for(main, 120))
