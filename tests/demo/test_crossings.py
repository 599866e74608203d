"""Crossings from trace events, and what they took."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo.crossings import KEPT, SETTLED, Crossings, percentile

MS = 1_000_000
WAY = [
    ("ping_received", "psph-b", 0), ("fetched", "psph-b", 4), ("published", "psph-b", 5),
    ("delivered", "psph-a", 8), ("browser_sent", "psph-a", 10),
]  # fmt: skip


def event(stage, node, at, trace="a" * 32, topic="http://x/", **more):
    return {
        "stage": stage, "node": node, "domain": f"site-{node[-1]}.test", "trace_id": trace,
        "topic": topic, "mono_ns": at * MS, "wall_ns": at * MS, "sid": "s", "rid": "r", **more,
    }  # fmt: skip


@given(st.permutations(WAY), st.integers(0, 5))
def test_events_may_come_in_any_order_and_in_parts(way, cut):
    crossings = Crossings()
    found = []
    for part in (way[:cut], way[cut:]):
        crossings.take([event(*each) for each in part])
        found += crossings.finished(now=11 * MS)
    (crossing,) = found
    assert [(s["stage"], s["node"], s["at_ms"]) for s in crossing["stages"]] == WAY
    assert (crossing["from"], crossing["to"]) == ("site-b.test", "site-a.test")
    assert crossing["total_ms"] == 10
    assert crossings.finished(now=10**12) == [], "once"


def test_hops_are_found_by_name_and_time():
    crossings = Crossings()
    crossings.take(event(*each) for each in WAY)
    hop = {"trace_id": None, "topic": None}
    crossings.take(
        [
            event("forwarded", "n5", 6, **hop),
            event("forwarded", "n3", 7, **hop),
            event("forwarded", "n3", 7, rid="another") | hop,
            event("forwarded", "n1", 99, **hop),
        ]
    )
    (crossing,) = crossings.finished(now=11 * MS)
    assert [s["node"] for s in crossing["stages"] if s["stage"] == "forwarded"] == ["n5", "n3"]
    assert crossing["total_ms"] == 10


def test_what_no_hub_passes_on_is_done_after_a_while():
    crossings = Crossings()
    crossings.take(event(*each) for each in WAY[:-1])
    assert crossings.finished(now=9 * MS) == []
    (crossing,) = crossings.finished(now=8 * MS + SETTLED)
    assert crossing["stages"][-1]["stage"] == "delivered"


@pytest.mark.parametrize(
    "way",
    [WAY[2:], [("fetched", "psph-b", 0), ("browser_sent", "psph-b", 2)], WAY[3:]],
    ids=["an old version", "at home", "published before we looked"],
)
def test_not_everything_is_a_crossing(way):
    crossings = Crossings()
    crossings.take(event(*each) for each in way)
    assert crossings.finished(now=10**12) == []


def subscribed(at, node="psph-a", topic="http://x/"):
    return event("subscribed", node, at, topic=topic) | {"trace_id": None}


def test_what_lay_there_until_somebody_came_took_no_time():
    crossings = Crossings()
    late = [*WAY[:3], ("delivered", "psph-a", 16_000), ("browser_sent", "psph-a", 16_005)]
    crossings.take([*(event(*each) for each in late), subscribed(15_990)])
    assert crossings.finished(now=10**12) == []
    assert crossings.count == 0


@pytest.mark.parametrize(
    "other",
    [subscribed(1), subscribed(9), subscribed(6, node="psph-b"), subscribed(6, topic="http://y/")],
    ids=["before", "afterwards", "elsewhere", "to something else"],
)
def test_other_readers_may_come_at_any_time(other):
    crossings = Crossings()
    crossings.take([other, *(event(*each) for each in WAY)])
    (crossing,) = crossings.finished(now=11 * MS)
    assert crossing["total_ms"] == 10


@given(st.permutations([*WAY, ("delivered", "psph-b", 6), ("browser_sent", "psph-b", 7)]))
def test_what_its_own_domain_reads_of_it_is_no_crossing(way):
    crossings = Crossings()
    crossings.take(event(*each) for each in way)
    (crossing,) = crossings.finished(now=11 * MS)
    assert (crossing["from"], crossing["to"]) == ("site-b.test", "site-a.test")
    assert [(s["stage"], s["node"], s["at_ms"]) for s in crossing["stages"]] == WAY


def test_what_is_read_at_home_only_is_none():
    crossings = Crossings()
    crossings.take(event(stage, "psph-b", at) for stage, _, at in WAY)
    assert crossings.finished(now=10**12) == []


def test_what_proxies_say_to_each_other_is_none():
    crossings = Crossings()
    crossings.take(event(*each, topic=None) for each in WAY)
    assert crossings.finished(now=10**12) == []


def test_failures_do_not_count():
    crossings = Crossings()
    crossings.take(event(*each) for each in WAY[:-1])
    crossings.take([event("pushed", "psph-a", 9, reason="refused")])
    assert crossings.finished(now=11 * MS) == []


def test_only_a_ping_says_when_it_began():
    crossings = Crossings()
    crossings.take([event("fetched", "psph-b", 3)])
    assert crossings.pinged("a" * 32) is None
    crossings.take([event("ping_received", "psph-b", 1)])
    assert crossings.pinged("a" * 32) == MS


def test_percentiles_and_where_the_time_went():
    crossings = Crossings()
    for number in range(KEPT + 50):
        name = f"{number:032x}"
        crossings.take(event(*each, trace=name) for each in WAY)
        crossings.finished(now=11 * MS)
    latency = crossings.latency("/report/")
    assert (latency["p50"], latency["p90"], latency["p99"]) == (10, 10, 10)
    assert (latency["count"], latency["of_last"]) == (KEPT + 50, KEPT)
    shares = {each["stage"]: (each["share"], each["p50"]) for each in latency["by_stage"]}
    assert shares == {
        "ping_received": (0, 0), "fetched": (0.4, 4), "published": (0.1, 1),
        "delivered": (0.3, 3), "browser_sent": (0.2, 2),
    }  # fmt: skip
    assert latency["report"] == "/report/"


def test_of_nothing_there_is_no_latency():
    latency = Crossings().latency(None)
    assert (latency["p50"], latency["count"], latency["by_stage"]) == (None, 0, [])


def test_nothing_grows_without_bounds():
    crossings = Crossings()
    for number in range(20_000):
        crossings.take([event("ping_received", "psph-b", 0, trace=f"{number:032x}")])
    assert len(crossings._open) <= 500
    assert len(crossings._pinged) <= 2_000


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_percentiles_lie_between_the_values(values):
    found = [percentile(values, share) for share in (50, 90, 99)]
    assert found == sorted(found)
    assert round(min(values), 3) <= found[0]
    assert found[-1] <= round(max(values), 3)
