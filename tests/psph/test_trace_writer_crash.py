"""What a killed process leaves behind: whole files, and leftovers that nobody reads."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import IO

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from psph.trace_writer import TraceSettings, TraceWriter
from psph.trace_writer.files import NodeFiles
from traces import Stage, TraceEvent

EMIT_FOR_EVER = """
import sys, time
from psph.trace_writer import TraceSettings, TraceWriter
from traces import Stage, TraceEvent
settings = TraceSettings(rotate_bytes=3_000, rotate_seconds=0.01)
writer = TraceWriter(sys.argv[1], "n1", "a.test", settings)
n = 0
while True:
    n += 1
    writer.emit(TraceEvent(stage=Stage.DROPPED, node="n1", domain="a.test", version=n,
                           wall_ns=n, mono_ns=n))
    if n % 50 == 0:
        time.sleep(0.0005)
"""

# Stops for good between writing a file aside and renaming it.
WRITE_ASIDE_AND_HANG = """
import sys, time
from datetime import date
from pathlib import Path
from psph.trace_writer.files import NodeFiles
Path.rename = lambda *_: time.sleep(600)
NodeFiles(Path(sys.argv[1]), "a.test", "n1").publish(date(2027, 1, 15), b"half a file")
"""


def eventually(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


@contextmanager
def process(script: str, directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    running = subprocess.Popen([sys.executable, "-c", script, str(directory)])
    try:
        yield running
    finally:
        running.kill()
        running.wait()


def finished(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*.parquet"))


def unfinished(directory: Path) -> list[Path]:
    return sorted(directory.rglob("_*"))


@pytest.mark.parametrize("life", range(4))
def test_every_file_under_its_final_name_survives_a_kill(tmp_path: Path, life: int) -> None:
    with process(EMIT_FOR_EVER, tmp_path) as emitter:
        eventually(lambda: len(finished(tmp_path)) > 10 + 3 * life)
        emitter.send_signal(signal.SIGKILL)
        emitter.wait()
    rows = 0
    for file in finished(tmp_path):
        rows += pq.read_table(file, partitioning=None).num_rows
    others = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".parquet"]
    assert others == unfinished(tmp_path)
    discovered = ds.dataset(tmp_path, partitioning="hive").to_table()
    assert discovered.num_rows == rows
    # Nothing is missing in between: only the end may be lost.
    assert sorted(discovered["version"].to_pylist()) == list(range(1, rows + 1))


def test_a_leftover_is_no_file_to_any_reader_and_goes_at_the_next_start(tmp_path: Path) -> None:
    with process(WRITE_ASIDE_AND_HANG, tmp_path):
        eventually(lambda: unfinished(tmp_path))
    (leftover,) = unfinished(tmp_path)
    # Spark passes over names that begin with _, except those with a = in them; duckdb and
    # shells go by the ending.
    assert leftover.name.startswith("_")
    assert "=" not in leftover.name
    assert leftover.suffix != ".parquet"
    assert ds.dataset(tmp_path, format="parquet").files == []
    with TraceWriter(tmp_path, "n1", "a.test"):
        pass
    assert unfinished(tmp_path) == []


def test_a_file_that_a_living_process_writes_is_left_alone(tmp_path: Path) -> None:
    with process(WRITE_ASIDE_AND_HANG, tmp_path):
        eventually(lambda: unfinished(tmp_path) and unfinished(tmp_path)[0].stat().st_size)
        with TraceWriter(tmp_path, "n1", "a.test"):
            pass
        assert len(unfinished(tmp_path)) == 1


def test_leftovers_of_other_nodes_are_left_alone(tmp_path: Path) -> None:
    NodeFiles(tmp_path, "a.test", "n2").publish(date(2027, 1, 15), b"x")
    leftover = finished(tmp_path)[0].with_name("_x.parquet.part")
    leftover.touch()
    with TraceWriter(tmp_path, "n1", "a.test"):
        pass
    assert leftover.exists()


def test_a_restarted_node_writes_beside_what_it_wrote(tmp_path: Path) -> None:
    for _ in range(2):
        before = finished(tmp_path)
        with process(EMIT_FOR_EVER, tmp_path):
            eventually(lambda before=before: len(finished(tmp_path)) > len(before) + 3)
        assert set(before) < set(finished(tmp_path))
    assert os.path.commonpath(finished(tmp_path)).endswith("node=n1")


def test_a_file_taken_for_a_leftover_before_it_is_locked_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock

    def too_late(file: IO[bytes], operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        NodeFiles(tmp_path, "a.test", "n1").remove_leftovers()
        flock(file, operation)

    with TraceWriter(tmp_path, "n1", "a.test", TraceSettings(rotate_seconds=0.01)) as writer:
        monkeypatch.setattr(fcntl, "flock", too_late)
        writer.emit(
            TraceEvent(stage=Stage.DROPPED, node="n1", domain="a.test", wall_ns=1, mono_ns=1)
        )
        eventually(lambda: writer.counters.errors)
    assert writer.counters.written == 1
    assert len(finished(tmp_path)) == 1
    assert unfinished(tmp_path) == []
