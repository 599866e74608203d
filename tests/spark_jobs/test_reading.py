"""Trace directories as they are: late, doubled, damaged and incomplete."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime

import pyarrow.parquet as pq
import pytest

from psph.trace_writer.files import NodeFiles
from spark_jobs.errors import NoTraces
from spark_jobs.reading import SCHEMA, read_traces
from tests.sizes import size
from tests.spark_jobs.worlds import MS, START, S, World, names, position, trace_id, write_file
from traces import COLUMNS, Stage

DAY = 86_400 * S


@pytest.fixture(autouse=True, scope="module")
def few_pieces(spark):
    """Of a few files, one piece."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", str(size(1, 2)))
    yield
    spark.conf.set("spark.sql.shuffle.partitions", before)


def world(nodes=("n1", "n2"), events=40):
    made = World(domains={node: f"site-{node}.test" for node in nodes})
    for number in range(events):
        for node in nodes:
            made.emit(
                Stage.PUBLISHED, node, START + number * S + 7, trace_id=trace_id(number),
                **position(1, number + 1), **names(1), bytes=number,
            )  # fmt: skip
    return made


def files(root):
    return sorted(root.rglob("[!_]*.parquet"))


def test_what_was_written_is_read(spark, tmp_path):
    made = world(nodes=("007", "a b/ü"))
    traces = read_traces(spark, str(made.write(tmp_path, per_file=7)))
    rows = traces.events.select(*(c.name for c in COLUMNS)).collect()
    found = {tuple(bytes(v) if isinstance(v, bytearray) else v for v in row) for row in rows}
    assert len(rows) == len(made.events)
    assert found == {tuple(getattr(e, c.name) for c in COLUMNS) for e in made.events}
    assert traces.files.files == len(files(tmp_path)) == 12
    assert (traces.files.unreadable, traces.files.copies, traces.files.missing) == (0, 0, 0)
    assert traces.events.schema == SCHEMA


def test_damaged_files_are_left_out_named_and_counted(spark, tmp_path):
    root = world().write(tmp_path, per_file=10)
    headless, within, empty, intact = files(root)[:4]
    headless.write_bytes(headless.read_bytes()[:-20])
    content = bytearray(within.read_bytes())
    content[200:600] = bytes(400)  # the footer stays whole
    within.write_bytes(content)
    empty.write_bytes(b"")
    traces = read_traces(spark, str(root))
    named = {file.path.rsplit("/", 1)[1]: file.why for file in traces.files.left_out}
    assert named == dict.fromkeys((headless.name, within.name, empty.name), "unreadable")
    assert traces.files.unreadable == 3
    assert traces.events.count() == 80 - 30
    assert pq.read_table(intact).num_rows == 10


def test_copies_count_once_and_what_came_twice_stays_twice(spark, tmp_path):
    made = world(nodes=("n1",), events=10)
    made.events += made.events[:1]  # the same event, truly written twice
    root = made.write(tmp_path, per_file=5)
    first = files(root)[0]
    shutil.copy(first, first.with_name("20280101T000000000000Z-0a0b0c0d-000001.parquet"))
    other_day = first.parents[1].with_name("date=2027-01-16") / first.parent.name
    other_day.mkdir(parents=True)
    shutil.copy(first, other_day / first.name)
    traces = read_traces(spark, str(root))
    assert traces.files.copies == 2
    assert {file.why for file in traces.files.left_out} == {"copy"}
    assert traces.events.count() == 11


def test_unfinished_files_and_strangers_are_passed_over(spark, tmp_path):
    root = world().write(tmp_path)
    inside = files(root)[0].parent
    (inside / "_20270115T093000123456Z-5f0c9a1e-000017.parquet.part").write_bytes(b"half")
    (inside / "_also.parquet").write_bytes(b"half")
    (inside / "notes.txt").write_text("hello")
    (root / "report").mkdir()
    (root / "report" / "latency.parquet").write_bytes(b"not a trace")
    traces = read_traces(spark, str(root))
    assert traces.events.count() == 80
    assert traces.files.files == 2


def test_missing_files_are_counted_by_their_numbers(spark, tmp_path):
    root = world(nodes=("n1",)).write(tmp_path, per_file=4)
    for gone in (files(root)[3], files(root)[4], files(root)[0]):  # the first: by retention
        gone.unlink()
    traces = read_traces(spark, str(root))
    assert traces.files.missing == 2
    assert traces.events.count() == 28


def test_a_file_without_later_columns_has_null_there(spark, tmp_path):
    root = world(nodes=("n1",)).write(tmp_path)
    (file,) = files(root)
    table = pq.read_table(file, partitioning=None).drop_columns(["bytes", "reason"])
    pq.write_table(table, file)
    rows = read_traces(spark, str(root)).events.collect()
    assert len(rows) == 40
    assert {(row.bytes, row.reason) for row in rows} == {(None, None)}


def test_a_late_file_counts_by_when_its_events_happened(spark, tmp_path):
    made = world(nodes=("n1",))
    root = made.write(tmp_path)
    late = world(nodes=("n1",), events=1).events[0]
    write_file(NodeFiles(root, "site-n1.test", "n1"), [late], "n1", "site-n1.test")
    assert read_traces(spark, str(root)).events.where(f"wall_ns = {START + 7}").count() == 2


def test_only_the_directories_that_are_asked_for_are_read(spark, tmp_path):
    made = World(domains={"n1": "site-n1.test", "n2": "site-n2.test"})
    for day in range(3):
        for node in made.domains:
            made.emit(Stage.DROPPED, node, START + day * DAY, reason="test")  # 08:00 of each day
    root = made.write(tmp_path)
    # Of what must not be read, nothing can be.
    for file in files(root):
        if "n2" in str(file) or "date=2027-01-15" in str(file):
            file.write_bytes(b"broken")
    since = datetime(2027, 1, 16, 9, tzinfo=UTC)
    traces = read_traces(spark, str(root), since, "site-n1.test")
    assert traces.files.files == 2
    assert traces.files.unreadable == 0
    assert [row.wall_ns for row in traces.events.collect()] == [START + 2 * DAY]
    plan = traces.events._jdf.queryExecution().toString()
    assert "PartitionFilters: [isnotnull(domain" in plan


def test_nothing_to_read_is_said_in_one_line(spark, tmp_path):
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(NoTraces, match="no traces in"):
            read_traces(spark, str(path))


def test_probe_times_are_kept_to_the_nanosecond(spark, tmp_path):
    made = world(nodes=("n1", "n2"), events=1)
    made.probe("n1", "n2", START, 2 * MS + 1, 3 * MS + 3)
    rows = read_traces(spark, str(made.write(tmp_path))).events.where("t1 is not null").collect()
    assert [(r.t2 - r.t1, r.t4 - r.t3) for r in rows] == [(2 * MS + 1, 3 * MS + 3)]
