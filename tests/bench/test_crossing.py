"""The benchmark `crossing`, small: the shape of its result, and that it measures what it says."""

import asyncio
import time
from contextlib import ExitStack

import aiohttp
import pytest

from bench import crossing, crossing_stages
from bench.crossing_relay import start_relay
from bench.crossing_site import Site
from identifiers import Position, PublisherId
from psph.trace_writer import TraceWriter
from traces import Stage, TraceEvent

STAGES = ("ping_received", "fetched", "published", "delivered", "pushed")


def test_crossings():
    result = crossing.run(crossings=20, versions=16)
    assert set(result) == {"ratios", "figures", "notes"}
    assert all(value > 0 for value in result["ratios"].values())
    figures = result["figures"]
    assert figures["crossings_verified"] == 2 * 20 + 16
    assert figures["crossings_per_second"] > 0
    for added, more, less in (
        ("added", "crossing", "plain"),
        ("added_direct", "direct", "two_posts"),
        ("added_to_one_hub", "crossing", "one_hub"),
    ):
        for percentile in ("p50", "p99"):
            difference = figures[f"{more}_{percentile}_ms"] - figures[f"{less}_{percentile}_ms"]
            assert figures[f"{added}_{percentile}_ms"] == pytest.approx(difference, abs=0.01)
    # A bare process cannot be slower than what does the same and much more.
    assert figures["crossing_p50_ms"] > figures["plain_p50_ms"]
    assert all(figures[f"stage_{name}_p50_ms"] > 0 for name in STAGES)
    assert all(isinstance(note, str) for note in result["notes"])


def test_stages_are_those_of_the_update_that_was_measured(tmp_path):
    """Two topics have the same Positions: they are told apart."""
    position = Position(PublisherId(bytes(16)), 1, 2)
    with TraceWriter(tmp_path, "psph-a", "site-a.test") as writer:
        for topic, each in (("http://news.site-b.test/1", 3), ("http://news.site-b.test/2", 5)):
            for number, stage in enumerate(STAGES, 1):
                writer.emit(
                    TraceEvent(
                        stage=Stage(stage), node="psph-a", domain="site-a.test", topic=topic,
                        trace_id=f"{each:032x}", wall_ns=time.time_ns(),
                        mono_ns=1_000_000 * each * number, publisher=position.publisher.raw,
                        epoch=position.epoch, version=position.version,
                    )
                )  # fmt: skip
    measured = crossing_stages.Crossed(0, 15.0, ("http://news.site-b.test/1", str(position)))
    found = crossing_stages.stages([measured], [tmp_path])
    assert found == dict.fromkeys(STAGES, 3.0)


def test_the_reference_passes_on_what_it_is_sent_and_what_it_fetches():
    async def scenario(relay):
        async with (
            Site("site-b.test", "http://127.0.0.1/hub") as site,
            aiohttp.ClientSession() as s,
        ):
            site.put("feed", b"fetched")
            to = site.callback("reader")
            fetched, sent = site.expect(b"fetched"), site.expect(b"sent")
            async with asyncio.timeout(60):
                query = {"to": to, "fetch": site.local("feed")}
                async with s.post(relay, params=query) as answer:
                    assert answer.status == 204
                begun = time.monotonic_ns()
                async with s.post(relay, params={"to": to}, data=b"sent") as answer:
                    assert answer.status == 204
                assert (await sent)[0] > begun
                await fetched
                async with s.post(relay, params={"to": to}, data=b"nobody expects it") as answer:
                    assert answer.status == 204
                await site.count("reader", 1)
            assert site.received["reader"] == [b"nobody expects it"]

    with ExitStack() as stack:
        asyncio.run(scenario(start_relay(stack)))
