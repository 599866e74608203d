"""Tells publishers who listens to what they publish, until they know.

START_PUBLISH and STOP_PUBLISH in one: a list of listeners, numbered, sent again until the
publisher has taken it. Changes that come together are told together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from psirp_sim.rendezvous.registrations import Client, Registrations
from psirp_sim.rendezvous.settings import RendezvousSettings
from psirp_sim.runtime.durations import MILLISECOND
from psirp_sim.runtime.environment import Environment
from psirp_sim.wire.rendezvous import MOST_ENTRIES, Listener, Match, Matches, MatchesTaken
from psirp_sim.zfilters import ZFilter

HOLD = 2 * MILLISECOND
"""How long after the first change publishers are told of all that came by then."""
SLICE = 1_000
"""Publications that are looked at in one go."""
LISTENERS_AT_ONCE = 500
"""In one message; a longer list goes alone."""

Place = tuple[bytes, bytes]
"""Scope and item."""


@dataclass(slots=True)
class Told:
    """What a publisher was told about one item."""

    sequence: int
    """Of the publisher's registration."""
    listeners: tuple[Listener, ...] = ()
    version: int = 0
    tries: int = 0
    due: int = 0


class Matching:
    """The server's side of every match."""

    def __init__(
        self,
        env: Environment,
        settings: RendezvousSettings,
        registrations: Registrations,
        *,
        boot: Callable[[], int],
        send: Callable[[str, list[ZFilter], Matches], None],
    ) -> None:
        self._env = env
        self._settings = settings
        self._registrations = registrations
        self._boot = boot
        self._send = send
        self._told: dict[str, dict[Place, Told]] = {}
        """By client; only what has ever had a listener."""
        self._untaken: dict[str, dict[Place, Told]] = {}
        self._dirty: dict[Place, None] = {}
        self._holding = False
        self._version = 0
        """One count for all, so that it grows even when a match was forgotten in between."""

    def start(self) -> None:
        self._env.call_later(self._settings.retry_interval, self._repeat)

    def changed(self, sid: bytes, rid: bytes) -> None:
        """Look at the listeners there again; no item: of all in the scope."""
        self._dirty[sid, rid] = None
        if not self._holding:
            self._holding = True
            self._env.call_later(HOLD, self._look)

    def forget(self, client: str, sid: bytes, rid: bytes) -> None:
        """The client does not publish that any more."""
        for publications in (self._told, self._untaken):
            of_client = publications.get(client)
            if of_client is not None:
                of_client.pop((sid, rid), None)
                if not of_client:
                    del publications[client]

    def tell_again(self, client: str, sid: bytes, rid: bytes) -> None:
        """The client may have dropped what it was told: it has just registered again."""
        told = self._told.get(client, {}).get((sid, rid))
        if told is not None:
            self._owe(client, (sid, rid), told)

    def tell_all_again(self) -> None:
        """Everybody may have dropped what it was told."""
        for client, publications in self._told.items():
            for place, told in publications.items():
                self._owe(client, place, told)

    def hurry(self, client: Client) -> None:
        """The client can be reached, perhaps by another way than before: tell it now."""
        untaken = self._untaken.get(client.name)
        if untaken:
            for told in untaken.values():
                told.tries = told.due = 0
            self._tell(client.name)

    def taken(self, message: MatchesTaken) -> None:
        """The publisher knows."""
        untaken = self._untaken.get(message.client)
        if untaken is None:
            return
        for sid, rid, version in message.items:
            told = untaken.get((sid, rid))
            if told is not None and told.version == version:
                del untaken[sid, rid]
                if not told.listeners:
                    self.forget(message.client, sid, rid)
        if not untaken:
            self._untaken.pop(message.client, None)

    @property
    def untold(self) -> int:
        """Matches that a publisher does not know of yet, as far as we know."""
        return sum(map(len, self._untaken.values()))

    def _look(self) -> None:
        dirty, self._dirty = self._dirty, {}
        concerned = [each for place in dirty for each in self._registrations.publishers(*place)]
        self._look_at(concerned)

    def _look_at(self, concerned: list[tuple[bytes, bytes, str]]) -> None:
        """Work through them in slices: requests must not wait for a large scope."""
        clients: dict[str, None] = {}
        for sid, rid, client in concerned[:SLICE]:
            if self._has_changed(sid, rid, client):
                clients[client] = None
        for client in clients:
            self._tell(client)
        if len(concerned) > SLICE:
            self._env.call_later(0, self._look_at, concerned[SLICE:])
        else:
            self._holding = False
            if self._dirty:
                self.changed(*next(iter(self._dirty)))

    def _has_changed(self, sid: bytes, rid: bytes, client: str) -> bool:
        sequence = self._registrations.sequence(sid, rid, client)
        if sequence is None:
            return False  # it was withdrawn meanwhile
        listeners = self._registrations.listeners(sid, rid, client)
        told = self._told.get(client, {}).get((sid, rid))
        if told is None:
            if not listeners:
                return False
            told = self._told.setdefault(client, {})[sid, rid] = Told(sequence)
        if told.listeners == listeners:
            return False
        self._version += 1
        told.sequence, told.listeners, told.version = sequence, listeners, self._version
        self._owe(client, (sid, rid), told)
        return True

    def _owe(self, client: str, publication: Place, told: Told) -> None:
        told.tries = told.due = 0
        self._untaken.setdefault(client, {})[publication] = told

    def _repeat(self) -> None:
        self._env.call_later(self._settings.retry_interval, self._repeat)
        for client in list(self._untaken):
            self._tell(client)

    def _tell(self, name: str) -> None:
        """Send the client what is due."""
        client = self._registrations.clients.get(name)
        if client is None or (not client.back and name != self._env.node):
            return  # it will be heard of, and then hurried
        now = self._env.now()
        batch: list[Match] = []
        size = 0
        for (sid, rid), told in self._untaken[name].items():
            if told.due > now:
                continue
            told.due = now + self._settings.pause(told.tries)
            told.tries += 1
            if batch and (
                len(batch) == MOST_ENTRIES or size + len(told.listeners) > LISTENERS_AT_ONCE
            ):
                self._send_batch(client, batch)
                batch, size = [], 0
            batch.append(Match(sid, rid, told.sequence, told.version, told.listeners))
            size += len(told.listeners)
        if batch:
            self._send_batch(client, batch)

    def _send_batch(self, client: Client, batch: list[Match]) -> None:
        message = Matches(client.name, client.epoch, self._env.node, self._boot(), batch)
        self._send(client.name, client.back, message)
