"""Where trace files lie, how they appear, and when they go."""

import os
import time
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from psph.trace_writer import InvalidPartitionName, TraceSettings, TraceWriter
from psph.trace_writer.files import NodeFiles
from traces import Stage, TraceEvent

DAY = date(2027, 1, 15)
HOSTILE = [
    "../../../etc",
    "..",
    ".",
    "/",
    "/etc/passwd",
    "a/b",
    "a\\b",
    "x=y",
    "_hidden",
    ".hidden",
    "%2e%2e%2f",
    "100%",
    "sp ace",
    "line\nbreak",
    "nul\0",
    "q?#[]*:\"'{}",
    "007",
    "null",
    "é漢字",
]


def finished(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*.parquet"))


def publish(files: NodeFiles, *, size: int = 10, age_s: float = 0, day: date = DAY) -> None:
    """A file of that size, finished that long ago."""
    root = files._domain
    before = set(root.rglob("*"))
    files.publish(day, b"x" * size)
    (new,) = (path for path in set(root.rglob("*")) - before if path.is_file())
    past = time.time() - age_s
    os.utime(new, (past, past))


def test_file_lies_in_its_partition_under_a_sortable_name(tmp_path: Path) -> None:
    NodeFiles(tmp_path, "a.test", "n1").publish(DAY, b"content")
    (file,) = finished(tmp_path)
    assert file.parent == tmp_path / "domain=a.test" / "date=2027-01-15" / "node=n1"
    assert file.read_bytes() == b"content"
    stamp, token, number = file.stem.split("-")
    assert stamp.startswith(time.strftime("%Y%m%d", time.gmtime()))
    assert len(token) == 8
    assert number == "000001"


def test_names_never_repeat(tmp_path: Path) -> None:
    for _ in range(5):
        files = NodeFiles(tmp_path, "a.test", "n1")
        for _ in range(20):
            files.publish(DAY, b"x")
    assert len(finished(tmp_path)) == 100


@pytest.mark.parametrize("fsync", [False, True])
def test_nothing_else_is_left_beside_the_file(tmp_path: Path, fsync: bool) -> None:
    NodeFiles(tmp_path, "a.test", "n1").publish(DAY, b"x", fsync=fsync)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == finished(tmp_path)


def test_a_file_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, target: Path) -> Path:
        raise OSError("planted")

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(OSError, match="planted"):
        NodeFiles(tmp_path, "a.test", "n1").publish(DAY, b"x")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_file_that_may_not_survive_power_loss_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(directory: Path) -> None:
        raise OSError("planted")

    monkeypatch.setattr("psph.trace_writer.files._fsync_directory", refuse)
    with pytest.raises(OSError, match="planted"):
        NodeFiles(tmp_path, "a.test", "n1").publish(DAY, b"x", fsync=True)
    assert finished(tmp_path) == []


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_inside_and_come_back(tmp_path: Path, name: str) -> None:
    root = tmp_path / "traces"
    event = TraceEvent(stage=Stage.DROPPED, node=name, domain=name, wall_ns=1, mono_ns=1)
    with TraceWriter(root, name, name) as writer:
        writer.emit(event)
    assert list(tmp_path.iterdir()) == [root]
    (file,) = finished(root)
    assert len(file.relative_to(root).parts) == 4
    schema = pa.schema([("domain", pa.string()), ("date", pa.date32()), ("node", pa.string())])
    (row,) = (
        ds.dataset(root, partitioning=ds.partitioning(schema, flavor="hive"))
        .to_table(columns=["domain", "node", "date"])
        .to_pylist()
    )
    assert row == {"domain": name, "node": name, "date": date(1970, 1, 1)}


@given(st.text(st.characters(), max_size=80))
@example("\udc80")
def test_any_name_is_refused_or_one_segment_that_reads_back(name: str) -> None:
    try:
        segment = NodeFiles(Path("root"), "a.test", name)._node
    except InvalidPartitionName:
        return
    assert "/" not in segment
    assert "\0" not in segment
    hive = ds.partitioning(pa.schema([("node", pa.string())]), flavor="hive")
    assert ds.get_partition_keys(hive.parse(f"{segment}/")) == {"node": name}


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("", "choose another name"),
        ("__HIVE_DEFAULT_PARTITION__", "choose another name"),
        ("n1._COPYING_", "choose another name"),
        ("\udc80", "not valid Unicode"),  # what os.fsdecode makes of a stray byte
        ("n" * 251, "too long: at most 250 bytes"),
        ("é" * 130, "too long"),
    ],
)
def test_names_that_cannot_stand_in_a_path_are_refused(
    tmp_path: Path, name: str, complaint: str
) -> None:
    with pytest.raises(InvalidPartitionName, match=complaint):
        TraceWriter(tmp_path, name, "a.test")
    with pytest.raises(InvalidPartitionName):
        TraceWriter(tmp_path, "n1", name)


def test_files_past_their_age_go(tmp_path: Path) -> None:
    files = NodeFiles(tmp_path, "a.test", "n1")
    for age in (10, 100, 1000):
        publish(files, size=age, age_s=age)
    files.expire(keep_seconds=50, keep_bytes=0)
    assert [file.stat().st_size for file in finished(tmp_path)] == [10]


def test_the_oldest_files_go_when_they_are_too_many(tmp_path: Path) -> None:
    files = NodeFiles(tmp_path, "a.test", "n1")
    for age in (30, 40, 10, 20):
        publish(files, size=100 + age, age_s=age)
    files.expire(keep_seconds=0, keep_bytes=250)
    assert sorted(file.stat().st_size for file in finished(tmp_path)) == [110, 120]


def test_without_limits_nothing_goes(tmp_path: Path) -> None:
    files = NodeFiles(tmp_path, "a.test", "n1")
    publish(files, size=10**6, age_s=10**9)
    files.expire(keep_seconds=0, keep_bytes=0)
    assert len(finished(tmp_path)) == 1


def test_only_this_nodes_own_files_go(tmp_path: Path) -> None:
    mine = NodeFiles(tmp_path, "a.test", "n1")
    for other in (NodeFiles(tmp_path, "a.test", "n2"), NodeFiles(tmp_path, "b.test", "n1")):
        publish(other, age_s=1000)
    publish(mine, age_s=1000)
    foreign = tmp_path / "domain=a.test" / "date=2027-01-15" / "node=n1" / "part-0000.parquet"
    foreign.write_bytes(b"somebody else's")
    os.utime(foreign, (0, 0))
    mine.expire(keep_seconds=1, keep_bytes=1)
    assert foreign in finished(tmp_path)
    assert len(finished(tmp_path)) == 3


def test_directories_go_with_their_last_file(tmp_path: Path) -> None:
    files = NodeFiles(tmp_path, "a.test", "n1")
    publish(files, age_s=1000, day=date(2027, 1, 14))
    publish(files, age_s=0)
    files.expire(keep_seconds=500, keep_bytes=0)
    assert [path.name for path in (tmp_path / "domain=a.test").iterdir()] == ["date=2027-01-15"]


def test_the_writer_keeps_to_its_limits(tmp_path: Path) -> None:
    settings = TraceSettings(rotate_bytes=2_000, keep_bytes=20_000)
    with TraceWriter(tmp_path, "n1", "a.test", settings) as writer:
        for n in range(1, 10_001):
            writer.emit(
                TraceEvent(
                    stage=Stage.DROPPED, node="n1", domain="a.test", version=n, wall_ns=n, mono_ns=n
                )
            )
            if n % 100 == 0:
                time.sleep(0.001)
    files = finished(tmp_path)
    assert writer.counters.written == 10_000
    assert 0 < sum(file.stat().st_size for file in files) <= 20_000
    assert writer.counters.files > len(files)


def test_old_files_go_even_when_nothing_is_emitted(tmp_path: Path) -> None:
    publish(NodeFiles(tmp_path, "a.test", "n1"), age_s=1000)
    with TraceWriter(tmp_path, "n1", "a.test", TraceSettings(keep_seconds=100)):
        pass
    assert finished(tmp_path) == []
