"""A subscription under asyncio: a listener that is awaited, or an iterator of events.

Events wait here only until they are looked at: the core hands on no more than it has room for in
`unfinished_events` and `unfinished_bytes`, and the cursor of a stream moves when an event is done.
"""

# A time limit is part of what these promise.
# ruff: noqa: ASYNC109

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from inspect import isawaitable
from types import TracebackType
from typing import Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from identifiers import Position
from psirp_sim.client import Client
from psirp_sim.publications import delivery
from psirp_sim.publications.events import Event
from psirp_sim.runtime.client_errors import ClientClosed, NotRegistered, Refused
from psirp_sim.runtime.durations import SECOND
from psirp_sim.wire.rendezvous import Code
from traces import LogEvent

Listener = Callable[[Event], object]
"""Gets one event after the other; what it returns is awaited if it can be."""

AGAIN = delivery.AGAIN / SECOND
"""Seconds after which a listener that raised an exception gets the event again."""

_log = logging.getLogger(__name__)


class Updates:
    """What one part of an application subscribed to. Made by `FabricClient.subscribe`.

    >>> async with fabric.subscribe(sid, rid) as updates:
    ...     async for event in updates:
    ...         ...
    """

    def __init__(
        self,
        core: Client,
        sid: bytes,
        rid: bytes,
        listener: Listener | None,
        *,
        after: Position | Iterable[tuple[bytes, Position]] | None,
        durable: str | None,
        name: str | None,
        key: Ed25519PrivateKey | None,
        guest: bool,
        closing: float,
        closed: Callable[[Updates], None],
    ) -> None:
        """`closing` bounds how long it takes to say good-bye; `closed` is called when done."""
        self._core = core
        self._closing = closing
        self._was_closed = closed
        self.sid, self.rid = sid, rid
        self._loop = asyncio.get_running_loop()
        self._inbox: deque[Event] = deque()
        self._arrived = asyncio.Event()
        self._current: Event | None = None
        self._registered: asyncio.Future[Code | None] = self._loop.create_future()
        """How the registration ended; None when it was closed before."""
        self._left: asyncio.Future[None] | None = None
        self.closed = False
        self._subscription = core.subscribe(
            sid,
            rid,
            self._came,
            self._answered,
            after=after,
            durable=durable,
            by_hand=True,
            name=name,
            guest=guest,
            key=key,
        )
        self._task: asyncio.Task[None] | None = None
        if listener is not None:
            self._task = self._loop.create_task(self._serve(listener))

    # What the core says

    def _came(self, event: Event) -> None:
        self._inbox.append(event)
        self._arrived.set()

    def _answered(self, code: Code) -> None:
        if not self._registered.done():
            self._registered.set_result(code)
        if code is not Code.OK:
            self._arrived.set()
            # Otherwise who asks next would share the refusal.
            self._loop.call_soon(self._leave)

    @property
    def _refusal(self) -> Refused | None:
        code = self._registered.result() if self._registered.done() else None
        return None if code is None or code is Code.OK else Refused("a subscription", code)

    async def ready(self, timeout: float | None = 10.0) -> None:
        """Until the rendezvous knows of the subscription; publishers learn of it from there.

        Raises `Refused`, or `NotRegistered` when the time is up.
        """
        try:
            async with asyncio.timeout(timeout):
                await asyncio.shield(self._registered)
        except TimeoutError:
            raise NotRegistered(
                f"no rendezvous server took the subscription within {timeout:g} s: it stands, and "
                "begins when one does"
            ) from None
        if self._registered.result() is None:
            raise ClientClosed("the subscription was closed")
        if (refusal := self._refusal) is not None:
            raise refusal

    # The iterator

    def __aiter__(self) -> Self:
        if self._task is not None:
            raise TypeError("the events of this subscription go to its listener")
        return self

    async def __anext__(self) -> Event:
        self.done()
        event = await self._next()
        if event is None:
            raise StopAsyncIteration
        self._current = event
        return event

    def done(self) -> None:
        """The event that came last is done with; asking for the next one says the same."""
        if self._current is not None:
            event, self._current = self._current, None
            self._subscription.done(event)

    async def _next(self) -> Event | None:
        """None once it is closed."""
        while not (self._inbox or self.closed):
            if (refusal := self._refusal) is not None:
                raise refusal
            self._arrived.clear()
            await self._arrived.wait()
        return None if self.closed else self._inbox.popleft()

    # The listener

    async def _serve(self, listener: Listener) -> None:
        try:
            while (event := await self._next()) is not None:
                await self._hand_on(listener, event)
        except Refused as refusal:
            _log.warning(LogEvent("subscription.refused", reason=refusal))
        finally:
            self._leave()

    async def _hand_on(self, listener: Listener, event: Event) -> None:
        while True:
            try:
                result = listener(event)
                if isawaitable(result):
                    await result
            except Exception:
                _log.exception(LogEvent("listener.failed", again_s=AGAIN))
                if self.closed:
                    return
                await asyncio.sleep(AGAIN)
            else:
                self._subscription.done(event)
                return

    # The end

    async def close(self) -> None:
        """No more events; those that are not done come again to a durable subscriber.

        A listener that is at work is cancelled, unless it is the one who calls this: then the
        event is done when it returns.
        """
        if not self.closed:
            self.closed = True
            self._inbox.clear()
            self._arrived.set()
            if not self._registered.done():
                self._registered.set_result(None)
            if asyncio.current_task() is self._task:
                return
            if self._task is not None:
                self._task.cancel()
                await asyncio.wait([self._task], timeout=self._closing)
            self._leave()
        if self._left is not None and asyncio.current_task() is not self._task:
            await asyncio.wait([self._left], timeout=self._closing)

    def _leave(self) -> None:
        if self._left is None:
            left = self._left = self._loop.create_future()
            self._core.unsubscribe(
                self._subscription, lambda code: None if left.done() else left.set_result(None)
            )
            self._was_closed(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
