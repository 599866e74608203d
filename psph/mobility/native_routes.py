"""GET /mobility/native: native topics of the fabric for clients that move, as Server-Sent Events.

They are what `/stream?base=event&content=whole` has of topics of the web. A client that reads
slowly slows its own subscription down: the fabric hands on no more than is unfinished.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections import Counter
from functools import partial

from aiohttp import web

from identifiers import Position
from mobility import After
from psirp_sim.node import FabricNode
from psirp_sim.publications.events import Event, Gap, Update
from psph.configuration.mobility import MobilityConfiguration
from psph.mobility.fabric_base import Beginning
from psph.mobility.fabric_port import kind_of
from psph.mobility.native_topics import NativeScopes, native_ids
from psph.mobility.routes import STREAM_HEADERS, address_of
from push_hub.errors import BadRequest, Refused
from push_hub.event_stream import HEARTBEAT, RETRY, base_event, notice_event
from push_hub.stream_routes import NOW, positions_of

MOST_TOPICS = 40
"""With their Positions they have to fit a URL."""
_EVERY = 5.0
"""Seconds between heartbeats, and until it is noticed that a client left."""

_Ids = tuple[bytes, bytes]


class NativeRoutes:
    """Serves them at a node that has begun."""

    def __init__(
        self, node: FabricNode, scopes: NativeScopes, settings: MobilityConfiguration
    ) -> None:
        self._node = node
        self._scopes = scopes
        self._most, self._most_of_address = settings.clients, settings.clients_per_address
        self._streams: set[NativeStream] = set()
        self._of_address: Counter[str] = Counter()

    def add(self, app: web.Application) -> None:
        app.router.add_get("/mobility/native", self.get)
        app.on_shutdown.append(self._close)

    async def _close(self, app: web.Application) -> None:
        for each in self._streams:
            each.end()

    async def get(self, request: web.Request) -> web.StreamResponse:
        """GET /mobility/native?topic=psirp:SID/RID&after=POSITION,POSITION&topic=..."""
        topics = self._topics(request)
        address = address_of(request)
        full = len(self._streams) >= self._most
        if full or self._of_address[address] >= self._most_of_address:
            text = "too many clients are here: go to another proxy\n"
            raise web.HTTPServiceUnavailable(text=text, headers={"Retry-After": "10"})
        stream = NativeStream(self._node, f"stream {request.remote}")
        self._streams.add(stream)
        self._of_address[address] += 1
        try:
            response = web.StreamResponse(headers=STREAM_HEADERS)
            await response.prepare(request)
            await response.write(RETRY)
            for topic, (ids, after) in topics.items():
                stream.follow(topic, ids, after)
            await stream.write(response)
        except (ConnectionError, TimeoutError):
            pass  # the client left
        finally:
            stream.close()
            self._streams.discard(stream)
            self._of_address[address] -= 1
            if not self._of_address[address]:
                del self._of_address[address]
        return response

    def _topics(self, request: web.Request) -> dict[str, tuple[_Ids, After]]:
        names = request.query.getall("topic", [])
        places = request.query.getall("after", [NOW] * len(names))
        if not 1 <= len(set(names)) <= MOST_TOPICS:
            raise BadRequest(f"name from 1 to {MOST_TOPICS} topics to stream")
        if len(places) != len(names):
            raise BadRequest("give `after` once for each topic")
        found: dict[str, tuple[_Ids, After]] = {}
        for name, place in zip(names, places, strict=True):
            ids = native_ids(name)
            if ids is None:
                raise BadRequest("topic: a native one is psirp:SID/RID, of 64 digits each")
            if ids[0] not in self._scopes:
                raise Refused("topics of that scope are not passed on here")
            found[name] = ids, None if place == NOW else positions_of(place)
        return found


class NativeStream:
    """The subscriptions of one client, and what it has yet to be sent."""

    def __init__(self, node: FabricNode, name: str) -> None:
        self._node = node
        self._name = name
        self._beginnings: dict[str, Beginning] = {}
        self._waiting: asyncio.Queue[tuple[str, Event] | bytes] = asyncio.Queue()
        """What came, and what is sent as it is; nothing: the end."""

    def follow(self, topic: str, ids: _Ids, after: After) -> None:
        """From now on, or after Positions, and in other publishers' streams from the beginning."""
        beginning = Beginning(self._node.env, after, partial(self._begun, topic))
        self._beginnings[topic] = beginning
        beginning.subscription = self._node.client.subscribe(
            *ids,
            lambda event: self._waiting.put_nowait((topic, event)),
            beginning.answered,
            after=[(ids[1], each) for each in after or ()],
            others_from_first=after is not None,
            by_hand=True,
            name=self._name,
            refused=lambda code: self.end(),
            began=beginning.look,
        )

    def end(self) -> None:
        """Nothing comes after what waits now."""
        self._waiting.put_nowait(b"")

    def close(self) -> None:
        for each in self._beginnings.values():
            subscription, each.subscription = each.subscription, None
            if subscription is not None:
                self._node.client.unsubscribe(subscription)

    async def write(self, response: web.StreamResponse) -> None:
        """Until it ends, or the fabric does not let us listen."""
        while True:
            try:
                async with asyncio.timeout(_EVERY):
                    said = await self._waiting.get()
            except TimeoutError:
                await response.write(HEARTBEAT)
                continue
            if not said:
                return
            if isinstance(said, bytes):
                await response.write(said)
                continue
            topic, event = said
            written = as_event(topic, event)
            if written:
                await response.write(written)
            beginning = self._beginnings[topic]
            if beginning.subscription is not None:
                beginning.subscription.done(event)
                beginning.look()

    def _begun(self, topic: str, base: After) -> None:
        self._waiting.put_nowait(base_event(topic, base or ()))


def as_event(topic: str, event: Event) -> bytes:
    """As it goes over the wire; nothing for what the next Position says by itself."""
    if isinstance(event, Update):
        said = {
            "topic": topic,
            "position": str(event.position),
            "content_type": kind_of(event.metadata),
            "body_b64": base64.b64encode(event.content).decode(),
        }
        return f"data: {json.dumps(said)}\n\n".encode()
    if isinstance(event, Gap) and event.first > 1:
        after = Position(event.publisher, event.epoch, event.first - 1)
        resumes = Position(event.publisher, event.epoch, event.last + 1)
        return notice_event("gap", topic, after, resumes).data
    return b""
