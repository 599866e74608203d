"""The queue: order per subscription, supersession, bounds, and what a crash may repeat."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from push_hub.lifecycle import State
from push_hub.store.records import Origin, Outcome
from tests.push_hub.store.stores import claim, opened, publish, result, run, subscribe


async def bodies(store, exchanged):
    return [(await store.update(each.seq)).body for each in exchanged.claimed]


def test_one_at_a_time_and_in_order(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            await subscribe(store)
            for body in (b"1", b"2", b"3"):
                await publish(store, body, origin=Origin.PUBLISHED)
            first = await claim(store)
            assert await bodies(store, first) == [b"1"]
            assert (await claim(store)).claimed == ()
            second = await claim(store, results=[result(first.claimed[0])])
            assert await bodies(store, second) == [b"2"]

    run(main())


def test_while_one_is_retried_newer_ones_wait(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            await subscribe(store)
            await publish(store, b"1", origin=Origin.PUBLISHED)
            (first,) = (await claim(store)).claimed
            failed = result(first, Outcome.RETRY, reason="500", retry_at=60.0)
            assert (await claim(store, results=[failed])).next_due == 60.0
            await publish(store, b"2", origin=Origin.PUBLISHED, now=2.0)
            assert (await claim(store, now=59.0)).claimed == ()
            again = await claim(store, now=60.0)
            assert await bodies(store, again) == [b"1"]
            assert (again.claimed[0].id, again.claimed[0].attempt) == (first.id, 1)

    run(main())


def test_a_newer_fetch_supersedes_waiting_ones_but_not_the_one_in_flight(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            await subscribe(store)
            await publish(store, b"1")
            (first,) = (await claim(store)).claimed
            assert (await publish(store, b"2")).superseded == 0
            assert (await publish(store, b"3")).superseded == 1
            assert await bodies(store, await claim(store, results=[result(first)])) == [b"3"]

    run(main())


def test_one_that_failed_is_superseded_by_what_came_meanwhile_and_keeps_its_delay(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            await subscribe(store)
            await publish(store, b"1")
            (first,) = (await claim(store)).claimed
            await publish(store, b"2")
            failed = result(first, Outcome.RETRY, reason="500", retry_at=60.0)
            exchanged = await claim(store, results=[failed])
            assert (exchanged.superseded, exchanged.claimed) == (1, ())
            assert await bodies(store, await claim(store, now=60.0)) == [b"2"]

    run(main())


def test_published_content_is_never_superseded(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            await subscribe(store)
            await publish(store, b"sent", origin=Origin.PUBLISHED)
            await publish(store, b"fetched 1")
            assert (await publish(store, b"fetched 2")).superseded == 1
            (first,) = (await claim(store)).claimed
            second = await claim(store, results=[result(first)])
            assert (await store.update(first.seq)).body == b"sent"
            assert await bodies(store, second) == [b"fetched 2"]

    run(main())


def test_what_waits_is_bounded_and_the_drop_is_told(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            await subscribe(store)
            await publish(store, b"0", origin=Origin.PUBLISHED)
            (flying,) = (await claim(store)).claimed
            dropped = 0
            for n in range(1, 106):
                dropped += (await publish(store, b"%d" % n, origin=Origin.PUBLISHED)).overflowed
            (record,) = await store.subscriptions()
            assert (dropped, record.waiting) == (6, 100)
            assert "oldest were dropped" in record.last_failure
            assert await bodies(store, await claim(store, results=[result(flying)])) == [b"7"]

    run(main())


def test_progress_counts_those_who_have_the_latest_and_those_who_are_owed_it(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            for name in ("done", "retrying", "flying"):
                await subscribe(store, f"http://{name}.example/cb")
            first = await publish(store, entries='[{"id": "a"}, {"id": "b"}]', now=1.0)
            topic = first.update.topic_id
            claimed = {each.callback: each for each in (await claim(store, now=1.0)).claimed}
            await claim(
                store,
                now=2.0,
                results=[
                    result(claimed["http://done.example/cb"], at=2.0),
                    result(claimed["http://retrying.example/cb"], Outcome.RETRY, 2.0, retry_at=9.0),
                ],
            )
            await subscribe(store, "http://later.example/cb", now=3.0)
            found = await store.progress(topic, 3.0)
            assert (found.position, found.new_entries) == (first.update.position, 2)
            assert (found.delivered, found.owed, found.retrying, found.next_at) == (1, 2, 1, 9.0)
            second = await publish(store, b"y", now=4.0)
            found = await store.progress(topic, 4.0)
            assert (found.position, found.new_entries) == (second.update.position, None)
            assert (found.delivered, found.owed) == (0, 4)
            assert await store.progress(topic + 1, 4.0) is None

    run(main())


def test_dropping_one_notification_keeps_the_subscription(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            await subscribe(store)
            await publish(store, b"1", origin=Origin.PUBLISHED)
            await publish(store, b"2", origin=Origin.PUBLISHED)
            (first,) = (await claim(store)).claimed
            await claim(store, results=[result(first, Outcome.DROPPED, reason="x", retry_at=9.0)])
            assert await bodies(store, await claim(store, now=9.0)) == [b"2"]
            (record,) = await store.subscriptions()
            assert (record.state, record.failures, record.last_failure) == (State.ACTIVE, 1, "x")

    run(main())


def test_a_callback_that_is_gone_ends_its_subscription(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            await subscribe(store)
            await publish(store, b"1", origin=Origin.PUBLISHED)
            await publish(store, b"2", origin=Origin.PUBLISHED)
            (first,) = (await claim(store)).claimed
            done = await claim(store, results=[result(first, Outcome.GONE, reason="410")])
            assert [(each.state, each.reason) for each in done.ended] == [
                (State.UNSUBSCRIBED, "410")
            ]
            assert (await store.statistics()).deliveries == 0

    run(main())


def test_after_a_crash_only_what_was_in_flight_is_repeated(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            for n in range(3):
                await subscribe(store, f"http://r.example/{n}")
            await publish(store, b"1", origin=Origin.PUBLISHED)
            claimed = (await claim(store)).claimed
            await claim(store, results=[result(claimed[0])], room=0)
        async with opened(tmp_path) as store:
            assert (await claim(store)).claimed == ()
            assert await store.recover() == 2
            again = (await claim(store)).claimed
            assert sorted(each.id for each in again) == sorted(each.id for each in claimed[1:])

    run(main())


def test_what_is_released_is_due_at_once(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            await subscribe(store)
            await publish(store)
            (first,) = (await claim(store)).claimed
            (again,) = (await claim(store, results=[result(first, Outcome.RELEASED)])).claimed
            assert again == first

    run(main())


def test_a_result_that_comes_after_the_end_changes_nothing(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            active = await subscribe(store, lease=5)
            await publish(store, b"1")
            (first,) = (await claim(store)).claimed
            await store.expire(6.0)
            await claim(store, results=[result(first)])
            (record,) = await store.subscriptions()
            assert (record.id, record.waiting, record.last_success_at) == (active.id, 0, None)

    run(main())


def test_hosts_get_no_more_than_their_share(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            for n in range(5):
                await subscribe(store, f"http://slow.example/{n}")
                await subscribe(store, f"http://fast.example/{n}")
            await publish(store)
            first = await claim(store, room=4, default=2)
            second = await claim(store, room=100, per_host={"slow.example:80": 0}, default=100)
            hosts = [each.host for each in (*first.claimed, *second.claimed)]
            assert hosts.count("fast.example:80") == 5
            assert hosts.count("slow.example:80") <= 2

    run(main())


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.sampled_from(["fetch", "send", "claim", "deliver", "retry", "drop", "crash", "expire"]),
        max_size=40,
    )
)
def test_whatever_happens_nothing_owed_is_lost(tmp_path_factory, steps):
    """Each version is delivered in order, dropped on purpose, or superseded by a later one."""
    tmp_path = tmp_path_factory.mktemp("store")

    async def main():
        async with opened(tmp_path) as store:
            await subscribe(store, lease=10**6)
            flying, done, owed, delivered = [], [], [], []
            now = 1.0
            for step in steps:
                now += 1
                if step in ("fetch", "send"):
                    origin = Origin.FETCHED if step == "fetch" else Origin.PUBLISHED
                    recorded = await publish(store, b"%f" % now, origin=origin, now=now)
                    owed.append((recorded.update.seq, step))
                elif step == "claim":
                    flying += (await claim(store, now=now)).claimed
                    assert len(flying) <= 1
                elif step == "crash":
                    await store.recover()
                    flying = []
                elif step == "expire":
                    assert await store.expire(now) == []
                elif flying:
                    outcome = {"deliver": Outcome.DELIVERED, "retry": Outcome.RETRY,
                               "drop": Outcome.DROPPED}[step]  # fmt: skip
                    each = flying.pop()
                    ended = result(each, outcome, reason="r", retry_at=now + 2)
                    await claim(store, now=now, room=0, results=[ended])
                    done += [each.seq] if step != "retry" else []
                    delivered += [each.seq] if step == "deliver" else []
            results = [result(each) for each in flying]
            done += [each.seq for each in flying]
            while claimed := (await claim(store, now=now + 100, results=results)).claimed:
                done += [each.seq for each in claimed]
                results = [result(each) for each in claimed]
            assert done == sorted(done)
            for seq, kind in owed:
                later_fetch = any(s > seq and k == "fetch" for s, k in owed)
                assert seq in done or (kind == "fetch" and later_fetch)
            (record,) = await store.subscriptions()
            assert record.waiting == 0
            assert (await store.statistics()).deliveries == 0

    run(main())


@pytest.mark.parametrize("failures", [1, 3])
def test_a_subscription_remembers_how_it_goes(tmp_path, failures):
    async def main():
        async with opened(tmp_path) as store:
            await subscribe(store)
            await publish(store)
            now, done = 1.0, []
            for n in range(failures):
                now = 10.0 * (n + 1)
                (each,) = (await claim(store, now=now, results=done)).claimed
                done = [result(each, Outcome.RETRY, at=now, reason=f"fault {n}", retry_at=now + 1)]
            (each,) = (await claim(store, now=now + 5, results=done)).claimed or (
                await claim(store, now=now + 5)
            ).claimed
            (record,) = await store.subscriptions()
            assert (record.failures, record.last_failure) == (failures, f"fault {failures - 1}")
            await claim(store, results=[result(each, at=99.0)])
            (record,) = await store.subscriptions()
            assert (record.failures, record.last_success_at) == (0, 99.0)

    run(main())


async def resting(store, *callbacks):
    """Lanes that failed once and rest until 1000 and later, in this order."""
    for callback in callbacks:
        await subscribe(store, callback)
    recorded = await publish(store)
    assert recorded.resting_hosts == ()
    claimed = (await claim(store)).claimed
    for n, each in enumerate(claimed):
        failed = result(each, Outcome.RETRY, at=1.0 + n, retry_at=1_000.0 + n)
        await claim(store, room=0, results=[failed])


def test_an_update_names_the_hosts_whose_lanes_rest(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            await resting(store, "http://a.example/1", "http://a.example/2", "http://b.example/1")
            await subscribe(store, "http://c.example/1", now=2.0)
            recorded = await publish(store, b"2", now=5.0)
            assert sorted(recorded.resting_hosts) == ["a.example:80", "b.example:80"]

    run(main())


def test_a_probe_that_fails_changes_nothing(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            await resting(store, "http://a.example/1", "http://a.example/2")
            probes = {"a.example:80": 1, "b.example:80": 1}
            (probed,) = (await store.exchange([], 10.0, 9, {}, 9, probes)).claimed
            assert (probed.callback, probed.rests_until) == ("http://a.example/1", 1_000.0)
            before = await store.subscription_by_id(probed.subscription)
            failed = result(probed, Outcome.PROBED, at=11.0, retry_at=1_000.0)
            exchanged = await store.exchange([failed], 11.0, 9, {}, 9, {})
            assert (exchanged.claimed, exchanged.next_due) == ((), 1_000.0)
            after = await store.subscription_by_id(probed.subscription)
            assert (after.failures, after.waiting) == (before.failures, before.waiting) == (1, 1)
            assert [each.attempt for each in await store.queue()] == [1, 1]
            # The other one is the next: it was tried longer ago.
            (second,) = (await store.exchange([], 12.0, 9, {}, 9, probes)).claimed
            assert second.callback == "http://a.example/2"
            released = result(second, Outcome.RELEASED, at=13.0)
            exchanged = await store.exchange([released], 13.0, 9, {}, 9, {})
            assert exchanged.claimed == (), "it rests as long as before"

    run(main())


def test_after_a_probe_that_succeeds_the_lane_goes_on(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            await resting(store, "http://a.example/1")
            await publish(store, b"2", origin=Origin.PUBLISHED, now=5.0)
            (probed,) = (await store.exchange([], 10.0, 9, {}, 9, {"a.example:80": 1})).claimed
            done = result(probed, at=11.0)
            exchanged = await store.exchange([done], 11.0, 9, {}, 9, {})
            assert await bodies(store, exchanged) == [b"2"]
            assert exchanged.claimed[0].rests_until is None

    run(main())
