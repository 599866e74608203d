"""Graphs to experiment on: what is generated, what is read, and what is refused."""

from __future__ import annotations

from random import Random

import pytest

from experiments.topologies import (
    BadTopology,
    barabasi_albert,
    grid,
    random_tree,
    read_directory,
    read_graphml,
    read_rocketfuel,
)

ROCKETFUEL = """\
Perth,+WA1 Sydney2 30
Sydney2 Perth,+WA1 30
Sydney2 Hobart3 10.5

Hobart3 Hobart3 0
Darwin4 Cairns5 20
"""
GRAPHML = """\
<?xml version="1.0" encoding="utf-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <graph edgedefault="undirected">
    <node id="0"><data key="d33">Köln</data></node> <node id="1"/> <node id="2"/> <node id="3"/>
    <edge source="0" target="1"/> <edge source="1" target="0"/> <edge source="1" target="2"/>
  </graph>
</graphml>
"""


def pairs(graph):
    return {(edge.sender, edge.receiver) for edge in graph.edges if edge.sender < edge.receiver}


def test_barabasi_albert_has_so_many_links_for_each_node_and_hubs():
    graph = barabasi_albert(200, 2, Random(1))
    assert (len(graph.out), len(graph.edges)) == (200, 2 * 2 * 198)
    assert len(graph.reachable("n00000")) == 200
    degrees = sorted(len(edges) for edges in graph.out.values())
    assert (degrees[0], degrees[100]) == (2, 3)
    assert degrees[-1] > 15
    again = barabasi_albert(200, 2, Random(1))
    assert again.edges == graph.edges
    assert barabasi_albert(200, 2, Random(2)).edges != graph.edges


def test_grid_and_tree():
    graph = grid(4, 3)
    assert (len(graph.out), len(graph.edges)) == (12, 2 * 17)
    assert sorted({len(edges) for edges in graph.out.values()}) == [2, 3, 4]
    tree = random_tree(50, Random(1))
    assert (len(tree.out), len(tree.edges)) == (50, 2 * 49)
    assert len(tree.reachable("n00007")) == 50


def test_rocketfuel_is_read_and_its_largest_piece_taken(tmp_path):
    (tmp_path / "x.latencies.intra").write_text(ROCKETFUEL)
    graph = read_rocketfuel(tmp_path / "x.latencies.intra")
    assert pairs(graph) == {("Perth,+WA1", "Sydney2"), ("Hobart3", "Sydney2")}
    assert len(graph.edges) == 4


def test_graphml_is_read_without_parallel_edges(tmp_path):
    (tmp_path / "x.graphml").write_text(GRAPHML)
    assert pairs(read_graphml(tmp_path / "x.graphml")) == {("0", "1"), ("1", "2")}


def test_a_directory_gives_every_topology_by_its_name(tmp_path):
    (tmp_path / "as1.latencies.intra").write_text(ROCKETFUEL)
    (tmp_path / "zoo.graphml").write_text(GRAPHML)
    (tmp_path / "README.md").write_text("not a topology")
    assert list(read_directory(tmp_path)) == ["as1", "zoo"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.latencies.intra", b"Perth Sydney\n", r"line 1: a link is written 'place place"),
        ("a.latencies.intra", b"a b 1\na b far\n", r"line 2: a link is written"),
        ("a.latencies.intra", b"a b nan\n", r"line 1: a link is written"),
        ("a.latencies.intra", b"\n", r"a.latencies.intra has no links"),
        ("a.latencies.intra", b"a a 1\n", r"a.latencies.intra has no links"),
        ("a.latencies.intra", b"\xff\xfe 1\n", r"cannot be read as text"),
        ("a.graphml", b"<graphml><graph>", r"a.graphml is not XML: .*line 1"),
        ("a.graphml", b"<graphml/>", r"a.graphml has no links"),
        (
            "a.graphml",
            b"<graphml><graph><node id='1'/><edge source='1' target='2'/></graph></graphml>",
            r"an edge from 1 to 2, not both nodes",
        ),
        (
            "a.graphml",
            b"<graphml><graph><node id='1'/><edge source='1'/></graph></graphml>",
            r"an edge from 1 to None, not both nodes",
        ),
        ("notes.txt", b"", r"holds no topology; put \*.latencies.intra or \*.graphml files there"),
    ],
)
def test_what_is_no_topology_is_refused_with_a_sentence(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadTopology, match=message):
        read_directory(tmp_path)
