"""A client that moves between hubs, for programs under asyncio: the core `MobileClient`, running.

    async with Roamer(["http://news.site-b.test/feed.xml"], consume=print) as roamer:
        await roamer.move("http://hub-a.test:8080")
        await roamer.live()
        await roamer.move("http://hub-b.test:8080")

Every message is consumed once and in order, or a Gap says what is missing. With a state file that
holds across restarts of the program.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp
import msgspec

from identifiers import identify
from mobility import (
    SECRET_BYTES,
    ClientSettings,
    Gap,
    Message,
    MobileClient,
    MovedIn,
    MovedOut,
    Reset,
    Stage,
    Superseded,
    Update,
)
from psirp_sim.runtime.linkless import LinklessNode
from psph.mobility.native_topics import native_ids
from psph.mobility.stream_port import StreamAccess
from push_hub.connecting import USER_AGENT, exact_url, reason_of
from push_hub.siblings import base_url

Consumed = Update | Gap | Reset
Notice = MovedIn | MovedOut | Superseded

_SECRET = b"roam/secret"
_NAME = b"roam/name/"
_ASK = aiohttp.ClientTimeout(total=5.0)


class HubUnusable(Exception):
    """A hub that a client cannot move to, and why."""


class Enough(Exception):
    """Raised by who consumes and wants no more: this event and later ones count as not consumed."""


class _Node(LinklessNode):
    def _core_failed(self) -> None:
        if not isinstance(sys.exc_info()[1], Enough):
            super()._core_failed()


def _canonical(topic: str) -> str:
    return topic if native_ids(topic) is not None else identify(topic).canonical


class _Said(msgspec.Struct):
    proxy: str
    version: int


class Roamer:
    """An asynchronous context manager. `consume` gets every message, gap and reset in order."""

    def __init__(
        self,
        topics: Iterable[str],
        *,
        consume: Callable[[Consumed], object],
        notice: Callable[[Notice], object] = lambda notice: None,
        lost: Callable[[str], object] = lambda reason: None,
        state: Path | None = None,
        settings: ClientSettings | None = None,
        token: str = "",
    ) -> None:
        """InvalidTopic or ValueError for topics that are none, or one twice.

        `notice` hears of moves; `lost`, with the reason, that the hub is gone: the client is
        nowhere then until it is moved. `token` is what hubs want to see before they publish."""
        self._topics = tuple(topics)
        if len(set(map(_canonical, self._topics))) < len(self._topics):
            raise ValueError("the same topic is named twice")
        self._consume = consume
        self._notice = notice
        self._lost = lost
        self._settings = settings
        self._token = token
        self._node = _Node("roam", storage=state)
        self._names: dict[str, str] = {}
        self._urls: dict[str, str] = {}
        self._doubtful: set[str] = set()
        """Hubs that were lost: they are asked before the client notes another stay there."""
        self._changed = asyncio.Event()
        self.client: MobileClient
        self.hub = ""
        """Where it is, or comes to: the URL it was given."""

    async def __aenter__(self) -> Self:
        node = await self._node.__aenter__()
        for key, value in node.storage.scan(_NAME):
            self._names[key[len(_NAME) :].decode()] = value.decode()
        secret = node.storage.get(_SECRET)
        if secret is None:
            secret = os.urandom(SECRET_BYTES)
            node.storage.write({_SECRET: secret})
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=False),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": USER_AGENT},
        )
        access = StreamAccess(
            self._session,
            lambda name: self._urls[name],
            node.call_core,
            lambda peer, packet: self.client.receive(peer, packet),
            self._broken,
            self._token,
        )
        known = secret

        client = node.run(
            lambda env: MobileClient(
                env, known, access, access.send, self._consumed, self._noticed, self._settings
            )
        )
        assert isinstance(client, MobileClient)
        self.client = client
        for topic in self._topics:
            client.subscribe(topic)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._node.__aexit__(kind, error, trace)
        await self._session.close()

    # What a program does

    @property
    def stage(self) -> Stage:
        return self.client.stage

    async def move(self, hub: str) -> None:
        """Go to that hub, whatever was going on; HubUnusable when it is none, or never was seen
        and does not answer."""
        url = base_url(hub.removesuffix("/").removesuffix("/hub"))
        if url is None:
            raise HubUnusable(f"{hub[:100]!r} is no URL of a hub: write http://HOST:PORT")
        if url not in self._names or url in self._doubtful:
            name = await self.ask(url)
            self._doubtful.discard(url)
            if self._names.get(url) != name:
                self._names[url] = name
                self._node.storage.write({_NAME + url.encode(): name.encode()})
        name = self._names[url]
        self._urls[name] = self.hub = url
        self._node.call_core(self.client.move_in, name)

    async def ask(self, url: str) -> str:
        """The name of the mobility proxy of a hub; HubUnusable when it has none."""
        try:
            async with self._session.get(
                exact_url(f"{url}/mobility"), timeout=_ASK, allow_redirects=False
            ) as answer:
                content = await answer.content.read(10_000)
                if answer.status != 200:
                    raise HubUnusable(f"{url} has no mobility proxy: it answered {answer.status}")
                return msgspec.json.decode(content, type=_Said).proxy
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise HubUnusable(f"{url} does not answer: {reason_of(error)}") from None
        except (msgspec.MsgspecError, ValueError):
            raise HubUnusable(f"{url} has no mobility proxy: its answer makes no sense") from None

    async def move_out(self, patience: float = 2.0) -> bool:
        """Leave properly; False when the proxy did not answer in time, and the client just left."""
        self._node.call_core(self.client.move_out)
        try:
            async with asyncio.timeout(patience):
                await self._until(lambda: self.stage is Stage.DETACHED)
        except TimeoutError:
            self._node.call_core(self.client.connection_lost)
            return False
        return True

    async def live(self) -> None:
        """Returns once everything that waited has come."""
        await self._until(lambda: self.stage is Stage.LIVE)

    def vanish(self) -> None:
        """Leave without a word, as a host does that lost its network."""
        self._node.call_core(self.client.connection_lost)

    def publish(self, topic: str, body: bytes, kind: str = "") -> None:
        """Once, in order, from here or from wherever the client is next."""
        self._node.call_core(self.client.publish, topic, Message(body, kind))

    @property
    def unsent(self) -> int:
        """Publications that no hub has taken yet."""
        return len(self.client.outgoing)

    # What the core says

    def _consumed(self, event: Consumed) -> dict[bytes, bytes | None]:
        self._consume(event)
        return {}

    def _noticed(self, notice: Notice) -> None:
        self._changed.set()
        self._notice(notice)

    def _broken(self, reason: str) -> None:
        self._doubtful.add(self.hub)
        self._node.call_core(self.client.connection_lost)
        self._changed.set()
        self._lost(reason)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()
