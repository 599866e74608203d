"""Topics that nobody pings here: followed at their own hub (a second hub of ours), or polled."""

import asyncio
from contextlib import asynccontextmanager

from aiohttp import web

from identifiers import identify
from push_hub import create_app
from push_hub.app import HUB
from push_hub.following import Way
from push_hub.leases import LeaseBounds
from push_hub.signatures import signature
from tests.ports import free_port
from tests.push_hub.feeds.documents import atom
from tests.push_hub.test_publishing import ATOM
from tests.push_hub.world import chosen, run, served, until, until_async, world

FOLLOWING = {
    "follow_after": 0.1,
    "poll_shortest": 0.2,
    "poll_longest": 0.4,
    "confirm_patience": 60.0,
    "ask_again": 0.2,
}


@asynccontextmanager
async def follower(tmp_path, **changes):
    """A world whose hub follows, and a function that looks up how it follows a topic."""
    port = free_port()
    settings = {**FOLLOWING, "public_url": f"http://127.0.0.1:{port}", **changes}
    async with world(tmp_path, port=port, **settings) as w:

        async def state(path="/t"):
            for record in await w.hub.store.topics():
                if record.canonical.endswith(path):
                    return await w.hub.store.following(record.id)
            return None

        async def way(expected, path="/t"):
            found = None

            async def reached():
                nonlocal found
                found = await state(path)
                return found is not None and found.way is expected

            await until_async(reached, expected)
            return found

        yield w, way


@asynccontextmanager
async def other_hub(tmp_path, **changes):
    """The topic's own hub, with its own database."""
    (tmp_path / "other").mkdir(exist_ok=True)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    app = create_app(chosen(public_url=url, **changes), tmp_path / "other")
    async with served(app, port) as url:
        yield url, app[HUB]


async def ping(w, hub_url, topic):
    form = {"hub.mode": "publish", "hub.url": topic}
    async with w.client.post(f"{hub_url}/hub", data=form) as answer:
        assert answer.status == 204


def test_a_topic_with_a_hub_of_its_own_is_followed_there(tmp_path):
    async def main():
        async with (
            follower(tmp_path, poll_longest=1000.0) as (w, way),
            other_hub(tmp_path) as (there, hub),
        ):
            link = f'<{there}/hub>; rel="hub", <{w.site.url}/t>; rel="self"'
            topic = w.site.put("/t", b"1", Link=link)
            await w.subscribe(topic)
            followed = await way(Way.HUB)
            assert followed.hub == f"{there}/hub"
            assert followed.lease_until > 0
            w.site.put("/t", b"2", Link=link)
            await ping(w, there, topic)
            await until(lambda: w.reader.received, "the delivery")
            assert [each.body for each in w.reader.received] == [b"2"]
            assert w.hub.counters["upstream_pushes"] == 1
            (theirs,) = await hub.store.subscriptions()
            assert theirs.secret

    run(main())


def test_what_was_there_at_the_beginning_is_pushed_when_a_ping_says_that_it_is_new(tmp_path):
    async def main():
        async with follower(tmp_path, poll_shortest=100.0, poll_longest=100.0) as (w, way):
            topic = w.site.put("/t", b"1")
            await w.subscribe(topic)
            await way(Way.POLLED)
            await until(lambda: w.hub.counters["updates"] == 1)
            assert w.reader.received == []
            await w.ping(topic)
            await until(lambda: w.reader.received, "the delivery")
            assert w.reader.received[0].body == b"1"
            await w.ping(topic)
            await until(lambda: w.hub.counters["fetches_without_news"] == 2)
            assert len(w.reader.received) == 1

    run(main())


def test_a_topic_without_a_hub_is_polled(tmp_path):
    async def main():
        async with follower(tmp_path) as (w, way):
            topic = w.site.put("/t", b"1")
            await w.subscribe(topic)
            assert (await way(Way.POLLED)).reason == "it names no hub"
            w.site.put("/t", b"2")
            await until(lambda: w.reader.received, "the delivery")
            assert [each.body for each in w.reader.received] == [b"2"]

    run(main())


def test_a_hub_that_does_not_confirm_is_replaced_by_polling_and_asked_again(tmp_path):
    async def main():
        async with follower(tmp_path, confirm_patience=0.3) as (w, way):
            asked = []

            async def accepts(request):
                asked.append(await request.post())
                return web.Response(status=202)

            app = web.Application()
            app.router.add_post("/hub", accepts)
            async with served(app) as silent:
                topic = w.site.put("/t", b"1", Link=f'<{silent}/hub>; rel="hub"')
                await w.subscribe(topic)
                assert "did not confirm" in (await way(Way.POLLED)).reason
                await until(lambda: len(asked) >= 2, "another request")
                assert asked[0]["hub.topic"] == topic
                assert asked[0]["hub.callback"] == asked[1]["hub.callback"]
                w.site.put("/t", b"2", Link=f'<{silent}/hub>; rel="hub"')
                await until(lambda: w.reader.received, "the delivery")

    run(main())


def test_a_hub_that_refuses_or_is_not_there_is_named_in_the_reason(tmp_path):
    async def main():
        async with follower(tmp_path, ask_again=100.0) as (w, way):
            w.site.put("/t", b"1", Link=f'<{w.site.url}/no-hub>; rel="hub"')
            await w.subscribe(f"{w.site.url}/t")
            assert "answered 405" in (await way(Way.POLLED)).reason
            w.site.put("/u", b"1", Link=f'<http://127.0.0.1:{free_port()}/>; rel="hub"')
            await w.subscribe(f"{w.site.url}/u", "/other")
            assert "cannot connect" in (await way(Way.POLLED, "/u")).reason

    run(main())


def test_leases_are_renewed_and_polling_takes_over_when_the_hub_is_gone(tmp_path, monkeypatch):
    # Renewed soon, and long before the lease is over.
    monkeypatch.setattr("push_hub.following._RENEW", 0.1)

    async def main():
        async with follower(tmp_path, poll_longest=1000.0, ask_again=100.0) as (w, way):
            async with other_hub(tmp_path, leases=LeaseBounds(20, 20, 20)) as (there, hub):
                topic = w.site.put("/t", b"1", Link=f'<{there}/hub>; rel="hub"')
                await w.subscribe(topic)
                await way(Way.HUB)
                await until(lambda: w.hub.counters["upstream_confirmed"] >= 2, "a renewal")
                assert (await way(Way.HUB)).failures == 0
                assert len(await hub.store.subscriptions()) == 1
            assert there in (await way(Way.POLLED)).reason
            w.site.put("/t", b"2")
            await until(lambda: w.reader.received, "the delivery")

    run(main())


def test_a_hub_that_keeps_silent_about_an_update_is_found_out(tmp_path):
    async def main():
        async with (
            follower(tmp_path, poll_longest=0.3, ask_again=100.0) as (w, way),
            other_hub(tmp_path) as (there, _),
        ):
            link = f'<{there}/hub>; rel="hub"'
            topic = w.site.put("/t", b"1", Link=link)
            await w.subscribe(topic)
            await way(Way.HUB)
            w.site.put("/t", b"2", Link=link)  # and nobody pings it
            assert "did not push" in (await way(Way.POLLED)).reason
            await until(lambda: w.reader.received, "the delivery")

    run(main())


def test_what_is_sent_here_is_not_followed(tmp_path):
    async def main():
        async with follower(tmp_path) as (w, _):
            topic = w.site.put("/t", b"1")
            await w.hub.publish(identify(topic), "text/plain", b"1")
            await w.subscribe(topic)
            await asyncio.sleep(0.5)
            assert (await w.hub.store.statistics()).following == {}
            assert w.site.requests == []

    run(main())


def test_a_topic_that_names_this_hub_is_polled_until_it_pings(tmp_path):
    async def main():
        async with follower(tmp_path) as (w, way):
            topic = w.site.put("/t", b"1", Link=f'<{w.hub_url}/hub>; rel="hub"')
            await w.subscribe(topic)
            assert "names this hub" in (await way(Way.POLLED)).reason
            await w.ping(topic)
            await way(Way.PINGED)

    run(main())


def test_forged_pushes_are_ignored_and_unwanted_ones_ended(tmp_path):
    async def main():
        async with (
            follower(tmp_path, poll_longest=1000.0) as (w, way),
            other_hub(tmp_path) as (there, _),
        ):
            topic = w.site.put("/t", b"1", Link=f'<{there}/hub>; rel="hub"')
            await w.subscribe(topic)
            followed = await way(Way.HUB)
            url = f"{w.hub_url}/upstream/{followed.token}"
            before = len(w.site.fetches("/t"))
            for given in ({}, {"X-Hub-Signature": signature(b"wrong", b"x")}):
                async with w.client.post(url, data=b"x", headers=given) as answer:
                    assert answer.status == 202
            assert w.hub.counters["upstream_forged"] == 2
            await asyncio.sleep(0.1)
            assert len(w.site.fetches("/t")) == before
            async with w.client.post(f"{w.hub_url}/upstream/unknown", data=b"x") as answer:
                assert answer.status == 410

    run(main())


def test_only_what_was_asked_for_is_confirmed(tmp_path):
    async def main():
        async with (
            follower(tmp_path, poll_longest=1000.0, ask_again=1000.0) as (w, way),
            other_hub(tmp_path) as (there, _),
        ):
            topic = w.site.put("/t", b"1", Link=f'<{there}/hub>; rel="hub"')
            await w.subscribe(topic)
            followed = await way(Way.HUB)
            url = f"{w.hub_url}/upstream/{followed.token}"
            good = {"hub.mode": "subscribe", "hub.topic": topic, "hub.challenge": "c"}
            for wrong in (
                {"hub.topic": "http://victim.example/"},
                {"hub.mode": "unsubscribe"},
                {"hub.challenge": "x" * 5_000},
            ):
                async with w.client.get(url, params={**good, **wrong}) as answer:
                    assert answer.status == 404, wrong
            async with w.client.get(url, params={**good, "hub.lease_seconds": "77"}) as answer:
                assert (answer.status, await answer.text()) == (200, "c")
            denied = {"hub.mode": "denied", "hub.topic": topic, "hub.reason": "full\n"}
            async with w.client.get(url, params=denied) as answer:
                assert answer.status == 200
            assert (await way(Way.POLLED)).reason.endswith("denied: full ")

    run(main())


def test_pings_here_end_it(tmp_path):
    async def main():
        async with follower(tmp_path) as (w, way):
            topic = w.site.put("/t", b"1")
            await w.subscribe(topic)
            await way(Way.POLLED)
            await w.ping(topic)
            await way(Way.PINGED)

    run(main())


def test_nobody_follows_what_nobody_wants(tmp_path):
    async def main():
        async with follower(tmp_path) as (w, way):
            topic = w.site.put("/t", b"1")
            await w.subscribe(topic)
            await way(Way.POLLED)
            (record,) = await w.hub.store.topics()
            subscription = await w.subscription(topic)
            await w.hub.drop(subscription.id, "enough")

            async def gone():
                return await w.hub.store.following(record.id) is None

            await until_async(gone, "its end")

    run(main())


def test_a_stream_gets_a_topic_that_was_never_here(tmp_path):
    async def main():
        async with follower(tmp_path, follow_after=1000.0) as (w, _):
            topic = w.site.put("/f", atom(("a", "1")), ATOM)
            async with w.client.get(f"{w.hub_url}/stream", params={"topic": topic}) as stream:
                while not (line := await stream.content.readline()).startswith(b"data:"):
                    pass
                assert b'"entries"' in line

    run(main())


def test_a_ping_for_one_spelling_reaches_readers_of_the_other(tmp_path):
    async def main():
        async with follower(tmp_path, poll_shortest=100.0, poll_longest=100.0) as (w, way):

            async def moved(request):
                raise web.HTTPPermanentRedirect("/new")

            w.site.hooks["/t"] = moved
            new = w.site.put("/new", b"1", Link=f'<{w.site.url}/newest>; rel="self"')
            newest = w.site.put("/newest", b"1")
            await w.subscribe(f"{w.site.url}/t")
            await way(Way.POLLED)
            for n, pinged in enumerate((new, newest), 2):
                w.site.put("/new", b"%d" % n)
                await w.ping(pinged)  # never asked for by anybody here
                await until(lambda n=n: len(w.reader.received) == n - 1)
                assert w.reader.received[-1].body == b"%d" % n

    run(main())


def test_the_diagnostics_say_how_a_topic_is_followed(tmp_path):
    async def main():
        async with follower(tmp_path) as (w, way):
            topic = w.site.put("/t", b"1")
            await w.subscribe(topic)
            await way(Way.POLLED)
            query = {"url": topic, "format": "json"}
            async with w.client.get(f"{w.hub_url}/topics", params=query) as answer:
                shown = await answer.json()
            assert shown["following"]["way"] == "polled"
            assert shown["following"]["reason"] == "it names no hub"
            assert any("it names no hub" in each for each in shown["watched"])
            metrics = await w.hub.context.metrics.exposition(w.hub.store)
            assert b'psph_hub_following{way="polled"} 1.0' in metrics

    run(main())


def test_a_restart_goes_on_where_it_was(tmp_path):
    async def main():
        port, more = free_port(), {"poll_longest": 1000.0, "poll_shortest": 1000.0}
        more = {**FOLLOWING, **more, "public_url": f"http://127.0.0.1:{port}"}
        async with other_hub(tmp_path) as (there, _):
            async with world(tmp_path, port=port, **more) as w:
                topic = w.site.put("/t", b"1", Link=f'<{there}/hub>; rel="hub"')
                await w.subscribe(topic)
                await until(lambda: w.hub.counters["upstream_confirmed"] == 1)
                before = await w.hub.store.following(1)
            async with world(tmp_path, port=port, **more) as w:
                await asyncio.sleep(0.3)
                after = await w.hub.store.following(1)
                assert (after.way, after.token) == (Way.HUB, before.token)
                headers = {"X-Hub-Signature": signature(after.secret, b"2")}
                url = f"{w.hub_url}/upstream/{after.token}"
                async with w.client.post(url, data=b"2", headers=headers) as answer:
                    assert answer.status == 202
                assert w.hub.counters["upstream_requests"] == 0

    run(main())
