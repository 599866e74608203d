"""A hub whose guide names several: one that dies is left, and nothing of its topics is missed."""

from collections import deque
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import pytest

from identifiers import Position, PublisherId, identify
from push_hub import create_app
from push_hub.app import HUB
from push_hub.catching_up import Missing, _batch
from push_hub.following import Way
from tests.ports import free_port
from tests.push_hub.test_guide import QUIET, TOPIC, NotedGuide, push
from tests.push_hub.test_upstream import follower
from tests.push_hub.world import chosen, run, served, until, until_async

X, Y = PublisherId(b"x" * 16), PublisherId(b"y" * 16)


def at(version, publisher=X):
    return Position(publisher, 1, version)


@asynccontextmanager
async def psph(directory, port=None):
    """A hub that has topics from elsewhere, numbered."""
    directory.mkdir(exist_ok=True)
    port = port or free_port()
    app = create_app(chosen(public_url=f"http://127.0.0.1:{port}"), directory)
    async with served(app, port) as url:
        yield f"{url}/hub", app[HUB]


async def accept(hub, *positions, topic=TOPIC):
    for each in positions:
        await hub.accept(
            identify(topic), "text/plain", b"%d" % each.version, position=each,
            trace_id="ab" * 16, published=True,
        )  # fmt: skip


class Choosing(NotedGuide):
    """Names the first of its hubs that has not failed."""

    def __init__(self, *hubs):
        super().__init__()
        self.order = list(hubs)

    async def hub_for(self, topic):
        return self.order[0] if topic.canonical.startswith("http://only.") else None

    def failed(self, hub):
        super().failed(hub)
        if hub == self.order[0]:
            self.order.append(self.order.pop(0))


async def confirmed(hub, count=1):
    """So many subscriptions stand at a hub: what is recorded there now is pushed."""

    async def stand():
        return (await hub.store.statistics()).subscriptions.get("active", 0) >= count

    await until_async(stand, "the subscription")


def received(w, path="/cb"):
    return [each.headers["X-Hub-Position"] for each in w.reader.at(path)]


def texts(*positions):
    return [str(each) for each in positions]


@pytest.mark.parametrize("topics", [1, 12])
def test_a_dead_hub_is_left_and_nothing_is_missed(tmp_path, topics):
    async def main():
        names = [f"{TOPIC}/{n}" for n in range(topics)]
        async with psph(tmp_path / "b") as (second, there), AsyncExitStack() as stack:
            first, here = await stack.enter_async_context(psph(tmp_path / "a"))
            guide = Choosing(first, second)
            async with follower(tmp_path, guide=guide, guide_check=0.2, **QUIET) as (w, way):
                for n, name in enumerate(names):
                    await w.subscribe(name, f"/cb{n}")
                    assert (await way(Way.HUB, f"/{n}")).hub == first
                    await confirmed(here, n + 1)
                    await accept(here, at(1), at(2), topic=name)
                    await accept(there, at(2), topic=name)
                paths = [f"/cb{n}" for n in range(topics)]
                for path in paths:
                    await until(lambda path=path: len(received(w, path)) == 2, "two versions")
                await stack.aclose()
                for name in names:
                    await accept(there, at(3), at(1, Y), topic=name)
                for path in paths:
                    await until(lambda path=path: len(received(w, path)) == 4, "the others")
                await confirmed(there, topics)
                for n, name in enumerate(names):
                    assert (await way(Way.HUB, f"/{n}")).hub == second
                    await accept(there, at(4), topic=name)
                expected = texts(at(1), at(2), at(3), at(1, Y), at(4))
                for path in paths:
                    await until(lambda path=path: len(received(w, path)) == 5, "the last")
                    assert received(w, path) == expected
                assert first in guide.failures
                assert w.hub.counters["upstream_dead"] == 1

    run(main())


def test_a_hub_without_another_keeps_its_subscription_until_it_is_back(tmp_path):
    async def main():
        port = free_port()
        async with AsyncExitStack() as stack:
            only, there = await stack.enter_async_context(psph(tmp_path / "a", port))
            guide = Choosing(only)
            async with follower(tmp_path, guide=guide, guide_check=0.2, **QUIET) as (w, way):
                await w.subscribe(TOPIC)
                before = await way(Way.HUB, "/feed")
                await confirmed(there)
                await stack.aclose()
                await until(lambda: guide.failures, "its death")
                async with psph(tmp_path / "a", port) as (_, hub):
                    await accept(hub, at(1))
                    await until(lambda: received(w) == texts(at(1)), "the version")
                    assert (await way(Way.HUB, "/feed")).token == before.token

    run(main())


def test_when_all_were_dead_the_first_that_is_back_is_asked(tmp_path):
    async def main():
        ports = [free_port(), free_port()]
        async with AsyncExitStack() as stack:
            hubs = [
                (await stack.enter_async_context(psph(tmp_path / str(port), port)))[0]
                for port in ports
            ]
            guide = Choosing(*hubs)
            patience = {"guide_check": 0.2, "ask_again": 1000.0}
            async with follower(tmp_path, guide=guide, **{**QUIET, **patience}) as (w, way):
                await w.subscribe(TOPIC)
                await way(Way.HUB, "/feed")
                await stack.aclose()
                await way(Way.POLLED, "/feed")
                await until(lambda: set(guide.failures) == set(hubs), "the death of both")
                async with psph(tmp_path / str(ports[1]), ports[1]) as (url, hub):
                    guide.order = [url]
                    assert (await way(Way.HUB, "/feed")).hub == url
                    await confirmed(hub)
                    await accept(hub, at(1))
                    await until(lambda: received(w) == texts(at(1)), "the version")

    run(main())


def test_what_is_missing_before_a_push_is_had_first(tmp_path):
    async def main():
        async with psph(tmp_path / "a") as (url, hub):
            await accept(hub, *(at(n) for n in range(1, 9)))
            async with follower(tmp_path, guide=Choosing(url), **QUIET) as (w, way):
                await w.subscribe(TOPIC)
                followed = await way(Way.HUB, "/feed")
                for n in (1, 9, 9, 5):
                    assert (
                        await push(w, followed, b"%d" % n, **{"X-Hub-Position": str(at(n))}) == 202
                    )
                await until(lambda: len(received(w)) == 9, "all")
                assert received(w) == texts(*(at(n) for n in range(1, 10)))

    run(main())


def test_a_push_is_put_off_while_what_is_missing_cannot_be_had(tmp_path):
    async def main():
        async with AsyncExitStack() as stack:
            url, _ = await stack.enter_async_context(psph(tmp_path / "a"))
            changes = {**QUIET, "guide_check": None}
            async with follower(tmp_path, guide=Choosing(url), **changes) as (w, way):
                await w.subscribe(TOPIC)
                followed = await way(Way.HUB, "/feed")
                await stack.aclose()
                at_one, at_three = ({"X-Hub-Position": str(at(n))} for n in (1, 3))
                assert await push(w, followed, b"1", **at_one) == 202
                answers = [await push(w, followed, b"3", **at_three) for _ in range(3)]
                # In the end what is there counts more.
                assert answers == [503, 503, 202]
                await until(lambda: received(w) == texts(at(1), at(3)), "both")

    run(main())


def test_a_hub_of_another_kind_has_no_streams(tmp_path):
    async def main():
        guide = Choosing("")
        async with (
            psph(tmp_path / "a") as (url, _),
            follower(tmp_path, guide=guide, **{**QUIET, "guide_check": None}) as (w, way),
        ):
            guide.order = [url]
            await w.subscribe(TOPIC)
            followed = await way(Way.HUB, "/feed")
            await w.hub.store.follow(replace(followed, hub=f"{w.site.url}/hub"))
            for n in (1, 3):
                assert await push(w, followed, b"%d" % n, **{"X-Hub-Position": str(at(n))}) == 202
            await until(lambda: received(w) == texts(at(1), at(3)), "both")

    run(main())


def test_topics_share_streams_as_far_as_they_fit():
    waiting = deque(Missing(n, f"http://a.example/{n}", (at(1),)) for n in range(120))
    waiting.append(Missing(120, "http://a.example/" + "x" * 2_000, (at(1),)))
    sizes = []
    while waiting:
        taken = _batch(waiting)
        sizes.append(len(taken))
        assert sum(each.size for each in taken) <= 6_000 or len(taken) == 1
    assert sum(sizes) == 121
    assert sizes[0] > 10
    assert sizes[-1] == 1
