"""A made-up world whose files appear piece by piece, and what its windows must say."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict

import pyarrow.dataset as ds
import pyarrow.feather as feather

from spark_jobs.generating import generator
from spark_jobs.generating.settings import Settings

SECOND = 1_000_000_000


def make(directory, monkeypatch, *, piece, **settings):
    """Traces of one minute, in a file of each node for every so many events."""
    monkeypatch.setattr(generator, "PIECE", piece)
    generator.generate(Settings(**{"events": 6_000, "domains": 2, **settings}), directory)
    return directory


def pieces(directory):
    """The files as nodes finished them: those of one time together."""
    found = defaultdict(list)
    for path in directory.glob("domain=*/date=*/node=*/*.parquet"):
        found[int(path.stem.rsplit("-", 1)[1])].append(path)
    return [sorted(found[number]) for number in sorted(found)]


def appear(files, made, growing):
    """As a node does it: aside, then whole under the final name."""
    for path in files:
        final = growing / path.relative_to(made)
        final.parent.mkdir(parents=True, exist_ok=True)
        aside = final.with_name(f"_{final.name}.part")
        shutil.copyfile(path, aside)
        aside.rename(final)


def expected(made, window_s):
    """By window, origin and destination: the true latencies, from the truth."""
    told = json.loads((made / "_truth" / "truth.json").read_text())
    clocks = {node["node"]: node for node in told["nodes"]}
    windows = defaultdict(list)
    for row in feather.read_table(made / "_truth" / "deliveries.arrow").to_pylist():
        if row["delivered"] is not None:
            clock = clocks["psph-" + row["to_domain"][5]]
            since = row["delivered"] - told["start_ns"]
            wall = row["delivered"] + clock["offset_ns"] + round(clock["drift_ppm"] * 1e-6 * since)
            window = wall - wall % (window_s * SECOND)
            key = window, row["from_domain"], row["to_domain"]
            windows[key].append((row["delivered"] - row["published"]) / 1e6)
    return windows


def written(out):
    """All rows that the job wrote, as whoever reads its directory finds them."""
    return ds.dataset(out / "windows", partitioning="hive").to_table().to_pylist()


def last_event(made):
    table = ds.dataset(made, partitioning="hive").to_table(columns=["wall_ns"])
    return max(table["wall_ns"].to_pylist())


def compare(made, out, window_s, late_s):
    """Every window that is over is there, once, and says what is true."""
    rows = written(out)
    truth = expected(made, window_s)
    found = {(row["window_ns"], row["from_domain"], row["to_domain"]): row for row in rows}
    assert len(found) == len(rows), "a window is there twice"
    # Both sides of a join wait for each other: a crossing may end so much later than it began.
    over = last_event(made) - 2 * late_s * SECOND
    due = {key for key in truth if key[0] + window_s * SECOND <= over}
    assert len(due) > len(truth) / 2
    assert due <= found.keys() <= truth.keys()
    for key, row in found.items():
        true = sorted(truth[key])
        assert row["count"] == row["compared"] == len(true), key
        off = row["uncertainty_ms"] + 0.2  # within a window clocks run apart a little
        assert abs(row["max_ms"] - true[-1]) <= off
        assert abs(row["p50_ms"] - true[len(true) // 2]) <= off + _step(true)
    return found


def _step(true):
    """Around the middle of a few values a quantile lies between two of them."""
    middle = len(true) // 2
    return true[min(middle + 1, len(true) - 1)] - true[max(0, middle - 1)]
