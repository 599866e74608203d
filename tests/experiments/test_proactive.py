"""The experiment with a crowd that commutes, small; and that it runs the shipped cores."""

from __future__ import annotations

import csv
import json

import pytest
from msgspec.structs import replace

from experiments import proactive
from experiments.commuting.parameters import Parameters
from experiments.runner import execute
from mobility.ahead.contexts import Contexts
from mobility.collecting import Collector
from mobility.merging import Flow
from psph import cli

SMALL = Parameters(
    subscribers=(6, 12), rates=(10, 20), queues_kb=(2, 5), crowd=12, warm_s=120.0, duration_s=60.0
)  # fmt: skip
OURS = replace(
    SMALL, modes=("ours", "durable"), subscribers=(12,), rates=(), queues_kb=(), rate=10.0
)
PAPERS = {
    "loss-halved-over-rates", "loss-nearly-halved-over-queues", "duplication-zero",
    "throughput-higher", "processing-time-higher", "handoff-same-order",
}  # fmt: skip
OUR_CLAIMS = {
    "ours-no-loss-within-quota", "ours-duplication-zero", "ours-handoff-not-slower-than-durable",
}  # fmt: skip


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    out = tmp_path_factory.mktemp("proactive")
    return out, execute(proactive.EXPERIMENT, out, parameters=SMALL)


def by_id(claims):
    return {claim["id"] if isinstance(claim, dict) else claim.id: claim for claim in claims}


def run(parameters):
    return proactive.run(parameters, 0, proactive.Context())


def test_every_mode_is_measured_in_every_sweep(small):
    out, result = small
    rows = result["rows"]
    cases = {(row["sweep"], row["mode"], row["subscribers"], row["queue_kb"]) for row in rows}
    assert len(rows) == 3 * (2 + 2 + 2)
    assert len(cases) == 3 * (2 + 1 + 2)
    assert all(row["processing_us"] > 0 and row["operations"] > 0 for row in rows)
    assert all(row["hand_offs"] > 0 and row["p50_ms"] > 0 for row in rows)
    assert json.loads((out / "result.json").read_text())["rows"] == rows
    with (out / "rows.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(rows)
    assert "new p80" in (out / "table.txt").read_text()
    assert {path.name for path in out.glob("*.png")} == {
        "figure-2-processing.png", "figure-2-throughput.png", "figure-3-hand-offs.png",
        *(f"figure-{n}-{y}.png" for n in (4, 5) for y in ("loss_pct", "dup_pct", "throughput")),
    }  # fmt: skip
    claims = by_id(result["claims"])
    assert {id for id, claim in claims.items() if claim["kind"] == "paper"} == PAPERS
    assert {id for id, claim in claims.items() if claim["kind"] == "ours"} == OUR_CLAIMS
    assert all(claim["because"] for claim in claims.values())


def test_the_modes_behave_as_the_source_says(small):
    _, result = small
    claims = by_id(result["claims"])
    for id in ("loss-nearly-halved-over-queues", "duplication-zero", "throughput-higher"):
        assert claims[id]["holds"], claims[id]["because"]
    durable = [row for row in result["rows"] if row["mode"] == "durable"]
    assert any(row["loss_pct"] > 1 for row in durable)
    assert any(row["dup_pct"] > 1 for row in durable)
    assert all(row["peak_kb"] <= row["queue_kb"] for row in durable)
    assert all(row["prepared_pct"] is None for row in durable)


def test_ours_loses_and_doubles_nothing_and_is_prepared(small):
    _, result = small
    ours = [row for row in result["rows"] if row["mode"] == "ours"]
    assert len(ours) == 6
    zeros = ("lost_within_quota", "dup_pct", "out_of_order")
    assert all(row[column] == 0 for row in ours for column in zeros)
    assert max(row["prepared_pct"] for row in ours) > 50
    assert all(row["context_messages"] > 0 and row["context_bytes"] > 0 for row in ours)
    claims = by_id(result["claims"])
    assert claims["ours-no-loss-within-quota"]["holds"]
    assert claims["ours-duplication-zero"]["holds"]


def test_the_same_seed_brings_the_same_rows(small):
    _, result = small
    again = run(replace(SMALL, rates=(), queues_kb=()))
    measured = {"processing_us"}  # by the processor of this machine
    for row, before in zip(again, result["rows"], strict=False):
        assert {k: v for k, v in row.items() if k not in measured} == {
            k: v for k, v in before.items() if k not in measured
        }


def test_without_the_check_for_duplicates_the_zero_is_none(monkeypatch):
    monkeypatch.setattr(Flow, "_is_new", lambda self, position: True)
    rows = run(OURS)
    assert rows[0]["dup_pct"] > 0
    claim = by_id(proactive.claims(rows))["ours-duplication-zero"]
    assert not claim.holds


def test_without_adoption_no_hand_off_is_prepared(monkeypatch):
    monkeypatch.setattr(Contexts, "take", lambda self, handler: None)
    row = run(OURS)[0]
    assert row["hand_offs"] > 0
    assert row["prepared_pct"] == 0
    assert row["lost_within_quota"] == row["dup_pct"] == 0


def test_without_what_the_old_proxy_kept_messages_are_lost(monkeypatch):
    monkeypatch.setattr(Collector, "ask", lambda self: None)
    rows = run(replace(OURS, prepare=False))
    assert rows[0]["prepared_pct"] is None
    assert rows[0]["lost_within_quota"] > 0
    assert not by_id(proactive.claims(rows))["ours-no-loss-within-quota"].holds


def test_every_claim_can_fail(small):
    _, result = small
    rows = result["rows"]

    def holds(change):
        changed = [{**row, **change(row)} for row in rows]
        claims = proactive.claims(changed)
        assert {claim.id for claim in claims} == PAPERS | OUR_CLAIMS
        return {claim.id for claim in claims if claim.holds}

    def worse(row):
        if row["mode"] == "durable":
            return {}
        return {
            "loss_pct": 50.0, "dup_pct": 5.0, "throughput": 0.1, "lost_within_quota": 3,
            "p80_ms": 9e5, "new_p80_ms": 9e5, "processing_us": 0.001,
        }  # fmt: skip

    def better(row):
        share = 0.01 if row["mode"] == "durable" else 0.0
        return {
            "loss_pct": 10.0 if share else 1.0,
            "dup_pct": share * row["queue_kb"],
            "throughput": 2.0 - share,
            "published_per_s": row["rate"],
            "lost_within_quota": 0,
            "p80_ms": 50.0,
            "new_p80_ms": 50.0,
            "processing_us": row["subscribers"] * (1.0 if share else 1.1),
        }

    assert holds(worse) == set()
    assert holds(better) == PAPERS | OUR_CLAIMS
    # Rates that a mode could not sustain are told, and not judged.
    slow = [{**row, "published_per_s": 0.5 * row["rate"]} for row in rows]
    assert "loss-halved-over-rates" not in by_id(proactive.claims(slow))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ('modes=["jms"]', "modes lists some of durable, paper, ours"),
        ("subscribers=[1]", "subscribers and crowd are numbers from 2 to 1000"),
        ("rates=[0]", "rates and rate are publications a second"),
        ("queue_kb=0", "queues_kb and queue_kb lie between"),
        ("message_bytes=4", "message_bytes lies between 8 and 10000"),
        ("operation_ms=0", "operation_ms lies between"),
        ("patience_s=0", "patience_s lies between"),
        ("duration_s=0", "duration_s between 1 and 86400"),
        ("queue_of=nobody", "queue_of"),
    ],
)
def test_bad_parameters_are_refused_in_one_line(change, said, tmp_path, capsys):
    arguments = ["experiment", "proactive", "--set", change, "--out", str(tmp_path)]
    assert cli.run(arguments) == 1
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error
