"""A hub with a guide follows topics by stream at the hubs that the guide names."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from identifiers import Position, PublisherId, identify
from push_hub import create_app, stream_carrier
from push_hub.app import HUB
from push_hub.following import Way
from push_hub.hub import Hub
from push_hub.retries import RetrySchedule
from push_hub.stream_carrier import State
from tests.ports import free_port
from tests.push_hub.carriers import NotedCarrier
from tests.push_hub.test_upstream import FOLLOWING
from tests.push_hub.world import chosen, run, served, until, until_async, world

TOPIC = "http://only.in.the.fabric.example/feed"
X, Y = PublisherId(b"x" * 16), PublisherId(b"y" * 16)


def at(version, publisher=X):
    return Position(publisher, 1, version)


class Guide:
    """Names its hubs for topics that begin so, those that failed last."""

    def __init__(self, *hubs, prefix="http://only."):
        self.hubs, self.prefix = list(hubs), prefix
        self.failures = []
        self.error = None

    async def hubs_for(self, topic):
        if self.error is not None:
            raise self.error
        return list(self.hubs) if topic.canonical.startswith(self.prefix) else []

    def failed(self, hub):
        self.failures.append(hub)
        if hub in self.hubs:
            self.hubs.remove(hub)
            self.hubs.append(hub)

    def worked(self, hub):
        pass


@asynccontextmanager
async def psph(directory, port=0, carrier=None, **changes):
    """A hub that has topics from elsewhere, numbered."""
    directory.mkdir(exist_ok=True)
    app = create_app(chosen(heartbeat=0.2, **changes), directory, carrier=carrier)
    async with served(app, port) as url:
        yield f"{url}/hub", app[HUB]


@asynccontextmanager
async def beside(directory, guide, **changes):
    """A world whose hub has a guide."""
    (directory / "hub").mkdir(exist_ok=True)
    settings = {**FOLLOWING, "follow_after": 1000.0, "guide_check": None, **changes}
    async with world(directory / "hub", guide=guide, **settings) as w:
        w.carrier = w.hub._stream_carrier
        yield w


async def accept(hub, *positions, topic=TOPIC):
    for each in positions:
        await hub.accept(
            identify(topic), "Text/X-Odd; a=B", b"\xff%d" % each.version, position=each,
            trace_id="ab" * 16, published=True,
        )  # fmt: skip


async def receives(w, *positions, path="/cb"):
    """These, once and in this order, and nothing else."""
    await until(lambda: len(w.reader.at(path)) >= len(positions), "the versions")
    found = [each.headers["X-Hub-Position"] for each in w.reader.at(path)]
    assert found == [str(each) for each in positions]


def words(w, topic=TOPIC):
    return w.hub.context.carrying.brings(identify(topic))


def state(w, topic=TOPIC):
    return w.carrier._topics[topic].state


def test_what_is_published_after_the_confirmation_arrives_as_it_is(tmp_path):
    async def main():
        async with psph(tmp_path / "a") as (url, there), beside(tmp_path, Guide(url)) as w:
            await accept(there, at(1), at(2))
            await w.subscribe(TOPIC)
            assert words(w) == f"the hub of our domain, by stream: {url}"
            await accept(there, at(3), at(4))
            await receives(w, at(3), at(4))
            first = w.reader.received[0]
            assert (first.body, first.headers["Content-Type"]) == (b"\xff3", "Text/X-Odd; a=B")
            # The current version is here for other readers; the older one is not asked for.
            kept = await w.hub.store.versions(1, 9)
            assert [each.position for each in kept] == [at(4), at(3), at(2)]
            assert w.hub.counters["fetches"] == w.hub.counters["fetch_failures"] == 0
            async with w.client.get(f"{w.hub_url}/t/{TOPIC}") as answer:
                assert await answer.read() == b"\xff4"

    run(main())


def test_a_callback_is_asked_only_when_the_hub_there_has_answered(tmp_path):
    async def main():
        slow = NotedCarrier()
        gate = slow.hold()
        async with (
            psph(tmp_path / "a", carrier=slow) as (url, there),
            beside(tmp_path, Guide(url)) as w,
        ):
            subscribing = asyncio.create_task(w.subscribe(TOPIC))
            await until(lambda: slow.admissions, "the question")
            assert state(w) is State.JOINING
            assert not w.reader.verifications
            # Published before the subscription stands: what a subscriber begins with.
            await accept(there, at(1))
            gate.set()
            await subscribing
            await accept(there, at(2))
            await receives(w, at(2))

    run(main())


def test_a_hub_there_that_never_answers_is_waited_for_only_so_long(tmp_path):
    async def main():
        nobody = f"http://127.0.0.1:{free_port()}/hub"
        async with beside(tmp_path, Guide(nobody), admit_patience=0.1) as w:
            await w.subscribe(TOPIC)
            assert state(w) is State.JOINING
            await until(lambda: "cannot connect" in (words(w) or ""), "the reason")

    run(main())


def test_a_topic_that_is_refused_there_is_denied_and_holds_up_no_other(tmp_path, monkeypatch):
    # Several join together, as when many come at the same time.
    monkeypatch.setattr(stream_carrier, "_JOINS_MAX", 1)

    async def main():
        there = NotedCarrier()
        bad = f"{TOPIC}/3"
        there.refusals[bad] = "it is not for you"
        async with (
            psph(tmp_path / "a", carrier=there) as (url, hub),
            beside(tmp_path, Guide(url)) as w,
        ):
            topics = [f"{TOPIC}/{n}" for n in range(6)]
            for n, each in enumerate(topics):
                status, _ = await w.post(
                    mode="subscribe", topic=each, callback=f"{w.reader.url}/{n}"
                )
                assert status == 202
            await until(lambda: len(w.reader.verifications) == 5, "the others")
            await until(lambda: w.reader.denials, "the denial")
            assert w.reader.denials[0].query["hub.reason"] == "it is not for you"
            await until_async(w.settled, "the confirmations")
            for n, each in enumerate(topics):
                if each != bad:
                    await accept(hub, at(1), topic=each)
                    await receives(w, at(1), path=f"/{n}")
            # It may be allowed later.
            del there.refusals[bad]
            await w.subscribe(bad, "/again")
            await accept(hub, at(1), topic=bad)
            await receives(w, at(1), path="/again")

    run(main())


def test_topics_end_up_in_one_stream_and_miss_nothing_on_the_way(tmp_path):
    async def main():
        async with psph(tmp_path / "a") as (url, there), beside(tmp_path, Guide(url)) as w:
            topics = [f"{TOPIC}/{n}" for n in range(12)]
            last = 0

            async def publish():
                nonlocal last
                while True:
                    last += 1
                    for each in topics:
                        await accept(there, at(last), topic=each)
                    await asyncio.sleep(0.02)

            for n, each in enumerate(topics):
                await w.subscribe(each, f"/{n}")
            publishing = asyncio.create_task(publish())
            await until(lambda: len(w.carrier._streams) == 1, "one stream")
            (stream,) = w.carrier._streams
            assert set(stream.topics) == set(topics)
            await until(lambda: len(there.streams) == 1, "no other connection")
            publishing.cancel()
            await asyncio.gather(publishing, return_exceptions=True)
            for n, each in enumerate(topics):
                await accept(there, at(last + 1), topic=each)
                # The last round may have been cut short.
                numbers = range(1, last + 2)
                have = {p.position.version for p in await there.store.versions(n + 1, 10_000)}
                await receives(w, *(at(v) for v in numbers if v in have), path=f"/{n}")

    run(main())


@pytest.mark.parametrize("topics", [1, 12])
def test_a_dead_hub_is_left_and_nothing_is_missed(tmp_path, topics):
    async def main():
        names = [f"{TOPIC}/{n}" for n in range(topics)]
        async with psph(tmp_path / "b") as (second, there), AsyncExitStack() as stack:
            first, here = await stack.enter_async_context(psph(tmp_path / "a"))
            guide = Guide(first, second)
            async with beside(tmp_path, guide) as w:
                for n, name in enumerate(names):
                    await w.subscribe(name, f"/{n}")
                    await accept(here, at(1), at(2), topic=name)
                    await accept(there, at(2), topic=name)
                    await receives(w, at(1), at(2), path=f"/{n}")
                await stack.aclose()
                for name in names:
                    await accept(there, at(3), at(1, Y), topic=name)
                for n, name in enumerate(names):
                    await receives(w, at(1), at(2), at(3), at(1, Y), path=f"/{n}")
                    assert words(w, name) == f"the hub of our domain, by stream: {second}"
                assert first in guide.failures
                assert w.hub.counters["upstream_broken"]

    run(main())


def test_a_restart_of_either_loses_nothing(tmp_path):
    async def main():
        port = free_port()
        quiet = f"{TOPIC}/quiet"
        guide = Guide(f"http://127.0.0.1:{port}/hub")
        async with beside(tmp_path, guide) as w:
            async with psph(tmp_path / "a", port) as (_, there):
                await w.subscribe(TOPIC)
                await w.subscribe(quiet, "/quiet")
                await accept(there, at(1))
                await receives(w, at(1))
            # Where it was is known, even if no name server answers just now.
            guide.error = OSError("no name server answers")
            async with psph(tmp_path / "a", port) as (_, there):
                await accept(there, at(2), at(3))
                # Of this one nothing was there when it was subscribed to.
                await accept(there, at(1), at(2), topic=quiet)
                await receives(w, at(1), at(2), at(3))
                await receives(w, at(1), at(2), path="/quiet")
        reader, guide.error = w.reader.url, None
        async with psph(tmp_path / "a", port) as (_, there):
            await accept(there, at(4), at(5))
            await accept(there, at(3), topic=quiet)
            # The readers of before are gone: what is owed to them stays, however long this takes.
            never = RetrySchedule(first=10_000, longest=10_000)
            async with beside(tmp_path, guide, delivery_retries=never) as w:

                async def all_recorded():
                    return [each.position for each in await w.hub.store.versions(1, 2)] == [
                        at(5),
                        at(4),
                    ] and (await w.hub.store.versions(2, 1))[0].position == at(3)

                await until_async(all_recorded, "what was missed")
                # Nothing else was sent, and they are owed to the callbacks of before.
                assert there.counters["browser_events"] == 3
                found = await w.hub.store.subscription(TOPIC, f"{reader}/cb")
                assert found.waiting == 2

    run(main())


def test_what_nobody_wants_any_more_is_not_followed(tmp_path, monkeypatch):
    monkeypatch.setattr(stream_carrier, "_LINGER_S", 0.1)
    monkeypatch.setattr(stream_carrier, "_TICK_S", 0.05)
    monkeypatch.setattr(stream_carrier, "_MERGE_AFTER_S", 0.1)

    async def main():
        other = f"{TOPIC}/other"
        async with psph(tmp_path / "a") as (url, there), beside(tmp_path, Guide(url)) as w:
            await w.subscribe(TOPIC)
            await w.subscribe(other, "/other")
            w.carrier._doubtful.clear()  # both have confirmed
            await until(lambda: len(w.carrier._streams) == 1, "one stream")
            status, _ = await w.post(mode="unsubscribe", topic=TOPIC, callback=f"{w.reader.url}/cb")
            assert status == 202
            await until(lambda: words(w) is None, "the end")
            await accept(there, at(1), at(2))
            await accept(there, at(1), topic=other)
            await receives(w, at(1), path="/other")
            # Versions published meanwhile are recorded, in order, and pushed to no callback.
            await w.subscribe(TOPIC)
            w.carrier._doubtful.clear()
            await accept(there, at(3))
            await receives(w, at(3))
            for topic, path in ((TOPIC, "/cb"), (other, "/other")):
                await w.post(mode="unsubscribe", topic=topic, callback=w.reader.url + path)
            await until(lambda: not w.carrier._streams and not there.streams, "the last stream")

    run(main())


def test_other_topics_are_plain_websub_and_so_are_those_that_lose_their_fabric(tmp_path):
    async def main():
        async with psph(tmp_path / "a") as (url, there):
            guide = Guide(url)
            changes = {"guide_check": 0.1, "follow_after": 0.1}
            async with beside(tmp_path, guide, **changes) as w:
                topic = w.site.put("/t", b"1")

                async def way(expected):
                    async def reached():
                        found = await w.hub.store.following(1)
                        return found is not None and found.way is expected

                    await until_async(reached, expected)

                await w.subscribe(topic)
                assert words(w, topic) is None
                await way(Way.POLLED)
                # It has one.
                guide.prefix = w.site.url
                await way(Way.CARRIED)
                await accept(there, at(7), topic=topic)
                await until(lambda: w.reader.received, "the delivery")
                # And has none any more.
                guide.prefix = "http://none."
                await way(Way.POLLED)
                await accept(there, at(8), topic=topic)
                w.site.put("/t", b"2")
                await until(lambda: w.reader.received[-1].body == b"2", "the delivery")
                assert b"\xff8" not in [each.body for each in w.reader.received]

    run(main())


def test_a_guide_that_fails_or_names_this_hub_changes_nothing(tmp_path):
    async def main():
        guide = Guide(prefix="http://")
        guide.error = OSError("no name server answers")
        async with beside(tmp_path, guide) as w:
            await w.subscribe(w.site.put("/t", b"1"))
            assert state(w, f"{w.site.url}/t") is State.PLAIN
            guide.error = None
            w.carrier._guiding._rests_until = 0.0
            guide.hubs = [w.hub.settings.hub_url]
            await w.subscribe(w.site.put("/other", b"1"))
            assert state(w, f"{w.site.url}/other") is State.PLAIN

    run(main())


def test_pings_are_passed_on_and_fetched_here_while_nobody_takes_them(tmp_path, monkeypatch):
    monkeypatch.setattr(stream_carrier, "_FETCHED_HERE_S", 0.1)

    async def main():
        port = free_port()
        guide = Guide(f"http://127.0.0.1:{port}/hub", prefix="http://127.")
        async with beside(tmp_path, guide) as w:
            topic = w.site.put("/t", b"1")
            async with psph(tmp_path / "a", port) as (_, there):
                await w.subscribe(topic)
                w.site.put("/t", b"2")
                await w.ping(topic)
                await until(lambda: w.reader.received, "the delivery")
                position = Position.parse(w.reader.received[0].headers["X-Hub-Position"])
                assert position.publisher == there.store.identity.publisher
                assert w.hub.counters["fetches"] == 0
            await until(lambda: "by stream" not in words(w, topic), "the end of the stream")
            w.site.put("/t", b"3")
            await w.ping(topic)
            await until(lambda: len(w.reader.received) == 2, "the delivery")
            assert w.hub.counters["fetches"] == 1
            async with psph(tmp_path / "a", port) as (_, there):
                # What was fetched here is no news when it comes from there.
                await until(lambda: words(w, topic), "the stream")
                await there.ping((identify(topic),))
                await until(lambda: there.counters["updates"] == 1, "the fetch")
                w.site.put("/t", b"4")
                await w.ping(topic)
                await until(lambda: len(w.reader.received) >= 3, "the delivery")
            assert [each.body for each in w.reader.received] == [b"2", b"3", b"4"]

    run(main())


@pytest.mark.parametrize("position", [f"{X}.1.{2**63}", None])
def test_strange_positions_are_not_recorded(tmp_path, position):
    async def main():
        async with psph(tmp_path / "a") as (url, there), beside(tmp_path, Guide(url)) as w:
            await w.subscribe(TOPIC)
            own = Position(w.hub.store.identity.publisher, 1, 1)
            update = stream_carrier.StreamUpdate(
                TOPIC, Position.parse(position) if position else own, "text/plain", b"x"
            )
            await w.carrier._record(w.carrier._topics[TOPIC], update)
            assert await w.hub.store.versions(1, 9) == []
            # The numbering of this hub is as it was.
            recorded = await w.hub.publish(identify(TOPIC), "text/plain", b"ours")
            assert recorded.update.position == own
            await accept(there, at(1))
            await receives(w, own, at(1))

    run(main())


def test_a_request_that_is_too_long_is_split(tmp_path, monkeypatch):
    # More than a server takes in a line.
    monkeypatch.setattr(stream_carrier, "_JOINS_MAX", 1)
    monkeypatch.setattr(stream_carrier, "_QUERY_BYTES_MAX", 1 << 20)

    async def main():
        async with psph(tmp_path / "a") as (url, there), beside(tmp_path, Guide(url)) as w:
            topics = [f"{TOPIC}/{n}/{'x' * 1_500}" for n in range(9)]
            await asyncio.gather(
                *(
                    w.post(mode="subscribe", topic=each, callback=f"{w.reader.url}/{n}")
                    for n, each in enumerate(topics)
                )
            )
            await until(lambda: w.hub.counters["verifications_confirmed"] == 9, "all")
            for n, each in enumerate(topics):
                await accept(there, at(1), topic=each)
                await receives(w, at(1), path=f"/{n}")

    run(main())


def test_a_hub_has_a_guide_or_a_carrier():
    with pytest.raises(ValueError, match="leave one out"):
        Hub(chosen(), None, guide=Guide(), carrier=NotedCarrier())
