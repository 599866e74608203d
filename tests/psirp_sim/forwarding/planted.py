"""Fabric nodes with a bug each. The fault schedules must find every one of them.

Most parts of a node are made when it begins, so a bug is planted in the part right afterwards.
"""

from __future__ import annotations

from psirp_sim.forwarding.table import LoopCache
from psirp_sim.node import FabricNode
from psirp_sim.topology.graph import Graph


class Careless(FabricNode):
    """Calls `plant` as soon as its parts exist."""

    def _begin(self):
        super()._begin()
        self.plant()

    def plant(self):
        raise NotImplementedError


class ForgetsWhatItSaw(Careless):
    """Without a loop cache a false copy can go round and round."""

    def plant(self):
        class Forgetful(LoopCache):
            def seen(self, packet_id):
                return False

        self.env.driver._cache = Forgetful()


class DoesNotCountFalseCopies(FabricNode):
    """A packet nobody here wanted is taken for a delivery."""

    def _deliver(self, packet):
        super()._deliver(packet)
        self.counters["false_deliveries"] = 0


class NeverRecomputes(Careless):
    """A tree stays as it was first computed, whatever fails."""

    def plant(self):
        if self.manager is not None:
            recompute = self.manager._recompute
            self.manager._recompute = lambda tree: None if tree.version else recompute(tree)


class StandbyNeverTakesOver(Careless):
    """When the active manager dies, nobody answers any more."""

    def plant(self):
        if self.manager is not None:
            look = self.manager.look
            stood_by = []

            def reluctantly():
                if self.database.live_with_role("topology")[:1] != [self.env.node]:
                    stood_by.append(True)
                elif stood_by:
                    return
                look()

            self.manager.look = reluctantly


class DeafToNews(Careless):
    """Only the first link state of a node's life is believed."""

    def plant(self):
        hear = self.database._hear
        self.database._hear = lambda link, state: (
            None if self.database.boot_of(state.origin) == state.boot else hear(link, state)
        )


class NeverGivesUpALink(Careless):
    """A neighbour that fell silent counts as there for ever."""

    def plant(self):
        self.neighbours._take_down = lambda link: None


class FloodsOnly(Careless):
    """What a flood missed is never repaired, and a restarted node is not told anything."""

    def plant(self):
        self.database.compare_digest = lambda link, digest: None


class TellsRoutesOnce(Careless):
    """A node that missed its routes never learns them."""

    def plant(self):
        if self.manager is not None:
            repeat = self.manager._repeat

            def carelessly():
                for told in self.manager._told.values():
                    told.confirmed = True
                repeat()

            self.manager._repeat = carelessly
            self.manager._taken = lambda message: None


class FollowsItsFirstManager(Careless):
    """A node does not listen to the manager that took over."""

    def plant(self):
        prefers = self.attachment._prefers_another
        self.attachment._prefers_another = lambda message: (
            self.attachment.manager[0] not in ("", message.manager) or prefers(message)
        )


class TrustsOneEnd(Careless):
    """The graph has links that only one end reports."""

    def plant(self):
        class Naive(Graph):
            def __init__(self, nodes, edges):
                edges = list(edges)
                known = {(edge.sender, edge.name) for edge in edges}
                mirrored = [
                    type(edge)(edge.receiver, edge.reverse, edge.sender, edge.name, edge.cost)
                    for edge in edges
                    if edge.back not in known
                ]
                super().__init__(nodes, edges + mirrored)

        class Trusting(type(self.database)):
            @property
            def graph(self):
                if self._graph is None:
                    self._graph = Naive(
                        self._entries,
                        [
                            edge
                            for origin, entry in self._entries.items()
                            for edge in edges_of(origin, entry.state.links)
                        ],
                    )
                return self._graph

        self.database.__class__ = Trusting


def edges_of(origin, links):
    from psirp_sim.topology.graph import Edge

    return [Edge(origin, link.name, link.peer, link.peer_link, link.cost) for link in links]


PLANTED = {
    ForgetsWhatItSaw: 4,
    DoesNotCountFalseCopies: 1,
    NeverRecomputes: 1,
    StandbyNeverTakesOver: 34,
    DeafToNews: 21,
    NeverGivesUpALink: 11,
    FloodsOnly: 120,
    TellsRoutesOnce: 73,
    FollowsItsFirstManager: 40,
    TrustsOneEnd: 11,
}
"""Each with a seed that finds it quickly."""
