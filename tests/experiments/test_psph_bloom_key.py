"""The experiment psph-bloom-key: everybody is found, and what the claims say."""

from __future__ import annotations

import pytest

from experiments.psph_bloom_key import EXPERIMENT, Parameters, claims
from experiments.runner import execute
from psph.proxy.control import Control

SMALL = Parameters(subscribers=(20, 1), topics=30, wishes=3, publications=40, rounds=1)


def test_a_small_run(tmp_path):
    result = execute(EXPERIMENT, tmp_path, parameters=SMALL)
    rows = {(row["method"], row["subscribers"]): row for row in result["rows"]}
    assert len(rows) == 6
    for (method, subscribers), row in rows.items():
        assert row["missed"] == row["false"] == 0
        assert row["asked"] == (subscribers if method == "subscriber" else 1)
        assert row["match_us"] == pytest.approx(
            (row["wanted_us"] + row["unwanted_us"]) / 2, abs=0.001
        )
    # Topics that several want are one key for a filter of topics.
    assert rows["subscriber", 20]["keys"] == 60
    assert rows["topic", 20]["keys"] == rows["ours", 20]["keys"] <= 30
    assert rows["topic", 20]["filter_kib"] == pytest.approx(335e6 / 8 / 1_024, rel=0.01)
    held = {claim["id"]: claim["holds"] for claim in result["claims"]}
    assert held["nobody-missed"]
    assert held["nobody-matched-wrongly"]
    assert (tmp_path / "matching.png").exists()


def test_it_runs_the_shipped_control_function(tmp_path, monkeypatch):
    monkeypatch.setattr(Control, "subscribers", lambda self, side, topic: [])
    result = execute(EXPERIMENT, tmp_path, parameters=SMALL)
    missed = {row["method"] for row in result["rows"] if row["missed"]}
    assert missed == {"ours"}
    claim = {claim["id"]: claim for claim in result["claims"]}["nobody-missed"]
    assert not claim["holds"]
    assert claim["because"] != "0 missed"


def rows_of(**methods):
    return [
        {"method": method, "subscribers": n, "match_us": us, "missed": 0, "false": 0}
        for method, times in methods.items()
        for n, us in times.items()
    ]


def test_the_claim_of_the_source_is_checked_at_every_number_of_subscribers():
    topic, ours = {1: 10.0, 100: 11.0}, {1: 5.0, 100: 5.0}
    (faster, several, grows, *_) = claims(
        rows_of(topic=topic, subscriber={1: 12.0, 100: 900.0}, ours=ours)
    )
    assert faster.kind == "paper"
    assert faster.holds
    assert several.holds
    assert grows.holds
    (faster, several, *_) = claims(rows_of(topic=topic, subscriber={1: 9.0, 100: 900.0}, ours=ours))
    assert not faster.holds
    assert "1: 0.9" in faster.because
    assert "asked once" in faster.because
    assert several.holds
    (_, several, *_) = claims(rows_of(topic=topic, subscriber={1: 12.0, 100: 9.0}, ours=ours))
    assert not several.holds
