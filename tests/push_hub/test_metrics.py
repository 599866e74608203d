"""The hub's metrics: all there at 0, explained to the operator, true by what others have seen."""

import re
from pathlib import Path

import pytest
from aiohttp import web

import push_hub
from psph.facades import chat
from push_hub.errors import StoreError
from push_hub.following import Way
from push_hub.metrics import COUNTED, HubMetrics, Journeys
from push_hub.store.records import Outcome
from tests.push_hub.world import run, until, until_async, world

PAGE = Path(push_hub.__file__).parent.parent / "docs" / "operations.md"


def explained():
    _, _, table = PAGE.read_text().partition("| counter | counts |")
    rows = re.findall(r"^\| (`.*?`) \|", table.partition("\n\n")[0], re.MULTILINE)
    names = set()
    for row in rows:
        for name in re.findall(r"`(\w+)`", row):
            names.add(f"deliveries{name}" if name.startswith("_") else name)
    return names


def samples(text):
    """Every sample by its name with labels."""
    lines = [line for line in text.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


async def scraped(w):
    return samples(await w.hub.context.metrics.exposition(w.hub.store))


def test_the_counters_are_documented():
    assert explained() == {*COUNTED, *chat.COUNTED}
    assert {f"deliveries_{outcome}" for outcome in Outcome} < set(COUNTED)


def test_other_metrics_are_documented():
    text = PAGE.read_text()
    for family in HubMetrics().registry.collect():
        if family.type != "counter":
            assert f"`{family.name}" in text, family.name


def test_everything_is_there_before_it_happens(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            found = await scraped(w)
            for name in COUNTED:
                assert found[f"psph_hub_{name}_total"] == 0
            for way in Way:
                assert found[f'psph_hub_following{{way="{way}"}}'] == 0
            for state in ("pending", "active", "renewing", "expired", "denied", "unsubscribed"):
                assert found[f'psph_hub_subscriptions{{state="{state}"}}'] == 0
            for name in ("ping_to_delivery", "crossing"):
                for to in ("callback", "stream"):
                    assert found[f'psph_hub_{name}_seconds_count{{to="{to}"}}'] == 0
            assert found["psph_hub_fetch_seconds_count"] == 0

    run(main())


def test_a_counter_that_nobody_declared_is_an_error():
    with pytest.raises(KeyError):
        HubMetrics().counters.add("surprises")


def test_several_hubs_in_one_process_count_apart(tmp_path):
    async def main():
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        async with world(tmp_path / "a") as a, world(tmp_path / "b") as b:
            await a.ping(a.site.put("/t", b"1"))
            assert (a.hub.counters["pings"], b.hub.counters["pings"]) == (1, 0)

    run(main())


def test_they_agree_with_what_site_and_callback_saw(tmp_path):
    """The site counts fetches, the callback POSTs by how it answered them."""
    posts = {200: 0, 500: 0}

    async def main():
        async with world(tmp_path) as w:

            async def receive(request):
                total = sum(posts.values())
                status = 500 if total % 3 == 1 else 200
                posts[status] += 1
                return web.Response(status=status)

            w.reader.receive = receive
            topic = w.site.put("/t", b"0")
            await w.subscribe(topic)
            for n in range(1, 6):
                w.site.put("/t", b"%d" % n)
                await w.ping(topic)
                await until(lambda n=n: w.hub.counters["deliveries_delivered"] == n)
            found = await scraped(w)
            assert posts[500] > 0
            assert found["psph_hub_deliveries_delivered_total"] == posts[200] == 5
            assert found["psph_hub_deliveries_retry_total"] == posts[500]
            fetches = len(w.site.fetches("/t"))
            assert found["psph_hub_fetches_total"] == fetches
            assert found["psph_hub_fetch_seconds_count"] == fetches
            assert found["psph_hub_pings_total"] == 5
            assert found["psph_hub_updates_total"] == 5
            assert found['psph_hub_ping_to_delivery_seconds_count{to="callback"}'] == 5
            assert found['psph_hub_ping_to_delivery_seconds_sum{to="callback"}'] > 0
            assert found['psph_hub_crossing_seconds_count{to="callback"}'] == 0

    run(main())


def test_a_live_stream_is_measured_and_what_it_missed_is_not(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            topic = w.site.put("/t", b"1")
            await w.subscribe(topic)
            await w.ping(topic)
            await until(lambda: w.hub.counters["updates"] == 1)
            url = f"{w.hub_url}/stream"
            async with w.client.get(url, params={"topic": topic}) as stream:
                while b"caught up" not in await stream.content.readline():
                    pass
                w.site.put("/t", b"2")
                await w.ping(topic)

                async def both():
                    return w.hub.counters["browser_events"] == 2

                await until_async(both, "the second event")
                found = await scraped(w)
                assert found['psph_hub_ping_to_delivery_seconds_count{to="stream"}'] == 1
                assert found["psph_hub_streams"] == 1

    run(main())


def test_a_journey_ends_where_it_began():
    metrics = HubMetrics()

    def seconds(name):
        return metrics.registry.get_sample_value(f"psph_hub_{name}_seconds_sum", {"to": "callback"})

    journeys = metrics.journeys
    journeys.pinged("a" * 32, 100.0)
    journeys.crossed("b" * 32, 100.0)
    journeys.crossed("c" * 32, 200.0)
    journeys.delivered("a" * 32, "callback", 103.0)
    journeys.delivered("b" * 32, "callback", 100.5)
    journeys.delivered("c" * 32, "callback", 199.0)  # by a clock that is behind
    journeys.delivered("d" * 32, "callback", 300.0)  # began elsewhere, or too long ago
    assert seconds("ping_to_delivery") == 3.0
    assert seconds("crossing") == 0.5
    journeys.forget("a" * 32)
    journeys.delivered("a" * 32, "callback", 900.0)
    assert seconds("ping_to_delivery") == 3.0


def test_journeys_are_bounded():
    journeys = HubMetrics().journeys
    for n in range(10_500):
        journeys.pinged(f"{n:032x}", 0.0)
    assert len(journeys._begun) == 10_000
    assert f"{10_499:032x}" in journeys._begun
    assert isinstance(journeys, Journeys)


def test_a_store_that_fails_leaves_the_counters(tmp_path):
    async def main():
        async with world(tmp_path) as w:

            async def broken():
                raise StoreError("the disk is gone")

            await w.ping(w.site.put("/t", b"1"))
            statistics, w.hub.store.statistics = w.hub.store.statistics, broken
            found = await scraped(w)
            w.hub.store.statistics = statistics
            assert found["psph_hub_pings_total"] == 1
            assert found["psph_hub_topics"] != found["psph_hub_topics"]  # NaN

    run(main())
