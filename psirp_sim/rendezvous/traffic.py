"""Who publishes and subscribes in the fault schedules: asks until what is there is wished for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from psirp_sim.node import FabricNode
from psirp_sim.rendezvous.publishing import Publication
from psirp_sim.rendezvous.subscribing import Source
from psirp_sim.rendezvous.writer import WriterLease
from psirp_sim.runtime.durations import MILLISECOND
from psirp_sim.runtime.environment import Environment
from psirp_sim.settings import FabricSettings
from psirp_sim.wire.rendezvous import Code, Side

Wish = tuple[Side, bytes, bytes]
"""To publish or subscribe to an item, or with an empty one to the scope."""

AGAIN = 500 * MILLISECOND
"""After which a request that failed is made again."""


class Trial(Protocol):
    """What says who wishes for what, and is told what comes of it."""

    node: type[FabricNode]
    settings: FabricSettings
    wishes: dict[str, dict[Wish, None]]
    candidates: dict[str, list[bytes]]

    def asked(self, peer: Peer, wish: Wish, wanted: bool) -> Callable[[Code], None]: ...
    def refused(self, peer: Peer, wish: Wish, code: Code) -> None: ...
    def lease_changed(self, peer: Peer, lease: WriterLease) -> None: ...


class Peer:
    """A core: a fabric node, and somebody there who wants to publish and subscribe."""

    def __init__(self, env: Environment, trial: Trial, roles: Sequence[str]) -> None:
        self.env = env
        self.trial = trial
        self.node = trial.node(env, trial.settings, roles=roles)
        self.done: dict[Wish, Code | None] = {}
        """What was asked for, and how it ended; None while it has not."""
        self.leases: dict[bytes, WriterLease] = {}

    def start(self) -> None:
        self.node.start()
        self.env.call_later(100 * MILLISECOND, self._look)

    def receive(self, link: str, packet: bytes) -> None:
        self.node.receive(link, packet)

    def stop(self) -> None:
        self.node.stop()

    def _look(self) -> None:
        """Make requests until what is there is what is wished for."""
        if self.node.begun:
            wishes = self.trial.wishes[self.env.node]
            for wish in [*wishes, *self.done]:
                if self.done.get(wish, Code.OK) is not None:
                    self._ask(wish, wish in wishes)
            for topic in self.trial.candidates.get(self.env.node, ()):
                if topic not in self.leases:
                    self.leases[topic] = self.node.rendezvous.writers.acquire(
                        topic, topic, partial(self.trial.lease_changed, self)
                    )
        self.env.call_later(AGAIN, self._look)

    def _ask(self, wish: Wish, wanted: bool) -> None:
        side, sid, rid = wish
        there = self.done.get(wish) is Code.OK
        if there == wanted:
            return
        if not wanted and wish not in self.done:
            return
        client = self.node.rendezvous
        done = self.trial.asked(self, wish, wanted)
        refused = partial(self.trial.refused, self, wish)
        self.done[wish] = None
        if wanted and not rid and side is Side.PUBLISHER:
            client.publish_scope(sid, done, refused=refused)
        elif wanted and side is Side.PUBLISHER:
            client.publish(sid, rid, done, base=lambda: None, changed=_ignore, refused=refused)
        elif wanted:
            client.subscribe(sid, rid, done, changed=_ignore, refused=refused)
        elif not rid and side is Side.PUBLISHER:
            client.unpublish_scope(sid, done)
        elif side is Side.PUBLISHER:
            client.unpublish(sid, rid, done)
        else:
            client.unsubscribe(sid, rid, done)


def _ignore(event: Publication | Source) -> None:
    """The harness looks at the state, not at events."""
