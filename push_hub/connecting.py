"""HTTP clients that strangers' URLs cannot lead astray.

The address check sits where the socket is made: after the name was resolved, before anything is
sent, for every connection. There is no second look-up that could answer differently. Proxies,
cookies, credentials and automatic redirects and decompression are off.
"""

from __future__ import annotations

import asyncio
import socket
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from push_hub.addresses import AddressPolicy
from push_hub.errors import AddressRefused

USER_AGENT = "psph-hub/0.1"


def guarded_session(
    policy: AddressPolicy,
    *,
    connections: int,
    timeout: float,
    resolver: AbstractResolver | None = None,
) -> aiohttp.ClientSession:
    """A session that connects to nothing the policy refuses; connections are kept and reused."""

    def guarded_socket(info: tuple[Any, ...]) -> socket.socket:
        family, kind, protocol, _, address = info
        policy.check(address[0])
        made = socket.socket(family, kind, protocol)
        made.setblocking(False)
        return made

    connector = aiohttp.TCPConnector(
        limit=connections,
        resolver=resolver,
        socket_factory=guarded_socket,
        keepalive_timeout=30.0,
    )
    return aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=timeout, sock_connect=timeout / 2),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
        headers={"User-Agent": USER_AGENT},
        max_line_size=8190,
        max_field_size=16_380,
    )


@lru_cache(maxsize=8_192)  # of updates to the same callbacks
def exact_url(text: str) -> URL:
    """The URL as it is spelled, except that what is not ASCII is encoded: no normalisation."""
    if text.isascii():
        return URL(text, encoded=True)
    encoded = "".join(c if c.isascii() else quote(c) for c in text)
    # A host is not percent-encoded but mapped to A-labels.
    return URL(encoded, encoded=True).with_host(URL(text).host or "")


def reason_of(error: BaseException) -> str:
    """Why a request failed, in words for the diagnostics; without the URL, which may be secret."""
    if isinstance(error, TimeoutError | asyncio.TimeoutError):
        return "timed out"
    if isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
        if isinstance(cause, AddressRefused):
            return str(cause)
        return f"cannot connect: {cause.strerror or cause}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the server closed the connection"
    if isinstance(error, aiohttp.ClientResponseError):
        return f"no valid answer: {error.message.split(chr(10), 1)[0]}"[:200]
    if isinstance(error, aiohttp.InvalidURL | ValueError):
        return "not a valid URL"
    return f"{type(error).__name__}: {error}"[:200]
