"""The endpoints of a mobility proxy: docs/roaming.md says how to use them.

GET  /mobility              who this proxy is
GET  /mobility/stream       what it says to a session, as Server-Sent Events
POST /mobility/stream       the same, and what the session says first
POST /mobility/messages     what a session says
POST /mobility/relay        what another proxy asks or tells, answered in the response
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web

from mobility.ahead.words import WORDS, kind_of
from mobility.ahead.words import read as read_word
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
from psph.mobility.several import bundled, unbundled
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
_RELAY_REST: Final = 0.5
"""Seconds for the other answers when the first is there."""
_RELAYS: Final = 10
"""Messages of another proxy, as a multiple of those of a client's address."""
LARGEST_WORD: Final = 512 << 10
"""Bytes that another proxy says at once, however large questions may be: it is read before it is
known who says it."""
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
        self._prepares = settings.prepare
        self._receive = receive
        self._rate = RateLimit(
            Rate(settings.messages_per_s, int(_BURST * settings.messages_per_s) + 1)
        )
        # A proxy speaks for many clients.
        per_s = _RELAYS * settings.messages_per_s
        self._relay_rate = RateLimit(Rate(per_s, int(_BURST * per_s) + 1))
        self._relays: dict[str, asyncio.Future[bytes]] = {}
        self._relayed = 0
        self.counters = Counter({"misdirected": 0, "limited": 0, "malformed": 0})

    def add(self, app: web.Application) -> None:
        """Serve them."""
        app.router.add_get("/mobility", self.get_name)
        app.router.add_get("/mobility/stream", self.get_stream)
        app.router.add_post("/mobility/stream", self.post_stream)
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
        return await self._stream(request, self._session(request))

    async def post_stream(self, request: web.Request) -> web.StreamResponse:
        """POST /mobility/stream?session=WORD"""
        session = self._session(request)
        self._hear(session, await self._packets(request, self._rate))
        return await self._stream(request, session)

    async def _stream(self, request: web.Request, session: Session) -> web.StreamResponse:
        ended = self._sessions.begin(session)
        response = web.StreamResponse(headers=STREAM_HEADERS)
        over = asyncio.ensure_future(ended.wait())
        packet: asyncio.Future[bytes] | None = None
        try:
            await response.prepare(request)
            await response.write(b"retry: 1000\n" + alive_event(_HEARTBEAT))
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
        self._hear(session, await self._packets(request, self._rate))
        return web.Response(status=202)

    def _hear(self, session: Session, packets: list[bytes]) -> None:
        questions = [self._question(packet) for packet in packets]
        for question, packet in zip(questions, packets, strict=True):
            session.clients.add(client_id(question.secret))
            if len(session.clients) > 100:
                session.clients.pop()
            self._receive(PEER + session.word, packet)

    async def post_relay(self, request: web.Request) -> web.Response:
        """POST /mobility/relay"""
        packets = await self._packets(request, self._relay_rate)
        asked: list[tuple[str, asyncio.Future[bytes]]] = []
        try:
            for packet in packets:
                asked.append(self._relay(packet))
            waiting = [answer for _, answer in asked]
            await asyncio.wait(waiting, timeout=_RELAY_TIME, return_when=asyncio.FIRST_COMPLETED)
            # The others are not to wait for one that takes longer: it is asked again.
            done, _ = await asyncio.wait(waiting, timeout=_RELAY_REST)
            if not done:
                raise web.HTTPGatewayTimeout(text="there is no answer yet\n")
            body, media_type = bundled([each.result() for each in waiting if each in done])
            return web.Response(body=body, content_type=media_type)
        finally:
            for peer, answer in asked:
                answer.cancel()
                self._relays.pop(peer, None)

    def _relay(self, packet: bytes) -> tuple[str, asyncio.Future[bytes]]:
        """What another proxy says, under a name of its own: what the core says first to that is the
        answer."""
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._relayed += 1
        peer = f"{RELAY}{self._relayed}"
        if kind_of(packet) in WORDS:
            self._check_word(packet)
        else:
            question = self._question(packet)
            if not isinstance(question, Fetch | Release) or question.proxy != self._name:
                # Not passed on once more: two proxies with wrong names would do so for ever.
                self.counters["misdirected"] += 1
                refusal = Refused(call=question.call, code=Code.FORBIDDEN)
                answer.set_result(encode(refusal, json=is_json(packet)))
                return peer, answer
        self._relays[peer] = answer
        self._receive(peer, packet)
        return peer, answer

    def _check_word(self, packet: bytes) -> None:
        if not self._prepares:
            raise web.HTTPForbidden(text="nothing is prepared here\n")
        if len(packet) > LARGEST_WORD:
            raise web.HTTPRequestEntityTooLarge(LARGEST_WORD, len(packet))
        try:
            read_word(packet)
        except MalformedMessage as error:
            raise self._malformed(f"no word of a proxy: {error}") from None

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

    async def _packets(self, request: web.Request, rate: RateLimit) -> list[bytes]:
        """The messages in a request."""
        try:
            packets = unbundled(await self._packet(request, rate), request.content_type)
        except ValueError as error:
            raise self._malformed(f"no list of messages: {error}") from None
        for _ in packets[1:]:
            self._limit(request, rate)
        return packets

    def _limit(self, request: web.Request, rate: RateLimit) -> None:
        """One more message."""
        wait = rate.take(address_of(request), time.monotonic())
        if wait:
            self.counters["limited"] += 1
            headers = {**_CORS, "Retry-After": str(int(wait) + 1)}
            raise web.HTTPTooManyRequests(text="too many messages: slow down\n", headers=headers)

    async def _packet(self, request: web.Request, rate: RateLimit) -> bytes:
        self._limit(request, rate)
        if (request.content_length or 0) > self._largest:
            raise web.HTTPRequestEntityTooLarge(self._largest, request.content_length or 0)
        return await read_body(request, self._largest)

    def _question(self, packet: bytes) -> Question:
        try:
            message = read(packet)
        except MalformedMessage as error:
            raise self._malformed(f"no message of a client: {error}") from None
        if not isinstance(message, Question):
            raise self._malformed("an answer, and nobody asked")
        return message

    def _malformed(self, why: str) -> web.HTTPBadRequest:
        self.counters["malformed"] += 1
        return web.HTTPBadRequest(text=f"{' '.join(why.split())[:250]}\n", headers=_CORS)


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
