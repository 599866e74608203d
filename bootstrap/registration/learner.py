"""One DNS zone that a registrar transfers, to know whom it could answer for."""

from __future__ import annotations

from collections.abc import Callable

import dns.name

from bootstrap.registration.exchange import Connection
from bootstrap.registration.repeating import Repeated, Surroundings
from bootstrap.registration.settings import RegistrarSettings
from bootstrap.registration.states import LearningState
from bootstrap.registration.transfer import transfer, zones_of
from traces import LogEvent

MOST_ZONES = 1_000
"""Zones that are registered for because of one transfer."""


class Learner:
    """Transfers a zone when its serial has changed."""

    def __init__(
        self,
        origin: str,
        settings: Callable[[], RegistrarSettings],
        learned: Callable[[str, tuple[str, ...]], None],
        around: Surroundings,
    ) -> None:
        """`learned` hears of the zones to register for, each time the hosts have changed."""
        self.origin = origin
        self._settings = settings
        self._learned = learned
        self._around = around
        self.repeated = Repeated(f"transfer {origin}", self._attempt, settings().backoff, around)
        self._serial: int | None = None
        self._hosts: tuple[str, ...] | None = None

    @property
    def state(self) -> LearningState:
        repeated = self.repeated
        return LearningState(
            zone=self.origin,
            hosts=self._hosts,
            trouble=repeated.trouble,
            next_attempt_in=repeated.next_attempt_in,
            last_success_ago=repeated.last_success_ago,
            failures=repeated.failures,
        )

    async def _attempt(self) -> float:
        settings = self._settings()
        async with (
            self._around.connections,
            Connection(settings.nameserver, settings.key, settings.time_limit) as connection,
        ):
            _, serial = await connection.zone_of(dns.name.from_text(f"{self.origin}."))
            if serial == self._serial:
                return settings.pause(settings.ttl)
            found = await transfer(connection, self.origin, 6 * settings.time_limit)
        hosts = found.hosts()
        if hosts != self._hosts:
            zones = zones_of(self.origin, hosts)
            self._around.log.info(
                LogEvent("zone.transferred", zone=self.origin, hosts=len(hosts), zones=len(zones))
            )
            if len(zones) > MOST_ZONES:
                self._around.log.warning(
                    LogEvent("zones.left_out", zone=self.origin, registered=MOST_ZONES)
                )
            self._learned(self.origin, zones[:MOST_ZONES])
        self._serial, self._hosts = found.serial, hosts
        return settings.pause(settings.ttl)
