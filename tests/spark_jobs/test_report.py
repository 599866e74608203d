"""The report as a person gets it: one page, pictures, tables; and what is said when it fails."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import threading
import time
from contextlib import suppress
from html.parser import HTMLParser

import pyarrow.parquet as pq
import pytest

from psph import cli
from spark_jobs import progress
from tests.spark_jobs.conftest import EVENTS

TABLES = (
    "overview", "latency", "series", "shares", "losses", "topics", "fan_out", "handoffs",
    "slowest", "clocks",
)  # fmt: skip
PNG = b"\x89PNG\r\n"


@pytest.fixture(scope="module")
def out(reported):
    return reported.out


class Page(HTMLParser):
    """What a page asks for and shows."""

    def __init__(self, text):
        super().__init__()
        self.open, self.asks, self.tags = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        if tag not in ("meta", "img", "source", "link"):
            self.open.append(tag)
        self.asks += [value for name, value in attributes if name in ("src", "srcset", "href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_needs_nothing_but_itself(out):
    text = (out / "report.html").read_text()
    page = Page(text)
    assert page.open == []
    assert "script" not in page.tags
    assert {"picture", "table", "details"} <= page.tags
    for asked in page.asks:
        assert asked.startswith("data:image/png;base64,") or (out / asked).is_file(), asked
    assert "prefers-color-scheme: dark" in text
    assert 'name="viewport"' in text
    assert "cannot be known" in text
    assert "1 could not be read" in text
    assert "000001.parquet" in text


def test_pictures_and_tables_lie_beside_it(out):
    for name in ("latency", "series", "shares", "departures"):
        assert (out / f"{name}.png").read_bytes().startswith(PNG)
    for name in TABLES:
        rows = json.loads((out / f"{name}.json").read_text())
        table = pq.read_table(out / f"{name}.parquet")
        assert table.num_rows == len(rows) > 0, name
        assert table.to_pylist() == rows
    latency = json.loads((out / "latency.json").read_text())
    across = [
        r for r in latency if r["from_domain"] != r["to_domain"] and r["stage"] == "delivered"
    ]
    assert across
    assert all(0.1 < row["uncertainty_ms"] < 1_000 for row in across)


def test_every_file_can_be_served_by_the_page_of_the_world(out):
    assert all(re.fullmatch(r"[a-z0-9_.-]+", path.name) for path in out.iterdir())


def test_the_command_says_what_it_read_and_where_the_report_is(spark, reported):
    assert reported.answer.exit_code == 0
    page = reported.out / "report.html"
    count = len(list(reported.traces.glob("domain=*/date=*/node=*/*.parquet")))
    assert reported.answer.stdout == f"{EVENTS:,} events of {count} files: {page}\n"
    assert re.fullmatch(r"left out \(unreadable\): \S+-000001\.parquet\n", reported.answer.stderr)
    log = reported.out / "spark.log"
    settings = {"log": log, "master": "local[*]", "driver_memory": "1g"}
    assert reported.asked == [(("psph report",), settings), spark]


def test_what_spark_says_goes_to_its_log_alone(spark, spark_log):
    process = spark.sparkContext._gateway.proc
    for number in (1, 2):
        assert os.readlink(f"/proc/{process.pid}/fd/{number}") == str(spark_log)
    assert spark_log.stat().st_size > 0


def test_a_terminal_shows_a_bar_that_moves(spark, monkeypatch):
    ours, theirs = pty.openpty()
    shown = bytearray()

    def read():  # all the time: a terminal that nobody reads stops whoever writes to it
        with suppress(OSError):
            while more := os.read(ours, 4_096):
                shown.extend(more)

    def until(word):
        patience = time.monotonic() + 60
        while word not in shown:
            assert time.monotonic() < patience, f"{word} does not appear in {shown[-500:]}"
            time.sleep(0.01)

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setenv("TERM", "xterm")
        with progress.bar(spark, 4) as bar:
            bar.step("reading")
            until(b"reading")
            until(b"  0 %")
            bar.step("clocks")
            until(b"clocks")
            until(b" 25 %")
            shown.clear()
        until(b"\x1b[1A\x1b[2K")  # it is wiped away at the end
    reading.join(60)
    os.close(ours)


def test_where_no_terminal_is_there_is_no_bar(spark, monkeypatch, tmp_path):
    with (tmp_path / "stderr").open("w") as file:
        monkeypatch.setattr(sys, "stderr", file)
        with progress.bar(spark, 1) as bar:
            bar.step("reading")
    assert (tmp_path / "stderr").read_text() == ""


@pytest.fixture
def report(tmp_path, capsys, monkeypatch):
    """Runs the command on an empty directory, or as asked; what it answers and says."""
    (tmp_path / "traces").mkdir()

    def call(*options, **environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        given = options or ("--traces", str(tmp_path / "traces"))
        code = cli.run(["report", "--out", str(tmp_path / "out"), *given])
        return subprocess.CompletedProcess(options, code, *capsys.readouterr())

    return call


def test_without_java_one_line_says_what_to_install(report, tmp_path):
    answer = report(PATH=str(tmp_path), JAVA_HOME="")
    assert answer.returncode == 1
    assert re.fullmatch(r"[^\n]*Java is missing: install Java 17 [^\n]*\n", answer.stderr)
    assert answer.stdout == ""


def test_a_java_that_is_too_old_is_named(report, tmp_path):
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    java.chmod(0o755)
    answer = report(JAVA_HOME=str(tmp_path))
    assert answer.returncode == 1
    assert re.fullmatch(r"[^\n]*is Java 8, too old for Spark: [^\n]*\n", answer.stderr)


def test_without_pyspark_one_line_says_what_to_install(tmp_path):
    hidden = (
        "import sys, importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'pyspark' else find(name, *more)\n"
        "sys.modules['pyspark'] = None\nfrom psph.cli import main; main()"
    )
    (tmp_path / "traces").mkdir()
    answer = subprocess.run(
        [sys.executable, "-P", "-c", hidden, "report", "--traces", tmp_path / "traces",
         "--out", tmp_path / "out"], capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert answer.returncode == 1
    assert re.fullmatch(
        r"[^\n]*PySpark is not installed: [^\n]*psph\[spark\][^\n]*\n", answer.stderr
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--traces", "nowhere"], "no such directory"),
        (["--traces", ".", "--since", "yesterday"], "is no time"),
    ],
)
def test_a_wrong_call_is_told_so(report, options, words):
    answer = report(*options)
    assert answer.returncode == 2
    assert words in answer.stderr
    assert "Traceback" not in answer.stderr


def test_an_empty_directory_is_told_so_before_spark_is_started(report, tmp_path):
    answer = report()
    assert (answer.returncode, answer.stdout) == (1, "")
    assert re.fullmatch(r"[^\n]*no traces in [^\n]*\n", answer.stderr)
    assert not (tmp_path / "out").exists(), "nothing was begun"
