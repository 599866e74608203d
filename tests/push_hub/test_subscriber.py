"""`push_hub.Subscriber` against our hub, and against hubs that misbehave, over real HTTP."""

import asyncio
import contextlib
import hashlib
import hmac
import time

import aiohttp
import pytest
from aiohttp import web

from push_hub import Subscriber
from push_hub.addresses import AddressPolicy
from push_hub.client import NoHub, SubscriptionEnded, SubscriptionFailed
from push_hub.errors import BadRequest, FetchFailed
from push_hub.lifecycle import State
from push_hub.retries import RetrySchedule
from push_hub.signatures import ALGORITHMS
from tests.ports import free_port
from tests.push_hub.feeds.documents import atom, json_feed
from tests.push_hub.world import PATIENCE, run, served, until, until_async, world

ATOM = "application/atom+xml; charset=utf-8"


def linked(w, topic):
    return {"Link": f'<{w.hub_url}/hub>; rel="hub", <{topic}>; rel="self"'}


async def states(w, topic, subscriber):
    return (await w.hub.store.subscription(topic, subscriber.callback)).state


async def becomes(w, topic, subscriber, state):
    """The hub may still be writing down what it was just told."""

    async def is_so():
        return await states(w, topic, subscriber) is state

    await until_async(is_so, f"{state}")


async def active(w, topic, subscriber):
    await becomes(w, topic, subscriber, State.ACTIVE)


def test_it_discovers_subscribes_reads_and_unsubscribes(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            topic = f"{w.site.url}/feed"
            w.site.put("/feed", atom(("a", "1")), ATOM, **linked(w, topic))
            async with Subscriber(f"{w.site.url}/feed") as subscriber:
                assert (subscriber.topic, subscriber.hub) == (topic, f"{w.hub_url}/hub")
                assert subscriber.lease_seconds == 1000
                await active(w, topic, subscriber)
                await w.ping(topic)
                first = await asyncio.wait_for(anext(subscriber), PATIENCE)
                assert (first.content, first.content_type) == (atom(("a", "1")), ATOM)
                assert [entry.title for entry in first.entries] == ["1"]
                w.site.put("/feed", atom(("b", "2"), ("a", "1")), ATOM, **linked(w, topic))
                await w.ping(topic)
                async for each in subscriber:
                    second = each
                    break
                assert [entry.title for entry in second.entries] == ["2", "1"]
                assert [entry.title for entry in second.new_entries] == ["2"]
                assert second.delivery_id != first.delivery_id
                assert subscriber.counters["rejected"] == 0
            await becomes(w, topic, subscriber, State.UNSUBSCRIBED)
            with pytest.raises(StopAsyncIteration):
                await anext(subscriber)

    run(main())


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (ATOM, '<feed xmlns="http://www.w3.org/2005/Atom"><link rel="hub" href="{hub}"/>'
               '<link rel="self" href="{topic}"/></feed>'),
        ("application/rss+xml", '<rss version="2.0" xmlns:a="http://www.w3.org/2005/Atom"><channel>'
               '<a:link rel="hub" href="{hub}"/><a:link rel="self" href="{topic}"/></channel>'
               "</rss>"),
        ("text/html", '<html><head><link rel="hub" href="{hub}"><link rel=self href="{topic}">'
                      "</head></html>"),
        ("application/feed+json", '{{"version": "https://jsonfeed.org/version/1.1", "items": [], '
               '"feed_url": "{topic}", "hubs": [{{"type": "WebSub", "url": "{hub}"}}]}}'),
    ],
)  # fmt: skip
def test_links_in_documents_are_found(tmp_path, content_type, body):
    async def main():
        async with world(tmp_path) as w:
            topic = f"{w.site.url}/canonical"
            text = body.format(hub=f"{w.hub_url}/hub", topic=topic)
            w.site.put("/here", text.encode(), content_type)
            async with Subscriber(f"{w.site.url}/here") as subscriber:
                assert (subscriber.topic, subscriber.hub) == (topic, f"{w.hub_url}/hub")

    run(main())


def test_the_current_version_comes_first_where_asked_for(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            topic = w.site.put("/feed", json_feed(("a", "1")), "application/feed+json")
            async with Subscriber(topic, hub=f"{w.hub_url}/hub", current=True) as subscriber:
                current = await asyncio.wait_for(anext(subscriber), PATIENCE)
                assert current.current
                assert [entry.title for entry in current.new_entries] == ["1"]
                await active(w, topic, subscriber)
                w.site.put("/feed", json_feed(("b", "2"), ("a", "1")), "application/feed+json")
                await w.ping(topic)
                then = await asyncio.wait_for(anext(subscriber), PATIENCE)
                assert [entry.title for entry in then.new_entries] == ["2"]

    run(main())


def test_the_current_version_may_come_from_a_proxy(tmp_path):
    """A topic that only the fabric reaches: GET /t/<topic URL> of the proxy has its bytes."""

    async def main():
        topic = "http://127.0.0.1:9/feed?a=1"

        async def copy(request):
            assert request.raw_path == f"/t/{topic}"
            return web.Response(body=b"copy", content_type="text/plain")

        async with world(tmp_path) as w:
            app = web.Application()

            async def hub(request):
                raise web.HTTPTemporaryRedirect(f"{w.hub_url}/hub")

            app.router.add_get("/t/{topic:.*}", copy)
            app.router.add_post("/hub", hub)
            async with (
                served(app) as proxy,
                Subscriber(topic, hub=f"{proxy}/hub", current=True) as subscriber,
            ):
                assert (await anext(subscriber)).content == b"copy"

    run(main())


@pytest.mark.parametrize("algorithm", [None, *ALGORITHMS])
def test_every_signature_is_verified(tmp_path, algorithm):
    async def main():
        async with world(tmp_path) as w:
            topic = w.site.put("/t", b"signed")
            async with Subscriber(
                topic, hub=f"{w.hub_url}/hub", algorithm=algorithm, secret="s"
            ) as subscriber:
                await active(w, topic, subscriber)
                for header in (None, "sha256=" + "0" * 64, "md5=00", "\xff"):
                    headers = {} if header is None else {"X-Hub-Signature": header}
                    async with w.client.post(
                        subscriber.callback, data=b"forged", headers=headers
                    ) as answer:
                        assert answer.status == 202  # nobody learns by asking
                await w.ping(topic)
                assert (await asyncio.wait_for(anext(subscriber), PATIENCE)).content == b"signed"
                assert subscriber.counters["rejected"] == 4
                assert subscriber.counters["received"] == 1

    run(main())


def test_repeats_are_recognised_by_their_id(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            topic = w.site.put("/t", b"x")
            async with Subscriber(topic, hub=f"{w.hub_url}/hub", secret="s") as subscriber:
                for number, body in ((1, b"a"), (1, b"a"), (2, b"a")):
                    sign = "sha1=" + hmac.new(b"s", body, hashlib.sha1).hexdigest()
                    headers = {"X-Hub-Signature": sign, "X-Hub-Delivery": str(number)}
                    async with w.client.post(
                        subscriber.callback, data=body, headers=headers
                    ) as answer:
                        assert answer.status == 200
                ids = [(await anext(subscriber)).delivery_id for _ in range(2)]
                assert ids == ["1", "2"]
                assert subscriber.counters["repeated"] == 1
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(subscriber), 0.05)

    run(main())


def test_a_lease_is_renewed_before_it_ends(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            topic = w.site.put("/t", b"0")
            begun = time.monotonic()
            async with Subscriber(
                topic, hub=f"{w.hub_url}/hub", lease_seconds=1, secret=""
            ) as subscriber:
                assert subscriber.lease_seconds == 1
                await until(lambda: w.hub.counters["verifications_confirmed"] >= 3)
                assert time.monotonic() - begun >= 1.4  # not all the time, either
                for n in range(PATIENCE):  # the lease may be over where everything takes long
                    w.site.put("/t", b"%d" % n)
                    await w.ping(topic)
                    with contextlib.suppress(TimeoutError):
                        update = await asyncio.wait_for(anext(subscriber), 1)
                        break
                assert update.content.isdigit()

    run(main())


def test_a_hub_that_is_away_at_the_renewal_is_asked_again(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "push_hub.client.subscriber._RENEWALS",
        RetrySchedule(first=0.1, longest=0.1),
    )

    async def main():
        answers = iter([202, 503, 500, 503])
        asked = []

        async def hub(request):
            form = await request.post()
            status = next(answers, 202)
            asked.append((form["hub.mode"], status))
            if status == 202:
                query = {
                    "hub.mode": form["hub.mode"],
                    "hub.topic": form["hub.topic"],
                    "hub.challenge": "c",
                    "hub.lease_seconds": "1",
                }
                async with (
                    aiohttp.ClientSession() as client,
                    client.get(form["hub.callback"], params=query) as answer,
                ):
                    assert await answer.text() == "c"
            return web.Response(status=status)

        app = web.Application()
        app.router.add_post("/", hub)
        async with served(app) as url, Subscriber("http://t.example/", hub=url) as subscriber:
            await until(lambda: len(asked) >= 5)
            await until(lambda: subscriber.last_error is None)
        assert asked[-1] == ("unsubscribe", 202)

    run(main())


def test_a_denial_ends_the_iteration(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            topic = w.site.put("/t", b"x")
            async with Subscriber(topic, hub=f"{w.hub_url}/hub") as subscriber:
                await active(w, topic, subscriber)
                record = await w.hub.store.subscription(topic, subscriber.callback)
                await w.hub.drop(record.id, "unwanted\nby us")
                with pytest.raises(SubscriptionEnded, match="unwanted by us"):
                    await asyncio.wait_for(anext(subscriber), PATIENCE)

    run(main())


def test_what_cannot_be_subscribed_says_why(tmp_path):
    async def main():
        async with world(tmp_path, topic_hosts=("example.com",)) as w:
            topic = w.site.put("/t", b"x")
            with pytest.raises(NoHub, match="names no hub"):
                async with Subscriber(topic):
                    pass
            with pytest.raises(FetchFailed, match="404"):
                async with Subscriber(f"{w.site.url}/nowhere"):
                    pass
            with pytest.raises(SubscriptionFailed, match="does not serve topics"):
                async with Subscriber(topic, hub=f"{w.hub_url}/hub"):
                    pass
            with pytest.raises(SubscriptionFailed, match="cannot be reached"):
                async with Subscriber(topic, hub="http://127.0.0.1:9/"):
                    pass
            with pytest.raises(SubscriptionFailed, match="answered 405"):
                async with Subscriber(topic, hub=f"{w.site.url}/no-hub"):
                    pass
            with pytest.raises(ValueError, match="public_url"):
                Subscriber(topic, host="0.0.0.0")
            with pytest.raises(BadRequest, match="absolute"):
                Subscriber(topic, public_url="nowhere")
            port = int(w.hub_url.rpartition(":")[2])
            with pytest.raises(SubscriptionFailed, match="cannot listen"):
                async with Subscriber(topic, hub=f"{w.hub_url}/hub", port=port):
                    pass
            public = AddressPolicy((), "fetch", "policy")
            with pytest.raises(FetchFailed, match="public internet"):
                async with Subscriber(topic, policy=public):
                    pass

    run(main())


def test_a_hub_that_never_asks_back_is_given_up_on():
    async def silent(request):
        return web.Response(status=202)

    async def main():
        app = web.Application()
        app.router.add_post("/hub", silent)
        async with served(app) as url:
            with pytest.raises(SubscriptionFailed, match="did not confirm"):
                async with Subscriber("http://t.example/", hub=f"{url}/hub", patience=0.3):
                    pass

    run(main())


def test_the_next_hub_is_tried_and_redirects_keep_the_form(tmp_path):
    async def main():
        async with world(tmp_path) as w:

            async def moved(request):
                raise web.HTTPTemporaryRedirect(f"{w.hub_url}/hub")

            app = web.Application()
            app.router.add_post("/", moved)
            async with served(app) as redirecting:
                topic = f"{w.site.url}/t"
                links = f'<http://127.0.0.1:9/>; rel="hub", <{redirecting}/>; rel="hub"'
                w.site.put("/t", b"x", Link=links)
                async with Subscriber(topic) as subscriber:
                    assert subscriber.hub == f"{redirecting}/"
                    await active(w, topic, subscriber)

    run(main())


def test_it_mounts_in_an_application(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            topic = w.site.put("/t", b"x")
            inner, outer = web.Application(), web.Application()
            with pytest.raises(ValueError, match="public_url"):
                Subscriber(topic).mount(inner)
            # Routes come before the port is known, as in any application.
            port = free_port()
            subscriber = Subscriber(
                topic, hub=f"{w.hub_url}/hub", public_url=f"http://127.0.0.1:{port}"
            )
            subscriber.mount(inner, "/news")
            outer.add_subapp("/news/", inner)
            async with served(outer, port):
                async with subscriber:
                    assert subscriber.callback.startswith(f"http://127.0.0.1:{port}/news/websub/")
                    await active(w, topic, subscriber)
                    await w.ping(topic)
                    assert (await asyncio.wait_for(anext(subscriber), PATIENCE)).content == b"x"
                async with w.client.post(subscriber.callback, data=b"late") as answer:
                    assert answer.status == 410

    run(main())


def test_it_may_be_entered_again(tmp_path):
    """The routes of a mounted one exist once."""

    async def main():
        async with world(tmp_path) as w:
            ready = False

            async def hub(request):
                if ready:
                    raise web.HTTPPermanentRedirect(f"{w.hub_url}/hub")
                return web.Response(status=503, text="in a minute")

            app, port = web.Application(), free_port()
            app.router.add_post("/hub", hub)
            url = f"http://127.0.0.1:{port}"
            topic = w.site.put("/t", b"x")
            subscriber = Subscriber(topic, hub=f"{url}/hub", public_url=url)
            subscriber.mount(app)
            async with served(app, port):
                with pytest.raises(SubscriptionFailed, match="503: in a minute"):
                    async with subscriber:
                        pass
                ready = True
                for body in (b"1", b"2"):
                    async with subscriber:
                        await active(w, topic, subscriber)
                        w.site.put("/t", body)
                        await w.ping(topic)
                        assert (await asyncio.wait_for(anext(subscriber), PATIENCE)).content == body

    run(main())


def test_strangers_at_the_callback_get_nothing(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            topic = w.site.put("/t", b"x")
            async with Subscriber(
                topic, hub=f"{w.hub_url}/hub", max_content=1000, max_waiting=2, secret=""
            ) as subscriber:
                right = {"hub.mode": "subscribe", "hub.topic": topic, "hub.challenge": "c"}
                for change in (
                    {"hub.mode": "unsubscribe"},
                    {"hub.topic": "http://other.example/"},
                    {"hub.challenge": "c" * 3000},
                    {"hub.mode": "x"},
                ):
                    async with w.client.get(subscriber.callback, params=right | change) as answer:
                        assert answer.status == 404
                async with w.client.post(subscriber.callback, data=b"x" * 1001) as answer:
                    assert answer.status == 413

                async def endless():
                    for _ in range(20):
                        yield b"x" * 100

                async with w.client.post(subscriber.callback, data=endless()) as answer:
                    assert answer.status == 413
                statuses = []
                for _ in range(3):
                    async with w.client.post(subscriber.callback, data=b"x") as answer:
                        statuses.append((answer.status, answer.headers.get("Retry-After")))
                assert statuses == [(200, None), (200, None), (503, "5")]

    run(main())
