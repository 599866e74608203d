"""The page in a real browser: live entries, resuming, gaps, finding feeds, and hostile feeds."""

import asyncio
import contextlib
import html
import json

import pytest

from identifiers import Position, PublisherId, identify
from push_hub import Hub, create_app
from push_hub.app import HUB
from push_hub.feeds import presenting
from push_hub.store import SqliteStore
from tests.push_hub.browser import another, chromium, installed, opened
from tests.push_hub.feeds.documents import atom
from tests.push_hub.world import chosen, run, served, until, world

pytestmark = pytest.mark.skipif(
    installed() is None, reason="Chromium is not installed: apt-get install chromium"
)

ATOM = "application/atom+xml"
TOPIC = "http://example.com/feed"
LIVE = "document.querySelector('#connection[data-state=live]')"
TITLES = "#entries h2"


@pytest.fixture(scope="module")
def running():
    with chromium() as address:
        yield address


def entries(count):
    return f"document.querySelectorAll('#entries > li').length === {count}"


async def publish(hub, *entries, topic=TOPIC):
    return await hub.publish(identify(topic), ATOM, atom(*entries))


async def watching(page, hub_url, *topics):
    """Open the page and watch topics that cannot be fetched."""
    await page.go(f"{hub_url}/")
    for count, topic in enumerate(topics, 1):
        await page.type("#url", topic)
        await page.until("document.querySelector('#offers li button')")
        await page.click("#offers li button")
        await page.until(f"document.querySelectorAll('#topics li').length === {count}")
    await page.until(LIVE)


async def quiet(page, hub_url, violations=frozenset()):
    """Nothing happened that should not have."""
    assert page.exceptions == []
    assert page.dialogs == []
    assert set(await page.violations()) <= violations
    assert [each for each in page.requests if not each.startswith(hub_url)] == []


def test_an_entry_appears_when_it_is_published(tmp_path, running):
    async def main():
        async with world(tmp_path) as w, opened(running) as page:
            feed = w.site.put("/feed.xml", atom(("a", "Before"), title="The News"), ATOM)
            await page.go(f"{w.hub_url}/")
            assert await page.text("#connection") == "Nothing to watch yet"
            await page.type("#url", feed)
            await page.until(LIVE)
            assert (await page.texts("#topics .name")) == ["The News"]
            await w.ping(feed)
            await page.until(entries(1))
            w.site.put("/feed.xml", atom(("b", "Fresh &amp; new"), ("a", "Before")), ATOM)
            await w.ping(feed)
            await page.until(entries(2))
            assert await page.texts(TITLES) == ["Fresh & new", "Before"]
            await page.until(
                "document.querySelector('#announcement').innerText.includes('1 new from The News')"
            )
            w.site.put("/feed.xml", atom(("b", "Fresh &amp; new"), ("a", "After")), ATOM)
            await w.ping(feed)
            await page.until("document.querySelector('#entries .tag')")
            assert await page.texts(TITLES) == ["After", "Fresh & new"]
            await quiet(page, w.hub_url)

    run(main())


def test_a_plain_event_source_comes_back_to_all_its_topics(tmp_path, running):
    """As any page would use it: nothing but the browser's own Last-Event-ID."""
    busy, quiet = "http://example.com/busy", "http://example.com/quiet"

    async def said(hub, topic, count=1):
        for _ in range(count):
            await hub.publish(identify(topic), "text/plain", b"x")

    async def main():
        async with opened(running) as page:
            app = create_app(chosen(), tmp_path)
            async with served(app) as url:
                await said(app[HUB], quiet, 2)
                await said(app[HUB], busy, 12)
                await page.go(f"{url}/")
                await page.evaluate(
                    f"""window.seen = [];
                    const source = new EventSource("stream?topic={busy}&topic={quiet}");
                    const note = (event) => {{
                        const {{topic, position, resumes}} = JSON.parse(event.data);
                        const version = Number((position ?? resumes).split(".")[2]);
                        seen.push([event.type, topic.split("/").at(-1), version]);
                    }};
                    const kinds = ["message", "gap", "reset"];
                    for (const kind of kinds) source.addEventListener(kind, note);
                    0"""
                )
                await page.until("seen.length === 2")
            store = await SqliteStore.open(tmp_path / "hub.sqlite")
            async with Hub(chosen(), store) as hub:
                await said(hub, quiet)
                await said(hub, busy, 130)
            await store.close()
            app = create_app(chosen(), tmp_path)
            async with served(app, port=int(url.rpartition(":")[2])):
                await page.until("seen.length === 104")
                seen = json.loads(await page.evaluate("JSON.stringify(seen)"))
            assert seen == [
                ["message", "quiet", 2], ["message", "busy", 12], ["gap", "busy", 43],
                ["message", "quiet", 3], *(["message", "busy", n] for n in range(43, 143)),
            ]  # fmt: skip

    run(main())


def test_it_resumes_after_a_restart_without_loss_or_doubling(tmp_path, running):
    async def main():
        async with opened(running) as page:
            app = create_app(chosen(), tmp_path)
            async with served(app) as url:
                await watching(page, url, TOPIC, "http://example.com/other")
                await publish(app[HUB], ("1", "One"))
                await publish(app[HUB], ("x", "Other one"), topic="http://example.com/other")
                await page.until(entries(2))
            await page.until("document.querySelector('#connection[data-state=lost]')")
            assert "trying again" in await page.text("#connection")
            store = await SqliteStore.open(tmp_path / "hub.sqlite")
            async with Hub(chosen(), store) as hub:
                await publish(hub, ("2", "Two"))
                await publish(hub, ("3", "Three"))
            await store.close()
            app = create_app(chosen(), tmp_path)
            async with served(app, port=int(url.rpartition(":")[2])):
                await page.until(LIVE)
                await publish(app[HUB], ("4", "Four"))
                await page.until("document.body.innerText.includes('Four')")
                expected = ["Four", "Three", "Two", "Other one", "One"]
                assert await page.texts(TITLES) == expected
                # A reload is the same: what was seen is remembered with how far it was seen.
                await page.until("localStorage['psph hub /'].includes('Four')")
                await page.reload()
                await page.until(LIVE)
                await publish(app[HUB], ("5", "Five"))
                await page.until("document.body.innerText.includes('Five')")
                assert await page.texts(TITLES) == ["Five", *expected]
            assert page.exceptions == []

    run(main())


def test_gaps_and_resets_are_shown(tmp_path, running):
    def far(epoch, version):
        return Position(PublisherId(b"p" * 16), epoch, version)

    async def main():
        async with opened(running) as page:
            app = create_app(chosen(history=2), tmp_path)
            async with served(app) as url:
                await watching(page, url, TOPIC)
                await publish(app[HUB], ("1", "One"))
                await page.until(entries(1))
            store = await SqliteStore.open(tmp_path / "hub.sqlite")
            async with Hub(chosen(history=2), store) as hub:
                for n in range(2, 8):
                    await publish(hub, (str(n), f"Number {n}"))
            await store.close()
            app = create_app(chosen(history=2), tmp_path)
            async with served(app, port=int(url.rpartition(":")[2])):
                await page.until("document.body.innerText.includes('Number 7')")
                assert await page.texts(TITLES) == [
                    "Number 7", "Number 6", "Versions 2 to 5 are missing", "One",
                ]  # fmt: skip
                for position in (far(1, 4), far(2, 1)):
                    body = atom((str(position.epoch), f"Epoch {position.epoch}"))
                    await app[HUB].accept(
                        identify(TOPIC), ATOM, body, position=position, trace_id="a" * 32
                    )
                await page.until("document.body.innerText.includes('Epoch 2')")
                assert (await page.texts(TITLES))[:3] == [
                    "Epoch 2", "The numbering began anew", "Epoch 1",
                ]  # fmt: skip
            assert page.exceptions == []

    run(main())


def test_it_goes_on_at_a_sibling_and_says_what_is_missing_there(tmp_path, running):
    def of(publisher, version):
        return Position(PublisherId(publisher * 16), 1, version)

    async def accept(app, position, *entry):
        return await app[HUB].accept(
            identify(TOPIC), ATOM, atom(entry), position=position, trace_id="a" * 32
        )

    async def say_nothing(reader, writer):
        with contextlib.closing(writer), contextlib.suppress(OSError):
            await reader.read()

    async def main():
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
        two = create_app(chosen(), tmp_path / "two")
        async with opened(running) as page, served(two) as other:

            async def siblings():
                return [other]

            one = create_app(chosen(), tmp_path / "one", siblings=siblings)
            await accept(two, of(b"p", 1), "1", "One")
            async with served(one) as url:
                await watching(page, url, TOPIC)
                await accept(one, of(b"p", 1), "1", "One")
                # What the sibling never hears of: the page has to tell it both Positions.
                await accept(one, of(b"q", 1), "q", "Of another publisher")
                await page.until(entries(2))
            await accept(two, of(b"p", 4), "4", "Four")
            # It does not refuse connections: it is not there.
            port = int(url.rpartition(":")[2])
            silent = await asyncio.start_server(say_nothing, "127.0.0.1", port)
            try:
                await page.until("document.querySelector('#connection').innerText.includes('goes')")
            finally:
                silent.close()
            await page.until(entries(4))
            assert await page.text("#connection") == f"Live: goes on at another hub, {other[7:]}"
            assert await page.texts(TITLES) == [
                "Four", "Versions 2 to 3 are missing", "Of another publisher", "One",
            ]  # fmt: skip
            assert page.exceptions == []
            assert await page.violations() == []

    run(main())


def test_it_leaves_a_hub_that_has_fallen_silent(tmp_path, running):
    async def main():
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
        two = create_app(chosen(), tmp_path / "two")
        one = create_app(
            chosen(heartbeat=0.5), tmp_path / "one", siblings=lambda: asyncio.sleep(0, [other])
        )
        async with opened(running) as page, served(two) as other, served(one) as hub:
            passing = asyncio.Event()
            passing.set()
            async with relay(int(hub.rpartition(":")[2]), passing) as url:
                await watching(page, url, TOPIC)
                passing.clear()
                await page.until("document.querySelector('#connection').innerText.includes('goes')")
                assert await page.text("#connection") == (
                    f"Live: goes on at another hub, {other[7:]}"
                )
                assert page.exceptions == []

    run(main())


@contextlib.asynccontextmanager
async def relay(port, passing):
    """Leads to a port of this machine, while `passing` is set; then silence, and no end."""
    tasks = set()

    async def copy(reader, writer):
        while chunk := await reader.read(65_536):
            await passing.wait()
            writer.write(chunk)
            await writer.drain()

    async def both(reader, writer):
        tasks.add(asyncio.current_task())
        back, forth = await asyncio.open_connection("127.0.0.1", port)
        with (
            contextlib.closing(writer), contextlib.closing(forth),
            contextlib.suppress(OSError, asyncio.CancelledError),
        ):  # fmt: skip
            await asyncio.gather(copy(reader, forth), copy(back, writer))

    server = await asyncio.start_server(both, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def test_a_home_page_offers_its_feeds(tmp_path, running):
    home = b"""<!doctype html><title>Site</title><link rel=hub href=https://hub.example/>
    <link rel=alternate type=application/atom+xml title="<i>All</i> posts" href=/feed.xml>
    <link rel=alternate type=application/rss+xml title=Comments href=/comments.xml>"""

    async def main():
        async with world(tmp_path) as w, opened(running) as page:
            w.site.put("/", home, "text/html")
            w.site.put("/feed.xml", atom(("a", "A")), ATOM)
            await page.go(f"{w.hub_url}/")
            await page.type("#url", f"{w.site.url}/")
            await page.until("document.querySelectorAll('#offers li').length === 3")
            assert await page.texts("#offers .name") == ["All posts", "Comments", "The page itself"]
            await page.click("#offers li button")
            await page.until(LIVE)
            assert await page.texts("#topics .url") == [f"{w.site.url}/feed.xml"]
            assert await page.evaluate("document.activeElement.id") == "url"
            await w.ping(f"{w.site.url}/feed.xml")
            await page.until(entries(1))
            await page.type("#url", "http://127.0.0.1:1/")
            await page.until("document.querySelector('#offers .problem')")
            assert "cannot connect" in await page.text("#offers .problem")
            await quiet(page, w.hub_url)

    run(main())


def test_topics_are_remembered_shared_between_tabs_and_removed(tmp_path, running):
    async def main():
        async with world(tmp_path) as w, opened(running) as page:
            await watching(page, w.hub_url, TOPIC)
            tab = await another(page)
            await tab.go(f"{w.hub_url}/")
            await tab.until(LIVE)
            assert await tab.texts("#topics .url") == [TOPIC]
            await publish(w.hub, ("a", "For both"))
            for each in (page, tab):
                await each.until(entries(1))
            await tab.click("#topics button")
            for each in (page, tab):
                await each.until("!document.querySelector('#topics li, #entries li')")
            await until(lambda: page.exceptions == [] and tab.exceptions == [])

    run(main())


def test_other_directions_of_writing(tmp_path, running):
    async def main():
        async with world(tmp_path) as w, opened(running) as page:
            await watching(page, w.hub_url, TOPIC)
            # The second would turn what follows it around, were it not kept to itself.
            await publish(w.hub, ("a", "\u05e9\u05dc\u05d5\u05dd"), ("b", "evil \u202e txt.exe"))
            await page.until(entries(2))
            directions = await page.evaluate(
                "[...document.querySelectorAll('#entries h2')]"
                ".map((each) => getComputedStyle(each).direction)"
            )
            assert sorted(directions) == ["ltr", "rtl"]
            assert await page.evaluate(
                "[...document.querySelectorAll('#entries h2, #entries .source, #topics .url')]"
                ".every((each) => getComputedStyle(each).unicodeBidi.includes('isolate')"
                " || getComputedStyle(each).display === 'block')"
            )

    run(main())


def test_a_refusal_is_shown(tmp_path, running):
    async def main():
        async with world(tmp_path, streams_at_once=0) as w, opened(running) as page:
            await page.go(f"{w.hub_url}/")
            await page.type("#url", TOPIC)
            await page.until("document.querySelector('#offers li button')")
            await page.click("#offers li button")
            await page.until("document.querySelector('#connection[data-state=refused]')")
            assert "too many streams" in await page.text("#connection")

    run(main())


def test_many_topics_need_more_than_one_stream(tmp_path, running):
    async def main():
        async with world(tmp_path) as w, opened(running) as page:
            topics = [f"http://example.com/{'x' * 150}/{n}" for n in range(60)]
            await page.go(f"{w.hub_url}/")
            state = {
                "topics": [
                    {"topic": each, "canonical": each, "title": "", "colour": 0, "position": ""}
                    for each in topics
                ],
                "items": [],
            }
            await page.evaluate(
                f"localStorage.setItem('psph hub /', {json.dumps(json.dumps(state))})"
            )
            await page.reload()
            await page.until(LIVE)
            await until(lambda: len(w.hub.streams) == 2)
            for each in (topics[0], topics[-1]):
                await publish(w.hub, ("a", "A"), topic=each)
            await page.until(entries(2))

    run(main())


def test_a_strange_memory_does_no_harm(tmp_path, running):
    topic = {"topic": TOPIC, "canonical": TOPIC, "title": 7, "colour": {}, "position": "x",
             "seen": {"p": "not a place"}}  # fmt: skip
    kinds = ["entry", "document", "gap", "reset", "unknown", None]
    broken = [{"kind": kind, "canonical": TOPIC} for kind in kinds]
    memories = [
        "", "null", "[]", "{", '{"topics": [null, 1, {}], "items": [null]}',
        json.dumps({"topics": [topic, topic], "items": [*broken, 5, {"kind": "entry"}]}),
    ]  # fmt: skip

    async def main():
        async with world(tmp_path) as w, opened(running) as page:
            await page.go(f"{w.hub_url}/")
            for memory in memories:
                await page.evaluate(f"localStorage.setItem('psph hub /', {json.dumps(memory)})")
                await page.reload()
                await page.until("!document.querySelector('#connection[data-state=connecting]')")
            await page.until(LIVE)
            await publish(w.hub, ("a", "All the same"))
            await page.until("document.body.innerText.includes('All the same')")
            # No room for entries: the page goes on, and remembers what fits.
            await page.evaluate("localStorage.setItem('other', 'x'.repeat(5_200_000))")
            await publish(w.hub, ("b", f"{'Long ' * 4000}"))
            await page.until(entries(3))  # the document of a kind without anything is one
            await page.evaluate("new Promise((done) => setTimeout(done, 300))")
            assert page.exceptions == []

    run(main())


# Hostile feeds. TRAP is a server that hears of every request it gets.
PAYLOADS = [
    "<script>alert(1)</script>",
    "<script src=TRAP/script.js></script>",
    "<ScRiPt\n>alert(1)</sCrIpT\n>",
    "<img src=x onerror=alert(1)>",
    "<img src=TRAP/pixel.png onload=alert(1) srcset='TRAP/set.png 2x'>",
    "<a href='javascript:alert(1)'>click</a>",
    "<a href='&#106;avascript&colon;alert(1)'>click</a>",
    "<a href=' java\tscript:alert(1)'>click</a>",
    "<a href='data:text/html,<script>alert(1)</script>'>click</a>",
    "<a href='vbscript:alert(1)'>click</a>",
    "<a href=http://example.com onclick=alert(1) style='position:fixed;inset:0'>all over</a>",
    "<svg onload=alert(1)><script>alert(1)</script><animate onbegin=alert(1)></svg>",
    "<svg><a xlink:href='javascript:alert(1)'><text>x</text></a></svg>",
    "<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src=1 "
    "onerror=alert(1)&gt;'>",
    "<style>body{background:url(TRAP/style.png);display:none}</style>",
    "<p style='background:url(TRAP/inline.png);width:expression(alert(1))'>styled</p>",
    "<link rel=stylesheet href=TRAP/sheet.css><link rel=prefetch href=TRAP/prefetch>",
    "<iframe src=TRAP/frame srcdoc='<script>alert(1)</script>'></iframe>",
    "<object data=TRAP/object></object><embed src=TRAP/embed><applet code=TRAP/applet>",
    "<video src=TRAP/video autoplay onerror=alert(1)></video><audio src=TRAP/audio autoplay>",
    "<meta http-equiv=refresh content='0;url=TRAP/refresh'>",
    "<base href=TRAP/base/>",
    "<form action=TRAP/form><input autofocus onfocus=alert(1)><button formaction=TRAP/b>x</button>",
    "<body onload=alert(1) background=TRAP/back.png>",
    "<!-- unclosed comment <img src=TRAP/comment.png onerror=alert(1)>",
    "<!--><img src=TRAP/odd-comment.png onerror=alert(1)>-->",
    "<![CDATA[<img src=TRAP/cdata.png onerror=alert(1)>]]>",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'></noscript>",
    "<template><img src=TRAP/template.png onerror=alert(1)></template>",
    "<details open ontoggle=alert(1)>x</details><marquee onstart=alert(1)>x</marquee>",
    "<div id=entries name=location><p id=url>clobber</p></div><img name=querySelector>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "&amp;lt;img src=x onerror=alert(1)&amp;gt;",
    "</li></ol></section><script>alert(1)</script>",
    "<textarea></textarea><img src=TRAP/textarea.png onerror=alert(1)>",
    "<xmp><img src=x onerror=alert(1)></xmp><plaintext><img src=x onerror=alert(1)>",
    "<b" * 50 + ">" + "<div>" * 500 + "deep",
]

HARMLESS = """(() => {
    const bad = [];
    for (const each of document.querySelectorAll("#entries *")) {
        if (each.matches("script,style,link,meta,base,iframe,frame,object,embed,svg,math,form,"
                         + "input,video,audio,img,template,textarea"))
            bad.push(each.outerHTML);
        for (const { name, value } of each.attributes) {
            const allowed = ["class", "title", "href", "target", "rel", "datetime", "type",
                             "aria-expanded", "inert", "dir"];
            if (!allowed.includes(name)) bad.push(`${name}=${value}`);
            if (name === "href" && !/^(https?:|mailto:)/.test(value)) bad.push(value);
        }
    }
    return bad;
})()"""


def hostile_feed(trap):
    """Every payload as content, title, author and link of an entry."""
    parts = []
    for n, payload in enumerate(PAYLOADS):
        text = html.escape(payload.replace("TRAP", trap))
        parts.append(
            f"<entry><id>urn:{n}{text}</id><title type='html'>{n}: {text}</title>"
            f"<author><name>{text}</name></author><updated>{text}</updated>"
            f"<link href='javascript:alert({n})'/><content type='html'>{n} {text}</content></entry>"
        )
    title = html.escape("<img src=x onerror=alert(1)>")
    return (
        f'<feed xmlns="http://www.w3.org/2005/Atom"><title type="html">{title}</title>'
        f"{''.join(parts)}</feed>"
    ).encode()


@pytest.mark.parametrize("sanitised", [True, False], ids=["as shipped", "the page alone"])
def test_hostile_feeds_do_nothing(tmp_path, running, monkeypatch, sanitised):
    violations = frozenset()
    if not sanitised:  # as if the hub let everything through: the page has to stand by itself
        # Reported already when the inert document is parsed.
        violations = {"script-src-attr inline", "style-src-attr inline", "style-src-elem inline"}
        for name in ("safe_html", "safe_url", "plain_text"):
            monkeypatch.setattr(presenting, name, lambda text: text)

    async def main():
        async with world(tmp_path) as w, opened(running) as page:
            trap = f"{w.site.url}/trap"
            expected = violations and {*violations, f"base-uri {trap}/base/"}
            feed = w.site.put("/hostile.xml", hostile_feed(trap), ATOM)
            await page.go(f"{w.hub_url}/")
            await page.type("#url", feed)
            await page.until(LIVE)
            await w.ping(feed)
            await page.until(entries(len(PAYLOADS)))
            await page.evaluate(
                "document.querySelectorAll('#entries button').forEach((each) => each.click())"
            )
            # Time for whatever loads or runs by itself.
            await page.evaluate("new Promise((done) => setTimeout(done, 400))")
            assert await page.evaluate(HARMLESS) == []
            assert await page.evaluate("location.pathname") == "/"
            assert await page.evaluate("document.querySelectorAll('#entries').length") == 1
            await quiet(page, w.hub_url, expected)
            assert [each.path for each in w.site.requests if "trap" in each.path] == []
            # Remembered entries are built again, the same way.
            await page.until("localStorage['psph hub /']?.includes('entry')")
            await page.reload()
            await page.until(entries(len(PAYLOADS)))
            assert await page.evaluate(HARMLESS) == []
            await quiet(page, w.hub_url, expected)

    run(main())


def test_documents_are_shown_as_text(tmp_path, running):
    types = (
        ("text/html", True), ("image/svg+xml", True), ("application/xml", True),
        ("image/png", False), ("text/plain; charset=utf-8\"><script>alert(1)</script>", True),
    )  # fmt: skip
    body = "<svg onload=alert(1)><script>alert(1)</script><img src=x onerror=alert(1)></svg>"

    async def main():
        async with world(tmp_path) as w, opened(running) as page:
            await watching(page, w.hub_url, TOPIC)
            for count, (content_type, shown) in enumerate(types, 1):
                await w.hub.publish(identify(TOPIC), content_type, body.encode())
                await page.until(entries(count))
                newest = "#entries > li:first-child"
                assert await page.texts(f"{newest} pre") == ([body] if shown else [])
                assert await page.text(f"{newest} .hint") == f"{content_type}, {len(body)} bytes"
                assert await page.evaluate(HARMLESS) == []
                await quiet(page, w.hub_url)

    run(main())


def test_the_policy_is_a_wall_of_its_own(tmp_path, running):
    """Even markup that got into the page could neither run nor reach anybody."""

    async def main():
        async with world(tmp_path) as w, opened(running) as page:
            await page.go(f"{w.hub_url}/")
            trap = f"{w.site.url}/trap"
            await page.evaluate(f"""(() => {{
                const place = document.querySelector("#empty");
                place.innerHTML = `<img src=x onerror=alert(1)><img src={trap}/i.png>
                    <iframe src={trap}/frame></iframe><p style="color:red" id=styled>x</p>`;
                const script = document.createElement("script");
                script.src = "{trap}/s.js";
                place.append(script);
                fetch("{trap}/f").catch(() => 0);
                return true;
            }})()""")
            await page.until("window.__violations.length >= 5")
            assert page.dialogs == []
            assert [each for each in w.site.requests if "trap" in each.path] == []

    run(main())


def test_markup_in_the_url_of_a_topic_is_text(tmp_path, running):
    paths = (
        "/?q=<script>alert(1)</script>", "/<img/src=x/onerror=alert(1)>", "/\"'><b>&lt;i&gt;",
    )  # fmt: skip
    markup = "document.querySelectorAll('main script, main img').length"

    async def main():
        async with world(tmp_path) as w, opened(running) as page:
            topics = [f"{w.site.url}{path}" for path in paths]
            await watching(page, w.hub_url, *topics)
            assert await page.texts("#topics .url") == topics
            for count, topic in enumerate(topics, 1):
                await publish(w.hub, ("a", "A"), topic=topic)
                await page.until(entries(count))
            assert await page.evaluate(markup) == 0
            for number, topic in enumerate(topics, 1):
                await page.click(f"#topics li:nth-child({number}) a")
                await page.until("document.querySelector('.facts')")
                assert topic in await page.text(".facts")
                assert await page.evaluate(markup) == 0
                await quiet(page, w.hub_url)
                await page.go(f"{w.hub_url}/")
                await page.until(entries(len(topics)))
                await page.until(
                    f"document.querySelectorAll('#topics li').length === {len(topics)}"
                )
                await quiet(page, w.hub_url)
            await page.go(f"{w.hub_url}/topics")
            await page.until("document.querySelector('table')")
            assert await page.evaluate(markup) == 0
            await quiet(page, w.hub_url)

    run(main())


def test_it_can_be_used_with_the_keyboard_and_read_aloud(tmp_path, running):
    async def main():
        async with world(tmp_path) as w, opened(running) as page:
            await watching(page, w.hub_url, TOPIC)
            await publish(w.hub, ("a", "A title"))
            await page.until(entries(1))
            unnamed = await page.evaluate("""[...document.querySelectorAll("a,button,input")]
                .filter((each) => !(each.innerText.trim() || each.ariaLabel || each.labels?.length))
                .map((each) => each.outerHTML)""")
            assert unnamed == []
            await page.reload()
            await page.until(entries(1))
            reached = []
            for _ in range(9):
                await page.key("Tab", 9)
                reached.append(await page.evaluate("document.activeElement.innerText.trim()"))
            assert reached == ["Skip to the entries", "Hub", "Watch", "Topics", "", "Watch",
                               "Details", "Remove", "Clear"]  # fmt: skip
            tree = await page.call("Accessibility.getFullAXTree")
            roles = {node["role"]["value"] for node in tree["nodes"] if "role" in node}
            assert {"main", "navigation", "status", "article", "heading", "list"} <= roles

    run(main())


def test_text_stands_out_from_its_background(tmp_path, running):
    """The contrast of WCAG AA, for every colour of the style that text is set in."""
    pairs = [("text", "back"), ("text", "card"), ("soft", "back"), ("soft", "card"),
             ("accent", "back"), ("accent", "card"), ("accent-text", "accent"), ("good", "card"),
             ("good", "good-back"), ("bad", "card"), ("bad", "bad-back"), ("warn", "card"),
             ("warn", "warn-back"), ("text", "warn-back"),
             *((f"c{n}", each) for n in range(6) for each in ("card", "warn-back"))]  # fmt: skip

    def luminance(colour):
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (
            each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    async def main():
        async with world(tmp_path) as w, opened(running) as page:
            await page.go(f"{w.hub_url}/")
            bright = {}
            for dark in (False, True):
                await page.look(dark=dark)
                colours = await page.evaluate(
                    "Object.fromEntries("
                    f"{sorted(set(sum(pairs, ())))}"
                    ".map((name) => [name, getComputedStyle(document.documentElement)"
                    ".getPropertyValue(`--${name}`).trim()]))"
                )
                bright[dark] = {name: luminance(colour) for name, colour in colours.items()}
                for pair in pairs:
                    less, more = sorted(bright[dark][name] for name in pair)
                    assert (more + 0.05) / (less + 0.05) >= 4.5, (pair, dark)
            assert bright[True]["back"] < bright[False]["back"]

    run(main())


def test_a_tab_that_has_not_heard_of_a_new_topic_does_not_undo_it(tmp_path, running):
    """A tab saves received updates after a delay, together with the topics it knows."""

    async def main():
        async with world(tmp_path) as w, opened(running) as first:
            await watching(first, w.hub_url, TOPIC)
            await publish(w.hub, ("1", "One"))
            await first.until("localStorage['psph hub /']?.includes('One')")
            late = await first.evaluate("localStorage['psph hub /']")
            second = await another(first)
            await second.go(f"{w.hub_url}/")
            await second.until(LIVE)
            await second.type("#url", "http://example.com/other")
            await second.until("document.querySelector('#offers li button')")
            await second.click("#offers li button")
            await first.until("document.querySelectorAll('#topics li').length === 2")
            third = await another(first)
            await third.go(f"{w.hub_url}/topics")
            await third.evaluate(f"localStorage.setItem('psph hub /', {json.dumps(late)})")
            await second.reload()
            await second.until(LIVE)
            await publish(w.hub, ("x", "Other"), topic="http://example.com/other")
            for tab in (first, second):
                await tab.until(entries(2))

    run(main())


def test_eight_tabs_share_one_stream_and_outlive_their_leader(tmp_path, running):
    """A browser opens six connections to a server of HTTP/1.1, and each stream would take one."""

    async def main():
        async with world(tmp_path) as w, opened(running) as first:
            await watching(first, w.hub_url, TOPIC)
            tabs = [first]
            for _ in range(7):
                tabs.append(await another(first))
                await tabs[-1].go(f"{w.hub_url}/")
                await tabs[-1].until(LIVE)
            assert len(w.hub.streams) == 1
            await publish(w.hub, ("1", "One"))
            for tab in tabs:
                await tab.until(entries(1))
            # The leader is the tab that came first, and it leaves while something comes.
            await publish(w.hub, ("2", "Two"))
            await first.go("about:blank")
            await publish(w.hub, ("3", "Three"))
            # One that comes late shows what the others show, and one may change the topics for all.
            late = await another(first)
            await late.go(f"{w.hub_url}/")
            for tab in (*tabs[1:], late):
                await tab.until(entries(3))
                assert await tab.texts(TITLES) == ["Three", "Two", "One"]
            await late.type("#url", "http://example.com/other")
            await late.until("document.querySelector('#offers li button')")
            await late.click("#offers li button")
            for tab in tabs[1:]:
                await tab.until("document.querySelectorAll('#topics li').length === 2")
            await late.until(LIVE)
            await publish(w.hub, ("x", "Other"), topic="http://example.com/other")
            for tab in (*tabs[1:], late):
                await tab.until(entries(4))
                assert tab.exceptions == []
            # Streams of before end when something is to be written to them.
            await publish(w.hub, ("4", "Four"))
            await until(lambda: len(w.hub.streams) == 1)

    run(main())
