"""A rendezvous server: takes registrations, matches them, and tells publishers who listens.

Servers do not talk to each other about registrations: clients write each to two of them, and say
it again to whoever has lost it. So any server may die, lose its disk, come or go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from psirp_sim.rendezvous.homes import homes
from psirp_sim.rendezvous.matching import Matching
from psirp_sim.rendezvous.membership import Membership
from psirp_sim.rendezvous.registrations import Client, Registrations
from psirp_sim.rendezvous.settings import RendezvousSettings
from psirp_sim.rendezvous.summary import Summaries
from psirp_sim.rendezvous.voting import Voting
from psirp_sim.runtime.environment import Environment
from psirp_sim.wire.message import Message
from psirp_sim.wire.rendezvous import (
    Code,
    LeaseAsk,
    MatchesTaken,
    Refresh,
    Refreshed,
    Register,
    Registered,
    Registration,
    Side,
    SummaryAsk,
    ViewChange,
    ViewIs,
)
from psirp_sim.zfilters import ZFilter

ROLE = "rendezvous"
DRAINING = "draining"
"""The role of a server that takes no more registrations."""

Reach = Callable[[str, list[ZFilter], Message], None]


class RendezvousServer:
    """The server of one node."""

    def __init__(
        self,
        env: Environment,
        settings: RendezvousSettings,
        *,
        boot: Callable[[], int],
        live: Callable[[], list[str]],
        sharing: Callable[[], list[str]],
        reach: Reach,
        to_server: Callable[[str, Message], None],
    ) -> None:
        """`live` names the servers that can be reached, this one included; `sharing` those among
        them that are not being drained. `reach` sends to a client along filters it gave,
        `to_server` to another server."""
        self._env = env
        self.node = env.node
        self._settings = settings
        self._boot = boot
        self._live = live
        self._sharing = sharing
        self._reach = reach
        self.counters: Counter[str] = Counter({code.name.lower(): 0 for code in Code})
        self.registrations = Registrations(env, settings, self)
        self.matching = Matching(env, settings, self.registrations, boot=boot, send=reach)
        self.membership = Membership(
            env, settings, live=live, send=to_server, changed=self._view_changed
        )
        self.voting = Voting(env, settings, self.membership, send=reach)
        self.summaries = Summaries(env, boot=boot, wanted=self.registrations.subscribed)
        self._known_servers: list[str] = []
        self._unsure_until = 0
        """Until then somebody else may know what we do not."""

    def start(self) -> None:
        self.registrations.start()
        if self.registrations.knew_nothing:
            self._unsure_until = self._env.now() + self._settings.settle
        self.matching.start()
        self.membership.start()

    def look(self) -> None:
        """The fabric has changed: scopes may be ours that were not."""
        servers = self._sharing()
        if servers != self._known_servers:
            self._known_servers = servers
            self._unsure_until = self._env.now() + self._settings.settle

    def renew(self) -> None:
        """The node's life has another number: what was told in the last one does not count."""
        self.matching.tell_all_again()

    def receive(self, message: Message) -> bool:
        """Somebody talks to a rendezvous server; whether that is us."""
        match message:
            case Register(server=self._env.node):
                self._register(message)
            case Refresh(server=self._env.node):
                self._refresh(message)
            case MatchesTaken(server=self._env.node):
                client = self.registrations.clients.get(message.client)
                known = None if client is None else client.epoch
                if (message.boot, message.epoch) == (self._boot(), known):
                    self.matching.taken(message)
            case LeaseAsk(server=self._env.node):
                self.voting.receive(message)
            case ViewIs(to=self._env.node):
                if message.server in self._live():  # nobody else's word counts
                    self.membership.receive(message)
            case ViewChange(to=self._env.node):
                self.membership.receive(message)
            case SummaryAsk(server=self._env.node):
                self._summary(message)
            case _:
                return False
        return True

    def status(self) -> dict[str, object]:
        """What `psph fabric status` shows."""
        held = self.registrations
        return {
            "view": self.membership.status(),
            "servers": self._sharing(),
            "clients": len(held.clients),
            "registrations": held.count,
            "scopes": len(held.scopes),
            "items": sum(len(scope.items) for scope in held.scopes.values()),
            "shards": self._shards(),
            "untold_matches": self.matching.untold,
            "requests": dict(self.counters),
        }

    def _shards(self) -> dict[str, int]:
        """Of how many scopes we are the first home, and the second; the others are on the move."""
        servers = self._sharing()
        places = [homes(sid, servers) for sid in self.registrations.scopes]
        first, second = (
            sum(place[rank : rank + 1] == [self._env.node] for place in places) for rank in (0, 1)
        )
        return {"first": first, "second": second, "elsewhere": len(places) - first - second}

    # Requests

    def _register(self, message: Register) -> None:
        back = [each.zfilter() for each in message.back]
        client = self.registrations.heard(message.client, message.epoch, back)
        results: list[tuple[int, bool, Code]] = []
        changes: dict[bytes, bytes | None] = {}
        for entry in message.entries:
            code = client if isinstance(client, Code) else self._take(client, entry, changes)
            self.counters[code.name.lower()] += 1
            results.append((entry.sequence, entry.present, code))
        answer = Registered(message.client, message.epoch, self._env.node, self._boot(), results)
        # What is said to be there must survive us.
        self._env.storage.write(changes, lambda: self._reach(message.client, back, answer))

    def _take(
        self, client: Client, entry: Registration, changes: dict[bytes, bytes | None]
    ) -> Code:
        if not client.bucket.take(self._env.now()):
            return Code.OVERLOADED
        code = self.registrations.take(client, entry, changes)
        if code is Code.OK and entry.present and entry.side is Side.PUBLISHER and entry.rid:
            self.matching.tell_again(client.name, entry.sid, entry.rid)
        if code is Code.NO_SUCH_SCOPE and self._env.now() < self._unsure_until:
            return Code.NOT_READY
        return code

    def _refresh(self, message: Refresh) -> None:
        back = [each.zfilter() for each in message.back]
        client = self.registrations.heard(message.client, message.epoch, back)
        if isinstance(client, Code):
            return
        changes: dict[bytes, bytes | None] = {}
        in_step = self.registrations.in_step(client, message.count, message.digest, changes)
        answer = Refreshed(client.name, client.epoch, self._env.node, self._boot(), in_step)
        self._env.storage.write(changes, lambda: self._reach(message.client, back, answer))
        self.matching.hurry(client)

    def _summary(self, message: SummaryAsk) -> None:
        back = [each.zfilter() for each in message.back]
        self._reach(message.client, back, self.summaries.answer(message))

    # What becomes of registrations (`registrations.Watcher`)

    def changed(self, sid: bytes, rid: bytes) -> None:
        self.matching.changed(sid, rid)

    def withdrawn(self, client: str, entry: Registration) -> None:
        if entry.side is Side.PUBLISHER and entry.rid:
            self.matching.forget(client, entry.sid, entry.rid)

    def refused(self, client: Client, entry: Registration, code: Code) -> None:
        self.counters[code.name.lower()] += 1
        results = [(entry.sequence, True, code)]
        answer = Registered(client.name, client.epoch, self._env.node, self._boot(), results)
        self._reach(client.name, client.back, answer)

    def subscribed(self, sid: bytes, rid: bytes, present: bool) -> None:
        if present:
            self.summaries.added(sid, rid)
        else:
            self.summaries.removed(sid, rid)

    def _view_changed(self) -> None:
        view = self.membership.view
        self._env.log("view.changed", number=view.number, members=", ".join(view.members))
