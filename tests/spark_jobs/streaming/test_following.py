"""Following traces: every window once, and what it says is true."""

from __future__ import annotations

import json

import pytest

from demo.windows import LiveWindows
from psph import cli
from spark_jobs.streaming.following import Following, start, wait
from tests.sizes import size
from tests.spark_jobs.streaming import growing

WINDOW, LATE = 5, 8


@pytest.fixture
def few_pieces(spark):
    """State in as few pieces as may be: each of them is files for every batch."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", str(size(1, 2)))
    yield
    spark.conf.set("spark.sql.shuffle.partitions", before)


@pytest.mark.usefixtures("few_pieces")
def test_windows_say_what_is_true(spark, tmp_path, monkeypatch):
    made = growing.make(tmp_path / "made", monkeypatch, piece=3_000, duplicates=0.0, loss=0.02)
    told = []
    following = Following(str(made), str(tmp_path / "out"), WINDOW, LATE, once=True)
    wait(start(spark, following, told.extend), tmp_path / "log")
    found = growing.compare(made, tmp_path / "out", WINDOW, LATE)
    assert [
        row.plain() | {"batch": found[key]["batch"]}
        for key, row in zip(sorted(found), told, strict=True)
    ] == [found[key] for key in sorted(found)]
    shown = json.loads((tmp_path / "out" / "latency.json").read_text())
    assert shown["window_s"] == WINDOW
    keys = [(w["window_ns"], w["from_domain"], w["to_domain"]) for w in shown["windows"]]
    assert keys == sorted(found)
    page = LiveWindows(tmp_path / "out" / "latency.json")
    assert page.look()
    assert {(pair["from"], pair["to"]) for pair in page.shown["pairs"]} == {k[1:] for k in keys}


def test_a_directory_that_is_not_there_is_named(tmp_path, capsys):
    call = ["traces", "follow", "--traces", tmp_path / "none", "--out", tmp_path / "out"]
    assert cli.run([*map(str, call)]) == 1
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1
    assert "there is no directory" in errors
