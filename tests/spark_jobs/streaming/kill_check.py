"""Following traces: every window once and true, although the job is killed.

Starts two virtual machines one after the other, which takes longer than `make test` has for one
test; `.ci/long` runs it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.spark_jobs.streaming import growing

PSPH = Path(sys.executable).with_name("psph")
WINDOW, LATE = 5, 8
PATIENCE = 1_200
# Short jobs do not live long enough to gain from code that is compiled well.
JAVA = {
    "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
}

pytestmark = pytest.mark.timeout(3 * PATIENCE)


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
            list(map(str, command)), start_new_session=True, stdout=subprocess.PIPE, text=True,
            env={**os.environ, **JAVA},
        )  # fmt: skip
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
    # Five seconds in a file, which is less than events may be late.
    made = growing.make(tmp_path / "made", monkeypatch, piece=500, loss=0.02, duplicates=0.02)
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
