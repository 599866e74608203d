"""Looks after the hubs that a guide named: one that is dead is left for another one at once.

A lease may have days to run when its hub dies, and silence is what a quiet topic sounds like. So
each is asked for /healthz every few seconds; whatever it answers, except that it is ill, is a sign
of life.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import aiohttp

from identifiers import identify
from push_hub.connecting import exact_url
from push_hub.context import Context, Tasks
from push_hub.errors import StoreError
from push_hub.following import Following, Way
from push_hub.guide import Guiding
from push_hub.upstream_asking import Asking
from traces import LogEvent

_log = logging.getLogger(__name__)

_MISSES = 2
"""In a row, that make a hub a dead one."""
_PATIENCE = 5.0
"""Seconds for an answer."""
_PAGE = 200
MAX_HUBS = 64
"""Hubs that are watched; those named last."""


class Watching:
    """One loop, asleep while no guide has named a hub."""

    def __init__(
        self, context: Context, session: aiohttp.ClientSession, asking: Asking, guiding: Guiding
    ) -> None:
        self._context = context
        self._session = session
        self._asking = asking
        self._guiding = guiding
        self._misses: dict[str, int] = {}
        self._tasks = Tasks()
        self.moved: Callable[[], object] = lambda: None
        """Called when something about topics has become due."""

    def start(self) -> None:
        """Watch, if there is a guide and that is chosen."""
        every = self._context.settings.guide_check
        if self._guiding.present and every is not None:
            self._asking.asked = self.add
            self._asking.unreached = self.missed
            self._tasks.start(self._run(every))

    async def stop(self) -> None:
        """The next start watches the same ones."""
        await self._tasks.stop()

    def add(self, hub: str) -> None:
        """A hub that a guide named is asked for a topic."""
        self._misses[hub] = self._misses.pop(hub, 0)
        if len(self._misses) > MAX_HUBS:
            del self._misses[next(iter(self._misses))]

    def missed(self, hub: str) -> None:
        """It could not even be asked: as good as dead, so that its return is noticed."""
        self._misses[hub] = max(self._misses.get(hub, 0), _MISSES)

    async def _run(self, every: float) -> None:
        async for record in self._followed():
            if record.hub is not None:
                self.add(record.hub)
        while True:
            # Hubs that started together do not ask together.
            await asyncio.sleep(every * (0.75 + 0.5 * random.random()))
            hubs = list(self._misses)
            alive = await asyncio.gather(*(self._alive(hub) for hub in hubs))
            for hub, well in zip(hubs, alive, strict=True):
                try:
                    await self._judge(hub, well)
                except StoreError as error:
                    _log.error(LogEvent("store.failed", reason=error))

    async def _alive(self, hub: str) -> bool:
        try:
            url = exact_url(f"{hub.removesuffix('/hub')}/healthz")
            async with (
                asyncio.timeout(_PATIENCE),
                self._session.get(url, allow_redirects=False) as answer,
            ):
                return answer.status < 500
        except (aiohttp.ClientError, OSError, ValueError, TimeoutError):
            return False

    async def _judge(self, hub: str, well: bool) -> None:
        before = self._misses.get(hub, 0)
        self._misses[hub] = misses = 0 if well else before + 1
        if well and before >= _MISSES:
            _log.info(LogEvent("hub.recovered", hub=hub))
            await self._ask_again()
        # Where there is no other one to go to, asking for one becomes rarer.
        elif misses >= _MISSES and misses & (misses - 1) == 0:
            _log.warning(LogEvent("hub.died", hub=hub, checks=misses))
            self._context.counters.add("upstream_dead", misses == _MISSES)
            self._guiding.failed(hub)
            await self._leave(hub)

    async def _leave(self, hub: str) -> None:
        """Ask at another one for all that is followed there."""
        moved = 0
        async for record in self._followed():
            topic = await self._context.store.topic_by_id(record.topic_id)
            if record.hub != hub or record.way not in (Way.HUB, Way.ASKED) or topic is None:
                continue
            other = await self._guiding.hub_for(identify(topic.canonical), hub)
            if other is None or other == hub:
                continue  # it keeps our subscription, and resumes when it is back
            current = await self._context.store.following(record.topic_id)
            if current is not None and current.token == record.token:
                await self._asking.ask(current, other, topic.fetch_url, guided=True)
                moved += 1
        if moved:
            _log.info(LogEvent("hub.left", hub=hub, topics=moved))

    async def _ask_again(self) -> None:
        """A hub is back: those that were given up while none was there need not wait any more."""
        now = self._context.clock()
        async for record in self._followed():
            if record.way is Way.POLLED and record.hub is not None:
                await self._asking.put(replace(record, ask_after=None, failures=0, due=now))
        self.moved()

    async def _followed(self) -> AsyncIterator[Following]:
        """All topics that are followed where the guide said."""
        at = 0
        while page := await self._context.store.all_following(after=at, limit=_PAGE):
            at = page[-1].topic_id
            for record in page:
                if record.guided:
                    yield record
            await asyncio.sleep(0)
