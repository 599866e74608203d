"""What somebody outside wants, and what the hub can tell them of its history."""

import asyncio
import time

import pytest

from identifiers import Position, PublisherId, identify
from push_hub.errors import Refused
from push_hub.following import Way
from tests.push_hub.test_upstream import FOLLOWING, follower
from tests.push_hub.world import run, until, until_async, world

QUIET = {"poll_shortest": 1000.0, "poll_longest": 1000.0}
OTHER = PublisherId(b"o" * 16)


async def known(w, topic):
    return await w.hub.store.topic(identify(topic)) is not None


def test_a_topic_that_is_kept_is_followed_until_it_is_let_go(tmp_path):
    async def main():
        async with follower(tmp_path) as (w, way):
            topic = w.site.put("/t", b"1")
            heard = []
            w.hub.listen(heard.append)
            w.hub.keep(identify(topic))
            await way(Way.POLLED)
            w.site.put("/t", b"2")
            await until(lambda: [each.body for each in heard] == [b"1", b"2"], "both versions")
            w.hub.let_go(identify(topic))

            async def left():
                return await w.hub.store.following(1) is None

            await until_async(left, "the end of following")

    run(main())


def test_a_kept_topic_is_fetched_when_pinged_and_not_forgotten(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            topic = identify(f"{w.site.url}/t")
            w.hub.keep(topic)
            await w.hub.first_look(topic, 30.0)  # there is nothing yet

            async def tried():
                return (await w.hub.store.topic(topic)).fetch_due is None

            await until_async(tried, "the end of retries")
            later = w.hub.context.clock() + 1000
            assert await w.hub.store.forget(later, but_topics=w.hub.interest.topics()) == 0
            w.site.put("/t", b"1")
            await w.ping(topic.spelling)
            await until(lambda: w.hub.counters["updates"] == 1, "the update")
            # Whereas what nobody wants is not even known here.
            await w.ping(w.site.put("/other", b"1"))
            assert not await known(w, f"{w.site.url}/other")

    run(main())


def test_whoever_lets_go_at_once_keeps_nothing(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            topic = identify("http://127.0.0.1:1/t")
            w.hub.keep(topic)
            w.hub.let_go(topic)
            w.hub.let_go(topic)
            await until(lambda: w.hub.counters["fetch_failures"], "the look at the topic")
            assert w.hub.interest.topics() == frozenset()

    run(main())


@pytest.mark.parametrize("follow", [True, False])
def test_the_first_look_ends_with_a_fetch(tmp_path, follow):
    async def main():
        more = {**FOLLOWING, **QUIET} if follow else {}
        async with world(tmp_path, **more) as w:
            topic = identify(w.site.put("/t", b"1"))
            w.hub.keep(topic)
            await w.hub.first_look(topic, 30.0)
            assert (await w.hub.store.latest(1)).body == b"1"
            assert len(w.site.fetches("/t")) == 1
            await w.hub.first_look(topic, 30.0)  # long over

    run(main())


def test_the_first_look_ends_when_the_fetch_fails_or_an_update_comes(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            missing = identify(f"{w.site.url}/missing")
            w.hub.keep(missing)
            await w.hub.first_look(missing, 30.0)
            assert (await w.hub.store.topic(missing)).last_error == "the topic answered 404"
            sent = identify("http://sent.example/")
            looking = asyncio.create_task(w.hub.first_look(sent, 30.0))
            await until_async(lambda: known(w, sent.spelling), "the topic")
            assert not looking.done()
            await w.hub.publish(sent, "text/plain", b"x")
            await looking

    run(main())


def test_the_first_look_has_an_end(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            began = time.monotonic()
            await w.hub.first_look(identify("http://silent.example/"), 0.1)
            assert time.monotonic() - began >= 0.1

    run(main())


def test_a_full_hub_says_so(tmp_path, caplog):
    async def main():
        async with world(tmp_path, max_topics=1) as w:
            await w.hub.publish(identify("http://one.example/"), "text/plain", b"x")
            other = identify("http://two.example/")
            w.hub.keep(other)
            await until(lambda: "topic.not_kept" in caplog.text, "the line in the log")
            with pytest.raises(Refused, match="1 topics"):
                await w.hub.first_look(other, 1.0)

    run(main())


def test_the_backlog_is_what_this_hub_numbered(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            topic = identify("http://site.example/t")
            assert await w.hub.backlog(topic, None, 10) == []
            assert await w.hub.positions(topic) == []
            ours = []
            for n in range(4):
                recorded = await w.hub.publish(topic, "text/plain", b"%d" % n)
                ours.append(recorded.update.position)
                await w.hub.accept(
                    topic, "text/plain", b"theirs", trace_id="0" * 32,
                    position=Position(OTHER, 1 + n % 2, 5),
                )  # fmt: skip
            publisher = w.hub.store.identity.publisher
            assert {each.publisher for each in ours} == {publisher}

            async def bodies(after, limit=10):
                return [each.body for each in await w.hub.backlog(topic, after, limit)]

            assert await bodies(None) == [b"0", b"1", b"2", b"3"]
            assert await bodies(ours[1]) == [b"2", b"3"]
            assert await bodies(None, limit=2) == [b"0", b"1"]
            assert await bodies(ours[3]) == []
            assert await bodies(Position(publisher, 2**63, 1)) == []
            assert await bodies(Position(OTHER, 9, 9)) == [b"0", b"1", b"2", b"3"]
            found = await w.hub.positions(topic)
            assert set(found) == {ours[3], Position(OTHER, 2, 5)}

    run(main())


def test_positions_outlive_the_history(tmp_path):
    async def main():
        async with world(tmp_path, history=2) as w:
            topic = identify("http://site.example/t")
            await w.hub.accept(
                topic, "text/plain", b"x", trace_id="0" * 32, position=Position(OTHER, 4, 7)
            )
            for n in range(4):
                last = await w.hub.publish(topic, "text/plain", b"%d" % n)
            assert set(await w.hub.positions(topic)) == {
                last.update.position,
                Position(OTHER, 4, 7),
            }
            assert len(await w.hub.backlog(topic, None, 10)) == 2

    run(main())
