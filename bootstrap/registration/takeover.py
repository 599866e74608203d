"""Taking over from a peer that died: its record is removed, so that nobody is sent to it.

Only where the configuration allows it. A peer that lives and was only out of our reach puts its
record back with its next refresh.
"""

from __future__ import annotations

import asyncio
import errno
import socket

import dns.name
from dns.rdtypes.IN.SRV import SRV

from bootstrap.errors import BootstrapError
from bootstrap.registration import planning
from bootstrap.registration.keeper import Keeper, peer_text
from bootstrap.registration.liveness import FEWEST, Liveness
from bootstrap.registration.repeating import Surroundings
from bootstrap.registration.updating import ChangedMeanwhile, update
from traces import LogEvent

MOST_PEERS = 64
_LONGEST_INTERVAL = 30.0
_OURS = {errno.ENETUNREACH, errno.ENETDOWN, errno.EMFILE, errno.ENFILE, errno.ENOBUFS}
_OURS |= {errno.ENOMEM, errno.EADDRNOTAVAIL, errno.EACCES, errno.EPERM}
"""Failures to connect that say something about this machine, and nothing about the peer."""


class TakeOver:
    """Watches the peers of one domain."""

    def __init__(
        self, keeper: Keeper, patience: float, time_limit: float, around: Surroundings
    ) -> None:
        self._keeper = keeper
        self._patience = patience
        self._time_limit = time_limit
        self._around = around
        self._liveness: Liveness[SRV] = Liveness(patience)

    async def run(self) -> None:
        """Look at all peers, again and again."""
        log = self._around.log
        while True:
            await asyncio.sleep(min(_LONGEST_INTERVAL, self._patience / (FEWEST + 1)))
            try:
                await self._look()
            except BootstrapError as error:
                log.info(LogEvent("peers.stay", domain=self._keeper.domain, reason=error))
            except Exception:
                log.exception(LogEvent("takeover.failed", domain=self._keeper.domain))

    async def _look(self) -> None:
        peers = self._keeper.peers[:MOST_PEERS]
        self._liveness.keep(peers)
        if not peers:
            return
        reached = await asyncio.gather(*(self._reached(each) for each in peers))
        now = self._around.clock()
        for peer, answer in zip(peers, reached, strict=True):
            self._liveness.told(peer, answer, now)
        for peer in self._liveness.dead(now):
            await self._remove(peer)

    async def _remove(self, peer: SRV) -> None:
        keeper, log = self._keeper, self._around.log
        # Once more, as late as can be: it may have been started again a moment ago.
        if (reached := await self._reached(peer)) is not False:
            self._liveness.told(peer, reached, self._around.clock())
            return
        async with keeper.connection() as connection:
            zone = await keeper.dns_zone(connection)
            seen = await keeper.proxies(connection)
            if peer in seen.rdatas:
                try:
                    change = planning.without(keeper.domain, peer, seen)
                    await update(connection, zone, change)
                except ChangedMeanwhile as error:
                    log.info(LogEvent("peers.stay", peer=peer_text(peer), reason=error))
                    return
                log.warning(
                    LogEvent(
                        "peer.removed", peer=peer_text(peer), domain=keeper.domain,
                        unreachable_s=self._patience,
                    )
                )  # fmt: skip
        keeper.peers = tuple(each for each in keeper.peers if each != peer)
        self._liveness.keep(keeper.peers)
        keeper.repeated.wake()

    async def _reached(self, peer: SRV) -> bool | None:
        """Whether anything takes connections there; None when nobody can tell."""
        addresses = await self._addresses(peer.target)
        if not addresses:
            return None if addresses is None else False
        answers = [await self._connects(address, peer.port) for address in addresses]
        if True in answers:
            return True
        return None if None in answers else False

    async def _connects(self, address: str, port: int) -> bool | None:
        try:
            async with asyncio.timeout(self._time_limit):
                _, writer = await asyncio.open_connection(address, port)
        except TimeoutError:
            return False
        except OSError as error:
            return None if error.errno in _OURS else False
        writer.transport.abort()
        return True

    async def _addresses(self, target: dns.name.Name) -> tuple[str, ...] | None:
        """None when they cannot be found out; empty when the zone says that there are none."""
        try:
            async with self._keeper.connection() as connection:
                return await connection.addresses(target)
        except BootstrapError:
            pass  # not a host of a zone of our name server: ask the system
        try:
            async with asyncio.timeout(self._time_limit):
                found = await asyncio.get_running_loop().getaddrinfo(
                    target.to_text(omit_final_dot=True), None, type=socket.SOCK_STREAM
                )
        except (OSError, UnicodeError):
            return None
        return tuple(dict.fromkeys(str(address[0]) for *_, address in found)) or None
