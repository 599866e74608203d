"""The experiment runner: what it writes, how runs are combined, what it says when it cannot."""

from __future__ import annotations

import csv
import json
from statistics import fmean

import msgspec
import pytest

from experiments import plots
from experiments.courier_loss import EXPERIMENT
from experiments.experiment import Claim, Experiment, Plot
from experiments.runner import execute
from experiments.statistics import combine, half_width
from psph import cli


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cases: tuple[str, ...] = ("one", "two")
    scale: float = 1.0


def rows_of(parameters, seed, context):
    context.progress(0.5)
    return [
        {"case": case, "value": parameters.scale * (seed + index), "unit": "ms"}
        for index, case in enumerate(parameters.cases)
    ]


def claims_of(rows):
    return [Claim("odd", "paper", "it is odd", False, "it is even")]


SMALL = Experiment(
    name="small",
    summary="for these tests",
    parameters=Parameters(),
    quick=Parameters(cases=("one",)),
    run=rows_of,
    keys=("case",),
    claims=claims_of,
    plots=(Plot("values", x="case", y="value", series="unit"),),
    paper=[{"case": "one", "value": 7}],
)


def test_the_result_has_the_agreed_form(tmp_path):
    done = []
    returned = execute(SMALL, tmp_path / "out", seed=5, progress=done.append)
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result == json.loads(json.dumps(returned))
    assert result["experiment"] == "small"
    assert result["seed"] == 5
    assert result["parameters"] == {"cases": ["one", "two"], "scale": 1.0}
    assert result["code_version"].startswith("0.")
    assert result["machine"]["cores"] >= 1
    assert result["rows"][1] == {"case": "two", "value": 6.0, "unit": "ms"}
    assert result["paper"] == [{"case": "one", "value": 7}]
    (claim,) = result["claims"]
    assert (claim["id"], claim["kind"], claim["holds"]) == ("odd", "paper", False)
    assert claim["because"] == "it is even"
    assert done == [0.5]


def test_table_csv_and_plot_are_written(tmp_path):
    execute(SMALL, tmp_path, runs=3)
    with (tmp_path / "rows.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["value"] for row in rows] == ["1.0", "2.0"]
    assert "1 ± 2.5" in (tmp_path / "table.txt").read_text()
    assert (tmp_path / "values.png").read_bytes().startswith(b"\x89PNG")


def test_runs_are_combined_by_case_with_an_interval():
    runs = [[{"k": "a", "v": value, "t": "x"}, {"k": "b", "v": 1, "t": value}] for value in (1, 3)]
    one, two = combine(runs, ["k"])
    assert one == {"k": "a", "v": 2.0, "v_ci95": pytest.approx(12.706), "t": "x"}
    assert two["v_ci95"] == 0


def test_the_interval_covers_the_truth_as_often_as_it_says():
    from random import Random

    random = Random(1)
    covered = 0
    for _ in range(2_000):
        values = [random.gauss(10, 3) for _ in range(5)]
        covered += abs(fmean(values) - 10) <= half_width(values)
    assert covered / 2_000 == pytest.approx(0.95, abs=0.02)


def test_without_matplotlib_the_rest_is_written_and_one_line_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(plots, "find_spec", lambda name: None)
    arguments = ["--quick", "--set", "messages=5", "--out", str(tmp_path)]
    assert cli.run(["experiment", "courier-loss", *arguments]) == 0
    assert capsys.readouterr().out.count(plots.MISSING) == 1
    assert (tmp_path / "result.json").exists()
    assert not list(tmp_path.glob("*.png"))


def test_the_sample_experiment_and_its_claims(tmp_path):
    result = execute(EXPERIMENT, tmp_path, parameters=EXPERIMENT.quick, runs=2)
    assert {claim["id"]: claim["holds"] for claim in result["claims"]} == {
        "exactly-once": True,
        "cost-as-computed": True,
    }
    assert (tmp_path / "cost.png").exists()


def test_the_sample_experiment_runs_the_shipped_core(tmp_path, monkeypatch):
    """Breaking the duplicate check in Courier must show in the table."""
    from psirp_sim.courier.core import Courier

    def careless(self, link, number, payload):
        self.env.storage.write(self.deliver(link, number, payload))
        self._acknowledge(link, number)

    monkeypatch.setattr(Courier, "_on_message", careless)
    result = execute(EXPERIMENT, tmp_path, parameters=EXPERIMENT.quick)
    assert sum(row["doubled"] for row in result["rows"]) > 0
    claims = {claim["id"]: claim for claim in result["claims"]}
    assert not claims["exactly-once"]["holds"]
    assert "doubled" in claims["exactly-once"]["because"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("mesages=3", 'key "mesages": unknown; did you mean "messages"?'),
        ("messages=few", 'key "messages": expected int, got str'),
        ("messages=0", "messages lies between 1 and 100000"),
        ("loss=[2.0]", "loss lists probabilities"),
    ],
)
def test_a_bad_parameter_is_said(tmp_path, capsys, change, message):
    code = cli.run(["experiment", "courier-loss", "--set", change, "--out", str(tmp_path)])
    assert code == 1
    assert message in capsys.readouterr().err


def test_experiments_are_listed(capsys):
    assert cli.run(["experiment", "--list"]) == 0
    assert "courier-loss" in capsys.readouterr().out
    assert cli.run(["experiment", "--list", "--json"]) == 0
    assert {"experiment", "summary"} <= set(json.loads(capsys.readouterr().out)[0])
