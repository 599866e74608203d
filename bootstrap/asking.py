"""Questions that many ask at once are asked once, and answers are kept for as long as they hold.

While no name server answers, what was true before is used, and marked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from math import inf
from typing import Final, NamedTuple

from bootstrap.caching import Cache, CacheBounds
from bootstrap.errors import NameServerFailed
from bootstrap.lookup import Answer, Kind, LookupSettings, Server, look_up, system_servers

Question = tuple[str, Kind]

_SYSTEM_SECONDS: Final = 30.0


class Heard(NamedTuple):
    """An answer, and for how many seconds more it holds; 0 when it is stale."""

    answer: Answer
    expires_in: float
    stale: bool = False


class Asker:
    """Asks name servers, those of the system when none are given."""

    def __init__(
        self,
        servers: Sequence[Server],
        *,
        clock: Callable[[], float],
        bounds: CacheBounds,
        settings: LookupSettings,
        stale_after: float = 1.0,
        questions_at_once: int = 128,
    ) -> None:
        """`stale_after`: so long is a question waited for when there is an old answer."""
        self._servers = tuple(servers)
        self._bounds = bounds
        self._settings = settings
        self._stale_after = stale_after
        self._cache: Cache[Question, Answer] = Cache(clock, bounds)
        self._under_way: dict[Question, asyncio.Task[Heard]] = {}
        self._sockets = asyncio.Semaphore(questions_at_once)
        self._closed = False
        self._clock = clock
        self._system: tuple[Server, ...] = ()
        self._system_until = -inf

    async def ask(self, owner: str, kind: Kind) -> Heard:
        """The answer; NameServerFailed when there is none, not even an old one."""
        question = (owner, kind)
        kept = self._cache.get(question)
        if kept is not None and not kept.stale:
            return Heard(kept.value, kept.expires_in)
        old = Heard(kept.value, 0.0, stale=True) if kept is not None else None
        failure = self._cache.failure(question)
        if failure is not None:
            if old is not None:
                return old
            raise NameServerFailed(failure)
        task = self._under_way.get(question) or self._start(question)
        # Not cancelled with us: others may wait for it, too.
        await asyncio.wait({task}, timeout=None if old is None else self._stale_after)
        if old is not None and not task.done():
            # It goes on behind our back; until it ends, nobody else waits either.
            self._cache.fail(question, "no answer yet")
            return old
        if task.cancelled():
            raise NameServerFailed("the resolver was closed")
        error = task.exception()
        if error is None:
            return task.result()
        if old is not None and isinstance(error, NameServerFailed):
            return old
        # Each who waits gets an exception of its own: they collect where they were raised.
        raise NameServerFailed(str(error)) from error

    async def close(self) -> None:
        """End what is under way; whoever waits for it hears of a failure."""
        self._closed = True
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, question: Question) -> asyncio.Task[Heard]:
        if self._closed:
            raise NameServerFailed("the resolver was closed")
        task = asyncio.create_task(self._question(*question))
        self._under_way[question] = task
        task.add_done_callback(lambda done: self._ended(question, done))
        return task

    def _ended(self, question: Question, task: asyncio.Task[Heard]) -> None:
        del self._under_way[question]
        if not task.cancelled():
            task.exception()  # was noted; perhaps nobody waits any more

    async def _whom(self) -> Sequence[Server]:
        """The servers to ask; those of the system change with the network it is in."""
        if self._servers:
            return self._servers
        now = self._clock()
        if now >= self._system_until:
            self._system = await asyncio.to_thread(system_servers)
            self._system_until = now + _SYSTEM_SECONDS
        return self._system

    async def _question(self, owner: str, kind: Kind) -> Heard:
        question = (owner, kind)
        try:
            async with self._sockets:
                answer = await look_up(owner, kind, await self._whom(), self._settings)
        except NameServerFailed as error:
            self._cache.fail(question, str(error))
            raise
        lifetime = self._bounds.lifetime(answer.ttl, negative=not answer.records)
        self._cache.put(question, answer, lifetime)
        return Heard(answer, lifetime)
