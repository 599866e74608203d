"""POST /mobility/publish: what a moving client publishes is recorded once, at its topic's own hub.

Any PSPH takes it and passes it on to the one that DNS names for the topic, always the same one:
only there can be known whether it was taken before. The client's Position tells which publication
it is; the hub gives it one of its own, as it does with everything that enters there.
"""

from __future__ import annotations

import asyncio
import logging
from weakref import WeakValueDictionary

import aiohttp
from aiohttp import web
from blake3 import blake3

from bootstrap import BootstrapError, NothingFound, Resolver
from bootstrap.selection import in_order_for
from identifiers import InvalidPosition, InvalidTopic, Position, Topic
from psph.guide import base_url as endpoint_url
from psph.mobility.publishing import HEADER
from push_hub.app import may_publish, read_body
from push_hub.connecting import exact_url, reason_of
from push_hub.errors import BadRequest, Refused
from push_hub.fetching import passable_type
from push_hub.keys import HUB
from push_hub.requests import web_topic
from push_hub.siblings import base_url
from traces import TRACE_ID_BYTES, LogEvent, new_trace_id

_log = logging.getLogger(__name__)

_RELAYED = "Psph-Relayed"
_REMEMBERED = 1_000
"""Updates of a topic among which one that comes again is recognised: a client has one under way."""
_PASSED = ("Authorization", "Content-Type", HEADER)
_PATH = "/mobility/publish"
_SHARED = {"Access-Control-Allow-Origin": "*", "X-Content-Type-Options": "nosniff"}
# What a page has to be allowed before it may send a publication; there are no cookies.
_PREFLIGHT = {
    "Access-Control-Allow-Methods": "POST",
    "Access-Control-Allow-Headers": ", ".join(_PASSED),
    "Access-Control-Max-Age": "7200",
}


class PublishRoutes:
    """Takes publications, or passes them on."""

    def __init__(self, own: str, records: Resolver | None) -> None:
        self._own = own
        self._records = records
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.session: aiohttp.ClientSession | None = None
        """Leads to other PSPHs; set while the proxy runs."""

    def add(self, app: web.Application) -> None:
        app.router.add_post(_PATH, self.post)
        app.router.add_options(_PATH, _allow)
        app.on_response_prepare.append(_share)

    async def post(self, request: web.Request) -> web.Response:
        """POST /mobility/publish?topic=URL"""
        hub = request.app[HUB]
        topic = web_topic(request.query.get("topic", ""), "topic")
        try:
            position = Position.parse(request.headers.get(HEADER, ""))
        except InvalidPosition as error:
            raise BadRequest(f"{HEADER}: {error}") from None
        if (request.content_length or 0) > hub.settings.max_body:
            raise web.HTTPRequestEntityTooLarge(hub.settings.max_body, request.content_length or 0)
        home = None if _RELAYED in request.headers else await self._home(topic)
        if home is not None:
            return await self._pass_on(request, home)
        if not may_publish(hub, topic, request.headers.get("Authorization", "")):
            text = "a token of the topic's own hub is needed: send Authorization: Bearer TOKEN\n"
            return web.Response(status=401, text=text, headers={"WWW-Authenticate": "Bearer"})
        if not hub.settings.serves_host(topic.host):
            raise Refused(f"this hub does not serve topics of {topic.host}")
        body = await read_body(request, hub.settings.max_body)
        return await self._take(request, topic, position, body)

    async def _take(
        self, request: web.Request, topic: Topic, position: Position, body: bytes
    ) -> web.Response:
        hub = request.app[HUB]
        digest = blake3(f"{position} {topic.canonical}".encode()).digest(TRACE_ID_BYTES)
        identity = new_trace_id(digest)
        lock = self._locks.setdefault(topic.canonical, asyncio.Lock())
        async with lock:
            record = await hub.store.topic(topic)
            if record is not None:
                for known in await hub.store.traced(record.id, identity, _REMEMBERED):
                    return web.json_response({"position": str(known.position)})
            content_type = passable_type(request.headers.get("Content-Type"))
            recorded = await hub.publish(topic, content_type, body, trace_id=identity)
        assert recorded is not None  # only what brings a position can be known
        return web.json_response({"position": str(recorded.update.position)}, status=201)

    async def _home(self, topic: Topic) -> str | None:
        """The PSPH where the topic's publications are counted; None when that is here."""
        if self._records is None:
            return None
        try:
            found = await self._records.find(topic.host)
        except (NothingFound, InvalidTopic):
            return None
        except BootstrapError as error:
            _log.info(LogEvent("zone.lookup_failed", host=topic.host, reason=error))
            raise web.HTTPServiceUnavailable(text="no name server answers\n") from None
        if not found.proxies:
            return None
        # Not the next one when it is down: the client waits, so that nothing is taken twice.
        home = base_url(endpoint_url(in_order_for(found.proxies, topic.canonical)[0]))
        return None if home == self._own else home

    async def _pass_on(self, request: web.Request, home: str) -> web.Response:
        if self.session is None:
            raise web.HTTPServiceUnavailable(text="this hub is stopping\n")
        body = await read_body(request, request.app[HUB].settings.max_body)
        headers = {each: request.headers[each] for each in _PASSED if each in request.headers}
        url = exact_url(f"{home}/mobility/publish").with_query({"topic": request.query["topic"]})
        try:
            async with self.session.post(
                url, data=body, headers={**headers, _RELAYED: "1"}, allow_redirects=False
            ) as answer:
                said = await answer.content.read(2_000)
                # Not as what the other hub calls it: a browser may take this for a page of ours.
                kind = "application/json" if answer.status in (200, 201) else "text/plain"
                return web.Response(status=answer.status, body=said, content_type=kind)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            text = f"the topic's own hub cannot be reached: {reason_of(error)}\n"
            raise web.HTTPBadGateway(text=text) from None


async def _allow(request: web.Request) -> web.Response:
    """OPTIONS /mobility/publish: browsers ask before they send what a page publishes."""
    return web.Response(status=204, headers=_PREFLIGHT)


async def _share(request: web.Request, response: web.StreamResponse) -> None:
    """Pages of other origins may read the answer, whatever it is."""
    if request.path == _PATH:
        response.headers.update(_SHARED)
