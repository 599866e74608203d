"""The trace writer, through its public face and with real files.

Where the files lie and how they go is in test_trace_writer_files.py, what a crash leaves in
test_trace_writer_crash.py.
"""

import logging
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from psph.trace_writer import TraceCounters, TraceSettings, TraceWriter
from psph.trace_writer.encoding import table_schema
from traces import COLUMNS, Stage, TraceEvent, TraceSink

NODE, DOMAIN = "n1", "a.test"
NOON_NS = 1_800_014_400 * 10**9  # 2027-01-15 12:00 UTC
HOUR_NS = 3_600 * 10**9
FULL = {
    "trace_id": "0af7651916cd43dd8448eb211c80319c",
    "sid": bytes(range(32)),
    "rid": bytes(range(32, 64)),
    "topic": "https://news.a.test/feed.xml?q=ä",
    "publisher": bytes(range(16)),
    "epoch": 0,
    "version": 2**63 - 1,
    "stage": Stage.PUSHED,
    "node": NODE,
    "domain": DOMAIN,
    "subscriber": "https://reader.b.test/callback",
    "peer": "n2",
    "wall_ns": NOON_NS,
    "mono_ns": 0,
    "t1": NOON_NS + 1,
    "t2": NOON_NS + 2,
    "t3": NOON_NS + 3,
    "t4": NOON_NS + 4,
    "bytes": 300,
    "reason": "timeout",
}


def event(**columns: Any) -> TraceEvent:
    """An event with only what every event has, and these columns."""
    bare = {
        "stage": Stage.DROPPED,
        "node": NODE,
        "domain": DOMAIN,
        "wall_ns": NOON_NS,
        "mono_ns": 1,
    }
    return TraceEvent(**{**bare, **columns})


def read(directory: Path) -> pa.Table:
    schema = table_schema()
    partitions = pa.schema([schema.field(name) for name in ("domain", "date", "node")])
    partitioning = ds.partitioning(partitions, flavor="hive")
    return ds.dataset(directory, schema=schema, partitioning=partitioning).to_table()


def versions(directory: Path) -> list[int]:
    return sorted(read(directory)["version"].to_pylist())


def finished(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*.parquet"))


def eventually(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def outage(directory: Path) -> Path:
    """Make every write below the directory fail (for root too); unlink the result to end it."""
    directory.mkdir(exist_ok=True)
    obstacle = directory / f"domain={DOMAIN}"
    obstacle.write_text("a file where a directory should be")
    return obstacle


def test_every_column_comes_back(tmp_path: Path) -> None:
    bare = event(wall_ns=NOON_NS + 1)
    with TraceWriter(tmp_path, NODE, DOMAIN) as writer:
        sink: TraceSink = writer
        sink.emit(TraceEvent(**FULL))
        sink.emit(bare)
    table = read(tmp_path)
    assert table.column_names == [column.name for column in COLUMNS] + ["date"]
    first, second = table.to_pylist()
    assert first == {**FULL, "date": date(2027, 1, 15)}
    assert second == {**msgspec.structs.asdict(bare), "date": date(2027, 1, 15)}
    assert writer.counters == TraceCounters(
        written=2, files=1, bytes=finished(tmp_path)[0].stat().st_size
    )


@pytest.mark.parametrize("stage", Stage)
def test_stages_are_text_in_the_file(tmp_path: Path, stage: Stage) -> None:
    with TraceWriter(tmp_path, NODE, DOMAIN) as writer:
        writer.emit(event(stage=stage))
    assert pq.read_table(finished(tmp_path)[0])["stage"].to_pylist() == [stage.value]


def test_partitions_are_told_by_the_path_and_not_by_the_file(tmp_path: Path) -> None:
    with TraceWriter(tmp_path, NODE, DOMAIN) as writer:
        writer.emit(event())
    (file,) = finished(tmp_path)
    assert file.parent == tmp_path / "domain=a.test" / "date=2027-01-15" / "node=n1"
    names = pq.ParquetFile(file).schema_arrow.names
    assert names == [c.name for c in COLUMNS if c.name not in ("node", "domain")]


def test_a_file_says_whose_it_is_and_what_it_misses(tmp_path: Path) -> None:
    with TraceWriter(tmp_path, NODE, DOMAIN) as writer:
        writer.emit(event())
    about = pq.ParquetFile(finished(tmp_path)[0]).metadata.metadata
    assert about[b"psph.traces.node"] == b"n1"
    assert about[b"psph.traces.domain"] == b"a.test"
    assert about[b"psph.traces.dropped"] == b"0"
    assert about[b"psph.traces.schema_version"] == b"1"


def test_readers_get_null_for_a_column_that_came_later(tmp_path: Path) -> None:
    with TraceWriter(tmp_path, NODE, DOMAIN) as writer:
        writer.emit(event())
    later = table_schema().append(pa.field("brought_later", pa.int64()))
    assert ds.dataset(tmp_path, schema=later).to_table()["brought_later"].to_pylist() == [None]


def test_nothing_emitted_nothing_written(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "traces", NODE, DOMAIN) as writer:
        pass
    assert not (tmp_path / "traces").exists()
    assert writer.counters == TraceCounters()


def test_rotates_by_size(tmp_path: Path) -> None:
    source = random.Random(1)
    settings = TraceSettings(rotate_bytes=100_000, rotate_seconds=3600)
    with TraceWriter(tmp_path, NODE, DOMAIN, settings) as writer:
        for n in range(20_000):  # ids that do not compress: 32 bytes an event
            writer.emit(event(version=n, sid=source.randbytes(32)))
    sizes = [file.stat().st_size for file in finished(tmp_path)]
    assert len(sizes) >= 3
    assert all(100_000 <= size <= 400_000 for size in sizes[:-1])
    assert versions(tmp_path) == list(range(20_000))


def test_rotates_by_time(tmp_path: Path) -> None:
    with TraceWriter(tmp_path, NODE, DOMAIN, TraceSettings(rotate_seconds=0.2)) as writer:
        for n in range(3):
            writer.emit(event(version=n))
            eventually(lambda n=n: writer.counters.written == n + 1)
            assert len(finished(tmp_path)) == n + 1
        eventually(lambda: writer.counters.waiting == 0)


def test_file_names_sort_in_the_order_of_writing(tmp_path: Path) -> None:
    for life in range(3):
        with TraceWriter(tmp_path, NODE, DOMAIN, TraceSettings(rotate_bytes=1)) as writer:
            for n in range(3):
                writer.emit(event(version=life * 3 + n))
                eventually(lambda n=n: writer.counters.written == n + 1)
    files = finished(tmp_path)
    assert [pq.read_table(file)["version"].to_pylist() for file in files] == [[n] for n in range(9)]


def test_an_event_lies_under_the_utc_date_of_its_wall_clock(tmp_path: Path) -> None:
    midnight = NOON_NS + 12 * HOUR_NS
    walls = [midnight - 1, midnight, midnight - 2, midnight + 1, midnight + 24 * HOUR_NS]
    with TraceWriter(tmp_path, NODE, DOMAIN) as writer:
        for n, wall_ns in enumerate(walls):
            writer.emit(event(version=n, wall_ns=wall_ns))
    rows = {row["version"]: row["date"] for row in read(tmp_path).to_pylist()}
    days = [date(2027, 1, day) for day in (15, 16, 15, 16, 17)]
    assert rows == dict(enumerate(days))
    assert len(finished(tmp_path)) == 3


def test_threads_emit_together(tmp_path: Path) -> None:
    def emit(first: int) -> None:
        for n in range(first, first + 5_000):
            writer.emit(event(version=n))

    with TraceWriter(tmp_path, NODE, DOMAIN, TraceSettings(rotate_bytes=10_000)) as writer:
        threads = [threading.Thread(target=emit, args=(k * 5_000,)) for k in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert writer.counters.dropped == 0
    assert versions(tmp_path) == list(range(40_000))


def test_two_writers_of_one_node_do_not_disturb_each_other(tmp_path: Path) -> None:
    settings = TraceSettings(rotate_bytes=1)
    with (
        TraceWriter(tmp_path, NODE, DOMAIN, settings) as one,
        TraceWriter(tmp_path, NODE, DOMAIN, settings) as other,
    ):
        for n in range(2_000):
            (one if n % 2 else other).emit(event(version=n))
            if n % 100 == 0:
                time.sleep(0.005)
    assert versions(tmp_path) == list(range(2_000))
    assert one.counters.written == other.counters.written == 1_000


def test_readers_never_see_a_partial_file(tmp_path: Path) -> None:
    settings = TraceSettings(rotate_bytes=1)  # a file for every chunk
    stop = threading.Event()
    seen = 0

    def keep_reading() -> None:
        nonlocal seen
        while not stop.is_set():
            for file in finished(tmp_path):
                pq.read_table(file, partitioning=None)
            rows = read(tmp_path).num_rows if tmp_path.exists() else 0
            assert rows >= seen
            seen = rows

    failures: list[BaseException] = []

    def reader() -> None:
        try:
            keep_reading()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=reader)
    thread.start()
    try:
        with TraceWriter(tmp_path, NODE, DOMAIN, settings) as writer:
            for n in range(15_000):
                writer.emit(event(version=n))
                if n % 100 == 0:
                    time.sleep(0.002)
            eventually(lambda: seen or failures)
    finally:
        stop.set()
        thread.join()
    assert failures == []
    assert seen > 0
    assert writer.counters.files > 10
    assert read(tmp_path).num_rows == 15_000


def test_overflow_drops_the_newest_and_counts_them(tmp_path: Path) -> None:
    obstacle = outage(tmp_path)
    settings = TraceSettings(rotate_bytes=1, queue_events=100)
    with TraceWriter(tmp_path, NODE, DOMAIN, settings) as writer:
        writer.emit(event(version=0))
        eventually(lambda: writer.counters.errors)  # from here on the thread takes no event
        for n in range(1, 151):
            writer.emit(event(version=n))
        assert writer.counters.dropped == 50
        assert writer.counters.waiting == 101
        obstacle.unlink()
        eventually(lambda: writer.counters.waiting == 0)
        writer.emit(event(version=1000))
    assert versions(tmp_path) == [*range(101), 1000]
    assert writer.counters.dropped == 50
    about = pq.ParquetFile(finished(tmp_path)[-1]).metadata.metadata
    assert about[b"psph.traces.dropped"] == b"50"


def test_a_disk_that_fails_is_counted_logged_once_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    obstacle = outage(tmp_path)
    caplog.set_level(logging.WARNING, logger="psph.traces")
    with TraceWriter(tmp_path, NODE, DOMAIN, TraceSettings(rotate_bytes=1)) as writer:
        writer.emit(event(version=1))
        eventually(lambda: writer.counters.errors >= 2)
        obstacle.unlink()
    assert writer.counters.written == 1
    assert versions(tmp_path) == [1]
    (record,) = caplog.records
    assert str(tmp_path) in record.getMessage()
    assert "Free space there or correct the directory" in record.getMessage()


def test_closing_over_a_dead_disk_counts_what_is_lost(tmp_path: Path) -> None:
    outage(tmp_path)
    with TraceWriter(tmp_path, NODE, DOMAIN) as writer:
        for n in range(1_000):
            writer.emit(event(version=n))
    assert writer.counters.dropped == 1_000
    assert writer.counters.written == writer.counters.waiting == 0


def test_a_file_system_that_fills_up_loses_nothing_once_it_has_room(tmp_path: Path) -> None:
    script = f"""
import resource, time
from psph.trace_writer import TraceSettings, TraceWriter
from traces import Stage, TraceEvent
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
with TraceWriter({str(tmp_path)!r}, "n1", "a.test", TraceSettings(rotate_seconds=0.1)) as writer:
    for n in range(500):
        writer.emit(TraceEvent(stage=Stage.DROPPED, node="n1", domain="a.test", version=n,
                               wall_ns=time.time_ns(), mono_ns=time.monotonic_ns()))
    while not writer.counters.errors:
        time.sleep(0.01)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(writer.counters.written, writer.counters.dropped)
"""
    # -B: modules that are compiled under the limit would be cut off, and kept.
    run = subprocess.run(
        [sys.executable, "-B", "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert run.stdout == "500 0\n"
    assert versions(tmp_path) == list(range(500))
    assert list(tmp_path.rglob("_*")) == []


@pytest.mark.parametrize(
    "bad",
    [
        event(node="n2"),
        event(domain="b.test"),
        event(node=["n1"]),
        event(version=2**63),
        event(version="1"),
        event(wall_ns=None),
        event(wall_ns="now"),
        event(topic="\ud800"),
        event(sid=5),
        "no event at all",
    ],
    ids=repr,
)
def test_an_event_that_cannot_be_written_costs_only_itself(tmp_path: Path, bad: TraceEvent) -> None:
    with TraceWriter(tmp_path, NODE, DOMAIN) as writer:
        for n in range(100):
            writer.emit(event(version=n))
            if n in (0, 50, 99):
                writer.emit(bad)
    assert versions(tmp_path) == list(range(100))
    assert writer.counters.rejected == 3
    assert writer.counters.written == 100


def test_a_bug_in_the_thread_costs_traces_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from psph.trace_writer.encoding import ParquetBuffer

    def broken(self: ParquetBuffer, **about: str) -> memoryview:
        raise RuntimeError("planted")

    with TraceWriter(tmp_path, NODE, DOMAIN, TraceSettings(rotate_bytes=1)) as writer:
        with monkeypatch.context() as planted:
            planted.setattr(ParquetBuffer, "finish", broken)
            writer.emit(event(version=1))
            eventually(lambda: writer.counters.errors)
        writer.emit(event(version=2))
    assert versions(tmp_path) == [2]
    assert writer.counters.dropped == 1
    assert "report this as a bug" in caplog.text


def test_close_is_final_and_may_be_repeated(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, NODE, DOMAIN)
    writer.emit(event(version=1))
    writer.close()
    writer.close()
    writer.emit(event(version=2))
    assert versions(tmp_path) == [1]
    assert writer.counters.written == writer.counters.dropped == 1


def test_a_program_that_forgets_to_close_loses_nothing(tmp_path: Path) -> None:
    script = f"""
from psph.trace_writer import TraceWriter
from traces import Stage, TraceEvent
writer = TraceWriter({str(tmp_path)!r}, "n1", "a.test")
for n in range(500):
    writer.emit(TraceEvent(stage=Stage.DROPPED, node="n1", domain="a.test", version=n,
                           wall_ns=1, mono_ns=1))
raise SystemExit
"""
    subprocess.run([sys.executable, "-c", script], timeout=60, check=True)
    assert versions(tmp_path) == list(range(500))


def test_settings_do_not_load_arrow() -> None:
    script = "import sys, psph.trace_writer; sys.exit('pyarrow' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], timeout=60, check=True)


@pytest.mark.parametrize(
    ("toml", "complaint"),
    [
        ({"rotate_bytes": 0}, "rotate_bytes"),
        ({"rotate_seconds": 0}, "rotate_seconds"),
        ({"keep_seconds": -1}, "keep_seconds"),
        ({"queue_events": 0}, "queue_events"),
        ({"keep_bytes": 1000}, "raise keep_bytes or lower rotate_bytes"),
        ({"rotate": 1}, "rotate"),
    ],
)
def test_settings_are_checked(toml: dict[str, object], complaint: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=complaint):
        msgspec.convert(toml, TraceSettings)
