"""The file of a job that follows our traces: read when it changed, passed over when it is none."""

from __future__ import annotations

import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo.windows import LARGEST, SHOWN, LiveWindows

NS = 1_000_000_000


def window(at, origin="site-b.test", **more):
    return {
        "window_ns": at * NS, "from_domain": origin, "to_domain": "site-a.test", "count": 3,
        "p50_ms": 1.5, "p90_ms": 2.5, "p99_ms": 2.75, "uncertainty_ms": 0.25, **more,
    }  # fmt: skip


def written(path, windows):
    aside = path.with_name("aside")
    aside.write_text(json.dumps({"window_s": 10, "windows": windows}))
    aside.rename(path)


def test_pairs_come_with_their_last_windows_in_order(tmp_path):
    file = tmp_path / "latency.json"
    live = LiveWindows(file)
    assert not live.look()
    assert live.shown is None
    written(file, [window(10 * n) for n in reversed(range(SHOWN + 5))] + [window(0, "site-a.test")])
    assert live.look()
    first, second = live.shown["pairs"]
    assert (first["from"], len(first["windows"])) == ("site-a.test", 1)
    assert [each["at"] for each in second["windows"]] == [10 * n for n in range(5, SHOWN + 5)]
    assert second["windows"][0] == {
        "at": 50, "count": 3, "p50": 1.5, "p90": 2.5, "p99": 2.75, "uncertainty": 0.25,
    }  # fmt: skip
    assert not live.look(), "it has not changed"
    written(file, [window(0)])
    assert live.look()
    assert len(live.shown["pairs"]) == 1
    file.unlink()
    assert live.look()
    assert live.shown is None
    assert not live.look()


def test_latencies_may_be_unknown(tmp_path):
    unknown = dict.fromkeys(("p50_ms", "p90_ms", "p99_ms", "uncertainty_ms"))
    written(tmp_path / "latency.json", [window(0, **unknown)])
    live = LiveWindows(tmp_path / "latency.json")
    assert live.look()
    assert live.shown["pairs"][0]["windows"][0]["p50"] is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"windows": 1}', b" " * (LARGEST + 1)])
def test_what_is_no_such_file_is_not_shown_and_said_once(tmp_path, content, caplog):
    file = tmp_path / "latency.json"
    file.write_bytes(content)
    live = LiveWindows(file)
    with caplog.at_level(logging.WARNING):
        assert live.look()
        assert not live.look()
    assert live.shown is None
    assert len(caplog.records) == 1


@given(st.binary(max_size=200))
def test_nothing_in_the_file_ends_the_world(tmp_path_factory, content):
    file = tmp_path_factory.mktemp("live") / "latency.json"
    file.write_bytes(content)
    LiveWindows(file).look()
