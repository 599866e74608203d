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
from psph.mobility.native_topics import native_ids
from psph.mobility.roaming_host import RoamingHost
from psph.mobility.stream_port import SETTINGS, StreamAccess
from push_hub.connecting import exact_url, reason_of
from push_hub.siblings import base_url

Consumed = Update | Gap | Reset
Notice = MovedIn | MovedOut | Superseded

_SECRET = b"roam/secret"
_NAME = b"roam/name/"
_ASK = aiohttp.ClientTimeout(total=5.0)


class HubUnusable(Exception):
    """A hub that a client cannot move to, and why."""


def _canonical(topic: str) -> str:
    return topic if native_ids(topic) is not None else identify(topic).canonical


def _url_of(hub: str) -> str:
    url = base_url(hub.removesuffix("/").removesuffix("/hub"))
    if url is None:
        raise HubUnusable(f"{hub[:100]!r} is no URL of a hub: write http://HOST:PORT")
    return url


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
        host: RoamingHost | None = None,
        name: str = "",
    ) -> None:
        """InvalidTopic or ValueError for topics that are none, or one twice.

        `notice` hears of moves; `lost`, with the reason, that the hub is gone: the client is
        nowhere then until it is moved. `token` is what hubs want to see before they publish. With
        a `host` it is one of several there, and its state is kept there under its `name`."""
        self._topics = tuple(topics)
        if len(set(map(_canonical, self._topics))) < len(self._topics):
            raise ValueError("the same topic is named twice")
        self._consume = consume
        self._notice = notice
        self._lost = lost
        self._settings = settings or SETTINGS
        self._token = token
        self._host = host or RoamingHost(state)
        self._own_host = host is None
        self._name = name
        self._names: dict[str, str] = {}
        self._urls: dict[str, str] = {}
        self._doubtful: set[str] = set()
        """Hubs that were lost: they are asked before the client notes another stay there."""
        self._changed = asyncio.Event()
        self.client: MobileClient
        self.hub = ""
        """Where it is, or comes to: the URL it was given."""

    async def __aenter__(self) -> Self:
        if self._own_host:
            await self._host.__aenter__()
        self._env = env = self._host.seat(self._name)
        self._connections = self._host.way()
        for key, value in env.storage.scan(_NAME):
            self._names[key[len(_NAME) :].decode()] = value.decode()
        secret = env.storage.get(_SECRET)
        if secret is None:
            secret = os.urandom(SECRET_BYTES)
            env.storage.write({_SECRET: secret}, sync=True)
        access = StreamAccess(
            self._connections,
            lambda name: self._urls[name],
            self._host.call,
            lambda peer, packet: self.client.receive(peer, packet),
            self._broken,
            self._token,
            lambda call, *args: self.client.together(call, *args),
        )
        self.client = MobileClient(
            env, secret, access, access.send, self._consumed, self._noticed, self._settings
        )
        self._host.seats.add(self.client)
        for topic in self._topics:
            self.client.subscribe(topic)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._host.call(self._host.seats.remove, self.client)
        if self._own_host:
            await self._host.__aexit__(kind, error, trace)

    # What a program does

    @property
    def stage(self) -> Stage:
        return self.client.stage

    async def move(self, hub: str) -> None:
        """Go to that hub, whatever was going on; HubUnusable when it is none, or never was seen
        and does not answer."""
        url = _url_of(hub)
        if url not in self._names or url in self._doubtful:
            await self._learn(url)
        name = self._names[url]
        self._urls[name] = self.hub = url
        self._host.call(self.client.move_in, name)

    async def prepare(self, hub: str) -> None:
        """Know the hub before the client has to go there; HubUnusable as for `move`."""
        url = _url_of(hub)
        if url not in self._names:
            await self._learn(url)

    async def _learn(self, url: str) -> None:
        name = await self.ask(url)
        self._doubtful.discard(url)
        if self._names.get(url) != name:
            self._names[url] = name
            self._env.storage.write({_NAME + url.encode(): name.encode()})

    async def ask(self, url: str) -> str:
        """The name of the mobility proxy of a hub; HubUnusable when it has none."""
        try:
            # Not kept open: when it is needed, the host may be in another network.
            async with self._connections.session.get(
                exact_url(f"{url}/mobility"),
                timeout=_ASK,
                allow_redirects=False,
                headers={"Connection": "close"},
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
        self._host.call(self.client.move_out)
        try:
            async with asyncio.timeout(patience):
                await self._until(lambda: self.stage is Stage.DETACHED)
        except TimeoutError:
            self._host.call(self.client.connection_lost)
            return False
        return True

    async def live(self) -> None:
        """Returns once everything that waited has come."""
        await self._until(lambda: self.stage is Stage.LIVE)

    def vanish(self) -> None:
        """Leave without a word, as a host does that lost its network."""
        self._host.call(self.client.connection_lost)

    def publish(self, topic: str, body: bytes, kind: str = "") -> None:
        """Once, in order, from here or from wherever the client is next."""
        self._host.call(self.client.publish, topic, Message(body, kind))

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
        self._host.call(self.client.connection_lost)
        self._changed.set()
        self._lost(reason)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()
