"""Graphs to experiment on: generated ones, and measured ones read from files.

Every link costs 1, two nodes have at most one link, and of a graph that falls apart the largest
piece is taken. Files are read where the user keeps them:

    *.latencies.intra   Rocketfuel: one link a line, `place place latency-in-ms`
    *.graphml           GraphML, as the Internet Topology Zoo uses it
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from xml.etree import ElementTree

from psirp_sim.topology.graph import Edge, Graph
from psph.errors import PsphError

Link = tuple[str, str]


class BadTopology(PsphError):
    """A file that is no graph we can read; the message says where."""


def barabasi_albert(nodes: int, attach: int, random: Random) -> Graph:
    """Each new node takes `attach` links to earlier ones, popular ones more often."""
    links: list[tuple[int, int]] = []
    ends: list[int] = []
    targets = list(range(attach))
    for node in range(attach, nodes):
        links += [(node, target) for target in targets]
        ends += [end for target in targets for end in (node, target)]
        chosen: set[int] = set()
        while len(chosen) < attach:
            chosen.add(random.choice(ends))
        targets = sorted(chosen)
    return _numbered(links)


def grid(width: int, height: int) -> Graph:
    """Each node has a link to the next in its row and in its column."""
    across = [(y * width + x, y * width + x + 1) for y in range(height) for x in range(width - 1)]
    down = [(node, node + width) for node in range(width * (height - 1))]
    return _numbered(across + down)


def random_tree(nodes: int, random: Random) -> Graph:
    """Each new node takes a link to any earlier one."""
    return _numbered([(random.randrange(node), node) for node in range(1, nodes)])


def read_directory(directory: Path) -> dict[str, Graph]:
    """Every topology in a directory, by the name of its file without the ending."""
    found = {}
    for path in sorted(directory.iterdir()):
        for ending, read in READERS.items():
            if path.name.endswith(ending):
                found[path.name.removesuffix(ending)] = read(path)
    if not found:
        endings = " or ".join("*" + ending for ending in READERS)
        raise BadTopology(f"{directory} holds no topology; put {endings} files there")
    return found


def read_rocketfuel(path: Path) -> Graph:
    """Rocketfuel's backbone maps with inferred latencies."""
    links = []
    for number, line in enumerate(_text(path).splitlines(), start=1):
        match line.split():
            case [one, other, latency] if _is_number(latency):
                links.append((one, other))
            case []:
                pass
            case _:
                raise BadTopology(
                    f"{path.name}, line {number}: a link is written 'place place latency-in-ms'"
                )
    return _largest_piece(links, path)


def read_graphml(path: Path) -> Graph:
    """Nodes and edges of a GraphML file; directions and parallel edges make no difference."""
    try:
        document = ElementTree.fromstring(_text(path))
    except ElementTree.ParseError as error:
        raise BadTopology(f"{path.name} is not XML: {error}") from error
    nodes = {element.get("id") for element in document.findall(".//{*}node")}
    links = []
    for element in document.findall(".//{*}edge"):
        one, other = element.get("source"), element.get("target")
        if one is None or other is None or not {one, other} <= nodes:
            raise BadTopology(f"{path.name}: an edge from {one} to {other}, not both nodes")
        links.append((one, other))
    return _largest_piece(links, path)


READERS: dict[str, Callable[[Path], Graph]] = {
    ".latencies.intra": read_rocketfuel,
    ".graphml": read_graphml,
}


def _numbered(links: Iterable[tuple[int, int]]) -> Graph:
    # Leading zeros, so that the order of names is that of the numbers.
    return _graph((f"n{one:05}", f"n{other:05}") for one, other in links)


def _graph(links: Iterable[Link]) -> Graph:
    pairs = {(min(link), max(link)) for link in links if link[0] != link[1]}
    edges = [
        Edge(sender, receiver, receiver, sender)
        for one, other in pairs
        for sender, receiver in ((one, other), (other, one))
    ]
    return Graph({edge.sender for edge in edges}, edges)


def _largest_piece(links: list[Link], path: Path) -> Graph:
    whole = _graph(links)
    pieces: list[set[str]] = []
    seen: set[str] = set()
    for node in whole.out:
        if node not in seen:
            pieces.append(whole.reachable(node))
            seen |= pieces[-1]
    if not pieces:
        raise BadTopology(f"{path.name} has no links")
    largest = max(pieces, key=len)
    return Graph(largest, whole.edges)


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadTopology(f"{path.name} cannot be read as text: {error}") from error


def _is_number(text: str) -> bool:
    try:
        return float(text) >= 0
    except ValueError:
        return False
