"""The pages over HTTP: files and headers, finding feeds, diagnostics and who sees what in them."""

import asyncio
import base64

import aiohttp
import pytest
from aiohttp import web

from push_hub import create_app
from tests.push_hub.feeds.documents import atom
from tests.push_hub.world import chosen, run, served, until, until_async, world

ATOM = "application/atom+xml"
TOKEN = "the-admin-token"
HOME = b"""<!doctype html><title>A site</title>
<link rel=alternate type=application/atom+xml title="All <b>posts</b>" href=/feed.xml>
<link rel=alternate type=application/rss+xml href=https://other.example/rss>
<link rel=alternate type=application/rss+xml href="https://OTHER.example/rss">
<link rel=alternate type=application/atom+xml href="javascript:alert(1)">
<link rel=alternate type=text/html hreflang=fi href=/fi>
<link rel=hub href=https://hub.example/hub>
<body><link rel=alternate type=application/atom+xml href=/commenter.xml>"""


async def get(w, path, **options):
    async with w.client.get(w.hub_url + path, **options) as answer:
        kind = answer.content_type
        return answer, await (answer.json() if kind == "application/json" else answer.text())


def strict(headers):
    policy = dict(each.split(" ", 1) for each in headers["Content-Security-Policy"].split("; "))
    assert policy == {
        "default-src": "'none'", "script-src": "'self'", "style-src": "'self'",
        "connect-src": "'self'", "img-src": "'self'", "base-uri": "'none'",
        "frame-ancestors": "'none'", "form-action": "'self'",
    }  # fmt: skip
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    return True


def test_files_are_served_with_strict_headers_and_once(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            for path, kind in {
                "/": "text/html", "/pages/style.css": "text/css",
                "/pages/icon.svg": "image/svg+xml", "/pages/memory.js": "text/javascript",
                "/pages/watch.js": "text/javascript", "/pages/stream.js": "text/javascript",
            }.items():  # fmt: skip
                answer, text = await get(w, path)
                assert (answer.status, answer.content_type) == (200, kind)
                assert strict(answer.headers)
                # Nothing inline, which the policy would refuse, and nothing from elsewhere.
                assert "style=" not in text
                again, _ = await get(w, path, headers={"If-None-Match": answer.headers["ETag"]})
                assert again.status == 304
            for path in ("/pages/routes.py", "/pages/", "/pages/../app.py", "/pages/watch.html"):
                assert (await get(w, path))[0].status == 404

    run(main())


def test_pages_of_a_mounted_hub(tmp_path):
    async def main():
        app = web.Application()
        app.add_subapp("/feeds/", create_app(chosen(), tmp_path))
        async with served(app) as url, aiohttp.ClientSession() as client:
            for path in ("", "pages/watch.js", "topics"):
                async with client.get(f"{url}/feeds/{path}") as answer:
                    assert answer.status == 200
                    assert 'href="/' not in await answer.text()

    run(main())


def test_a_home_page_offers_its_feeds(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            url = w.site.put("/", HOME, "text/html; charset=utf-8")
            answer, found = await get(w, "/find", params={"url": url})
            assert strict(answer.headers)
            assert (found["kind"], found["hubs"]) == ("page", ["https://hub.example/hub"])
            assert [(each["topic"], each["title"]) for each in found["feeds"]] == [
                (f"{w.site.url}/feed.xml", "All posts"), ("https://other.example/rss", ""),
            ]  # fmt: skip
            assert found["itself"]["topic"] == url

    run(main())


def test_a_feed_and_a_document_offer_themselves(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            feed = w.site.put("/feed", atom(("a", "A"), title="The News"), ATOM)
            _, found = await get(w, "/find", params={"url": feed})
            assert (found["kind"], found["itself"]["title"]) == ("feed", "The News")
            document = w.site.put("/data", b"{}", "application/json")
            _, found = await get(w, "/find", params={"url": document})
            assert (found["kind"], found["itself"]["topic"]) == ("document", document)
            _, found = await get(w, "/find", params={"url": f"{w.site.url}/gone"})
            assert found["error"] == "the topic answered 404"

    run(main())


def test_finding_keeps_to_the_rules_of_fetching(tmp_path):
    async def main():
        async with world(tmp_path, allow_fetch=(), topic_hosts=("127.0.0.1", "example.com")) as w:
            url = w.site.put("/", HOME, "text/html")
            _, found = await get(w, "/find", params={"url": url})
            assert "not on the public internet" in found["error"]
            assert not w.site.requests
            for url, status in {
                "http://elsewhere.example/": 403, "": 400, "nonsense": 400, "ftp://a.example/": 400,
                "file:///etc/passwd": 400, "http://user@example.com/": 400,
            }.items():  # fmt: skip
                assert (await get(w, "/find", params={"url": url}))[0].status == status, url
            headers = {"Sec-Fetch-Site": "cross-site"}
            answer, _ = await get(w, "/find", params={"url": "http://a.example"}, headers=headers)
            assert answer.status == 403
            status = 400
            for _ in range(1_000):  # 25, where it takes no time to ask
                status = (await get(w, "/find", params={"url": "nonsense"}))[0].status
                if status != 400:
                    break
            assert status == 429

    run(main())


def test_redirects_of_a_home_page_are_followed_within_the_rules(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            w.site.put("/new/", HOME, "text/html")

            async def moved(request):
                raise web.HTTPMovedPermanently("/new/")

            async def inwards(request):
                raise web.HTTPFound("http://10.0.0.1/")

            w.site.hooks |= {"/old": moved, "/in": inwards}
            _, found = await get(w, "/find", params={"url": f"{w.site.url}/old"})
            assert found["feeds"][0]["topic"] == f"{w.site.url}/feed.xml"
            _, found = await get(w, "/find", params={"url": f"{w.site.url}/in"})
            assert "10.0.0.1 is not on the public internet" in found["error"]

    run(main())


async def busy(w):
    """A topic with versions, a subscriber that is well and one that fails."""
    topic = w.site.put("/feed?token=private", b"", ATOM)
    w.site.put("/feed", atom(("a", "A")), ATOM)

    async def receive(request):
        return web.Response(status=500 if "bad" in request.path else 204)

    w.reader.receive = receive
    await w.subscribe(topic, "/good/secret-path?k=v", secret="s3cret-shared")
    await w.subscribe(topic, "/bad/secret-path")
    await w.ping(topic)
    await until(lambda: len(w.reader.received) >= 2)

    async def noted():
        record = await w.subscription(topic, "/bad/secret-path")
        good = await w.subscription(topic, "/good/secret-path?k=v")
        return record.last_failure is not None and good.last_success_at is not None

    await until_async(noted, "both outcomes")
    return topic


def test_diagnostics_of_a_topic(tmp_path):
    async def main():
        async with world(tmp_path, admin_token=TOKEN) as w:
            topic = await busy(w)
            answer, listed = await get(w, "/topics?format=json")
            assert strict(answer.headers)
            (line,) = listed["topics"]
            assert (line["subscribers"], line["result"]) == (2, "ok")
            assert line["topic"] == f"{w.site.url}/feed?…"
            _, found = await get(w, "/topics", params={"url": topic, "format": "json"})
            assert found["topic"] == found["spellings"][0] == topic  # named by the asker
            assert found["fetch"]["result"] == "ok"
            assert [each["origin"] for each in found["versions"]] == ["fetched"]
            assert found["versions"][0]["position"].endswith(".1.1")
            good, bad = found["subscriptions"]
            assert good["callback"] == bad["callback"] == f"{w.reader.url}/…"
            assert (good["state"], good["signed"]) == ("active", True)
            assert good["last_success_at"] > 0
            assert good["last_failure"] is None
            assert bad["last_success_at"] is None
            assert "500" in bad["last_failure"]
            _, page = await get(w, f"/topics/{line['id']}", headers={"Accept": "text/html"})
            for text in ("500", "active", "pings this hub", "application/atom+xml"):
                assert text in page

    run(main())


def test_only_the_admin_token_unmasks(tmp_path):
    async def main():
        async with world(tmp_path, admin_token=TOKEN) as w:
            topic = await busy(w)
            paths = ["/topics", "/topics?format=json", "/topics/1", "/topics/1?format=json"]
            wrong = ["", "Bearer wrong", "Basic !!", "Basic Og==", "Bearer ", f"Digest {TOKEN}"]
            for path in paths:
                for given in wrong:
                    answer, _ = await get(w, path, headers={"Authorization": given})
                    text = await answer.text()
                    assert answer.status == 200
                    for private in ("secret-path", "k=v", "token=private", "s3cret", TOKEN):
                        assert private not in text
            basic = base64.b64encode(f"anybody:{TOKEN}".encode()).decode()
            for right in (f"Bearer {TOKEN}", f"Basic {basic}"):
                headers = {"Authorization": right}
                _, found = await get(w, "/topics/1?format=json", headers=headers)
                assert found["topic"] == topic
                assert found["subscriptions"][0]["callback"].endswith("/good/secret-path?k=v")
                assert "s3cret" not in str(found)
            answer, _ = await get(w, "/topics/1?callbacks=full")
            assert answer.status == 401
            assert answer.headers["WWW-Authenticate"].startswith("Basic")

    run(main())


def test_without_an_admin_token_nobody_has_it(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            await busy(w)
            for given in ("", "Bearer ", "Bearer", "Basic Og=="):
                answer, _ = await get(w, "/topics/1", headers={"Authorization": given})
                assert "secret-path" not in await answer.text()

    run(main())


def test_long_lists_come_in_pages(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            for n in range(5):
                await w.subscribe(f"http://example.com/{n}", f"/{n}")
                await w.subscribe("http://example.com/0", f"/more/{n}")
            seen, after = [], 0
            while after is not None:
                _, found = await get(w, f"/topics?format=json&limit=2&after={after}")
                seen += [each["topic"] for each in found["topics"]]
                after = found["next"]
            assert seen == [f"http://example.com/{n}" for n in range(5)]
            seen, after = [], 0
            while after is not None:
                _, found = await get(w, f"/topics/1?format=json&limit=4&after={after}")
                seen += [each["id"] for each in found["subscriptions"]]
                after = found["next_subscriptions"]
            assert len(set(seen)) == len(seen) == 6
            _, page = await get(w, "/topics?limit=2")
            assert 'href="topics?after=2"' in page

    run(main())


@pytest.mark.parametrize(
    ("path", "status"),
    [("/topics/99", 404), ("/topics?url=http://example.com/x", 404), ("/topics?url=<script>", 400),
     ("/topics?after=x", 400), ("/topics/x", 404), ("/topics?limit=0&format=json", 200)],
)  # fmt: skip
def test_odd_questions(tmp_path, path, status):
    async def main():
        async with world(tmp_path) as w:
            answer, text = await get(w, path)
            assert answer.status == status
            assert "<script>" not in str(text) or answer.content_type == "text/plain"

    run(main())


def test_accept_chooses_json(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            for accept, kind in {
                "application/json": "application/json", "*/*": "text/html", "": "text/html",
                "text/html,application/xhtml+xml,application/json;q=0.9": "text/html",
            }.items():  # fmt: skip
                answer, _ = await get(w, "/topics", headers={"Accept": accept})
                assert answer.content_type == kind
            answer, found = await get(w, "/topics/7", headers={"Accept": "application/json"})
            assert (answer.status, found["error"]) == (404, "This hub knows no topic 7.")

    run(main())


def test_a_failing_fetch_is_explained(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            topic = f"{w.site.url}/missing"
            await w.subscribe(topic)
            await w.ping(topic)
            await until(lambda: w.hub.counters["fetch_failures"])
            _, found = await get(w, "/topics", params={"url": topic, "format": "json"})
            assert found["fetch"]["result"] == "the topic answered 404"
            _, page = await get(w, "/topics/1")
            assert "the topic answered 404" in page

    run(main())


def test_how_a_topic_is_followed_is_said(tmp_path):
    async def main():
        async with world(tmp_path, follow_after=0.0) as w:
            topic = w.site.put("/feed?token=private", b"", ATOM)
            w.site.put("/feed", atom(("a", "A")), ATOM)
            await w.subscribe(topic)

            async def polled():
                _, found = await get(w, "/topics/1?format=json")
                return found["following"] and found["following"]["way"] == "polled"

            await until_async(polled, "polling")
            _, found = await get(w, "/topics/1?format=json")
            assert [each for each in found["watched"] if each.startswith("polled every")]
            assert found["following"]["reason"] in found["watched"][-1]
            assert "token=private" not in str(found)
            _, page = await get(w, "/topics/1")
            assert "polled every" in page

    run(main())


def test_diagnostics_are_not_for_asking_all_the_time(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            statuses = []
            while 429 not in statuses and len(statuses) < 2_000:
                statuses += [
                    answer.status
                    for answer, _ in await asyncio.gather(*(get(w, "/topics") for _ in range(20)))
                ]
            assert statuses.count(200) >= 50
            assert set(statuses) == {200, 429}

    run(main())
