"""Reading Server-Sent Events of a hub, as a client that moves does: one connection, until it ends.

Whatever ends it is a reason in words: the client goes on elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp

from psph.mobility.connections import Connections
from push_hub.connecting import exact_url, reason_of
from push_hub.event_stream import MAX_EVENT, BadEvent, EventReader, ReadEvent

_CONNECT = aiohttp.ClientTimeout(total=None, sock_connect=10.0)


class Ended(Exception):
    """The stream is over, and why."""


async def read_events(
    connections: Connections,
    url: str,
    silence: float,
    largest: int = MAX_EVENT,
    say: tuple[bytes, str] | None = None,
) -> AsyncIterator[ReadEvent]:
    """Events as they come; ends with Ended, also when nothing came for so many seconds. `say`: what
    the request itself says, and the media type; without it, it is a GET."""
    async for events in read_batches(connections, url, silence, largest, say):
        for event in events:
            yield event


async def read_batches(
    connections: Connections,
    url: str,
    silence: float,
    largest: int = MAX_EVENT,
    say: tuple[bytes, str] | None = None,
) -> AsyncIterator[list[ReadEvent]]:
    """The same, those together that came together."""
    try:
        async with connections.turn():
            answer = await connections.session.request(
                "GET" if say is None else "POST",
                exact_url(url),
                data=say[0] if say else None,
                headers={"Content-Type": say[1]} if say else None,
                timeout=_CONNECT,
                allow_redirects=False,
            )
        async with answer:
            if answer.status != 200:
                said = (await answer.content.read(200)).decode(errors="replace")
                raise Ended(f"it answered {answer.status} {' '.join(said.split())}".strip())
            reader = EventReader(largest)
            while True:
                async with asyncio.timeout(silence):
                    chunk = await answer.content.readany()
                if not chunk:
                    break
                if events := reader.feed(chunk):
                    yield events
        raise Ended("it ended the stream")
    except TimeoutError:
        raise Ended("nothing is heard of it") from None
    except BadEvent as error:
        raise Ended(f"it sent {error}") from None
    except (aiohttp.ClientError, OSError) as error:
        raise Ended(reason_of(error)) from None
