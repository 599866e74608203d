"""The module in a page of somebody else, at hubs whose history does not suffice: what only an
earlier proxy kept is collected, and what nobody kept is a gap."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import Future
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import pytest
from aiohttp import web

import psph
from tests.psph.mobility.places import TOPIC, Relay, give, places, until
from tests.push_hub.browser import installed

pytestmark = pytest.mark.skipif(
    installed() is None, reason="Chromium is not installed: apt-get install chromium"
)

SECONDS = 60
PAGE = """<!doctype html><title>a page of somebody else</title><script type="module">
import { Roamer } from "/roaming/roamer.js";
const hubs = new URLSearchParams(location.search).getAll("hub");
window.roamer = new Roamer({
  name: "test", hubs, topics: ["%s"],
  consume: (event, effect) => {
    if (event.type === "gap") return [...(effect ?? []), `gap ${event.first}-${event.last}`];
    return [...(effect ?? []), new TextDecoder().decode(event.body)];
  },
});
</script>"""


class Trickle(Relay):
    """Passes a stream on up to the first update after a gap, until it is released."""

    def __init__(self, port):
        super().__init__(port)
        self.held, self.released = asyncio.Event(), asyncio.Event()

    async def _pump(self, source, sink, way):
        answers = way is self._answers
        await super()._pump(_Answers(source, self) if answers else source, sink, way)


class _Answers:
    def __init__(self, source, relay):
        self._source, self._relay = source, relay
        self._read, self._later = b"", b""

    async def read(self, most):
        if self._later:
            self._relay.held.set()
            await self._relay.released.wait()
            chunk, self._later = self._later, b""
            return chunk
        chunk = await self._source.read(most)
        if not self._relay.released.is_set():
            self._read += chunk
            blocks = self._read.partition(b"event: gap")[2].split(b"\n\n")
            later = len(b"\n\n".join(blocks[2:]))
            chunk, self._later = chunk[: len(chunk) - later], chunk[len(chunk) - later :]
        return chunk


class Hubs:
    """Two of them in a thread, and the page. With `slow` there is a slow way to the second."""

    def __init__(self, directory, slow=False, **options):
        self._directory, self._options = directory, options
        self._with_slow = slow
        self._loop = asyncio.new_event_loop()
        self._made = Future()
        self._over = asyncio.Event()

    def run(self):
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self):
        app = web.Application()
        app.router.add_static("/roaming", Path(psph.__file__).parent / "web" / "roaming")
        app.router.add_get("/", self._page)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        async with AsyncExitStack() as stack:
            hubs = places(self._directory, 2, buffer=True, **self._options)
            a, b = await stack.enter_async_context(hubs)
            urls = [a.url, b.url]
            if self._with_slow:
                self.slow = await stack.enter_async_context(Trickle(b.port))
                urls[1] = self.slow.url
            query = "&".join(f"hub={url}" for url in urls)
            self._made.set_result((a, b, f"http://127.0.0.1:{port}/?{query}"))
            await self._over.wait()
        await runner.cleanup()

    async def _page(self, request):
        return web.Response(text=PAGE % TOPIC, content_type="text/html")

    def wait(self):
        self.a, self.b, self.page = self._made.result(SECONDS)

    def end(self):
        self._loop.call_soon_threadsafe(self._over.set)

    def begin(self, work):
        """Run a coroutine where the hubs run."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def do(self, work):
        """The same, and wait for it."""
        return self.begin(work).result(SECONDS)


@contextmanager
def running(directory, **options):
    hubs = Hubs(directory, **options)
    thread = threading.Thread(target=hubs.run)
    thread.start()
    try:
        hubs.wait()
        yield hubs
    finally:
        hubs.end()
        thread.join(SECONDS)


async def released(relay):
    relay.released.set()


def opened(context, hubs):
    page = context.new_page()
    page.set_default_timeout(SECONDS * 1_000)
    page.goto(hubs.page)
    page.wait_for_function("() => window.roamer")
    return page


def test_a_page_collects_what_only_an_earlier_proxy_has(tmp_path, browser):
    with running(tmp_path) as hubs:
        a, b = hubs.a, hubs.b
        context = browser.new_context()
        page = opened(context, hubs)

        def has(*told):
            same = "told => JSON.stringify(roamer.effect) === told"
            page.wait_for_function(same, arg=json.dumps(told, separators=(",", ":")))

        def is_live():
            page.wait_for_function("() => roamer.stage === 'live'")

        hubs.do(give((a, b), 1))
        page.evaluate("() => roamer.move(roamer.hubs[0])")
        is_live()
        hubs.do(give((a, b), 2, 3))
        has("2", "3")
        # From now on it can take over: it knows how far the client is.
        hubs.do(until(lambda: any(each.record.topics[TOPIC] for each in a.stays("here"))))

        # Without a word: it is closed, and opened again later.
        page.goto("about:blank")
        hubs.do(until(lambda: len(a.stays("away")) == 1))
        hubs.do(give((a,), 4, 5, 6, 7))
        hubs.do(give((b,), 7))
        hubs.do(until(lambda: len(a.stays("away")[0].buffer) >= 4))
        page.goto(hubs.page)
        page.wait_for_function("() => window.roamer")
        page.evaluate("() => roamer.move(roamer.hubs[1])")
        is_live()
        hubs.do(give((a, b), 8))
        has("2", "3", "4", "5", "6", "7", "8")
        assert b.proxy.counters()["relayed"] > 0
        # What was consumed need not be kept any more.
        hubs.do(until(lambda: not a.core.handlers))

        page.evaluate("() => roamer.stop()")
        hubs.do(give((a,), 12))
        page.evaluate("() => roamer.move(roamer.hubs[0])")
        has("2", "3", "4", "5", "6", "7", "8", "gap 9-11", "12")

        # A copy of the client with the same secret, elsewhere: the later one is it.
        copy = browser.new_context(storage_state=context.storage_state())
        other = opened(copy, hubs)
        other.evaluate("() => roamer.move(roamer.hubs[0])")
        other.wait_for_function("() => roamer.stage === 'live'")
        hubs.do(give((a,), 13))
        other.wait_for_function("() => String(roamer.effect).endsWith('12,13')")
        page.wait_for_function("() => roamer.stage === 'superseded'")
        copy.close()
        context.close()


def test_a_page_asks_for_what_is_missing_while_the_rest_of_a_history_is_under_way(
    tmp_path, browser
):
    with running(tmp_path, slow=True, history=4) as hubs:
        a, b, slow = hubs.a, hubs.b, hubs.slow
        context = browser.new_context()
        page = opened(context, hubs)
        hubs.do(give((a, b), 1))
        page.evaluate("() => roamer.move(roamer.hubs[0])")
        page.wait_for_function("() => roamer.stage === 'live'")
        hubs.do(until(lambda: any(each.record.topics[TOPIC] for each in a.stays("here"))))
        page.evaluate("() => roamer.stop()")
        hubs.do(until(lambda: len(a.stays("away")) == 1))
        hubs.do(give((a, b), *range(2, 10)))
        hubs.do(until(lambda: len(a.stays("away")[0].buffer) >= 8))
        page.evaluate("() => roamer.move(roamer.hubs[1])")
        hubs.do(asyncio.wait_for(slow.held.wait(), SECONDS))
        # The hub has 6 to 9; the first four are with the other, and so are the rest.
        page.wait_for_function("() => roamer.effect?.length === 8")
        assert page.evaluate("() => roamer.stage") == "moving"
        hubs.do(released(slow))
        page.wait_for_function("() => roamer.stage === 'live'")
        assert page.evaluate("() => roamer.effect") == list(map(str, range(2, 10)))
        context.close()


def test_a_page_finds_what_was_prepared_while_the_proxy_it_left_is_down(tmp_path, browser):
    """The hub that it comes to keeps two versions; the rest is in the client's context there."""
    with running(tmp_path, history=2) as hubs:
        a, b = hubs.a, hubs.b
        context = browser.new_context()
        page = opened(context, hubs)
        hubs.do(give((a, b), 1))
        for number in (0, 1, 0):
            page.evaluate("number => roamer.move(roamer.hubs[number])", number)
            page.wait_for_function("() => roamer.stage === 'live'")
        hubs.do(until(lambda: b.core.ahead.contexts.kept))

        page.goto("about:blank")
        hubs.do(until(lambda: b.core.ahead.contexts.active))
        hubs.do(give((a, b), 2, 3, 4, 5, 6))
        (prepared,) = b.core.ahead.contexts.kept.values()
        hubs.do(until(lambda: len(prepared.waiting.buffer) >= 5))
        hubs.do(a.stop())
        page.goto(hubs.page)
        page.wait_for_function("() => window.roamer")
        page.evaluate("() => roamer.move(roamer.hubs[1])")
        page.wait_for_function("() => roamer.stage === 'live'")
        assert page.evaluate("() => roamer.effect") == ["2", "3", "4", "5", "6"]
        assert b.core.ahead.counters["bytes_adopted"] >= 5
        hubs.do(a.start())  # the page lets it go, and then it can be stopped with the rest
        hubs.do(until(lambda: not a.core.handlers))
        context.close()


def test_a_page_that_moves_all_the_time_gets_everything_once(tmp_path, browser):
    versions = range(2, 91)
    with running(tmp_path) as hubs:

        async def publish():
            for version in versions:
                # One hub has it before the other.
                ahead, behind = (hubs.a, hubs.b) if version // 10 % 2 else (hubs.b, hubs.a)
                await give((ahead,), version)
                await asyncio.sleep(0.015)
                await give((behind,), version)
                await asyncio.sleep(0.015)

        context = browser.new_context()
        page = opened(context, hubs)
        hubs.do(give((hubs.a, hubs.b), 1))
        page.evaluate("() => roamer.start()")
        page.wait_for_function("() => roamer.stage === 'live'")
        published = hubs.begin(publish())
        moves = """() => {
            let moves = 0;
            setInterval(() => roamer.move(roamer.hubs[(moves += 1) % 2]), 120);
        }"""
        page.evaluate(moves)
        for share in (3, 2):
            page.wait_for_function(f"() => roamer.effect?.length > {len(versions) // share}")
            page.goto("about:blank")  # in the middle of whatever it was doing
            page.goto(hubs.page)
            page.wait_for_function("() => window.roamer")
            page.evaluate(moves)
        published.result(SECONDS)
        page.wait_for_function(f"() => roamer.effect.at(-1) === '{versions[-1]}'")
        assert page.evaluate("() => roamer.effect") == list(map(str, versions))
        context.close()
