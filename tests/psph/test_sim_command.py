"""`psph sim`: scenario files, good and bad."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from psph import cli

EXAMPLE = Path(__file__).parents[2] / "examples" / "three-neighbours.toml"

SMALL = """
duration = "3 s"
seed = 3
[[node]]
name = "n"
count = 3
protocol = "courier"
settings = { messages = 10 }
[[link]]
between = ["n1", "n2"]
delay = "2 ms"
[[link]]
between = ["n2", "n3"]
preset = "lte"
"""


def sim(capsys, *arguments):
    code = cli.run(["sim", *map(str, arguments)])
    return code, *capsys.readouterr()


def test_the_sample_scenario_twice_with_equal_digests(capsys):
    code, first, _ = sim(capsys, EXAMPLE, "--json")
    assert code == 0
    _, second, _ = sim(capsys, EXAMPLE, "--json")
    one, two = json.loads(first), json.loads(second)
    assert one["digest"] == two["digest"]
    assert one["events"] > 5_000
    _, other, _ = sim(capsys, EXAMPLE, "--json", "--seed", "8")
    assert json.loads(other)["digest"] != one["digest"]


def test_the_sample_scenario_loses_nothing(capsys):
    _, out, _ = sim(capsys, EXAMPLE, "--json")
    nodes = {node["node"]: node for node in json.loads(out)["nodes"]}
    assert nodes["home"]["delivered"] == 550, "500 from the office, 50 from the phone"
    assert all(node["up"] for node in nodes.values())


def test_people_get_tables_and_the_digest(capsys):
    code, out, err = sim(capsys, EXAMPLE, "--events", "3")
    assert code == 0
    assert "three neighbours: nodes" in out
    assert "three neighbours: links" in out
    assert "digest" in out
    assert err == ""


def test_a_row_of_nodes_and_delays_of_every_kind(capsys, tmp_path):
    (tmp_path / "delays.txt").write_text("1 ms\n2 ms\n\n5 ms\n")
    for delay in (
        '{ uniform = ["1 ms", "3 ms"] }',
        '{ exponential = ["1 ms", "3 ms"] }',
        '{ trace = ["1 ms", "3 ms"] }',
        '{ trace_file = "delays.txt" }',
    ):
        file = tmp_path / "scenario.toml"
        file.write_text(SMALL.replace('"2 ms"', delay))
        code, out, _ = sim(capsys, file, "--json")
        assert code == 0
        delivered = [node["delivered"] for node in json.loads(out)["nodes"]]
        assert delivered == [10, 20, 10]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('duration = "3 s"', "", 'key "duration": missing'),
        ('"3 s"', '"3 moons"', "is not a length of time"),
        ('"3 s"', '"900 d"', "duration lies between"),
        ("seed = 3", "sede = 3", 'key "sede": unknown; did you mean "seed"?'),
        ("seed = 3", 'seed = "x"', 'key "seed": expected int, got str'),
        ("count = 3", "count = -1", 'key "node[0]": count lies between 1 and'),
        ('name = "n"', 'name = "a>b"', 'key "node[0]": a node\'s name'),
        ('"courier"', '"carrier"', "node n: there is no protocol 'carrier'; there is: courier"),
        ("messages = 10", "messages = -1", "node n1: messages must not be negative"),
        ("messages = 10", "mesages = 1", "node n1: Object contains unknown field `mesages`"),
        ('["n1", "n2"]', '["n1"]', 'key "link[0]": between names two nodes'),
        ('["n1", "n2"]', '["n1", "n9"]', "link between n1 and n9: a link needs two nodes"),
        ('["n1", "n2"]', '["n3", "n2"]', "link between n2 and n3: there is a link of that name"),
        ('preset = "lte"', 'preset = "5g"', "key \"link[1]\": there is no preset '5g'"),
        ('preset = "lte"', "loss = 1.5", 'key "link[1]": loss is a probability'),
        ('preset = "lte"', "loss = { to_bad = 2.0, to_good = 0.1 }", 'key "link[1].loss": to_bad'),
        ('preset = "lte"', "mtu = 0", 'key "link[1]": mtu is at least 128'),
        ('delay = "2 ms"', 'delay = { uniform = ["1 ms"] }', 'key "link[0].delay": uniform takes'),
        ('delay = "2 ms"', 'delay = { uniform = ["2 ms", "1 ms"] }', "the least delay first"),
        ('delay = "2 ms"', 'delay = { trace_file = "none" }', "trace_file"),
        ('delay = "2 ms"', "delay = { }", "give one of uniform"),
        ('delay = "2 ms"', "delay = 5", 'key "link[0].delay": expected'),
        ("duration", "[duration", "not valid TOML"),
        (
            "[[node]]",
            '[[fault]]\nkind = "crash"\ntarget = "n7"\nat = "1 s"\nlasts = "1 s"\n[[node]]',
            "fault crash at 1 s: no target 'n7'; write one of n1, n2, n3",
        ),
    ],
)
def test_a_bad_scenario_is_one_line_that_names_file_and_key(capsys, tmp_path, old, new, message):
    file = tmp_path / "scenario.toml"
    assert old in SMALL
    file.write_text(SMALL.replace(old, new, 1))
    code, out, err = sim(capsys, file)
    assert code == 1
    assert out == ""
    assert err.startswith(f"psph: {file}: ")
    assert message in err
    assert err.count("\n") == 1
