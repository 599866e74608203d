"""Traces of a real `psph up`: every crossing that the world made is found once, with its stages."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import pytest

from spark_jobs.correcting import estimate_clocks
from spark_jobs.journeys import journeys
from spark_jobs.latency import latency_table
from spark_jobs.reading import read_traces
from tests.demo.up import Reader, running, until

A, B = "site-a.test", "site-b.test"
UPDATES = 3


@pytest.fixture(scope="module")
def lived(tmp_path_factory):
    """The traces that a world left behind, and the crossings its page showed."""
    directory = tmp_path_factory.mktemp("world")
    with running(directory) as (line, _):
        crossings = asyncio.run(_publish(line.split()[1].rstrip("/")))
    roots = {path.parent for path in directory.rglob("domain=*")}
    assert len(roots) == 1
    return roots.pop(), crossings


async def _publish(url):
    async with Reader(url, "reports") as page:
        topic = page.topic(1)["url"]
        await page.wish(feeds=[{"domain": A, "topic": topic, "after": None}], latency=True)
        await until(lambda: page.of("update"), "the current version")
        for number in range(UPDATES):
            await page.publish(topic, f"number {number}")
            await until(lambda title=f"number {number}": title in page.titles(), f"number {number}")
        traces = {update["trace_id"] for update in page.of("update")[1:]}
        assert len(traces) == UPDATES
        return await until(
            lambda: (
                found := [c for c in page.of("crossing") if c["trace_id"] in traces]
            ) and len(found) == UPDATES and found,
            "the crossings",
        )  # fmt: skip


def test_every_crossing_is_found_once_with_all_its_stages(spark, lived):
    root, crossings = lived
    events = read_traces(spark, str(root)).events
    clocks = estimate_clocks(events)
    assert len({clock.reference for clock in clocks.clocks}) == 1, "all nodes are connected"
    assert {clock.node for clock in clocks.clocks} >= {"psph-a", "psph-b"}
    found = [row for row in journeys(events, clocks).collect() if row.to_domain == A]
    for crossing in crossings:
        ((row,)) = [
            row for row in found if row.trace_id == crossing["trace_id"] and not row.passed_on
        ]
        assert (row.from_domain, row.to_domain, row.topic) == (B, A, crossing["topic"])
        assert (row.end, row.repeated, row.comparable) == ("browser_sent", False, True)
        # Of one machine: clocks differ by nothing, so the way is in order but for the uncertainty.
        way = [row.ping_ns, row.fetched_ns, row.published_ns, row.delivered_ns, row.at_ns]
        assert None not in way
        shown = {s["stage"]: s["at_ms"] for s in crossing["stages"] if s["stage"] != "forwarded"}
        wrong = max(c.uncertainty_ns for c in clocks.clocks) * 2 / 1e6
        for stage, at in zip(shown, way, strict=True):
            assert (at - row.ping_ns) / 1e6 == pytest.approx(shown[stage], abs=wrong + 0.01), stage
    table = latency_table(journeys(events, clocks, details=False)).collect()
    counts = {
        row.stage: row["count"] for row in table if (row.from_domain, row.to_domain) == (B, A)
    }
    assert counts["browser_sent"] >= UPDATES
    assert counts["total"] >= UPDATES
    assert urlsplit(crossings[0]["topic"]).hostname == f"news.{B}"
