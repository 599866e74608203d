"""The experiment zfilter-efficiency, very small: its form, its claims, its repeatability."""

from __future__ import annotations

import json
import re
from random import Random

import pytest

from experiments import zfilter_efficiency
from experiments.experiment import Context
from experiments.runner import execute
from experiments.topologies import barabasi_albert
from experiments.zfilter_claims import PAPER, claims
from experiments.zfilter_efficiency import EXPERIMENT, METHODS, Parameters, run
from psirp_sim.topology.choice import NoFilter

IDS = [
    "fpr-as-computed",
    "efficiency-table",
    "fpr-choice-beats-fpa",
    "bytes-within-1.05",
    "bloom-bytes-within-1.15",
    "graceful-at-5000-links",
]
TINY = Parameters(
    users=(4, 16),
    fabrics=2,
    table_trees=3,
    trees=1,
    large_nodes=60,
    large_fabrics=1,
    large_trees=1,
    processes=1,
)


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    topologies = tmp_path_factory.mktemp("topologies")
    links = [(e.sender, e.receiver) for e in barabasi_albert(30, 2, Random(1)).edges]
    (topologies / "rocketfuel-7.latencies.intra").write_text(
        "".join(f"{one} {other} 1\n" for one, other in links)
    )
    (topologies / "four.graphml").write_text(
        "<graphml><graph>"
        + "".join(f"<node id='{node}'/>" for node in range(4))
        + "".join(f"<edge source='{node}' target='{node + 1}'/>" for node in range(3))
        + "</graph></graphml>"
    )
    out = tmp_path_factory.mktemp("out")
    execute(EXPERIMENT, out, parameters=TINY, topologies=topologies)
    return out, json.loads((out / "result.json").read_text())


def test_the_result_has_a_row_for_each_case(result):
    out, written = result
    cases = {(row["topology"], row["users"], row["method"]): row for row in written["rows"]}
    assert len(cases) == len(written["rows"])
    generated = ["ba-100", "ba-200", "grid-10x10", "tree-100"]
    table = ["single", "fpa", "fpr", "single near", "fpa near", "fpr near"]
    for topology in [*generated, "rocketfuel-7"]:
        for users in (4, 16):
            assert {m for t, u, m in cases if (t, u) == (topology, users)} == {*table, *METHODS}
    # Four nodes have three users at most.
    assert {users for topology, users, _ in cases if topology == "four"} == {3}
    assert {method for topology, _, method in cases if topology == "5000-links"} == set(METHODS)
    assert cases["ba-200", None, "50 links"]["links"] == 50
    choice = cases["rocketfuel-7", 16, "choice"]
    assert choice["usable"] == 1
    assert 0.9 < choice["bytes_ratio"] <= choice["worst_ratio"] < 1.1
    assert (out / "efficiency.png").exists()
    assert (out / "bytes.png").exists()


def test_the_claims_are_those_agreed(result):
    claimed = result[1]["claims"]
    assert [claim["id"] for claim in claimed] == IDS
    assert [claim["kind"] for claim in claimed] == ["paper"] * 3 + ["ours"] * 3
    assert all(claim["because"] for claim in claimed)
    holds = {claim["id"]: claim["holds"] for claim in claimed}
    assert holds["bytes-within-1.05"]
    assert holds["bloom-bytes-within-1.15"]
    assert holds["graceful-at-5000-links"]


def test_the_figures_of_the_source_are_given_in_the_columns_of_the_rows(result):
    written = result[1]
    assert len(written["paper"]) == 7 + 5 * 3 + 16 * 3
    columns = set(written["rows"][0])
    assert all(set(figure) <= columns for figure in written["paper"])


def test_processes_change_nothing():
    one = run(TINY, 3, Context())
    parameters = {name: getattr(TINY, name) for name in TINY.__struct_fields__}
    assert run(Parameters(**{**parameters, "processes": 2}), 3, Context()) == one
    assert run(TINY, 4, Context()) != one


def test_the_parameters_are_checked():
    for bad in ({"users": ()}, {"users": (0,)}):
        with pytest.raises(ValueError, match="users lists numbers from 1 on"):
            Parameters(**bad)
    with pytest.raises(ValueError, match="at least 1 fabric and 1 tree"):
        Parameters(trees=0)
    for bad in ({"large_nodes": 2}, {"processes": -1}):
        with pytest.raises(ValueError, match="large_nodes is at least 10"):
            Parameters(**bad)


def claims_when(case=None, change=None):
    """Claims on rows with the source's figures, and ours as hoped, but for one that is changed."""
    rows = [{"efficiency_sd": 0.1, "fpr": figure.get("fpr_computed"), **figure} for figure in PAPER]
    for method, efficiency in (("fpa", 0.8), ("fpr", 0.9)):
        rows.append(
            {"topology": "mean", "users": 16, "method": method, "mean_efficiency": efficiency}
        )
    for topology, method in (
        ("rocketfuel-1221", "choice"),
        ("rocketfuel-1221", "bloom"),
        ("5000-links", "choice"),
        ("ba-100", "choice"),
    ):
        rows.append(
            {
                "topology": topology,
                "users": 128,
                "method": method,
                "usable": 1,
                "bytes_ratio": 1.01 if topology != "ba-100" else 9.0,
                "worst_ratio": 1.02,
            }
        )
    for row in rows:
        if (row["topology"], row["users"], row["method"]) == case:
            row |= change
    return {claim.id: claim for claim in claims(rows)}


def test_every_claim_holds_on_the_figures_of_the_source():
    assert all(claim.holds for claim in claims_when().values())


@pytest.mark.parametrize(
    ("case", "change", "broken", "because"),
    [
        (("ba-200", None, "35 links"), {"fpr": 0.04}, IDS[0], "35 links: .19.4%"),
        (("ba-100", 16, "fpr near"), {"efficiency": 0.966}, IDS[1], "62 of 63 .*fpr near: -3.1"),
        (("rocketfuel-6461", 32, "fpa"), {"efficiency": 0.5}, IDS[1], "62 of 63 .*6461"),
        (("mean", 16, "fpr"), {"mean_efficiency": 0.7}, IDS[2], "-10.0 with 16"),
        (("rocketfuel-1221", 128, "choice"), {"bytes_ratio": 1.06}, IDS[3], "1.060 on average"),
        (("rocketfuel-1221", 128, "bloom"), {"bytes_ratio": 1.2}, IDS[4], "1221, 128 users"),
        (("5000-links", 128, "choice"), {"bytes_ratio": 1.2}, IDS[5], "1.200 on average"),
        (("5000-links", 128, "choice"), {"usable": 0.9}, IDS[5], "users without filters"),
    ],
)
def test_a_claim_that_does_not_hold_says_why(case, change, broken, because):
    found = claims_when(case, change)
    assert [name for name, claim in found.items() if not claim.holds] == [broken]
    assert re.search(because, found[broken].because)


@pytest.mark.parametrize(("deviation", "unexplained"), [(0.3, 0), (0.1, 1)])
def test_the_reason_says_what_chance_explains_and_allows_nothing_for_it(deviation, unexplained):
    change = {"efficiency": 0.955, "efficiency_sd": deviation}
    claim = claims_when(("ba-100", 16, "fpr near"), change)[IDS[1]]
    assert not claim.holds
    assert f"{unexplained} of the differences are more than chance explains" in claim.because


def test_the_experiment_measures_the_shipped_choice(monkeypatch):
    """A manager that never finds a filter must show in the table."""

    def helpless(graph, tree, settings):
        raise NoFilter("none")

    monkeypatch.setattr(zfilter_efficiency, "choose", helpless)
    rows = run(TINY, 0, Context())
    found = {claim.id: claim for claim in claims(rows)}
    assert not found["bytes-within-1.05"].holds
    assert "without filters" in found["bytes-within-1.05"].because
