"""Reading Server-Sent Events, as hubs send them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

import aiohttp

LARGEST = 8 << 20
"""Bytes of one event; who sends more is no hub."""


class Received(NamedTuple):
    kind: str
    data: str
    id: str


async def read(content: aiohttp.StreamReader) -> AsyncIterator[Received]:
    """The events of a response, until it ends. ValueError for one that is too large."""
    kind, data, last = "", list[str](), ""
    unfinished, size = b"", 0
    async for chunk in content.iter_any():
        size += len(chunk)
        if size > LARGEST:
            raise ValueError("an event is too large")
        *lines, unfinished = (unfinished + chunk).split(b"\n")
        for raw in lines:
            line = raw.decode(errors="replace").removesuffix("\r")
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if line == "":
                if data:
                    yield Received(kind or "message", "\n".join(data), last)
                kind, data, size = "", [], len(unfinished)
            elif name == "event":
                kind = value
            elif name == "data":
                data.append(value)
            elif name == "id":
                last = value
