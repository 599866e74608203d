"""Zones as DNS has them, kept fresh for a core that cannot wait.

A zone that somebody asked about is looked up again whenever its records have lived their time, and
the proxy hears of every change. While no name server answers, what was known is believed on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from bootstrap import BootstrapError, Found, NothingFound, Resolver
from identifiers import InvalidTopic
from psph.proxy.ports import Zone
from traces import LogEvent

_log = logging.getLogger(__name__)

_SOONEST = 1.0
_LATEST = 3_600.0
_RETRY = 2.0
"""Seconds between looks."""
_NOTHING = 60.0
"""Seconds between looks at a zone that has no records; the resolver remembers that, too."""
_PATIENCE = 30.0
"""Seconds after which a zone that cannot be looked up is served as plain WebSub for now, and one
that had a fabric is believed to have none: its PSPH may only be restarting."""


class DnsDirectory:
    """Implements `psph.proxy.ports.Directory`."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver
        self._zones: dict[str, Zone | None] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.changed: Callable[[str], None] = lambda zone: None

    async def stop(self) -> None:
        """Look nothing up any more."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def look_up(self, zone: str) -> Zone | None:
        if zone not in self._zones:
            self._zones[zone] = None
            self._tasks[zone] = asyncio.create_task(self._follow(zone))
        return self._zones[zone]

    def forget(self, zone: str) -> None:
        self._zones.pop(zone, None)
        task = self._tasks.pop(zone, None)
        if task is not None:
            task.cancel()

    async def _follow(self, zone: str) -> None:
        loop = asyncio.get_running_loop()
        sure = loop.time()
        """When the last look found what is believed now."""
        while True:
            known, pause = await self._look(zone)
            believed = self._zones[zone]
            doubtful = known is None or (
                believed is not None and believed.has_fabric and not known.has_fabric
            )
            if not doubtful:
                sure = loop.time()
            elif loop.time() < sure + _PATIENCE:
                known, pause = None, min(pause, _RETRY)
            elif known is None and believed is None:
                known = Zone(False, note=f"{zone} cannot be looked up: no name server answers")
            if known is not None:
                self._learn(zone, known)
            await asyncio.sleep(min(max(pause, _SOONEST), _LATEST))

    async def _look(self, zone: str) -> tuple[Zone | None, float]:
        """What DNS says now, None when nothing, and when to look again."""
        try:
            found = await self._resolver.find(zone)
        except NothingFound:
            return Zone(False, note=f"{zone} has no fabric: no records in DNS"), _NOTHING
        except (BootstrapError, InvalidTopic) as error:
            _log.info(LogEvent("zone.lookup_failed", zone=zone, reason=error))
            return None, _RETRY
        return zone_of(found), found.expires_in

    def _learn(self, zone: str, known: Zone) -> None:
        if self._zones.get(zone) != known:
            self._zones[zone] = known
            _log.info(
                LogEvent(
                    "zone.learned", zone=zone, fabric=known.has_fabric, note=known.note or None
                )
            )
            self.changed(zone)


def zone_of(found: Found) -> Zone:
    """What the records mean. A zone that lies has no fabric: nobody could tell what is forged."""
    if found.refused:
        return Zone(False, note=f"the records of {found.zone} are refused: {found.problems[0]}")
    if not found.proxies:
        return Zone(False, note=f"{found.zone} has no PSPH in DNS")
    return Zone(True, found.keys, "; ".join(found.problems))
