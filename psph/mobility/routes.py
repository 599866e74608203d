"""The endpoints of a mobility proxy: docs/roaming.md says how to use them.

GET  /mobility              who this proxy is
GET  /mobility/stream       what it says to a session, as Server-Sent Events
POST /mobility/messages     what a session says
POST /mobility/relay        what another proxy asks, answered in the response
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web

from mobility.identity import client_id
from mobility.messages import (
    VERSION,
    Code,
    Fetch,
    MalformedMessage,
    Question,
    Refused,
    Release,
    encode,
    is_json,
    read,
)
from psph.configuration.mobility import MobilityConfiguration
from psph.mobility.sessions import PEER, Session, Sessions, as_event
from push_hub.addresses import client_address, client_key
from push_hub.app import read_body
from push_hub.event_stream import alive_event
from push_hub.keys import HUB
from push_hub.limits import RateLimit
from push_hub.settings import Rate

_WORD: Final = re.compile(r"[A-Za-z0-9_-]{22,64}")
_CORS: Final = {"Access-Control-Allow-Origin": "*"}
STREAM_HEADERS: Final = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
    "X-Content-Type-Options": "nosniff",
    **_CORS,
}
RELAY: Final = "relay:"
_HEARTBEAT: Final = 5.0
_RELAY_TIME: Final = 9.0
"""Seconds for an answer to another proxy, which waits no longer than ten."""
_BURST: Final = 10
"""Messages of one address at once, in seconds' worth."""

Receive = Callable[[str, bytes], None]


class Routes:
    """Serves sessions and other proxies; hands what they say to the core."""

    def __init__(
        self, name: str, sessions: Sessions, settings: MobilityConfiguration, receive: Receive
    ) -> None:
        self._name = name
        self._sessions = sessions
        self._largest = settings.max_message
        self._receive = receive
        self._rate = RateLimit(
            Rate(settings.messages_per_s, int(_BURST * settings.messages_per_s) + 1)
        )
        self._relays: dict[str, asyncio.Future[bytes]] = {}
        self._relayed = 0
        self.counters: Counter[str] = Counter()

    def add(self, app: web.Application) -> None:
        """Serve them."""
        app.router.add_get("/mobility", self.get_name)
        app.router.add_get("/mobility/stream", self.get_stream)
        app.router.add_post("/mobility/messages", _shared(self.post_message))
        app.router.add_post("/mobility/relay", self.post_relay)

    def send(self, peer: str, packet: bytes) -> bool:
        """To a session or to a proxy that asked; False when the peer is neither."""
        if peer.startswith(PEER):
            self._sessions.send(peer, packet)
            return True
        if peer.startswith(RELAY):
            waiting = self._relays.get(peer)
            if waiting is not None and not waiting.done():
                waiting.set_result(packet)
            return True
        return False

    async def get_name(self, request: web.Request) -> web.Response:
        """GET /mobility"""
        said = {"proxy": self._name, "version": VERSION, "clients": len(self._sessions)}
        return web.json_response(said, headers={**_CORS, "Cache-Control": "no-store"})

    async def get_stream(self, request: web.Request) -> web.StreamResponse:
        """GET /mobility/stream?session=WORD"""
        session = self._session(request)
        ended = self._sessions.begin(session)
        response = web.StreamResponse(headers=STREAM_HEADERS)
        over = asyncio.ensure_future(ended.wait())
        packet: asyncio.Future[bytes] | None = None
        try:
            await response.prepare(request)
            await response.write(b"retry: 1000\n\n" + alive_event(_HEARTBEAT))
            while not ended.is_set():
                packet = packet or asyncio.ensure_future(session.get())
                either: set[asyncio.Future[Any]] = {packet, over}
                await asyncio.wait(either, timeout=_HEARTBEAT, return_when=asyncio.FIRST_COMPLETED)
                if packet.done():
                    found, packet = packet.result(), None
                    await response.write(as_event(found))
                elif not ended.is_set():
                    await response.write(alive_event(_HEARTBEAT))
        except (ConnectionError, TimeoutError):
            pass  # the client left
        finally:
            over.cancel()
            if packet is not None:
                packet.cancel()
            self._sessions.end(session, ended)
        return response

    async def post_message(self, request: web.Request) -> web.Response:
        """POST /mobility/messages?session=WORD"""
        session = self._session(request)
        packet = await self._packet(request)
        question = self._question(packet)
        session.clients.add(client_id(question.secret))
        if len(session.clients) > 100:
            session.clients.pop()
        self._receive(PEER + session.word, packet)
        return web.Response(status=202)

    async def post_relay(self, request: web.Request) -> web.Response:
        """POST /mobility/relay"""
        packet = await self._packet(request)
        question = self._question(packet)
        if not isinstance(question, Fetch | Release) or question.proxy != self._name:
            # Not passed on once more: two proxies with wrong names would do so for ever.
            self.counters["misdirected"] += 1
            refusal = Refused(call=question.call, code=Code.FORBIDDEN)
            return web.Response(body=encode(refusal, json=is_json(packet)))
        self._relayed += 1
        peer = f"{RELAY}{self._relayed}"
        answer = self._relays[peer] = asyncio.get_running_loop().create_future()
        try:
            self._receive(peer, packet)
            async with asyncio.timeout(_RELAY_TIME):
                return web.Response(body=await answer, content_type="application/octet-stream")
        except TimeoutError:
            raise web.HTTPGatewayTimeout(text="there is no answer yet\n") from None
        finally:
            del self._relays[peer]

    def _session(self, request: web.Request) -> Session:
        word = request.query.get("session", "")
        if not _WORD.fullmatch(word):
            text = "session: make up a word of 22 to 64 letters, digits, '-' and '_'\n"
            raise web.HTTPBadRequest(text=text, headers=_CORS)
        session = self._sessions.find(word, address_of(request))
        if session is None:
            text = "too many clients are here: go to another proxy\n"
            raise web.HTTPServiceUnavailable(text=text, headers={**_CORS, "Retry-After": "10"})
        return session

    async def _packet(self, request: web.Request) -> bytes:
        wait = self._rate.take(address_of(request), time.monotonic())
        if wait:
            self.counters["limited"] += 1
            headers = {**_CORS, "Retry-After": str(int(wait) + 1)}
            raise web.HTTPTooManyRequests(text="too many messages: slow down\n", headers=headers)
        if (request.content_length or 0) > self._largest:
            raise web.HTTPRequestEntityTooLarge(self._largest, request.content_length or 0)
        return await read_body(request, self._largest)

    def _question(self, packet: bytes) -> Question:
        try:
            message = read(packet)
        except MalformedMessage as error:
            self.counters["malformed"] += 1
            text = f"no message of a client: {' '.join(str(error).split())[:200]}\n"
            raise web.HTTPBadRequest(text=text, headers=_CORS) from None
        if not isinstance(message, Question):
            self.counters["malformed"] += 1
            raise web.HTTPBadRequest(text="an answer, and nobody asked\n", headers=_CORS)
        return message


def address_of(request: web.Request) -> str:
    """Who asks, as limits count it."""
    forwarded = request.headers.getall("X-Forwarded-For", ())
    trusted = request.app[HUB].settings.trusted_proxies
    return client_key(client_address(request.remote or "", forwarded, trusted))


Handler = Callable[[web.Request], Awaitable[web.Response]]


def _shared(handler: Handler) -> Handler:
    """Pages of other origins may read the answer."""

    async def answer(request: web.Request) -> web.Response:
        response = await handler(request)
        response.headers.update(_CORS)
        return response

    return answer
