"""Whose turn it is to write a topic: the writer lease of each, and when to hand it over.

The proxy that a topic belongs to asks for its lease at once, the others a little later; they stand
by then, and the lease is theirs when the holder dies. Who holds it gives it to one that has news
of the topic, and else to the one it belongs to, unless its own publisher sends it content: then it
stays where that comes in.
"""

from __future__ import annotations

from collections.abc import Callable

from identifiers import Topic
from psirp_sim.rendezvous.writer import WriterLease, WriterLeases
from psirp_sim.runtime.durations import SECOND
from psirp_sim.runtime.environment import Environment, Timer
from psph.proxy.cluster import Cluster
from psph.proxy.settings import ProxySettings

REST = 30 * SECOND
"""Nobody is given a topic only because it belongs to them more often than this."""


class Turn:
    """The wish to write one topic."""

    def __init__(self, writing: Writing, topic: Topic, changed: Callable[[], None]) -> None:
        self.topic = topic
        self.lease: WriterLease | None = None
        self.waiting: Timer | None = None
        """Until we ask for a lease that should be another's."""
        self.rests_until = 0
        self._writing = writing
        self._changed = changed

    @property
    def held(self) -> bool:
        """Whether we may write now."""
        return self.lease is not None and self.lease.held

    @property
    def number(self) -> int:
        """The fencing epoch of our turn; 0 when it is not."""
        return self.lease.fence if self.lease is not None and self.lease.held else 0

    @property
    def elsewhere(self) -> str:
        """The node that writes it, when that is another one; empty when it is not known."""
        if self.lease is None or self.lease.held or self.lease.holder == self._writing.node:
            return ""
        return self.lease.holder

    def told(self) -> None:
        self._changed()


class Writing:
    """The turns of all topics."""

    def __init__(
        self, env: Environment, settings: ProxySettings, leases: WriterLeases, cluster: Cluster
    ) -> None:
        self._env = env
        self._settings = settings
        self._leases = leases
        self._cluster = cluster
        self.node = env.node

    def begin(self, topic: Topic, changed: Callable[[], None]) -> Turn:
        """Want to write a topic; `changed` when the turn came, went, or was found to be another's;
        never before this returns."""
        turn = Turn(self, topic, changed)
        if self._cluster.belongs_to(topic) == self.node:
            self._ask(turn)
        else:
            turn.waiting = self._env.call_later(self._settings.standby, self._waited, turn)
        return turn

    def end(self, turn: Turn, successor: str = "") -> None:
        """Do not want to any more."""
        if turn.waiting is not None:
            turn.waiting.cancel()
            turn.waiting = None
        if turn.lease is not None:
            lease, turn.lease = turn.lease, None
            lease.release(successor)

    def hurry(self, turn: Turn) -> None:
        """There is something to write, so it is not left to the others."""
        if turn.waiting is not None:
            turn.waiting.cancel()
            self._waited(turn)

    def successor(self, turn: Turn, *, settled: bool) -> str:
        """Who should write instead of us; empty when nobody should. A topic that is `settled` here
        is left to who has news of it only."""
        if not self._cluster.members:
            return ""
        claimant = self._cluster.claimant(turn.topic)
        if claimant is not None:
            return claimant
        owner = self._cluster.belongs_to(turn.topic)
        if settled or owner == self.node or self._env.now() < turn.rests_until:
            return ""
        return owner

    def hand_over(self, turn: Turn, successor: str) -> None:
        """Let another one write, and stand by."""
        turn.rests_until = self._env.now() + REST
        self.end(turn, successor)
        self._ask(turn)

    def _waited(self, turn: Turn) -> None:
        turn.waiting = None
        self._ask(turn)

    def _ask(self, turn: Turn) -> None:
        topic = turn.topic
        turn.lease = self._leases.acquire(topic.sid.raw, topic.rid.raw, lambda lease: turn.told())
        turn.lease.found = turn.told
