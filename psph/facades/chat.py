"""The facade of chat: messages, streams and tokens over HTTP, for the users of a PSPH's hosts.

A message is content that its publisher sends: the hub numbers it, and the proxy signs it with the
key of the zone on its way into the fabric, as it does with everything. What is added here is who
may write as whom. docs/chat.md has the endpoints.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Final
from weakref import WeakValueDictionary

import msgspec
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from identifiers import Topic
from psph.chat import message as messages
from psph.chat.conversation import REMEMBERED, topic_of
from psph.chat.message import BadMessage, Message, TooLong, normal_jid
from psph.chat.tokens import is_token_of, token_of
from psph.configuration.chat import ChatConfiguration
from psph.facades.chat_presence import Presences
from psph.facades.chat_stream import serve_stream
from push_hub.addresses import client_address, parse_networks
from push_hub.app import read_body
from push_hub.errors import BadRequest, Refused, StoreError
from push_hub.hub import Hub
from push_hub.keys import HUB
from push_hub.limits import RateLimit
from push_hub.settings import Rate

LARGEST: Final = 128 << 10
"""Bytes of a request."""
_BURST: Final = 10
"""Seconds' worth of messages that may come at once."""
_ID: Final = re.compile("[0-9a-f]{32}")
COUNTED: Final = {
    "chat_messages": "Messages of chat taken",
    "chat_messages_again": "Messages of chat that had been taken before",
    "chat_events": "Messages of chat sent to readers",
    "chat_refused": "Updates of conversations that are no message of their sender",
}
"""Counters of the hub that chat adds."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Send(msgspec.Struct, rename={"sender": "from", "recipient": "to", "identity": "id"}):
    """The body of POST /chat/messages."""

    sender: str
    recipient: str
    text: str
    identity: str


class NotServed(Exception):
    """Why somebody is not, and the status that says so."""

    def __init__(self, status: int, reason: str, **headers: str) -> None:
        super().__init__(reason)
        self.status, self.headers = status, {k.replace("_", "-"): v for k, v in headers.items()}


@dataclass(frozen=True, slots=True)
class Users:
    """Whom this PSPH serves, and how it knows them."""

    serves: Callable[[str], bool]
    """Whether a host is one of its own."""
    keys: Sequence[Ed25519PrivateKey]
    """Of its zone: one, two while one replaces the other; none where there can be no chat."""
    configuration: ChatConfiguration

    def check(self, jid: str) -> None:
        """NotServed when the JID, in normal form, is no user here."""
        if not self.keys:
            raise NotServed(
                503, "there is no chat here without a key of the zone: set bootstrap.zone_key_files"
            )
        host = jid.rpartition("@")[2]
        if not self.serves(host):
            raise NotServed(403, f"users of {host} are not served here: ask a PSPH of {host}")
        if jid in map(normal_jid, self.configuration.refused):
            raise NotServed(403, f"{jid} is not served here any more")

    def check_token(self, jid: str, token: str) -> None:
        """NotServed unless the token is the user's."""
        self.check(jid)
        if not token:
            raise NotServed(
                401,
                "a token is needed: send Authorization: Bearer TOKEN",
                WWW_Authenticate="Bearer",
            )
        if not is_token_of(token, self.keys, jid):
            raise NotServed(403, f"this is not the token of {jid}")

    def is_trusted(self, address: str) -> bool:
        """Whether whoever has this address gets any token."""
        try:
            found = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(found, "ipv4_mapped", None) or found
        networks = parse_networks(self.configuration.trust)
        return any(mapped.version == each.version and mapped in each for each in networks)


class Chat:
    """The chat of one PSPH."""

    def __init__(self, users: Users) -> None:
        self.users = users
        per_second = users.configuration.messages_per_s
        self._rate = RateLimit(Rate(per_second, max(1, int(per_second * _BURST))))
        self._sending: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.presences: Presences

    async def run(self, app: web.Application) -> AsyncIterator[None]:
        """With the hub, which has started."""
        app[HUB].counters.declare(COUNTED)
        self.presences = Presences(app[HUB], self.users.configuration.presence_s)
        yield
        await self.presences.stop()

    async def post_message(self, request: web.Request) -> web.Response:
        """POST /chat/messages"""
        if (request.content_length or 0) > LARGEST:
            raise NotServed(413, f"a message has at most {messages.LONGEST} characters")
        body = await read_body(request, LARGEST)
        try:
            send = msgspec.json.decode(body, type=Send)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise NotServed(400, f'send {{"from", "to", "text", "id"}} as JSON: {error}') from None
        me = normal_jid(send.sender)
        self.users.check_token(me, _bearer(request))
        if not _ID.fullmatch(send.identity):
            raise NotServed(400, "id: give each message one of its own, of 32 hexadecimal digits")
        topic = topic_of(me, normal_jid(send.recipient))
        message = Message(me, messages.clean(send.text))
        wait = self._rate.take(me, time.monotonic())
        if wait:
            after = str(int(wait) + 1)
            raise NotServed(429, f"{me} writes very much: wait {after} s", Retry_After=after)
        lock = self._sending.setdefault(topic.canonical, asyncio.Lock())
        async with lock:
            position = await _publish(request.app[HUB], topic, message, send.identity)
        return web.json_response({"position": position, "id": send.identity})

    async def get_stream(self, request: web.Request) -> web.StreamResponse:
        """GET /chat/stream"""
        me = normal_jid(request.query.get("me", ""))
        # EventSource cannot send headers.
        self.users.check_token(me, _bearer(request) or request.query.get("token", ""))
        return await serve_stream(request, me, self.presences)

    async def get_token(self, request: web.Request) -> web.Response:
        """GET /chat/token"""
        if request.headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none"):
            raise NotServed(403, "pages of other sites cannot ask for tokens")
        me = normal_jid(request.query.get("me", ""))
        self.users.check(me)
        proxies = request.app[HUB].settings.trusted_proxies
        forwarded = request.headers.getall("X-Forwarded-For", ())
        address = client_address(request.remote or "", forwarded, proxies)
        # Behind a proxy that we do not know everybody would have its address.
        unknown = bool(forwarded) and address == request.remote
        if unknown or not self.users.is_trusted(address):
            raise NotServed(
                403,
                f"{address} is not in chat.trust: get your token from whoever runs this PSPH"
                " (psph chat-token)",
            )
        token = token_of(self.users.keys[0], me)
        headers = {"Cache-Control": "no-store"}
        return web.json_response({"me": me, "token": token}, headers=headers)


async def _publish(hub: Hub, topic: Topic, message: Message, identity: str) -> str:
    """The Position of the message, which is durable; the one it has when it was sent before."""
    if not hub.settings.serves_host(topic.host):
        raise Refused(f"this hub does not serve topics of {topic.host}")
    record = await hub.store.topic(topic)
    if record is not None:
        for known in await hub.store.traced(record.id, identity, REMEMBERED):
            if messages.read(known.body) != message:
                raise NotServed(409, "id: another message has this one")
            # One that another PSPH took may have come here and to nobody else before that died.
            if known.position.publisher == hub.store.identity.publisher:
                hub.counters.add("chat_messages_again")
                return str(known.position)
    body = messages.write(message)
    recorded = await hub.publish(topic, messages.CONTENT_TYPE, body, trace_id=identity)
    assert recorded is not None  # only what brings a position can be known
    hub.counters.add("chat_messages")
    return str(recorded.update.position)


def add_chat(app: web.Application, users: Users) -> None:
    """Add the routes to the application of a hub."""
    chat = Chat(users)
    app.cleanup_ctx.append(chat.run)
    app.router.add_post("/chat/messages", _answered(chat.post_message))
    app.router.add_get("/chat/stream", _answered(chat.get_stream))
    app.router.add_get("/chat/token", _answered(chat.get_token))


def _answered(handler: Handler) -> Handler:
    """Errors with a name become answers with a reason, as JSON."""

    @wraps(handler)
    async def answer(request: web.Request) -> web.StreamResponse:
        headers: dict[str, str] = {}
        try:
            return await handler(request)
        except NotServed as error:
            status, reason, headers = error.status, str(error), error.headers
        except TooLong as error:
            status, reason = 413, str(error)
        except (BadMessage, BadRequest) as error:
            status, reason = 400, str(error)
        except Refused as error:
            status, reason = 403, str(error)
        except StoreError:
            status, reason = 503, "nothing can be stored right now: try again later"
        except web.HTTPException as error:
            status, reason = error.status, (error.text or error.reason).strip()
        return web.json_response({"error": reason}, status=status, headers=headers)

    return answer


def _bearer(request: web.Request) -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
