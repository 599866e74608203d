"""Keeps the homes of every scope told of what this node publishes and subscribes to there.

A request succeeds as soon as one home has stored it, because the client goes on telling the
other; it fails when all homes that can be reached refuse it, or nobody answers in time. Only a
new scope must have been taken by all of its homes: two clients may publish it with different
rules at the same time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from psirp_sim.rendezvous.access import sign
from psirp_sim.rendezvous.correspondence import Correspondence
from psirp_sim.rendezvous.entries import Key, key_of
from psirp_sim.rendezvous.homes import homes
from psirp_sim.rendezvous.settings import RendezvousSettings
from psirp_sim.runtime.environment import Environment
from psirp_sim.wire.message import Message
from psirp_sim.wire.rendezvous import (
    FINAL,
    Access,
    Code,
    Refreshed,
    Registered,
    Registration,
    Side,
)

Done = Callable[[Code], None]
"""Called once, with how a request ended."""

UNDECIDED = frozenset({Code.NOT_READY, Code.OVERLOADED, Code.STALE})
"""Answers that are no refusal: the same request may succeed a moment later."""


@dataclass(slots=True, eq=False)
class Want:
    """A registration, or a withdrawal, and how far it has come."""

    entry: Registration
    done: Done
    refused: Done
    """Called when a server thinks better of it, later."""
    deadline: int
    key: Ed25519PrivateKey | None = None
    homes: list[str] = field(default_factory=list)
    former: dict[str, int] = field(default_factory=dict)
    """Servers that were homes and still hold it, and since when they are homes no more."""
    refusals: dict[str, Code] = field(default_factory=dict)


class Registrar:
    """The registrations of one node."""

    def __init__(
        self,
        env: Environment,
        settings: RendezvousSettings,
        *,
        epoch: Callable[[], int],
        servers: Callable[[], dict[str, int]],
        reachable: Callable[[str], bool],
        send: Callable[[str, Message], None],
        restarted: Callable[[str, int], None],
    ) -> None:
        """`servers` are those that share the scopes among them, with the number of their lives;
        `restarted` is called with one that has begun a new life, and its number."""
        self._env = env
        self._settings = settings
        self._epoch = epoch
        self._live = servers
        self._reachable = reachable
        self._send = send
        self._restarted = restarted
        self._sequence = 0
        self._servers: dict[str, int] = {}
        self._gone: dict[str, int] = {}
        """Since when a server we correspond with is not there."""
        self.wants: dict[Key, Want] = {}
        self._unresolved: dict[Key, Want] = {}
        self._moving: dict[Key, Want] = {}
        """Those that servers still hold which were their homes."""
        self._correspondences: dict[str, Correspondence] = {}
        self._flushing = False

    def start(self) -> None:
        self.look()
        self._env.call_later(self._settings.retry_interval, self._tick)

    # Requests

    def register(
        self,
        side: Side,
        sid: bytes,
        rid: bytes,
        *,
        done: Done,
        refused: Done = lambda code: None,
        access: Access | None = None,
        guest: bool = False,
        key: Ed25519PrivateKey | None = None,
    ) -> int:
        """Become a publisher or a subscriber; the sequence that names the registration."""
        self._sequence += 1
        entry = Registration(self._sequence, side, sid, rid, True, access, guest)
        self._want(Want(self._signed(entry, key), done, refused, self._deadline(), key))
        return entry.sequence

    def withdraw(self, side: Side, sid: bytes, rid: bytes, done: Done) -> None:
        """Be it no longer."""
        want = self.wants.get((side, sid, rid))
        if want is None or not want.entry.present:
            self._env.call_later(0, done, Code.NOT_REGISTERED)
            return
        entry = self._withdrawal(want)
        self._want(Want(entry, done, lambda code: None, self._deadline(), want.key), before=want)

    def homes_of(self, side: Side, sid: bytes, rid: bytes) -> list[str]:
        """Where the registration is, or should be."""
        want = self.wants.get((side, sid, rid))
        return [] if want is None else want.homes

    # What happens around us

    def look(self) -> None:
        """The fabric has changed: the homes of our scopes may be others."""
        servers = self._live()
        if servers == self._servers:
            return
        now = self._env.now()
        for server, correspondence in self._correspondences.items():
            if server not in servers:
                self._gone.setdefault(server, now)
            elif self._gone.pop(server, None) is not None:
                correspondence.refresh()
            elif self._servers.get(server) != servers[server]:
                correspondence.refresh()  # it may have lost something with its last life
        self._servers = servers
        for want in self.wants.values():
            self._place(want)
        self._flush_soon()

    def routes_changed(self) -> None:
        """Servers must learn how they reach us now."""
        for correspondence in self._correspondences.values():
            correspondence.refresh()
        self._flush_soon()

    def renew(self) -> None:
        """Our life has another number: say everything again under it."""
        self._correspondences.clear()
        for want in self.wants.values():
            want.entry = self._signed(want.entry, want.key)
            for server in want.homes:
                self._correspondence(server).tell(want.entry)
        self._flush_soon()

    def answered(self, message: Registered) -> None:
        """A server says what became of registrations."""
        correspondence = self._correspondences.get(message.server)
        if correspondence is None:
            return
        for entry, code in correspondence.answered(message):
            want = self.wants.get(key_of(entry))
            if want is not None and want.entry is entry:
                self._result(want, message.server, code)
        correspondence.send_due()

    def refreshed(self, message: Refreshed) -> None:
        """A server says whether it holds what it should."""
        correspondence = self._correspondences.get(message.server)
        if correspondence is not None:
            correspondence.refreshed(message)
            correspondence.send_due()

    # Results

    def _result(self, want: Want, server: str, code: Code) -> None:
        key = key_of(want.entry)
        if code is Code.OK:
            want.refusals.pop(server, None)
            self._taken(want)
            return
        want.refusals[server] = code
        if code in UNDECIDED:
            return
        if self._unresolved.get(key) is not want:
            if code in FINAL:
                self._abandon(want)
                want.refused(code)
        elif code is Code.EXISTS or self._all_refuse(want):
            self._abandon(want)
            self._resolve(want, code)

    def _all_refuse(self, want: Want) -> bool:
        return all(
            want.refusals.get(home, Code.OK) not in UNDECIDED | {Code.OK}
            for home in want.homes
            if self._reachable(home)
        )

    def _taken(self, want: Want) -> None:
        """At least one server holds it, or no longer holds it."""
        holding = [home for home in want.homes if self._correspondence(home).holds(want.entry)]
        everywhere = len(holding) == len(want.homes)
        if everywhere or not _makes_rules(want.entry):
            self._resolve(want, Code.OK)
        key = key_of(want.entry)
        if everywhere and not want.entry.present and self.wants.get(key) is want:
            del self.wants[key]  # unless its end was the beginning of another

    def _resolve(self, want: Want, code: Code) -> None:
        if self._unresolved.get(key_of(want.entry)) is want:
            del self._unresolved[key_of(want.entry)]
            want.done(code)

    def _abandon(self, want: Want) -> None:
        """It is not wanted any more; whoever took it must drop it."""
        key = key_of(want.entry)
        if self.wants.get(key) is want:
            del self.wants[key]
        if want.entry.present:
            withdrawal = self._withdrawal(want)
            for server in [*want.homes, *want.former]:
                self._correspondence(server).tell(withdrawal)
            self._flush_soon()

    def _withdrawal(self, want: Want) -> Registration:
        self._sequence += 1
        entry = want.entry
        return Registration(self._sequence, entry.side, entry.sid, entry.rid, present=False)

    # Homes

    def _want(self, want: Want, before: Want | None = None) -> None:
        key = key_of(want.entry)
        before = before or self.wants.get(key)
        if before is not None:
            now = self._env.now()
            want.former = before.former | dict.fromkeys(before.homes, now)
            self._resolve(before, Code.STALE)  # the caller has changed its mind
        self.wants[key] = self._unresolved[key] = want
        self._place(want)
        self._flush_soon()

    def _place(self, want: Want) -> None:
        """Tell the homes as they are now; those that were are left later (`_leave`)."""
        key = key_of(want.entry)
        placed = homes(want.entry.sid, list(self._servers))
        former = dict.fromkeys(want.homes, self._env.now()) | want.former
        want.former = {server: since for server, since in former.items() if server not in placed}
        for server in placed:
            if server not in want.homes:
                self._correspondence(server).tell(want.entry)
        want.homes = placed
        if want.entry.present:
            if want.former:
                self._moving[key] = want
        else:
            for server in want.former:
                self._correspondence(server).tell(want.entry)
            want.former = {}
            if placed and all(self._correspondence(home).holds(want.entry) for home in placed):
                self._env.call_later(0, self._taken, want)
        if not placed:
            for server in want.former:
                self._correspondence(server).drop(key)

    def _leave(self, want: Want, now: int) -> None:
        """Leave servers that were homes once one that is holds it, but not at once.

        Others may see the fabric change later than we do, or otherwise while it heals; until they
        agree, they look for us where we were.
        """
        if any(self._correspondence(home).holds(want.entry) for home in want.homes):
            for server, since in list(want.former.items()):
                if since + self._settings.settle <= now:
                    del want.former[server]
                    self._leave_server(want.entry, server)
        if not want.former:
            del self._moving[key_of(want.entry)]

    def _leave_server(self, entry: Registration, server: str) -> None:
        if self._reachable(server):
            # Of the same sequence: should it be a home again, the same registration counts.
            elsewhere = msgspec.structs.replace(entry, present=False, proof=None)
            self._correspondence(server).tell(elsewhere)
        else:
            self._correspondence(server).abandon(key_of(entry))

    def _correspondence(self, server: str) -> Correspondence:
        found = self._correspondences.get(server)
        if found is None:
            found = self._correspondences[server] = Correspondence(
                self._env,
                self._settings,
                server,
                epoch=self._epoch,
                send=self._send,
                restarted=self._restarted,
            )
        return found

    # Time

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._env.call_later(0, self._flush)

    def _flush(self) -> None:
        self._flushing = False
        for server, correspondence in self._correspondences.items():
            if self._reachable(server):
                correspondence.send_due()

    def _tick(self) -> None:
        self._env.call_later(self._settings.retry_interval, self._tick)
        now = self._env.now()
        for key, want in list(self._moving.items()):
            if self.wants.get(key) is want:
                self._leave(want, now)
            else:
                del self._moving[key]
        self._flush()
        for key, want in list(self._unresolved.items()):
            # The end of one may have been the beginning of another.
            if want.deadline <= now and self._unresolved.get(key) is want:
                self._time_out(want)
        for server, since in list(self._gone.items()):
            if since + self._settings.lease < now:
                del self._gone[server]
                self._correspondences.pop(server, None)

    def _time_out(self, want: Want) -> None:
        if any(self._correspondence(home).holds(want.entry) for home in want.homes):
            self._resolve(want, Code.OK)  # one home of a new scope is silent
            return
        heard = [code for code in want.refusals.values() if code is not Code.STALE]
        if not any(map(self._reachable, want.homes)):
            code = Code.NO_PATH
        else:
            code = heard[-1] if heard else Code.TIMED_OUT
        self._abandon(want)
        self._resolve(want, code)

    def _deadline(self) -> int:
        return self._env.now() + self._settings.time_out

    def _signed(self, entry: Registration, key: Ed25519PrivateKey | None) -> Registration:
        if key is None:
            return entry
        return sign(entry, self._env.node, self._epoch(), key)


def _makes_rules(entry: Registration) -> bool:
    return entry.side is Side.PUBLISHER and not entry.rid and entry.present
