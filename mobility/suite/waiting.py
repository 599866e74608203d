"""How long clients wait for what they could have: virtual time, measured by the harness.

A message of the live flow that comes behind a gap waits until the gap is filled. While a proxy that
the client can ask keeps what is missing, the client must get it, or at least something out of a
buffer, soon: whatever else it waits for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from identifiers import Position
from mobility.client import Stage
from mobility.suite.nodes import ClientNode, ProxyNode
from psirp_sim.runtime.durations import MILLISECOND, SECOND
from psirp_sim.runtime.schedules import InvariantViolated

if TYPE_CHECKING:
    from mobility.suite.trial import MobilityTrial

LOOK = 200 * MILLISECOND
"""Between two looks."""
SOON = 14 * SECOND
"""How long a gap may stay open: a fault may last for 3 s, and then a question and its answer cross
four links that may each lose a fifth of what they carry."""
LAG = (18 * SECOND, 30 * SECOND)
"""What a subscription takes on a narrow link: longer, so that who waits for it is found out."""


class Waits:
    """Of all clients of a trial."""

    def __init__(self, trial: MobilityTrial) -> None:
        self._trial = trial
        self._next = 0
        self._disturbed = 0
        self._collected: dict[str, int] = {}
        """By client: when it was last given something out of a buffer."""
        self._since: dict[tuple[str, str, Position], int] = {}
        """By client, topic and what it waits for: when that was seen first."""
        self.longest = 0

    def disturbed(self) -> None:
        """A fault begins or ends: nothing is soon."""
        self._disturbed = self._trial.world.now

    def collected(self, name: str) -> None:
        """That client was given something out of a buffer: what is missing may be next."""
        self._collected[name] = self._trial.world.now

    def look(self) -> None:
        """Raises InvariantViolated when a client has waited for too long."""
        now = self._trial.world.now
        if now < self._next:
            return
        self._next = now + LOOK
        gaps = {
            (name, topic, position): proxy
            for name, core in self._trial.cores
            if core.client.stage is Stage.MOVING_IN
            for topic, position in core.ledger.gaps_ahead
            if (proxy := self._keeper(core, topic, position)) is not None
        }
        self._since = {gap: self._since.get(gap, now) for gap in gaps}
        for (name, topic, position), since in self._since.items():
            waited = now - max(since, self._disturbed, self._collected.get(name, 0))
            self.longest = max(self.longest, waited)
            if waited > SOON:
                raise InvariantViolated(
                    f"{name} on {topic}: {position.version} is missing for {waited / SECOND:.1f} "
                    f"s, something later has come, and {gaps[name, topic, position]} has it"
                )

    def _keeper(self, core: ClientNode, topic: str, position: Position) -> str | None:
        """A proxy that keeps it for a stay that the client collects from."""
        client, nodes = core.client, self._trial.world.nodes
        flow = client.flows.get(topic)
        if flow is None:
            return None
        for debt in client.debts:
            there = nodes[debt.proxy].core
            if isinstance(there, ProxyNode) and debt.stay >= flow.since:
                handler = there.proxy.handlers.get((client.id, debt.stay))
                items = () if handler is None else handler.buffer.items.values()
                if any((each.topic, each.position) == (topic, str(position)) for each in items):
                    return debt.proxy
        return None
