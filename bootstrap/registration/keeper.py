"""One domain of a registrar: its records are looked at, mended, and removed at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import dns.name
import dns.rdatatype
from dns.rdtypes.IN.SRV import SRV

from bootstrap.errors import BootstrapError, NameServerFailed
from bootstrap.records import ANNOUNCEMENT, PROXY, RENDEZVOUS
from bootstrap.registration import planning
from bootstrap.registration.changes import NONE, Records
from bootstrap.registration.exchange import Connection
from bootstrap.registration.planning import Seen
from bootstrap.registration.repeating import Repeated, Surroundings
from bootstrap.registration.settings import RegistrarSettings
from bootstrap.registration.states import ZoneState
from bootstrap.registration.updating import update
from traces import LogEvent


class Keeper:
    """Keeps the records of one domain true."""

    def __init__(
        self, domain: str, settings: Callable[[], RegistrarSettings], around: Surroundings
    ) -> None:
        """`settings` are asked for each time: keys may be replaced while it runs."""
        self.domain = domain
        self._settings = settings
        self._around = around
        self.repeated = Repeated(
            f"register for {domain}", self._attempt, settings().backoff, around
        )
        self._registered = False
        self._touched = False
        self._notes: tuple[str, ...] = ()
        self.peers: tuple[SRV, ...] = ()
        """The other PSPHs, as they were seen last."""

    @property
    def state(self) -> ZoneState:
        repeated = self.repeated
        return ZoneState(
            zone=self.domain,
            registered=self._registered,
            trouble=repeated.trouble,
            next_attempt_in=repeated.next_attempt_in,
            last_success_ago=repeated.last_success_ago,
            failures=repeated.failures,
            peers=tuple(peer_text(each) for each in self.peers),
            notes=self._notes,
        )

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """To the server that has the domain."""
        settings = self._settings()
        async with (
            self._around.connections,
            Connection(settings.nameserver, settings.key, settings.time_limit) as connection,
        ):
            yield connection

    async def proxies(self, connection: Connection) -> Records:
        """The records of all PSPHs of the domain."""
        return await connection.records(planning.owner(PROXY, self.domain), dns.rdatatype.SRV)

    async def dns_zone(self, connection: Connection) -> dns.name.Name:
        """The DNS zone that updates of the domain are for."""
        zone, _ = await connection.zone_of(dns.name.from_text(f"{self.domain}."))
        return zone

    async def leave(self) -> None:
        """Remove what was registered, whether by this process or one before that was killed."""
        if not self._touched:
            return
        try:
            async with self.connection() as connection:
                zone = await self.dns_zone(connection)
                await update(connection, zone, planning.leaving(self._settings(), self.domain))
        except BootstrapError as error:
            self._around.log.warning(LogEvent("records.stay", domains=self.domain, reason=error))
        except Exception:
            # A fault of ours with one zone must not keep the others from being left.
            self._around.log.exception(LogEvent("records.stay", domains=self.domain))
        else:
            self._registered = False
            self._around.log.info(LogEvent("records.removed", domain=self.domain))

    async def _attempt(self) -> float:
        settings = self._settings()
        async with self.connection() as connection:
            zone = await self.dns_zone(connection)
            seen = await self._look(connection)
            plan = planning.plan(settings, self.domain, seen)
            # From here on there may be a record of ours, whatever happens to the answer.
            self._touched = True
            if plan.change:
                await update(connection, zone, plan.change)
                # A server may say yes and not do it: by its policy, or because it only forwards.
                seen = await self._look(connection)
                plan = planning.plan(settings, self.domain, seen)
                if plan.change:
                    raise NameServerFailed(
                        f"{connection.name} took an update of {self.domain} and does not show it"
                    )
                self._around.log.info(
                    LogEvent(
                        "records.added", target=settings.target, domain=self.domain,
                        server=connection.name,
                    )
                )  # fmt: skip
        self._registered = True
        self.peers = planning.peers(settings, seen.proxies)
        for note in set(plan.notes) - set(self._notes):
            self._around.log.warning(LogEvent("records.noted", domain=self.domain, note=note))
        self._notes = plan.notes
        return settings.pause(seen.ttl or settings.ttl)

    async def _look(self, connection: Connection) -> Seen:
        rendezvous = NONE
        if self._settings().rendezvous:
            name = planning.owner(RENDEZVOUS, self.domain)
            rendezvous = await connection.records(name, dns.rdatatype.SRV)
        announcements = await connection.records(
            planning.owner(ANNOUNCEMENT, self.domain), dns.rdatatype.TXT
        )
        return Seen(await self.proxies(connection), rendezvous, announcements)


def peer_text(peer: SRV) -> str:
    """A peer as people write it."""
    return f"{peer.target.to_text(omit_final_dot=True)}:{peer.port}"
