"""Filters on demand: the manager's choice, remembered for as long as the tree stays the same."""

from __future__ import annotations

from collections.abc import Sequence

from psirp_sim.settings import FabricSettings
from psirp_sim.topology.choice import NoFilter, Settings, choose
from psirp_sim.topology.graph import DeliveryTree, Graph
from psirp_sim.topology.spread import TaggedGraph
from psirp_sim.wire.message import MOST_FILTERS
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
        self._known: dict[DeliveryTree, tuple[list[ZFilter], list[str]]] = {}
        self._tagged: TaggedGraph | None = None

    def filters(
        self, graph: Graph, source: str, receivers: Sequence[str]
    ) -> tuple[list[ZFilter], list[str]]:
        """The filters from a source to receivers there is a path to, and those out of reach."""
        if not receivers:
            return [], []
        tree = graph.delivery(source, receivers)
        if self._tagged is None or self._tagged.graph is not graph:
            self._tagged = TaggedGraph(graph, self._fabric.link_seed, self._fabric.scheme)
        made = self._known.get(tree)
        if made is None or not self._valid(made[0]):
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            made = self._known[tree] = self._make(self._tagged, tree)
        return made

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

    def _make(self, tagged: TaggedGraph, tree: DeliveryTree) -> tuple[list[ZFilter], list[str]]:
        try:
            return choose(tagged, tree, self._choice).filters, []
        except NoFilter:
            if len(tree.receivers) < 2:
                return [], list(tree.receivers)
        # One by one whoever can be reached at all is reached, as far as a message has room.
        filters: list[ZFilter] = []
        unreached: list[str] = []
        for node in tree.receivers:
            more, missed = self._make(tagged, tagged.graph.delivery(tree.source, [node]))
            if len(filters) + len(more) > MOST_FILTERS:
                more, missed = [], [node]
            filters += more
            unreached += missed
        return filters, unreached
