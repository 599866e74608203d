"""Closing a hub while a client connects."""

from __future__ import annotations

import asyncio
import socket
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from psph.hub_serving import serving


async def read_after_closing(passes):
    """What a client reads from a hub that closes N passes of the event loop after it connected."""
    async with serving("127.0.0.1", 0, lambda url: web.Application()) as url:
        client = socket.create_connection(("127.0.0.1", urlsplit(url).port))
        for _ in range(passes):
            await asyncio.sleep(0)
    with client:
        client.setblocking(False)
        try:
            async with asyncio.timeout(30):
                return await asyncio.get_running_loop().sock_recv(client, 1)
        except ConnectionResetError:
            return b""


@pytest.mark.parametrize("passes", range(5))
def test_a_hub_that_closes_leaves_no_connection_open(passes):
    assert asyncio.run(read_after_closing(passes)) == b""
