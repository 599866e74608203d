"""The registrar of a PSPH: its records are in DNS while it runs, and gone when it has left."""

from __future__ import annotations

import asyncio
import logging
import random as system_random
import time
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Self

from bootstrap.registration.keeper import Keeper
from bootstrap.registration.learner import Learner
from bootstrap.registration.repeating import Surroundings
from bootstrap.registration.settings import RegistrarSettings
from bootstrap.registration.states import LearningState, ZoneState
from bootstrap.registration.takeover import TakeOver
from bootstrap.registration.transfer import learn_hosts
from traces import LogEvent

_CONNECTIONS = 8
"""To the name server at once."""

_log = logging.getLogger(__name__)


class Registrar:
    """Works in the background; `state` says how it stands.

    async with Registrar(settings) as registrar:
        await registrar.settled()
        print(registrar.state)
    """

    def __init__(
        self,
        settings: RegistrarSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = system_random.random,
        log: logging.Logger = _log,
    ) -> None:
        self._settings = settings
        self._around = Surroundings(clock, random, log, asyncio.Semaphore(_CONNECTIONS))
        self._keepers: dict[str, Keeper] = {}
        self._keeping: dict[str, asyncio.Task[None]] = {}
        self._watching: dict[str, asyncio.Task[None]] = {}
        """Both by domain."""
        self._learning: list[asyncio.Task[None]] = []
        self._leaving: set[asyncio.Task[None]] = set()
        self._learners = {
            zone: Learner(zone, self._current, self._learned, self._around)
            for zone in settings.learn
        }
        self._wanted: dict[str, tuple[str, ...]] = {"": settings.zones}
        """The domains to register for, by the DNS zone they were learned from."""

    async def __aenter__(self) -> Self:
        self._adjust()
        for learner in self._learners.values():
            self._learning.append(asyncio.create_task(learner.repeated.run()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        limit = self._settings.leave_limit
        # An update that is under way is waited for: cut off, it might be carried out after the
        # removal.
        for keeper in self._keepers.values():
            keeper.repeated.stop()
        await _end([*self._learning, *self._watching.values()])
        await _end(list(self._keeping.values()), patience=limit / 2)
        try:
            async with asyncio.timeout(limit):
                await asyncio.gather(
                    *self._leaving, *(keeper.leave() for keeper in self._keepers.values())
                )
        except TimeoutError:
            staying = [each.domain for each in self._keepers.values() if each.state.registered]
            self._around.log.warning(
                LogEvent("records.stay", domains=", ".join(staying), reason="no time left")
            )

    @property
    def state(self) -> dict[str, ZoneState]:
        """How it stands with each zone that it registers for."""
        return {domain: keeper.state for domain, keeper in self._keepers.items()}

    @property
    def learning(self) -> dict[str, LearningState]:
        """How it stands with each DNS zone that it transfers."""
        return {zone: learner.state for zone, learner in self._learners.items()}

    async def settled(self) -> None:
        """Wait until every zone has had its first outcome, good or bad."""
        for learner in self._learners.values():
            await learner.repeated.settled.wait()
        for keeper in list(self._keepers.values()):
            await keeper.repeated.settled.wait()

    def refresh(self) -> None:
        """Look at everything now, and not when it is due."""
        for learner in self._learners.values():
            learner.repeated.wake()
        for keeper in self._keepers.values():
            keeper.repeated.wake()

    def publish(self, key: bytes) -> None:
        """Publish one more zone key, besides the one that it will replace."""
        current = self._settings
        self._settings = replace(
            current,
            zone_keys=tuple(dict.fromkeys((*current.zone_keys, key))),
            retired_keys=tuple(each for each in current.retired_keys if each != key),
        )
        self.refresh()

    def retire(self, key: bytes) -> None:
        """Take a zone key out of the announcement."""
        current = self._settings
        self._settings = replace(
            current,
            zone_keys=tuple(each for each in current.zone_keys if each != key),
            retired_keys=tuple(dict.fromkeys((*current.retired_keys, key))),
        )
        self.refresh()

    async def learn_hosts(self, zone: str) -> tuple[str, ...]:
        """The hosts of a zone that have an address, as the name server has them now."""
        settings = self._settings
        return await learn_hosts(
            settings.nameserver, settings.key, zone, time_limit=6 * settings.time_limit
        )

    def _current(self) -> RegistrarSettings:
        return self._settings

    def _learned(self, origin: str, zones: tuple[str, ...]) -> None:
        self._wanted[origin] = zones
        self._adjust()

    def _adjust(self) -> None:
        """Begin with domains that are new, leave those that are gone."""
        wanted = dict.fromkeys(domain for zones in self._wanted.values() for domain in zones)
        for domain in [each for each in self._keepers if each not in wanted]:
            task = asyncio.create_task(
                self._give_up(
                    self._keepers.pop(domain),
                    self._keeping.pop(domain),
                    self._watching.pop(domain, None),
                )
            )
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)
        for domain in wanted:
            if domain not in self._keepers:
                self._begin(domain)

    def _begin(self, domain: str) -> None:
        settings = self._settings
        keeper = Keeper(domain, self._current, self._around)
        self._keepers[domain] = keeper
        self._keeping[domain] = asyncio.create_task(keeper.repeated.run())
        if settings.take_over_after is not None:
            watch = TakeOver(keeper, settings.take_over_after, settings.time_limit, self._around)
            self._watching[domain] = asyncio.create_task(watch.run())

    async def _give_up(
        self, keeper: Keeper, keeping: asyncio.Task[None], watching: asyncio.Task[None] | None
    ) -> None:
        if watching is not None:
            await _end([watching])
        keeper.repeated.stop()
        await _end([keeping], patience=self._settings.time_limit)
        await keeper.leave()


async def _end(tasks: list[asyncio.Task[None]], patience: float | None = None) -> None:
    """Cancel them, at once or when they have not ended in time."""
    if tasks and patience is not None:
        await asyncio.wait(tasks, timeout=patience)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
