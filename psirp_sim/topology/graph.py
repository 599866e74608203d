"""The graph of a fabric as its link state describes it, and shortest paths in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush


@dataclass(frozen=True, slots=True, order=True)
class Edge:
    """One direction of a link: `sender` calls it `name`, the receiver calls it `reverse`."""

    sender: str
    name: str
    receiver: str
    reverse: str
    cost: int = 1

    @property
    def back(self) -> tuple[str, str]:
        """Sender and name of the other direction."""
        return self.receiver, self.reverse


Tree = tuple[Edge, ...]


@dataclass(frozen=True, slots=True)
class DeliveryTree:
    """Who sends, who is to receive, and the links between them."""

    source: str
    receivers: tuple[str, ...]
    links: Tree


class NoPath(Exception):
    """A receiver that cannot be reached from the source."""


class Graph:
    """Immutable. Only links that both ends report count."""

    def __init__(self, nodes: Iterable[str], edges: Iterable[Edge]) -> None:
        given = {(edge.sender, edge.name): edge for edge in edges}
        both_ways = [
            edge
            for edge in given.values()
            if (back := given.get(edge.back)) is not None and back.back == (edge.sender, edge.name)
        ]
        out: dict[str, list[Edge]] = {node: [] for node in sorted(nodes)}
        for edge in sorted(both_ways):
            if edge.sender in out and edge.receiver in out:
                out[edge.sender].append(edge)
        self.out: Mapping[str, tuple[Edge, ...]] = {node: tuple(es) for node, es in out.items()}
        self._towards: dict[str, dict[str, Edge]] = {}

    @property
    def edges(self) -> list[Edge]:
        """Every direction of every link, in a fixed order."""
        return [edge for edges in self.out.values() for edge in edges]

    def reachable(self, source: str) -> set[str]:
        """Every node a packet from there can get to, itself included."""
        return {source, *self._paths(source)} if source in self.out else set()

    def tree(self, source: str, receivers: Iterable[str]) -> Tree:
        """The shortest paths from the source to every receiver, as one tree."""
        towards = self._paths(source)
        edges: dict[tuple[str, str], Edge] = {}
        for receiver in receivers:
            node = receiver
            while node != source:
                edge = towards.get(node)
                if edge is None:
                    raise NoPath(f"there is no path from {source} to {receiver}")
                if (edge.sender, edge.name) in edges:
                    break
                edges[edge.sender, edge.name] = edge
                node = edge.sender
        return tuple(edges.values())

    def delivery(self, source: str, receivers: Iterable[str]) -> DeliveryTree:
        """The same with its ends; a receiver that is named twice counts once."""
        ends = tuple(dict.fromkeys(receivers))
        return DeliveryTree(source, ends, self.tree(source, ends))

    def _paths(self, source: str) -> dict[str, Edge]:
        """For each reachable node the last edge of its shortest path; ties by name."""
        known = self._towards.get(source)
        if known is not None:
            return known
        if source not in self.out:
            raise NoPath(f"{source} is not in the fabric")
        towards: dict[str, Edge] = {}
        distance = {source: 0}
        settled: set[str] = set()
        queue = [(0, source)]
        while queue:
            so_far, node = heappop(queue)
            if node in settled:
                continue
            settled.add(node)
            for edge in self.out[node]:
                through = so_far + edge.cost
                if through < distance.get(edge.receiver, through + 1):
                    distance[edge.receiver] = through
                    towards[edge.receiver] = edge
                    heappush(queue, (through, edge.receiver))
        self._towards[source] = towards
        return towards
