"""A hub with chat for the tests: a real server, and a client who reads its streams."""

from __future__ import annotations

import asyncio
import json
import secrets
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from psph.chat.tokens import token_of
from psph.configuration.chat import ChatConfiguration
from psph.facades.chat import Users, add_chat
from push_hub import create_app
from push_hub.app import HUB
from tests.push_hub.world import chosen, served, until

ALICE, BOB, EVE = "alice@site-a.test", "bob@site-a.test", "eve@elsewhere.test"
KEY = Ed25519PrivateKey.from_private_bytes(b"the key of the zone in the tests")
OLD_KEY = Ed25519PrivateKey.from_private_bytes(b"the key of the zone, before that")


def new_id():
    return secrets.token_hex(16)


@dataclass
class Listener:
    """What came over a stream."""

    events: list[tuple[str, dict]] = field(default_factory=list)
    last_id: str = ""
    comments: int = 0

    def of(self, kind):
        return [data for found, data in self.events if found == kind]

    @property
    def texts(self):
        return [each["text"] for each in self.of("message")]

    def states(self, jid):
        return [each["state"] for each in self.of("presence") if each["jid"] == jid]

    async def read(self, content):
        kind = ""
        async for line in content:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name == "event":
                kind = value
            elif name == "id":
                self.last_id = value
            elif name == "data":
                self.events.append((kind, json.loads(value)))
            elif not name and value:
                self.comments += 1


@dataclass
class Room:
    url: str
    hub: object
    client: aiohttp.ClientSession

    async def post(self, body, token=None, **more):
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self.client.post(
            f"{self.url}/chat/messages", data=raw, headers={**headers, **more}
        ) as answer:
            return answer.status, await answer.json()

    async def send(self, sender, recipient, text, identity=None):
        """What is answered to somebody who shows their token."""
        body = {"from": sender, "to": recipient, "text": text, "id": identity or new_id()}
        status, answer = await self.post(body, token_of(KEY, sender))
        assert status == 200, answer
        return answer

    async def get(self, path, **more):
        async with self.client.get(f"{self.url}{path}", **more) as answer:
            return answer.status, await answer.text()

    @asynccontextmanager
    async def listen(self, me, *buddies, headers=None, **query):
        """An open stream of somebody's, once it has begun."""
        query = [("me", me), *(("with", each) for each in buddies), *query.items()]
        headers = {"Authorization": f"Bearer {token_of(KEY, me)}", **(headers or {})}
        listener = Listener()
        async with self.client.get(
            f"{self.url}/chat/stream", params=query, headers=headers
        ) as answer:
            assert answer.status == 200, await answer.text()
            task = asyncio.create_task(listener.read(answer.content))
            try:
                # All who are talked with are named first.
                await until(lambda: len(listener.of("presence")) >= len(buddies), "the stream")
                yield listener
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def room(data, *, keys=(KEY,), port=0, settings=None, **configuration):
    users = Users(lambda host: host == "site-a.test", keys, ChatConfiguration(**configuration))
    app = create_app(chosen(**(settings or {})), data)
    add_chat(app, users)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=30)
    async with served(app, port) as url, aiohttp.ClientSession(timeout=timeout) as client:
        yield Room(url, app[HUB], client)
