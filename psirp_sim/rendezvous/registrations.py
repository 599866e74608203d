"""What a rendezvous server was told: who publishes and who subscribes to what.

Registrations are soft state. A client says again what the server has lost, and is forgotten with
all it said when it is not heard of for the length of a lease; its lease is one, however many
registrations it has. Of two statements about the same thing the one of the later life of the
client counts, and within a life the one of the higher sequence; a withdrawal is remembered for a
while, so that a belated copy of what it withdrew does not bring it back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from psirp_sim.rendezvous.access import allowed
from psirp_sim.rendezvous.entries import Key, fingerprint, key_of
from psirp_sim.rendezvous.limits import TokenBucket
from psirp_sim.rendezvous.settings import RendezvousSettings
from psirp_sim.runtime.environment import Environment
from psirp_sim.wire.rendezvous import (
    MOST_LISTENERS,
    Access,
    Code,
    Listener,
    Registration,
    Side,
)
from psirp_sim.zfilters import ZFilter

PREFIX = b"rendezvous "


@dataclass(slots=True)
class Item:
    """A publication, or one that somebody waits for."""

    publishers: dict[str, Registration] = field(default_factory=dict)
    """By client."""
    subscribers: dict[str, Registration] = field(default_factory=dict)


@dataclass(slots=True)
class Scope:
    """A scope, or one that somebody waits for."""

    sid: bytes
    publishers: dict[str, Registration] = field(default_factory=dict)
    subscribers: dict[str, Registration] = field(default_factory=dict)
    items: dict[bytes, Item] = field(default_factory=dict)
    access: Access | None = None
    """The rules; None while nobody publishes the scope."""
    listeners: tuple[Listener, ...] | None = None
    """Its subscribers as publishers are told of them; None when that must be found out."""


@dataclass(slots=True)
class Client:
    """What the server knows about a client."""

    name: str
    epoch: int
    expires: int
    bucket: TokenBucket
    back: list[ZFilter] = field(default_factory=list)
    entries: dict[Key, Registration] = field(default_factory=dict)
    digest: int = 0
    withdrawn: dict[Key, tuple[int, int]] = field(default_factory=dict)
    """Sequence of a withdrawal, and until when it is remembered."""
    repeated: set[Key] | None = None
    """What the client has said again since it was found out of step."""


class Watcher(Protocol):
    """Who is told of what becomes of registrations."""

    def changed(self, sid: bytes, rid: bytes) -> None:
        """Publishers or subscribers there may be others now."""

    def withdrawn(self, client: str, entry: Registration) -> None:
        """The registration is no more."""

    def refused(self, client: Client, entry: Registration, code: Code) -> None:
        """It was taken before its scope was known, and turns out not to be allowed in it."""

    def subscribed(self, sid: bytes, rid: bytes, present: bool) -> None:
        """The first subscriber has come, or the last one has gone."""


class Registrations:
    """The registrations at one server."""

    def __init__(self, env: Environment, settings: RendezvousSettings, watcher: Watcher) -> None:
        self._env = env
        self._settings = settings
        self._watcher = watcher
        self.clients: dict[str, Client] = {}
        self.scopes: dict[bytes, Scope] = {}
        self.count = 0
        self._batch: dict[bytes, bytes | None] | None = None
        """What is to be stored together with the registration that is being taken."""
        self.knew_nothing = True
        """Whether it started with an empty storage."""

    def start(self) -> None:
        """Load what an earlier life stored; everybody gets a fresh lease."""
        decoder = msgspec.msgpack.Decoder(tuple[str, int, Registration])
        for _, value in self._env.storage.scan(PREFIX):
            name, epoch, entry = decoder.decode(value)
            client = self._client(name, epoch)
            if client is not None:
                self._insert(client, entry)
        self.knew_nothing = not self.clients
        self._env.call_later(self._settings.lease // 6, self._expire)

    # What clients say

    def heard(self, name: str, epoch: int, back: list[ZFilter]) -> Client | Code:
        """The client is there; a code when we will have nothing to do with it."""
        if name not in self.clients and len(self.clients) >= self._settings.most_clients:
            return Code.OVERLOADED
        client = self._client(name, epoch)
        if client is None:
            return Code.STALE
        client.expires = self._env.now() + self._settings.lease
        client.back = back
        return client

    def take(self, client: Client, entry: Registration, changes: dict[bytes, bytes | None]) -> Code:
        """Take a registration or a withdrawal; what must be stored for it goes into `changes`."""
        self._batch = changes
        code = self._take(client, entry, changes)
        self._batch = None
        if client.repeated is not None and key_of(entry) in client.entries:
            client.repeated.add(key_of(entry))
        return code

    def _take(
        self, client: Client, entry: Registration, changes: dict[bytes, bytes | None]
    ) -> Code:
        key = key_of(entry)
        held = client.entries.get(key)
        if held is not None and held.sequence > entry.sequence:
            return Code.OK  # the client has changed its mind since
        if client.withdrawn.get(key, (0, 0))[0] > entry.sequence:
            return Code.OK
        if not entry.present:
            return self._withdraw(client, key, entry, changes)
        if held is not None and held.sequence == entry.sequence:
            return Code.OK
        code = self._verdict(client, entry)
        if code is Code.OK:
            if held is not None:
                self._remove(client, key)
            stored = (client.name, client.epoch, entry)
            changes[_storage_key(client.name, key)] = msgspec.msgpack.encode(stored)
            self._insert(client, entry)
        return code

    def in_step(
        self, client: Client, count: int, digest: bytes, changes: dict[bytes, bytes | None]
    ) -> bool:
        """Whether we hold what the client says it has told us.

        If not, it says everything again. What it does not say again is no longer true.
        """
        ours = client.digest.to_bytes(8)
        if (len(client.entries), ours) != (count, digest) and client.repeated is not None:
            said = [key for key in client.entries if key in client.repeated]
            if len(said) == count:
                for key in [key for key in client.entries if key not in client.repeated]:
                    self._remove(client, key)
                    changes[_storage_key(client.name, key)] = None
        agree = (len(client.entries), client.digest.to_bytes(8)) == (count, digest)
        client.repeated = None if agree else set()
        return agree

    # What can be asked

    def listeners(self, sid: bytes, rid: bytes, publisher: str) -> tuple[Listener, ...]:
        """Who is to hear what this client publishes there."""
        scope = self.scopes.get(sid)
        access = None if scope is None else scope.access
        item = None if scope is None else scope.items.get(rid)
        if scope is None or access is None or item is None:
            return ()
        publication = item.publishers.get(publisher)
        if publication is None or not self._allows(access, publication, publisher):
            return ()
        if not item.subscribers:
            # The same for all items, and so kept once for all of them.
            if scope.listeners is None:
                scope.listeners = self._allowed(access, scope.subscribers)
            return scope.listeners
        return self._allowed(access, scope.subscribers | item.subscribers)

    def _allowed(self, access: Access, found: dict[str, Registration]) -> tuple[Listener, ...]:
        return tuple(
            Listener(name, self.clients[name].epoch, entry.sequence)
            for name, entry in sorted(found.items())
            if self._allows(access, entry, name)
        )

    def sequence(self, sid: bytes, rid: bytes, publisher: str) -> int | None:
        """Which registration a client publishes that with; None when it does not."""
        scope = self.scopes.get(sid)
        item = None if scope is None else scope.items.get(rid)
        entry = None if item is None else item.publishers.get(publisher)
        return None if entry is None else entry.sequence

    def publishers(self, sid: bytes, rid: bytes) -> Iterator[tuple[bytes, bytes, str]]:
        """The publications that a change there concerns, as scope, item and client."""
        scope = self.scopes.get(sid)
        if scope is None:
            return
        for item_id in [rid] if rid else list(scope.items):
            item = scope.items.get(item_id)
            if item is not None:
                for name in item.publishers:
                    yield sid, item_id, name

    def subscribed(self) -> Iterator[tuple[bytes, bytes]]:
        """Every scope and item that somebody subscribes to."""
        for sid, scope in self.scopes.items():
            if scope.subscribers:
                yield sid, b""
            for rid, item in scope.items.items():
                if item.subscribers:
                    yield sid, rid

    # Saying yes or no

    def _verdict(self, client: Client, entry: Registration) -> Code:
        key = key_of(entry)
        if key not in client.entries:
            if len(client.entries) >= self._settings.most_per_client:
                return Code.TOO_MANY
            if self.count >= self._settings.most_registrations:
                return Code.OVERLOADED
        scope = self.scopes.get(entry.sid)
        if scope is not None and self._crowded(scope, client, entry):
            return Code.TOO_MANY
        if entry.side is Side.PUBLISHER and not entry.rid:
            return self._scope_verdict(client, scope, entry)
        if scope is None or scope.access is None:
            # Who subscribes may wait for the scope; who publishes must have one.
            return Code.NO_SUCH_SCOPE if entry.side is Side.PUBLISHER else Code.OK
        return self._may(scope.access, client, entry)

    def _scope_verdict(self, client: Client, scope: Scope | None, entry: Registration) -> Code:
        access = entry.access or Access()
        if scope is not None and scope.access not in (None, access):
            only_ours = list(scope.publishers) == [client.name]
            if not only_ours:
                return Code.EXISTS
        # Who makes the rules of a scope must be bound by them.
        return self._may(access, client, entry)

    def _crowded(self, scope: Scope, client: Client, entry: Registration) -> bool:
        where = scope if not entry.rid else scope.items.get(entry.rid)
        if where is None or entry.side is Side.PUBLISHER or client.name in where.subscribers:
            return False
        # An item's listeners are its own subscribers and those of the scope.
        return len(where.subscribers) >= MOST_LISTENERS // 2

    def _may(self, access: Access, client: Client, entry: Registration) -> Code:
        who = access.publish if entry.side is Side.PUBLISHER else access.subscribe
        return allowed(who, entry, client.name, client.epoch)

    def _allows(self, access: Access, entry: Registration, name: str) -> bool:
        return self._may(access, self.clients[name], entry) is Code.OK

    # Keeping

    def _client(self, name: str, epoch: int) -> Client | None:
        client = self.clients.get(name)
        if client is not None and client.epoch > epoch:
            return None
        if client is not None and client.epoch < epoch:
            self._forget(client)
            client = None
        if client is None:
            bucket = TokenBucket(self._settings.rate, self._settings.burst)
            expires = self._env.now() + self._settings.lease
            client = self.clients[name] = Client(name, epoch, expires, bucket)
        return client

    def _insert(self, client: Client, entry: Registration) -> None:
        scope = self.scopes.get(entry.sid)
        if scope is None:
            scope = self.scopes[entry.sid] = Scope(entry.sid)
        client.entries[entry.side, scope.sid, entry.rid] = entry
        client.digest ^= fingerprint(entry)
        self.count += 1
        if entry.rid:
            item = scope.items.get(entry.rid)
            if item is None:
                item = scope.items[entry.rid] = Item()
            side = _side_of(item, entry.side)
        else:
            side = _side_of(scope, entry.side)
        side[client.name] = entry
        if not entry.rid:
            scope.listeners = None
        if side is scope.publishers:
            self._set_access(scope)
        elif entry.side is Side.SUBSCRIBER and len(side) == 1:
            self._watcher.subscribed(entry.sid, entry.rid, True)
        self._watcher.changed(entry.sid, entry.rid)

    def _set_access(self, scope: Scope) -> None:
        """All who publish a scope agree on its rules, but for a moment when two came at once."""
        before = scope.access
        if scope.publishers:
            scope.access = scope.publishers[min(scope.publishers)].access or Access()
        else:
            scope.access = None
        if scope.access not in (None, before):
            self._check_those_who_waited(scope, scope.access)

    def _check_those_who_waited(self, scope: Scope, access: Access | None) -> None:
        assert access is not None
        waiting = list(scope.subscribers.items())
        for item in scope.items.values():
            waiting += [*item.publishers.items(), *item.subscribers.items()]
        for name, entry in waiting:
            code = self._may(access, self.clients[name], entry)
            if code is not Code.OK:
                # Should the notice be lost, the next refresh shows that we do not hold it.
                self._remove(self.clients[name], key_of(entry))
                deletion = {_storage_key(name, key_of(entry)): None}
                if self._batch is None:
                    self._env.storage.write(deletion)
                else:
                    self._batch.update(deletion)
                self._watcher.refused(self.clients[name], entry, code)

    def _withdraw(
        self, client: Client, key: Key, entry: Registration, changes: dict[bytes, bytes | None]
    ) -> Code:
        if len(client.withdrawn) < self._settings.most_per_client:
            client.withdrawn[key] = (entry.sequence, self._env.now() + self._settings.lease)
        if key in client.entries:
            self._remove(client, key)
            changes[_storage_key(client.name, key)] = None
        return Code.OK

    def _remove(self, client: Client, key: Key) -> None:
        entry = client.entries.pop(key)
        client.digest ^= fingerprint(entry)
        self.count -= 1
        scope = self.scopes[entry.sid]
        where = scope.items[entry.rid] if entry.rid else scope
        side = _side_of(where, entry.side)
        del side[client.name]
        if not entry.rid:
            scope.listeners = None
        if side is scope.publishers:
            self._set_access(scope)
        elif entry.side is Side.SUBSCRIBER and not side:
            self._watcher.subscribed(entry.sid, entry.rid, False)
        if entry.rid and not where.publishers and not where.subscribers:
            del scope.items[entry.rid]
        self._watcher.withdrawn(client.name, entry)
        self._watcher.changed(entry.sid, entry.rid)
        if not scope.publishers and not scope.subscribers and not scope.items:
            del self.scopes[entry.sid]

    def _forget(self, client: Client) -> None:
        changes: dict[bytes, bytes | None] = {}
        for key in list(client.entries):
            self._remove(client, key)
            changes[_storage_key(client.name, key)] = None
        del self.clients[client.name]
        self._env.storage.write(changes)

    def _expire(self) -> None:
        self._env.call_later(self._settings.lease // 6, self._expire)
        now = self._env.now()
        for client in list(self.clients.values()):
            if client.expires < now:
                self._env.log("client.forgotten", client=client.name, had=len(client.entries))
                self._forget(client)
            else:
                for key, (_, until) in list(client.withdrawn.items()):
                    if until < now:
                        del client.withdrawn[key]


def _side_of(where: Scope | Item, side: Side) -> dict[str, Registration]:
    return where.publishers if side is Side.PUBLISHER else where.subscribers


def _storage_key(name: str, key: Key) -> bytes:
    side, sid, rid = key
    return PREFIX + name.encode() + b"\0" + bytes((side,)) + sid + rid
