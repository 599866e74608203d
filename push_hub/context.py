"""What the working parts of a hub share: settings, store, clock, metrics, traces."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from push_hub.carrying import Carrying
from push_hub.metrics import Counters, HubMetrics
from push_hub.naming import Naming
from push_hub.settings import HubSettings
from push_hub.store.interface import Store
from push_hub.store.records import Caps
from push_hub.tracing import Tracer
from traces import LogEvent

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Context:
    """Handed to every part."""

    settings: HubSettings
    store: Store
    tracer: Tracer
    clock: Callable[[], float]
    naming: Naming
    carrying: Carrying
    metrics: HubMetrics

    @property
    def counters(self) -> Counters:
        """Events since the start, by name."""
        return self.metrics.counters

    @property
    def caps(self) -> Caps:
        chosen = self.settings
        return Caps(chosen.max_subscriptions, chosen.max_subscriptions_per_host, chosen.max_topics)


async def woken(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait for the event; False when the time was up first.

    `asyncio.wait_for` of Python 3.11 drops a cancellation that comes together with the event: a
    loop that waits so might never end.
    """
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


class Tasks:
    """Tasks that belong to one part and end with it; a failure is logged, never lost."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._running)

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run the work until it ends or the part does."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    async def stop(self, patience: float = 0.0) -> None:
        """Wait for the tasks so many seconds, then cancel them."""
        if self._running and patience > 0:
            await asyncio.wait(self._running, timeout=patience)
        left = list(self._running)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error(LogEvent("task.failed"), exc_info=error)
