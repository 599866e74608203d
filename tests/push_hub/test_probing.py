"""An update for a subscription that rests after failures leads to a probe, within bounds."""

import asyncio

import pytest

from push_hub.store.records import Origin
from tests.push_hub.virtual_time import HOUR, MINUTE, simulate

TOPIC, CALLBACK = "http://site.example/feed", "http://reader.example/cb"
NEVER = {"probe_every": 1e9}


def silence(seed, origin=Origin.FETCHED, **settings):
    """After 2 hours without an answer and an update every 10 minutes: seconds until the first
    delivery, and the bodies delivered since, in order."""
    begin = 1_000_000.0
    down, up = begin + 1, begin + 1 + 2 * HOUR

    async def story(outage):
        await outage.subscribe(CALLBACK, TOPIC)
        for n in range(40):
            await outage.publish(b"%d" % n, TOPIC, origin)
            await asyncio.sleep(10 * MINUTE)
        answered = [each for each in outage.callbacks.posts if each.answered and each.at >= up]
        return answered[0].at - up, [each.body for each in answered], outage

    return simulate(story, lambda url, now: not down <= now < up, seed=seed, **settings)


@pytest.mark.parametrize("seed", range(4))
def test_a_callback_that_is_back_has_the_next_update(seed):
    seconds, bodies, _ = silence(seed)
    assert seconds <= 10 * MINUTE
    assert bodies == [b"%d" % n for n in range(int(bodies[0]), 40)]
    without, _, _ = silence(seed, **NEVER)
    assert without > 30 * MINUTE, "that is what the back-off alone comes to"


def test_the_rest_of_the_lane_follows_in_order():
    seconds, bodies, outage = silence(0, Origin.PUBLISHED)
    assert seconds <= 10 * MINUTE
    assert bodies == [b"%d" % n for n in range(1, 40)], "nothing is lost to the probes"
    assert outage.context.counters["deliveries_dropped"] == 0


def test_a_probe_does_not_count_as_an_attempt():
    """With an update a minute a delivery would be given up after ten of them."""

    async def story(outage):
        await outage.subscribe(CALLBACK, TOPIC)
        for n in range(95):
            await outage.publish(b"%d" % n, TOPIC, Origin.PUBLISHED)
            await asyncio.sleep(MINUTE)
        return outage

    outage = simulate(story, lambda url, now: False)
    counters = outage.context.counters
    assert counters["deliveries_dropped"] == 0
    assert counters["deliveries_retry"] < 10
    assert counters["deliveries_probed"] > 60
    assert {each.body for each in outage.callbacks.posts} == {b"0"}


def test_a_host_is_probed_at_most_once_a_minute_whatever_is_published():
    async def story(outage):
        for n in range(20):
            await outage.subscribe(f"{CALLBACK}/{n}", f"{TOPIC}/{n}")
            await outage.publish(b"first", f"{TOPIC}/{n}")
        await asyncio.sleep(HOUR)  # by now each rests for long
        outage.callbacks.posts.clear()
        retried = outage.context.counters["deliveries_retry"]
        for second in range(20 * 60):
            await outage.publish(b"%d" % second, f"{TOPIC}/{second % 20}")
            await asyncio.sleep(1)
        retried = outage.context.counters["deliveries_retry"] - retried
        return outage.callbacks.posts, retried

    posts, retried = simulate(story, lambda url, now: False)
    assert 15 <= len(posts) - retried <= 20, "one for each of the 20 minutes"
    callbacks = [each.callback for each in posts]
    assert len(set(callbacks)) >= 15, "in turn"


def test_the_others_of_the_host_rest_as_long_as_before():
    other = "http://reader.example/other"

    async def story(outage):
        await outage.subscribe(CALLBACK, TOPIC)
        await outage.subscribe(other, f"{TOPIC}/other")
        for topic in (TOPIC, f"{TOPIC}/other"):
            await outage.publish(b"1", topic)
        await asyncio.sleep(HOUR)
        before = [await outage.lane(CALLBACK, TOPIC), await outage.lane(other, f"{TOPIC}/other")]
        due = await outage.store.queue()
        await outage.publish(b"2", TOPIC)
        await asyncio.sleep(5)
        after = [await outage.lane(CALLBACK, TOPIC), await outage.lane(other, f"{TOPIC}/other")]
        assert [each.failures for each in after] == [each.failures for each in before]
        times = [sorted(each.next_due for each in found) for found in
                 (due, await outage.store.queue())]  # fmt: skip
        assert times[0] == times[1]
        return outage.context.counters["deliveries_probed"]

    assert simulate(story, lambda url, now: False) == 1


def test_an_update_within_the_minute_leads_to_a_probe_when_it_is_over():
    async def story(outage):
        await outage.subscribe(CALLBACK, TOPIC)
        await outage.publish(b"1", TOPIC)
        await asyncio.sleep(HOUR)
        await outage.publish(b"2", TOPIC)
        await asyncio.sleep(20)
        await outage.publish(b"3", TOPIC)
        await asyncio.sleep(2 * MINUTE)
        return outage.callbacks.posts[-2:]

    second, third = simulate(story, lambda url, now: False)
    assert [second.body, third.body] == [b"2", b"3"]
    assert 60 <= third.at - second.at < 62


def test_what_the_callback_asked_for_is_waited_for():
    async def story(outage):
        await outage.subscribe(CALLBACK, TOPIC)
        await outage.publish(b"1", TOPIC)
        for n in range(50):
            await asyncio.sleep(MINUTE)
            await outage.publish(b"%d" % n, TOPIC)
        return len(outage.callbacks.posts)

    assert simulate(story, lambda url, now: False, retry_after="3600") == 1


def test_one_that_recovers_leads_to_all_of_its_host():
    """200 subscriptions of one host, and an update for one of them only."""
    up = 1_000_000.0 + 2 * HOUR

    async def story(outage):
        for n in range(200):
            await outage.subscribe(f"{CALLBACK}/{n}", f"{TOPIC}/{n}")
            await outage.publish(b"1", f"{TOPIC}/{n}")
        await asyncio.sleep(up - outage.loop.time())
        assert (await outage.store.statistics()).deliveries == 200
        await outage.publish(b"2", f"{TOPIC}/7")
        await asyncio.sleep(2 * MINUTE)
        return (await outage.store.statistics()).deliveries

    assert simulate(story, lambda url, now: now >= up) == 0
    assert simulate(story, lambda url, now: now >= up, **NEVER) > 100


def test_a_host_that_fails_again_is_left_alone():
    """The first probe succeeds, the host is gone again: the others rest as before."""
    up = 1_000_000.0 + 2 * HOUR

    async def story(outage):
        for n in range(50):
            await outage.subscribe(f"{CALLBACK}/{n}", f"{TOPIC}/{n}")
            await outage.publish(b"1", f"{TOPIC}/{n}")
        await asyncio.sleep(up - outage.loop.time())
        tried = len(outage.callbacks.posts)
        await outage.publish(b"2", f"{TOPIC}/7")
        await asyncio.sleep(30)
        return [each.answered for each in outage.callbacks.posts[tried:]]

    assert simulate(story, lambda url, now: up <= now < up + 0.005) == [True, False, False]
