"""Whose turn it is to write a topic: with a writer lease, or alone without one.

A proxy that knows no other one of the topic's host needs no lease: it is its turn, until it hears
of another one. Where there are others, the proxy that a topic belongs to asks for its lease at
once, the others a little later; they stand by then, and the lease is theirs when the holder dies.
Who holds it gives it to one that has news of the topic, and else to the one it belongs to, unless
its own publisher sends it content: then it stays where that comes in.

Every turn that has not come names what it waits for:

| waits for                                  | until                                          |
|--------------------------------------------|------------------------------------------------|
| whether there are others                   | `Cluster` knows (`look`), `probe_time_out` at most |
| another proxy to know us (`Cluster.is_met`) | it announces that, or is gone (`look`)         |
| the one that the topic belongs to          | `standby`, or an update (`hurry`)              |
| votes                                      | they come, or an update (`hurry`)              |
"""

from __future__ import annotations

from collections.abc import Callable

from identifiers import Topic
from psirp_sim.rendezvous.writer import WriterLease, WriterLeases
from psirp_sim.runtime.durations import MILLISECOND, SECOND
from psirp_sim.runtime.environment import Environment, Timer
from psph.proxy.cluster import Cluster, Standing
from psph.proxy.settings import ProxySettings

REST = 30 * SECOND
"""Nobody is given a topic only because it belongs to them more often than this."""


class Turn:
    """The wish to write one topic."""

    def __init__(self, writing: Writing, topic: Topic, changed: Callable[[], None]) -> None:
        self.topic = topic
        self.lease: WriterLease | None = None
        self.alone_since_ms = 0
        """When a turn without a lease began, by the wall clock; 0 when there is none."""
        self.waiting: Timer | None = None
        """Until we ask for a lease that should be another's, or may not be needed."""
        self.rests_until = 0
        self.gained = 0
        """When we got the lease."""
        self.clock_bound_ms = writing.clock_bound_ms
        self._writing = writing
        self._changed = changed

    @property
    def is_alone(self) -> bool:
        """Whether we may write now without a lease."""
        return self.alone_since_ms > 0

    @property
    def held(self) -> bool:
        """Whether we may write now."""
        return self.is_alone or (self.lease is not None and self.lease.held)

    @property
    def number(self) -> int:
        """Of our turn, as `own_topics` explains; 0 when it is not."""
        if self.is_alone:
            return self.alone_since_ms + self.clock_bound_ms
        return self.lease.fence if self.lease is not None and self.lease.held else 0

    @property
    def since(self) -> int:
        """The number that readers are told; 0 when it is not our turn."""
        if self.is_alone:
            return max(0, self.alone_since_ms - 2 * self.clock_bound_ms)
        return self.number

    @property
    def elsewhere(self) -> str:
        """The node that writes it, when that is another one; empty when it is not known."""
        if self.lease is None or self.held or self.lease.holder == self._writing.node:
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
        self.clock_bound_ms = leases.clock_bound // MILLISECOND
        self.node = env.node
        self._tried = False

    @property
    def is_ready(self) -> bool:
        """Whether what there is to write can be written at once: we are alone, or servers vote."""
        return self._cluster.is_alone or self._leases.votes_given

    def try_votes(self) -> None:
        """Find out whether servers vote, by a lease that is released at once; only once."""
        if not self._tried and not self._cluster.is_alone:
            self._tried = True
            lease = self._leases.acquire(*self._cluster.item, lambda lease: lease.release())
            lease.found = lease.release

    def begin(self, topic: Topic, changed: Callable[[], None]) -> Turn:
        """Want to write a topic; `changed` when the turn came, went, or was found to be another's;
        never before this returns."""
        turn = Turn(self, topic, changed)
        match self._cluster.standing(topic):
            case Standing.ALONE:
                turn.waiting = self._env.call_later(0, self._waited, turn)
            case Standing.PROBING:
                patience = self._settings.probe_time_out
                turn.waiting = self._env.call_later(patience, self._waited, turn)
            case Standing.SHARED:
                self._stand_by(turn)
        return turn

    def end(self, turn: Turn, successor: str = "") -> None:
        """Do not want to any more."""
        turn.alone_since_ms = 0
        if turn.waiting is not None:
            turn.waiting.cancel()
            turn.waiting = None
        if turn.lease is not None:
            lease, turn.lease = turn.lease, None
            lease.release(successor)

    def look(self, turn: Turn) -> None:
        """Another proxy came, went, or says something else; or it is known that there is none."""
        standing = self._cluster.standing(turn.topic)
        if standing is Standing.ALONE and not turn.is_alone:
            self._write_alone(turn)
        elif standing is not Standing.ALONE and turn.is_alone:
            self.end(turn)
            self._stand_by(turn)
            turn.told()
        elif standing is Standing.SHARED and turn.lease is None:
            if self._cluster.belongs_to(turn.topic) == self.node:
                self._ask(turn)
            elif turn.waiting is None:
                self._stand_by(turn)

    def hurry(self, turn: Turn) -> None:
        """There is something to write, so it is not left to the others."""
        if turn.lease is not None:
            turn.lease.hurry()
        elif self._cluster.standing(turn.topic) is Standing.SHARED:
            self._ask(turn)

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
        # Who was not heard of since we got the lease may have lost it by dying.
        return owner if self._cluster.members[owner].heard > turn.gained else ""

    def hand_over(self, turn: Turn, successor: str) -> None:
        """Let another one write, and stand by."""
        turn.rests_until = self._env.now() + REST
        self.end(turn, successor)
        self._ask(turn)

    def _waited(self, turn: Turn) -> None:
        turn.waiting = None
        if self._cluster.standing(turn.topic) is Standing.ALONE:
            self._write_alone(turn)
        else:
            self._ask(turn)

    def _write_alone(self, turn: Turn) -> None:
        self.end(turn)
        turn.alone_since_ms = self._env.wall() // MILLISECOND
        turn.told()

    def _stand_by(self, turn: Turn) -> None:
        """Ask for the lease now, or a little later where the topic belongs to another one."""
        if self._cluster.belongs_to(turn.topic) == self.node:
            self._ask(turn)
        else:
            turn.waiting = self._env.call_later(self._settings.standby, self._waited, turn)

    def _ask(self, turn: Turn) -> None:
        """Ask for the lease, unless another one may still write without; `look` tries again."""
        if turn.waiting is not None:
            turn.waiting.cancel()
            turn.waiting = None
        topic = turn.topic
        if self._cluster.is_met(topic.host):
            turn.lease = self._leases.acquire(
                topic.sid.raw, topic.rid.raw, lambda lease: self._lease_changed(turn)
            )
            turn.lease.found = turn.told

    def _lease_changed(self, turn: Turn) -> None:
        turn.gained = self._env.now()
        turn.told()
