"""What one client and one server say to each other: registrations until they are confirmed.

The client knows what the server should hold. What is not confirmed is sent again, at growing
intervals; what is confirmed is checked by a digest whenever the client refreshes its lease, and
said again when the server turns out to hold something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from psirp_sim.rendezvous.entries import Key, fingerprint, key_of
from psirp_sim.rendezvous.settings import RendezvousSettings
from psirp_sim.runtime.environment import Environment
from psirp_sim.wire.message import Message
from psirp_sim.wire.rendezvous import (
    FINAL,
    Code,
    Refresh,
    Refreshed,
    Register,
    Registered,
    Registration,
)

AT_ONCE = 9
"""Registrations in a message: what one packet takes, so that a lost packet costs no more."""
WINDOW = 30 * AT_ONCE
"""Registrations under way to a server."""


@dataclass(slots=True)
class Pending:
    """A registration the server has not confirmed."""

    entry: Registration
    tries: int = 0
    due: int = 0


class Correspondence:
    """With one server."""

    def __init__(
        self,
        env: Environment,
        settings: RendezvousSettings,
        server: str,
        *,
        epoch: Callable[[], int],
        send: Callable[[str, Message], None],
        restarted: Callable[[str, int], None],
    ) -> None:
        """`send` fills in how the server reaches us; `restarted` is called with a server and
        the number of the life it has begun."""
        self._env = env
        self._settings = settings
        self.server = server
        self._epoch = epoch
        self._send = send
        self._restarted = restarted
        self._boot = 0
        self._confirmed: dict[Key, Registration] = {}
        self._digest = 0
        self._pending: dict[Key, Pending] = {}
        self._under_way: dict[tuple[int, bool], Key] = {}
        """What was sent and not answered, by sequence and whether it is no withdrawal."""
        self._tries = 0
        self._refresh_due = env.now() + settings.lease // 3

    def tell(self, entry: Registration) -> None:
        """Make the server hold that, or for a withdrawal no longer hold it."""
        self.drop(key_of(entry))
        self._pending[key_of(entry)] = Pending(entry)

    def holds(self, entry: Registration) -> bool:
        """Whether the server has confirmed exactly that: for a withdrawal, that it is gone."""
        key = key_of(entry)
        if not entry.present:
            return key not in self._pending and key not in self._confirmed
        return self._confirmed.get(key) is entry

    def say_all_again(self) -> None:
        """The server may hold nothing of what it confirmed."""
        for key, entry in self._confirmed.items():
            if key not in self._pending:
                self._pending[key] = Pending(entry)
        self._confirmed.clear()
        self._digest = 0

    def refresh(self) -> None:
        """Ask now whether the server still holds what it confirmed."""
        self._refresh_due = self._env.now()
        self._tries = 0

    def send_due(self) -> None:
        """Send what is due: registrations, and now and then a refresh."""
        now = self._env.now()
        batch: list[Registration] = []
        for pending in list(_first(self._pending, WINDOW)):
            if pending.due <= now:
                pending.due = now + self._pause(pending.tries)
                pending.tries += 1
                self._under_way[_request(pending.entry)] = key_of(pending.entry)
                batch.append(pending.entry)
                if len(batch) == AT_ONCE:
                    self._register(batch)
                    batch = []
        if batch:
            self._register(batch)
        # While something is under way, what the server holds cannot be known.
        if self._refresh_due <= now and self._confirmed and not self._under_way:
            self._refresh_due = now + self._pause(self._tries)
            self._tries += 1
            digest = self._digest.to_bytes(8)
            self._send(
                self.server,
                Refresh(
                    self.server, self._env.node, self._epoch(), [], len(self._confirmed), digest
                ),
            )

    def answered(self, message: Registered) -> Iterator[tuple[Registration, Code]]:
        """The server says what became of registrations: those it is news about."""
        self._heard_from(message.boot)
        for sequence, present, code in message.results:
            key = self._under_way.pop((sequence, present), None)
            if key is None:
                # A late answer to an earlier try says nothing about what was taken since.
                refused = self._refused(sequence) if code in FINAL else None
                if refused is not None:
                    yield refused, code
                continue
            pending = self._pending.pop(key)
            if code is Code.OK:
                self._confirm(key, pending.entry)
            else:
                self._pending[key] = pending  # behind the others, which may fare better
            yield pending.entry, code

    def refreshed(self, message: Refreshed) -> None:
        """The server says whether it holds what it should."""
        self._heard_from(message.boot)
        if message.boot < self._boot:
            return
        self._tries = 0
        self._refresh_due = self._env.now() + self._settings.lease // 3
        if not message.in_step:
            self.say_all_again()
            # Once all has been said again the server drops what was not: it is asked to.
            self._refresh_due = self._env.now() + self._settings.retry_interval

    def drop(self, key: Key) -> None:
        """Say no more about that."""
        pending = self._pending.pop(key, None)
        if pending is not None:
            self._under_way.pop(_request(pending.entry), None)

    def abandon(self, key: Key) -> None:
        """The server cannot be told; should it come back, it will be found out of step."""
        self.drop(key)
        entry = self._confirmed.pop(key, None)
        if entry is not None:
            self._digest ^= fingerprint(entry)

    def _refused(self, sequence: int) -> Registration | None:
        """A confirmed registration that the server has thought better of."""
        for key, entry in self._confirmed.items():
            if entry.sequence == sequence:
                del self._confirmed[key]
                self._digest ^= fingerprint(entry)
                return entry
        return None

    def _confirm(self, key: Key, entry: Registration) -> None:
        before = self._confirmed.pop(key, None)
        if before is not None:
            self._digest ^= fingerprint(before)
        if entry.present:
            self._confirmed[key] = entry
            self._digest ^= fingerprint(entry)

    def _heard_from(self, boot: int) -> None:
        if boot > self._boot:
            self._restarted(self.server, boot)
            if self._boot:
                self.refresh()
            self._boot = boot

    def _register(self, batch: list[Registration]) -> None:
        self._send(self.server, Register(self.server, self._env.node, self._epoch(), [], batch))

    def _pause(self, tries: int) -> int:
        pause = self._settings.pause(tries)
        return pause + self._env.random.randrange(pause // 4)


def _request(entry: Registration) -> tuple[int, bool]:
    return entry.sequence, entry.present


def _first(pending: dict[Key, Pending], most: int) -> Iterator[Pending]:
    for number, each in enumerate(pending.values()):
        if number >= most:
            return
        yield each
