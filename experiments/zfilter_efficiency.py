"""How much of what filters send is needed, and what the topology manager's choice costs.

Three questions, asked of random trees (shortest paths from a source to users):

* **False positives.** How often does the filter of a tree of so many links contain another link?
* **The reference table.** Filters of 248 bits made of the tags of links only, without local
  deliveries, and all guards but the hop limit off. `single` takes the first of the 8 tables, `fpa`
  the one with the least full filter, `fpr` the one with the fewest false forwards on the links
  that touch the tree. Efficiency is the number of links of the tree over that of transmissions,
  averaged over trees. The reference figures read it in two ways: those for ISPs follow every copy
  to its end; those for Barabasi-Albert graphs count, as LIPSIN does, false copies on the links
  that touch the tree and no further (`single near`, `fpa near`, `fpr near`).
* **Bytes on the wire**, with everything as shipped (local deliveries are tags, all guards are on),
  against perfect multicast: every link of the tree once, by packets of 1,400 bytes. `plain` is one
  filter of 256 bits, `longer` one of any size, `split` several of 256 bits, `exact` one bit for
  each link, `bloom` the manager's choice without exact filters and `choice` with them.

Each topology is tried as several fabrics, with other link ids and, if it is generated, another
graph. Rates and efficiencies are shares of 1.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from random import Random
from statistics import fmean, pstdev
from typing import NamedTuple

import msgspec

from experiments.experiment import Context, Experiment, Plot, Row
from experiments.topologies import barabasi_albert, grid, random_tree, read_directory
from experiments.zfilter_claims import LARGE, LINK_COUNTS, MEAN, NEAR, PAPER, claims
from psirp_sim.topology.choice import NoFilter, Settings, choose
from psirp_sim.topology.graph import DeliveryTree, Edge, Graph
from psirp_sim.topology.spread import Guards, TaggedGraph, Tags
from psirp_sim.zfilters import Mode, Scheme, false_positive_rate

M = 248
SCHEME = Scheme()
GUARDS_OFF = Guards(fill=False, loop=False)
ENDLESS = 100_000
"""Copies from which on the efficiency is as good as nought, and they are followed no further."""
METHODS = {
    "plain": Settings(exact=False, sizes=(256,), most_parts=1),
    "longer": Settings(exact=False, most_parts=1),
    "split": Settings(exact=False, sizes=(256,)),
    "exact": Settings(sizes=()),
    "bloom": Settings(exact=False),
    "choice": Settings(),
}
DIGITS = 5
"""Decimals of a figure in a row."""
RATES_ON = "ba-200"
"""The topology on which false positives are measured."""


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    users: tuple[int, ...] = (4, 8, 16, 24, 32, 48, 64, 128)
    fabrics: int = 50
    """Of each topology; the trees are shared out among them."""
    table_trees: int = 1_000
    """For each topology and number of users: for the reference table."""
    trees: int = 300
    """Likewise: for bytes on the wire."""
    large_nodes: int = 2_502
    """Of the domain of 5,000 links: two for each node but the first two."""
    large_fabrics: int = 5
    large_trees: int = 30
    processes: int = 0
    """0: one for each core. Results do not depend on it."""

    def __post_init__(self) -> None:
        if not self.users or min(self.users) < 1:
            raise ValueError("users lists numbers from 1 on")
        if (
            min(self.fabrics, self.table_trees, self.trees, self.large_fabrics, self.large_trees)
            < 1
        ):
            raise ValueError("there is at least 1 fabric and 1 tree")
        if self.large_nodes < 10 or self.processes < 0:
            raise ValueError("large_nodes is at least 10, and processes at least 0")


@dataclass(frozen=True, slots=True)
class Fabric:
    """What is asked of one fabric: one piece of work."""

    topology: str
    make: Callable[[Random], Graph]
    name: str
    """All randomness follows from it."""
    users: Sequence[int]
    table_trees: int
    trees: int


Samples = dict[tuple[int | None, str], dict[str, "array[float]"]]
"""By users and method, and by column: the figure of each tree."""


def run(parameters: Parameters, seed: int, context: Context) -> list[Row]:
    fabrics = list(_fabrics(parameters, seed, context))
    collected: dict[str, Samples] = {}
    for done, (fabric, samples) in enumerate(_work(fabrics, parameters.processes), start=1):
        _merge(collected.setdefault(fabric.topology, {}), samples)
        context.progress(done / len(fabrics))
    rows: list[Row] = [
        _row(topology, users, method, columns)
        for topology, samples in collected.items()
        for (users, method), columns in samples.items()
    ]
    return rows + _means(rows, parameters.users)


def _fabrics(parameters: Parameters, seed: int, context: Context) -> Iterator[Fabric]:
    topologies: dict[str, Callable[[Random], Graph]] = {
        "ba-100": partial(barabasi_albert, 100, 2),
        "ba-200": partial(barabasi_albert, 200, 2),
        "grid-10x10": partial(_always, grid(10, 10)),
        "tree-100": partial(random_tree, 100),
    }
    if context.topologies is not None:
        for name, graph in read_directory(context.topologies).items():
            topologies[name] = partial(_always, graph)
    for topology, make in topologies.items():
        for number in range(parameters.fabrics):
            table_trees = _share(parameters.table_trees, number, parameters.fabrics)
            trees = _share(parameters.trees, number, parameters.fabrics)
            name = f"{seed} {topology} {number}"
            yield Fabric(topology, make, name, parameters.users, table_trees, trees)
    large = partial(barabasi_albert, parameters.large_nodes, 2)
    for number in range(parameters.large_fabrics):
        trees = _share(parameters.large_trees, number, parameters.large_fabrics)
        yield Fabric(LARGE, large, f"{seed} {LARGE} {number}", parameters.users, 0, trees)


def _share(total: int, number: int, parts: int) -> int:
    return total // parts + (number < total % parts)


def _always(graph: Graph, random: Random) -> Graph:
    return graph


def _work(fabrics: Sequence[Fabric], processes: int) -> Iterator[tuple[Fabric, Samples]]:
    processes = min(processes or os.cpu_count() or 1, len(fabrics))
    if processes == 1:
        yield from zip(fabrics, map(_examine, fabrics), strict=True)
        return
    # Not forked: whoever runs us may have threads.
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        yield from zip(fabrics, pool.map(_examine, fabrics), strict=True)


# One fabric


def _examine(fabric: Fabric) -> Samples:
    random = Random(fabric.name)
    graph = TaggedGraph(fabric.make(random), fabric.name.encode(), SCHEME)
    samples: Samples = {}
    if fabric.topology == RATES_ON:
        for links in LINK_COUNTS:
            for _ in range(fabric.table_trees):
                rates = _rates(graph, _grown(graph, links, random))
                _note(samples, None, f"{links} links", {"links": links, **rates})
    most = len(graph.nodes) - 1
    for users in sorted({min(users, most) for users in fabric.users}):
        for number in range(max(fabric.table_trees, fabric.trees)):
            source, *receivers = random.sample(graph.nodes, users + 1)
            tree = graph.graph.delivery(source, receivers)
            if number < fabric.table_trees:
                for method, figures in _table(graph, tree):
                    _note(samples, users, method, figures)
            if number < fabric.trees:
                for method, settings in METHODS.items():
                    _note(samples, users, method, _cost(graph, tree, settings))
    return samples


def _grown(graph: TaggedGraph, links: int, random: Random) -> DeliveryTree:
    """A tree of so many links: shortest paths, grown link by link."""
    source = random.choice(graph.nodes)
    below: dict[str, list[Edge]] = {}
    for edge in graph.graph.tree(source, graph.nodes):
        below.setdefault(edge.sender, []).append(edge)
    tree: list[Edge] = []
    ahead = list(below[source])
    while len(tree) < links:
        edge = ahead.pop(random.randrange(len(ahead)))
        tree.append(edge)
        ahead += below.get(edge.receiver, [])
    return DeliveryTree(source, (), tuple(tree))


def _rates(graph: TaggedGraph, tree: DeliveryTree) -> Mapping[str, float]:
    """How many links of the whole fabric beside those of the tree its filters contain."""
    nodes = range(len(graph.nodes))
    return _bloom_figures(
        _Bloom.of(graph, M, table, bits, tree, nodes)
        for table, bits in enumerate(graph.combined(tree, M))
    )


def _table(graph: TaggedGraph, tree: DeliveryTree) -> Iterator[tuple[str, Mapping[str, float]]]:
    """The methods of the reference table."""
    tree = DeliveryTree(tree.source, (), tree.links)
    filters = [
        _Bloom.of(graph, M, table, bits, tree) for table, bits in enumerate(graph.combined(tree, M))
    ]
    methods = {
        "single": filters[0],
        "fpa": min(filters, key=lambda each: each.fill),
        "fpr": min(filters, key=lambda each: each.false),
    }
    links = len(tree.links)
    for method, each in methods.items():
        spread = graph.follow(each.tags, each.bits, tree, GUARDS_OFF, give_up=ENDLESS)
        figures = {"links": links, **_bloom_figures([each])}
        yield method, {**figures, "efficiency": links / spread.transmissions}
        yield method + NEAR, {**figures, "efficiency": links / (links + each.false)}


def _cost(graph: TaggedGraph, tree: DeliveryTree, settings: Settings) -> Mapping[str, float]:
    """What a choice within those settings costs, as shipped."""
    links = len(tree.links)
    try:
        choice = choose(graph, tree, settings)
    except NoFilter:
        return {"links": links, "usable": 0}
    parts = choice.parts
    figures = {
        "links": links,
        "usable": 1,
        "efficiency": links / sum(part.spread.transmissions for part in parts),
        "filters": len(parts),
        "filter_bytes": fmean(part.zfilter.length for part in parts),
        "bytes_ratio": choice.bytes / (links * settings.packet_bytes),
    }
    if parts[0].zfilter.mode is Mode.EXACT:
        return figures
    blooms = [
        _Bloom.of(graph, each.length * 8, each.table, each.bits, part.tree)
        for part in parts
        for each in [part.zfilter]
    ]
    return {**figures, **_bloom_figures(blooms)}


class _Bloom(NamedTuple):
    """A Bloom filter, and how often it contains the tag of a link it should not."""

    tags: Tags
    bits: int
    fill: float
    computed: float
    false: int
    tested: int

    @classmethod
    def of(
        cls,
        graph: TaggedGraph,
        m: int,
        table: int,
        bits: int,
        tree: DeliveryTree,
        nodes: Sequence[int] = (),
    ) -> _Bloom:
        """Tested at those nodes, or else on the links that touch the tree."""
        tags = graph.bloom(m, table)
        own = {graph.edge_index[edge.sender, edge.name] for edge in tree.links}
        own |= {graph.edge_index[edge.back] for edge in tree.links}
        on_tree = {tree.source, *(edge.receiver for edge in tree.links)}
        others = [
            tag
            for node in nodes or [graph.node_index[name] for name in on_tree]
            for tag, link in tags[node].tags
            if link not in own
        ]
        members = len(tree.links) + len(tree.receivers)
        return cls(
            tags,
            bits,
            bits.bit_count() / m,
            false_positive_rate(m, graph.scheme.k, members),
            sum(bits & tag == tag for tag in others),
            len(others),
        )


def _bloom_figures(filters: Iterable[_Bloom]) -> Mapping[str, float]:
    filters = list(filters)
    return {
        "fill": fmean(each.fill for each in filters),
        "fpr_computed": fmean(each.computed for each in filters),
        "false": sum(each.false for each in filters),
        "tested": sum(each.tested for each in filters),
    }


# From samples to rows


def _note(samples: Samples, users: int | None, method: str, figures: Mapping[str, float]) -> None:
    columns = samples.setdefault((users, method), {})
    for column, value in figures.items():
        columns.setdefault(column, array("d")).append(value)


def _merge(samples: Samples, more: Samples) -> None:
    for case, columns in more.items():
        known = samples.setdefault(case, {})
        for column, values in columns.items():
            known.setdefault(column, array("d")).extend(values)


def _row(topology: str, users: int | None, method: str, columns: Mapping[str, array[float]]) -> Row:
    def over_trees(statistic: Callable[[array[float]], float], column: str) -> float | None:
        return round(statistic(columns[column]), DIGITS) if column in columns else None

    tested = sum(columns.get("tested", ()))
    return {
        "topology": topology,
        "users": users,
        "method": method,
        "trees": len(columns["links"]),
        "links": over_trees(fmean, "links"),
        "fill": over_trees(fmean, "fill"),
        "fpr_computed": over_trees(fmean, "fpr_computed"),
        "fpr": round(sum(columns["false"]) / tested, DIGITS) if tested else None,
        "efficiency": over_trees(fmean, "efficiency"),
        "efficiency_sd": over_trees(pstdev, "efficiency"),
        "usable": over_trees(fmean, "usable"),
        "filters": over_trees(fmean, "filters"),
        "filter_bytes": over_trees(fmean, "filter_bytes"),
        "bytes_ratio": over_trees(fmean, "bytes_ratio"),
        "worst_ratio": over_trees(max, "bytes_ratio"),
    }


def _means(rows: Sequence[Row], users: Sequence[int]) -> list[Row]:
    """What the plots show: the mean over all topologies but the large one."""
    cases: dict[tuple[int, str], list[Row]] = {}
    for row in rows:
        if row["users"] in users and row["topology"] != LARGE:
            cases.setdefault((row["users"], row["method"]), []).append(row)
    means: list[Row] = []
    for (number, method), same in cases.items():
        mean: dict[str, object] = {"topology": MEAN, "users": number, "method": method}
        for column in ("efficiency", "bytes_ratio"):
            known = [row[column] for row in same if row[column] is not None]
            mean["mean_" + column] = fmean(known) if known else None
        means.append(mean)
    return means


_LABELS = {
    "users": "users of a tree (number)",
    "mean_efficiency": "forwarding efficiency (share of copies on the tree)",
    "mean_bytes_ratio": "bytes sent (times those of perfect multicast)",
}
EXPERIMENT = Experiment(
    name="zfilter-efficiency",
    summary="what false copies cost, and what the topology manager's choice saves",
    parameters=Parameters(),
    quick=Parameters(
        users=(4, 8, 16, 24, 32, 64, 128),
        fabrics=16,
        table_trees=160,
        trees=8,
        large_fabrics=2,
        large_trees=2,
    ),
    run=run,
    keys=("topology", "users", "method"),
    claims=claims,
    plots=(
        Plot("efficiency", x="users", y="mean_efficiency", series="method", labels=_LABELS),
        Plot("bytes", x="users", y="mean_bytes_ratio", series="method", labels=_LABELS),
    ),
    paper=PAPER,
)
