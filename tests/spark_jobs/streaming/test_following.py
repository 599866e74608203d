"""Following traces: every window once and true, whatever happens to the job."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from demo.windows import LiveWindows
from spark_jobs.streaming.following import Following, start, wait
from tests.spark_jobs.streaming import growing

PSPH = Path(sys.executable).with_name("psph")
WINDOW, LATE = 5, 8
PATIENCE = 240


def test_windows_say_what_is_true(spark, tmp_path, monkeypatch):
    made = growing.make(tmp_path / "made", monkeypatch, duplicates=0.0, loss=0.02)
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


@pytest.fixture
def follow(tmp_path):
    """Starts the command in a process group of its own; whatever is left of it ends."""
    if shutil.which("java") is None:
        pytest.skip("Java is not installed: Spark runs on it")
    started = []

    def begin(*more):
        command = [
            PSPH, "traces", "follow", "--master", "local[2]",
            "--traces", tmp_path / "growing", "--out", tmp_path / "out", "--every", "0",
            "--window", WINDOW, "--late", LATE, "--log", tmp_path / "spark.log", "--json", *more,
        ]  # fmt: skip
        process = subprocess.Popen(
            list(map(str, command)), start_new_session=True, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        _kill(process)


def _kill(process):
    """Python and the virtual machine at once: nobody gets a chance to tidy up."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


def _until(happened, process):
    ends = time.monotonic() + PATIENCE
    while not happened():
        assert process.poll() is None, "the job ended"
        assert time.monotonic() < ends, "nothing happens"
        time.sleep(0.05)


def _numbers(log: Path):
    """Micro-batches that a log of Spark's checkpoint knows."""
    return {int(path.name) for path in log.glob("[0-9]*")}


def test_killed_and_started_again_it_neither_loses_nor_doubles_a_window(
    follow, tmp_path, monkeypatch
):
    made = growing.make(tmp_path / "made", monkeypatch, loss=0.02, duplicates=0.02)
    first, second, third = _thirds(growing.pieces(made))
    grown = tmp_path / "growing"
    checkpoint = tmp_path / "out" / "checkpoint"
    for files in first:
        growing.appear(files, made, grown)
    job = follow()
    _until(lambda: (tmp_path / "out" / "windows").is_dir(), job)
    for files in second:
        growing.appear(files, made, grown)
    begun = max(_numbers(checkpoint / "offsets"))
    # A batch that is begun and not done with.
    _until(lambda: max(_numbers(checkpoint / "offsets")) > begun, job)
    _kill(job)
    for files in third:
        growing.appear(files, made, grown)
    again = follow("--once")
    output, _ = again.communicate(timeout=PATIENCE)
    assert again.returncode == 0
    assert output.count('"window_ns"') > 0
    growing.compare(made, tmp_path / "out", WINDOW, LATE)


def _thirds(pieces):
    third = len(pieces) // 3
    return pieces[:third], pieces[third : 2 * third], pieces[2 * third :]


def test_a_directory_that_is_not_there_is_named(tmp_path):
    call = ["traces", "follow", "--traces", tmp_path / "none", "--out", tmp_path / "out"]
    done = subprocess.run([PSPH, *map(str, call)], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "there is no directory" in done.stderr
