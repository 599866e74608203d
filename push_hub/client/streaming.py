"""`StreamFollower`: follow topics by stream, at one hub after the other.

Where a callback needs a hub that remembers it, a stream only needs one that has the topics: when
the hub dies, its reader goes on at the next, from its Positions, and misses nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self

import aiohttp
from aiohttp.abc import AbstractResolver

from identifiers import Position
from push_hub.addresses import AddressPolicy
from push_hub.client.errors import HubRefused
from push_hub.client.finding import ANYWHERE, client_session
from push_hub.connecting import exact_url, reason_of
from push_hub.event_stream import MAX_EVENT, BadEvent, EventReader
from push_hub.retries import RetrySchedule
from push_hub.stream_events import (
    Progress,
    StreamBase,
    StreamEvent,
    StreamUpdate,
    read_stream_event,
)
from traces import LogEvent

_log = logging.getLogger(__name__)

Hubs = Callable[[], Awaitable[Sequence[str]]]
"""The URLs of hubs that have the topics, in the order to try them; asked anew each time."""

_RETRIES: Final = RetrySchedule(first=0.2, factor=2.0, longest=30.0)
_CONNECT: Final = 10.0
"""Seconds for a hub to take a connection."""
_SILENCES: Final = 3
"""Heartbeats that may be missing before a hub counts as dead."""
_ASKED: Final = 30.0
"""Seconds for those who know the hubs to say so."""
_POSITIONS: Final = 32
"""Publishers of one topic that a hub is told of: a request has to fit its line."""
_WAITING: Final = 16
"""Events that are read ahead of whoever handles them."""


class _Hopeless(Exception):
    """A request that no hub would take, and why."""


class StreamFollower:
    """An asynchronous context manager and iterator of what happens to the topics.

    Events are `StreamUpdate`, and `StreamGap` or `StreamReset` where a version cannot come. Each
    version comes once and in the order of its publisher, whichever hubs it takes. `after` has the
    Positions to go on from, `positions` where it is: keep those with the effect of an update.
    A topic without a Position begins with its current version.

    With `base`, a `StreamBase` comes for each topic once its own hub has answered: from there on
    nothing is missed. A topic that the first hub had nothing of begins with all versions that the
    next one keeps, because they may have been published in between.
    """

    def __init__(
        self,
        topics: Sequence[str],
        hubs: Hubs,
        *,
        after: Mapping[str, Iterable[Position]] | None = None,
        base: bool = False,
        last: int | None = 1,
        told: Callable[[str], object] = _log.info,
        failed: Callable[[str], object] = lambda hub: None,
        worked: Callable[[str], object] = lambda hub: None,
        heartbeat: float = 15.0,
        patience: float | None = None,
        retries: RetrySchedule = _RETRIES,
        max_event: int = MAX_EVENT,
        session: aiohttp.ClientSession | None = None,
        policy: AddressPolicy = ANYWHERE,
        resolver: AbstractResolver | None = None,
    ) -> None:
        """`told` hears in words what happens, `failed` and `worked` of hubs, by URL. `heartbeat`
        is that of the hubs. `patience` is for the first connection, in seconds: once one stood,
        the follower tries for ever. A session may be shared; it must let that many connect. With
        `base`, a topic without a Position begins with its latest `last` versions (None: all), and a
        hub that refuses one of the topics ends the iteration."""
        if not topics or len(set(topics)) != len(topics):
            raise ValueError("name topics, each once")
        self._read = Progress(topics, after or {})
        self._handed = Progress(topics, after or {})
        self._baseless = set(topics) if base else set[str]()
        """Topics whose `StreamBase` has not come."""
        self._based, self._last = base, last
        self._hubs = hubs
        self._told, self._failed, self._worked = told, failed, worked
        self._silence = _SILENCES * heartbeat
        self._patience = patience
        self._retries = retries
        self._max_event = max_event
        self._given = session
        self._session: aiohttp.ClientSession
        self._policy, self._resolver = policy, resolver
        self._events: asyncio.Queue[StreamEvent | HubRefused] = asyncio.Queue(_WAITING)
        self._task: asyncio.Task[None] | None = None
        self._gone: tuple[str, str] | None = None
        """The hub that ended last, and why."""
        self._said: set[str] = set()
        self.hub: str | None = None
        """Where it is connected."""

    @property
    def positions(self) -> dict[str, tuple[Position, ...]]:
        """By topic, the last version of each publisher that was handed out."""
        return self._handed.positions()

    async def __aenter__(self) -> Self:
        self._session = self._given or client_session(self._policy, self._silence, self._resolver)
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._given is None:
            await self._session.close()

    def __aiter__(self) -> AsyncIterator[StreamEvent]:
        return self

    async def __anext__(self) -> StreamEvent:
        """The next event; HubRefused when no hub takes it. May be cancelled: nothing is lost."""
        event = await self._events.get()
        if isinstance(event, HubRefused):
            raise event
        if isinstance(event, StreamUpdate):
            self._handed.had(event.topic, event.position)
        return event

    async def _run(self) -> None:
        try:
            await self._follow()
        except (_Hopeless, TimeoutError) as end:
            await self._events.put(HubRefused(str(end)))
        except Exception as error:
            _log.exception(LogEvent("follower.failed"))
            await self._events.put(HubRefused(f"the follower failed: {error!r}"[:200]))

    async def _follow(self) -> None:
        """One connection after the other."""
        loop, failures, stood = asyncio.get_running_loop(), 0, False
        deadline = None if self._patience is None else loop.time() + self._patience
        while True:
            last = "no hub is known"
            for hub in await self._choices():
                began, had = loop.time(), self._read.count
                last = await self._connection(hub)
                self._failed(hub)
                if self.hub is not None:
                    self.hub, self._gone, stood = None, (hub, last), True
                    self._last = None
                    lasted = loop.time() - began > self._silence or self._read.count > had
                    failures = 0 if lasted else failures + 1
                    break
                self._tell(f"the hub {hub} cannot be used: {last}")
            else:
                failures += 1
                if not stood and deadline is not None and loop.time() >= deadline:
                    raise TimeoutError(f"no hub can be followed at: {last}")
            # Thousands may have lost the same hub: they do not all come at the same moment.
            pause = self._retries.delay(max(failures, 1), random.random())
            await asyncio.sleep(pause if failures else pause * random.random())

    async def _choices(self) -> list[str]:
        """Hubs in the order to try: the one that has just ended comes last."""
        try:
            async with asyncio.timeout(_ASKED):
                hubs = dict.fromkeys(await self._hubs())
        except Exception as error:  # whatever those raise who were given to us
            self._tell(f"it is not known which hub to follow at: {error}")
            return []
        gone = self._gone[0] if self._gone else None
        return sorted(hubs, key=lambda hub: hub == gone)

    async def _connection(self, hub: str) -> str:
        """Read until it ends, and say why. `self.hub` is set once it stands."""
        try:
            url = exact_url(f"{hub.rstrip('/').removesuffix('/hub')}/stream")
            query = [*self._read.query(_POSITIONS), *self._options()]
            async with contextlib.AsyncExitStack() as stack:
                async with asyncio.timeout(self._silence):
                    answer = await stack.enter_async_context(
                        self._session.get(
                            url.with_query(query),
                            headers={"Accept": "text/event-stream"},
                            allow_redirects=False,
                            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT),
                        )
                    )
                    if answer.status != 200:
                        said = (await answer.content.read(300)).decode(errors="replace")
                        words = " ".join(
                            "".join(c if c.isprintable() else " " for c in said).split()
                        )
                        if answer.status == 400 or (self._based and answer.status == 403):
                            raise _Hopeless(f"the hub {hub} refuses: {words}")
                        return f"it answered {answer.status} {words}".strip()
                await self._read_from(hub, answer.content)
        except TimeoutError:
            return f"nothing was heard of it for {self._silence:g} s"
        except BadEvent as error:
            return f"it sent {error}"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return reason_of(error)
        return "it ended the stream"

    def _options(self) -> list[tuple[str, str]]:
        options = [("content", "whole")]
        # Topics that have Positions, and stood before, need not wait for those that do not.
        if self._baseless or (self._based and not all(self._read.positions().values())):
            options.append(("base", "event"))
            if self._last is not None:
                options.append(("last", str(self._last)))
        return options

    async def _read_from(self, hub: str, content: aiohttp.StreamReader) -> None:
        reader = EventReader(self._max_event)
        held: dict[str, list[StreamEvent]] = {}
        while True:
            async with asyncio.timeout(self._silence):
                chunk = await content.readany()
            if not chunk:
                return
            for read in reader.feed(chunk):
                if self.hub is None:
                    self._stands(hub)
                event = read_stream_event(read)
                if isinstance(event, StreamUpdate):
                    # A gap is believed when what comes after it does: the next hub may know better.
                    before = held.pop(event.topic, [])
                    if self._read.had(event.topic, event.position):
                        for each in (*before, event):
                            await self._events.put(each)
                elif isinstance(event, StreamBase):
                    if event.topic in self._baseless:
                        self._baseless.discard(event.topic)
                        await self._events.put(event)
                elif event is not None:
                    held.setdefault(event.topic, []).append(event)

    def _stands(self, hub: str) -> None:
        self.hub = hub
        self._said.clear()
        self._worked(hub)
        if self._gone is None:
            self._told(f"following at {hub}")
        elif self._gone[0] == hub:
            self._told(f"the hub {hub} was gone ({self._gone[1]}), and is back")
        else:
            self._told(f"the hub {self._gone[0]} is gone ({self._gone[1]}), going on at {hub}")

    def _tell(self, words: str) -> None:
        """Once, until a connection stands."""
        if words not in self._said and len(self._said) < 100:
            self._said.add(words)
            self._told(words)
