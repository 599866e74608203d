"""Generated traces: valid as nodes' are, and the truth beside them is what stands in them."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from psph.trace_writer import TraceWriter
from psph.trace_writer.encoding import table_schema
from spark_jobs.generating import generator
from spark_jobs.generating.generator import generate
from spark_jobs.generating.settings import InvalidSettings, Settings
from spark_jobs.traces_command import traces
from traces import Stage, TraceEvent, check

SETTINGS = Settings(
    events=20_000, domains=3, loss=0.02, duplicates=0.02, reorder=0.02, handoffs=6, seed=7
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    directory = tmp_path_factory.mktemp("made") / "traces"
    counted = generate(SETTINGS, directory)
    return directory, counted


@pytest.fixture(scope="module")
def events(made):
    return _events(made[0])


@pytest.fixture(scope="module")
def truth(made):
    there = made[0] / "_truth"
    return (
        json.loads((there / "truth.json").read_text()),
        feather.read_table(there / "deliveries.arrow").to_pylist(),
        feather.read_table(there / "sends.arrow").to_pylist(),
    )


def _events(directory):
    """As docs/traces.md says to read them; the truth is not taken for traces."""
    schema = table_schema()
    partitions = pa.schema([schema.field(name) for name in ("domain", "date", "node")])
    found = ds.dataset(
        directory, schema=schema, partitioning=ds.partitioning(partitions, flavor="hive")
    )
    return found.to_table().to_pylist()


def test_there_are_exactly_as_many_events_as_were_asked_for(made, events):
    assert made[1]["events"] == len(events) == SETTINGS.events


def test_every_event_may_stand_in_a_trace_as_it_is(events):
    for event in events:
        day = event.pop("date")
        check(TraceEvent(**{**event, "stage": Stage(event["stage"])}))
        assert datetime.fromtimestamp(event["wall_ns"] / 1e9, UTC).date() == day
        event["date"] = day


def test_every_stage_occurs(events):
    assert {event["stage"] for event in events} == {str(stage) for stage in Stage}


def test_columns_are_filled_as_nodes_fill_them(events):
    filled = defaultdict(set)
    for event in events:
        filled[event["stage"]].add(
            tuple(name for name in ("trace_id", "sid", "topic", "version", "bytes")
                  if event[name] is not None)
        )  # fmt: skip
    assert filled["forwarded"] == {("sid", "bytes")}
    assert filled["pushed"] == {("trace_id", "topic", "version", "bytes")}
    assert filled["delivered"] == {("trace_id", "sid", "topic", "version", "bytes")}
    assert filled["fetched"] == {("trace_id", "topic"), ("trace_id", "topic", "version", "bytes")}
    assert {e["subscriber"] for e in events if e["stage"] == "delivered"} == {"proxy"}


def test_a_file_is_like_one_that_a_node_wrote(made, tmp_path):
    ours = next(made[0].glob("domain=site-a.test/date=*/node=psph-a/*.parquet"))
    with TraceWriter(tmp_path, "psph-a", "site-a.test") as writer:
        writer.emit(
            TraceEvent(
                stage=Stage.PING_RECEIVED, node="psph-a", domain="site-a.test", trace_id="a" * 32,
                topic="http://a.test/", wall_ns=1, mono_ns=1,
            )
        )  # fmt: skip
    theirs = next(tmp_path.glob("domain=site-a.test/date=*/node=psph-a/*.parquet"))
    one, other = pq.ParquetFile(ours), pq.ParquetFile(theirs)
    assert one.schema_arrow.equals(other.schema_arrow)
    said = {k: v for k, v in one.metadata.metadata.items() if k.startswith(b"psph.")}
    assert said == {k: v for k, v in other.metadata.metadata.items() if k.startswith(b"psph.")}
    for number in range(len(one.schema_arrow)):
        column, its = (f.metadata.row_group(0).column(number) for f in (one, other))
        assert (column.compression, column.has_dictionary_page) == (
            its.compression, its.has_dictionary_page,
        )  # fmt: skip
    assert len(ours.name) == len(theirs.name)


def test_writers_number_the_files_of_many_pieces_without_gaps(tmp_path, monkeypatch):
    monkeypatch.setattr(generator, "PIECE", 5_000)
    generate(Settings(events=20_000, domains=2), tmp_path / "traces")
    numbers = defaultdict(list)
    for path in (tmp_path / "traces").glob("domain=*/date=*/node=*/*.parquet"):
        _, token, number = path.stem.split("-")
        numbers[path.parent.name, token].append(int(number))
    assert len(numbers) == 5
    assert all(sorted(each) == list(range(1, len(each) + 1)) for each in numbers.values())
    assert max(map(len, numbers.values())) > 2


def test_the_truth_of_deliveries_is_what_stands_in_the_traces(events, truth):
    clocks = _clocks(truth[0])
    found = defaultdict(list)
    for event in events:
        if event["stage"] == "delivered":
            found[event["trace_id"], event["domain"]].append(event["wall_ns"])
    expected = {(d["trace_id"], d["to_domain"]): d for d in truth[1]}
    assert found.keys() == {key for key, d in expected.items() if d["copies"]}
    for key, walls in found.items():
        node = "psph-" + key[1].removeprefix("site-").removesuffix(".test")
        assert len(walls) == expected[key]["copies"]
        assert min(walls) == clocks(node, expected[key]["delivered"])
    assert Counter(d["copies"] for d in truth[1]).keys() == {0, 1, 2}


def test_the_truth_of_sends_is_what_stands_in_the_traces(events, truth):
    found, failed = Counter(), Counter()
    for event in events:
        if event["stage"] in ("pushed", "browser_sent"):
            key = event["trace_id"], event["subscriber"]
            (failed if event["reason"] else found)[key] += 1
    assert found == {(s["trace_id"], s["subscriber"]): s["copies"] for s in truth[2] if s["copies"]}
    assert failed == {
        (s["trace_id"], s["subscriber"]): s["failures"] for s in truth[2] if s["failures"]
    }


def test_late_means_that_a_higher_version_was_there_before(events, truth):
    first, version = {}, {}
    for event in events:
        if event["stage"] == "delivered":
            key = event["topic"], event["node"], event["trace_id"]
            first[key] = min(first.get(key, event["wall_ns"]), event["wall_ns"])
            version[event["trace_id"]] = event["version"]
    highest, late = {}, set()
    for topic, node, trace in sorted(first, key=first.get):
        before = highest.get((topic, node), 0)
        if version[trace] < before:
            late.add((trace, node))
        highest[topic, node] = max(before, version[trace])
    said = {(d["trace_id"], f"psph-{d['to_domain'][5]}") for d in truth[1] if d["late"]}
    assert late == said
    assert late


def test_what_waited_for_a_client_that_moved_is_told(events, truth):
    handoffs = truth[0]["handoffs"]
    assert len(handoffs) == SETTINGS.handoffs
    by_trace = defaultdict(dict)
    for event in events:
        if event["stage"].startswith("move_in"):
            by_trace[event["trace_id"]][event["stage"]] = event
    outs = {e["subscriber"]: e for e in events if e["stage"] == "move_out"}
    for handoff in handoffs:
        ends = by_trace[handoff["trace_id"]]
        assert ends["move_in_end"]["bytes"] == handoff["bytes"]
        assert ends["move_in_begin"]["domain"] == handoff["to_domain"]
        assert outs[handoff["subscriber"]]["domain"] == handoff["from_domain"]
        waited = [s for s in truth[2] if s["subscriber"] == handoff["subscriber"] and s["buffered"]]
        assert handoff["buffered"] == len(waited)
        assert handoff["lost"] == sum(s["copies"] == 0 for s in waited)
        for send in waited:
            if send["sent"] is not None:
                assert handoff["begin_ns"] <= send["sent"]
    assert sum(handoff["buffered"] for handoff in handoffs) > 0
    assert sum(handoff["lost"] for handoff in handoffs) > 0


def test_probes_tell_of_the_clocks_within_half_a_round_trip(events, truth):
    clocks = _clocks(truth[0])
    probes = [event for event in events if event["stage"] == "clock_probe"]
    off = {n["node"]: n["offset_ns"] for n in truth[0]["nodes"]}
    assert max(map(abs, off.values())) > 1e8
    for probe in probes[::50]:
        offset = ((probe["t2"] - probe["t1"]) + (probe["t3"] - probe["t4"])) / 2
        trip = (probe["t4"] - probe["t1"]) - (probe["t3"] - probe["t2"])
        at = probe["t1"] - off[probe["node"]]
        really = clocks(probe["peer"], at) - clocks(probe["node"], at)
        # By the time of the answer, up to a second later, clocks have drifted up to 100 us.
        assert abs(offset - really) <= trip / 2 + 100_000


def _clocks(truth):
    by_node = {node["node"]: node for node in truth["nodes"]}

    def wall(node, at):
        clock = by_node[node]
        ran = round(clock["drift_ppm"] * 1e-6 * (at - truth["start_ns"]))
        return at + clock["offset_ns"] + ran

    return wall


def test_topics_are_uneven(events):
    published = Counter(e["topic"] for e in events if e["stage"] == "published")
    first, second, *others = [count for _, count in published.most_common()]
    assert first > 1.3 * second > 1.3 * others[-1]


def test_the_same_seed_gives_the_same_files(tmp_path):
    def digests(name, seed):
        generate(Settings(events=2_000, seed=seed), tmp_path / name)
        return {
            path.relative_to(tmp_path / name): hashlib.sha256(path.read_bytes()).digest()
            for path in (tmp_path / name).rglob("*")
            if path.is_file()
        }

    assert digests("one", 1) == digests("two", 1)
    assert digests("three", 2) != digests("one again", 1)


def test_a_world_at_midnight_lies_under_two_dates(tmp_path):
    start = datetime(2027, 1, 15, 23, 59, 30, tzinfo=UTC)
    generate(Settings(events=2_000, start=start), tmp_path / "traces")
    dates = {path.name for path in (tmp_path / "traces").glob("domain=*/date=*")}
    assert dates == {"date=2027-01-15", "date=2027-01-16"}
    for event in _events(tmp_path / "traces"):
        assert datetime.fromtimestamp(event["wall_ns"] / 1e9, UTC).date() == event["date"]


@pytest.mark.parametrize("events", [500, 501, 777, 1_234, 5_003])
@pytest.mark.parametrize("domains", [2, 5])
def test_small_worlds_are_exact_too(tmp_path, events, domains):
    counted = generate(Settings(events=events, domains=domains), tmp_path / "traces")
    assert counted["events"] == events == len(_events(tmp_path / "traces"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"events": 499},
        {"domains": 1},
        {"domains": 27},
        {"loss": 0.6},
        {"loss": float("nan")},
        {"events": 1_000, "topics": 21},
        {"events": 500, "handoffs": 400},
        {"events": 10_000_000, "topics": 200_000, "seconds": 600_000},
    ],
)
def test_impossible_worlds_are_refused(tmp_path, wrong):
    with pytest.raises(InvalidSettings):
        generate(Settings(**wrong), tmp_path / "traces")


def test_the_command_writes_and_counts(tmp_path):
    call = ["generate", "--events", "1000", "--out", str(tmp_path / "traces"), "--json"]
    done = CliRunner().invoke(traces, call)
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["events"] == 1_000
    again = CliRunner().invoke(traces, call)
    assert again.exit_code == 2
    assert "is not empty" in again.output
    (tmp_path / "file").touch()
    into_a_file = CliRunner().invoke(
        traces, ["generate", "--out", str(tmp_path / "file" / "below"), "--events", "1000"]
    )
    assert into_a_file.exit_code == 1
    assert "cannot write" in into_a_file.output
