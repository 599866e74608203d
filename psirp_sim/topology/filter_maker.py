"""Filters on demand: the manager's choice, remembered for as long as the tree stays the same."""

from __future__ import annotations

from collections.abc import Sequence

from psirp_sim.settings import FabricSettings
from psirp_sim.topology.choice import NoFilter, Settings, choose
from psirp_sim.topology.graph import DeliveryTree, Graph
from psirp_sim.topology.spread import TaggedGraph
from psirp_sim.zfilters import SIZES, Mode, ZFilter

REMEMBERED = 20_000
"""Trees whose filters are kept; beyond that all are forgotten and made anew."""


class FilterMaker:
    """Makes filters for one topology manager.

    A path that a change of the graph does not touch keeps its filters: a node is told something
    new only when it has to do something else. (Which false copies a Bloom filter makes may have
    changed; that is put up with. Exact filters are made anew, for their numbering is another.)
    """

    def __init__(self, settings: FabricSettings) -> None:
        self._fabric = settings
        self._choice = Settings(
            exact=settings.allow_exact,
            sizes=tuple(size for size in SIZES if size <= settings.largest_filter),
            table=settings.table_choice,
        )
        self._known: dict[DeliveryTree, list[ZFilter]] = {}
        self._tagged: TaggedGraph | None = None

    def filters(self, graph: Graph, source: str, receivers: Sequence[str]) -> list[ZFilter]:
        """The filters from a source to receivers it can reach."""
        tree = graph.delivery(source, receivers)
        if self._tagged is None or self._tagged.graph is not graph:
            self._tagged = TaggedGraph(graph, self._fabric.link_seed, self._fabric.scheme)
        filters = self._known.get(tree)
        if filters is None or not self._valid(filters):
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            filters = self._known[tree] = self._make(self._tagged, tree)
        return filters

    def _valid(self, filters: list[ZFilter]) -> bool:
        assert self._tagged is not None
        return all(
            each.mode is Mode.BLOOM
            or (
                self._tagged.numbering is not None
                and each.numbering == self._tagged.numbering.number
            )
            for each in filters
        )

    def _make(self, tagged: TaggedGraph, tree: DeliveryTree) -> list[ZFilter]:
        try:
            return choose(tagged, tree, self._choice).filters
        except NoFilter:
            if len(tree.receivers) < 2:
                raise
            # One by one whoever can be reached at all is reached.
            singly = [tagged.graph.delivery(tree.source, [node]) for node in tree.receivers]
            return [each for single in singly for each in self._make(tagged, single)]
