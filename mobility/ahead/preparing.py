"""What a proxy prepares for its own clients: at each neighbour a copy of each client's context.

It is told what a client's context *is* (passive while the client is here, active with its
Positions while it is away) and sees to it that every neighbour knows: steps 1 to 3 and 6 of
docs/proactive.md. When the client is at another proxy its neighbours are cleared (step 4): the one
it went to has taken its own copy, a neighbour of both only deactivates, the others forget.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from mobility.ahead.lines import Line
from mobility.ahead.settings import AheadSettings
from mobility.ahead.words import AnyChange, Came, Copy, Drop, Held, Mark, encode
from mobility.identity import Claim
from mobility.messages import Topics
from mobility.service import Service
from psirp_sim.runtime.durations import MICROSECOND
from psirp_sim.runtime.environment import Environment, Timer


@dataclass(slots=True)
class Prepared:
    """The context of one client that is, or was last, at this proxy."""

    copy: Copy
    at: dict[str, int] = field(default_factory=dict)
    """Neighbours that were told of it, and the serial number each has confirmed; 0 for none."""
    clearing: Timer | None = None
    """It was seen elsewhere: until its neighbours are cleared, whoever they are."""


class Preparing:
    """Of one proxy. Its lines hold what neighbours are to be told, it holds what is so."""

    def __init__(
        self,
        env: Environment,
        settings: AheadSettings,
        counters: dict[str, int],
        neighbours: Callable[[], tuple[str, ...]],
        line: Callable[[str], Line],
    ) -> None:
        self.clients: dict[str, Prepared] = {}
        self._env = env
        self._settings = settings
        self._counters = counters
        self._neighbours = neighbours
        self._line = line
        self.serial = 0
        """Of the last change."""

    # What is so

    def propagate(
        self, client: str, claim: Claim, topics: Topics, service: Service, active: bool
    ) -> None:
        """The client is here, or away; its neighbours are to know."""
        known = self.clients.get(client)
        if known is not None and known.copy.claim > claim:
            return
        # Where it goes on matters only to those who buffer.
        told: Topics = topics if active else dict.fromkeys(topics)
        copy = Copy(
            client=client,
            epoch=claim.epoch,
            nonce=claim.nonce,
            serial=self._next(),
            topics=told,
            service=service,
            active=active,
        )
        if not topics or len(encode(copy)) > self._settings.largest:
            self.end(client)
            return
        if known is None:
            known = self.clients[client] = Prepared(copy)
        elif _alike(known.copy, copy):
            return
        self._stay(known)
        known.copy = copy
        for name in {**known.at, **dict.fromkeys(self._neighbours())}:
            self._tell(known, name)

    def came(self, client: str, claim: Claim, name: str, directly: bool) -> None:
        """Let a proxy know that its client is here now."""
        epoch, nonce = claim
        self._line(name).owe(Came(client=client, epoch=epoch, nonce=nonce, directly=directly))

    def moved_on(self, client: str, claim: Claim) -> None:
        """It was seen elsewhere; who the neighbours of that proxy are may yet be told."""
        known = self.clients.get(client)
        if known is not None and known.copy.claim < claim and known.clearing is None:
            delay = self._settings.grace
            known.clearing = self._env.call_later(delay, self.went, client, claim, "", ())

    def went(self, client: str, claim: Claim, to: str, theirs: tuple[str, ...]) -> None:
        """The client is at that proxy, which has these neighbours."""
        known = self.clients.get(client)
        if known is None or known.copy.claim >= claim:
            return
        self._stay(known)
        del self.clients[client]
        passive = _passive(known.copy, self._next())
        for name, confirmed in known.at.items():
            if name == to:
                self._line(name).waive(client)  # its own word is the one that counts
            elif name not in theirs:
                self._line(name).owe(_drop(passive))
            elif known.copy.active or confirmed != known.copy.serial:
                self._counters["deactivated"] += known.copy.active
                self._line(name).owe(passive)

    def end(self, client: str) -> None:
        """There is nothing to prepare any more."""
        known = self.clients.pop(client, None)
        if known is not None:
            self._stay(known)
            drop = _drop(known.copy, self._next())
            for name in known.at:
                self._line(name).owe(drop)

    def _stay(self, known: Prepared) -> None:
        if known.clearing is not None:
            known.clearing.cancel()
            known.clearing = None

    # Who is to know

    def meet(self, name: str) -> None:
        """A neighbour is new."""
        for known in self.clients.values():
            if known.clearing is None:
                self._tell(known, name)

    def part(self, name: str) -> None:
        """It is none any more."""
        for known in self.clients.values():
            if known.at.pop(name, None) is not None:
                self._line(name).owe(_drop(known.copy, self._next()))

    def renew(self) -> None:
        """Keep what was prepared from lapsing, and prepare what could not be."""
        names = self._neighbours()
        for known in self.clients.values():
            if known.clearing is None:
                for name in names:
                    self._tell(known, name)

    def _tell(self, known: Prepared, name: str) -> None:
        copy = known.copy
        if known.at.get(name) == copy.serial:
            change: AnyChange = _mark(copy)
        else:
            change = copy
            self._counters["activations_sent" if copy.active else "copies_sent"] += 1
        known.at.setdefault(name, 0)
        self._line(name).owe(change)

    # What they say

    def answered(self, name: str, changes: list[AnyChange], held: Held) -> None:
        """The neighbour confirmed these changes, with exceptions."""
        lacking, refused = frozenset(held.lacking), frozenset(held.refused)
        self._counters["contexts_refused"] += len(refused)
        for change in changes:
            known = self.clients.get(change.client)
            if known is None or known.copy.order != change.order or name not in known.at:
                continue
            if change.client in lacking:
                known.at[name] = 0
                self._tell(known, name)
            else:
                # What is refused is asked for again with the next renewal, when it is lacking.
                known.at[name] = change.serial

    def gave_up(self, name: str) -> None:
        """Nobody knows what it knows."""
        for known in self.clients.values():
            if name in known.at:
                known.at[name] = 0

    def _next(self) -> int:
        # By the clock, so that it goes on after a restart; what it was before need not be kept.
        self.serial = max(self.serial + 1, self._env.wall() // MICROSECOND)
        return self.serial


def _alike(one: Copy, other: Copy) -> bool:
    if (one.claim, one.active, one.service) != (other.claim, other.active, other.service):
        return False
    return one.topics == other.topics


def _passive(copy: Copy, serial: int) -> Copy:
    return Copy(
        client=copy.client,
        epoch=copy.epoch,
        nonce=copy.nonce,
        serial=serial,
        topics=dict.fromkeys(copy.topics),
        service=copy.service,
    )


def _mark(copy: Copy) -> Mark:
    return Mark(client=copy.client, epoch=copy.epoch, nonce=copy.nonce, serial=copy.serial)


def _drop(copy: Copy, serial: int = 0) -> Drop:
    return Drop(
        client=copy.client, epoch=copy.epoch, nonce=copy.nonce, serial=serial or copy.serial
    )
