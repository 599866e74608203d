"""The set-ups of docs/publishers.md: built, served, pinged, delivered."""

import asyncio
import functools
import getpass
import re
import shutil
import sys
import threading
import urllib.parse
from contextlib import asynccontextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec

import aiohttp
import pytest
from aiohttp import web

from push_hub import Subscriber
from push_hub.client.checking import check
from push_hub.client.checks import Verdict
from push_hub.client.finding import ANYWHERE, client_session
from tests.ports import free_port
from tests.push_hub.examples import block, replaced, running, shell, write_file
from tests.push_hub.feeds.documents import atom
from tests.push_hub.test_subscriber import active
from tests.push_hub.world import PATIENCE, run, until_async, world

PAGE = "publishers.md"
SITE, HUB = "https://blog.example.com", "https://hub.example.com/hub"
ARTICLE = "{title}\n###\n\n:date: 2026-01-0{day}\n:category: x\n\nText of {title}.\n"

needs_pelican = pytest.mark.skipif(find_spec("pelican") is None, reason="no Pelican")
needs_flask = pytest.mark.skipif(find_spec("flask") is None, reason="no Flask")
needs_django = pytest.mark.skipif(find_spec("django_push") is None, reason="no django-push")
needs_nginx = pytest.mark.skipif(shutil.which("nginx") is None, reason="no nginx")


async def nothing_must_change(url):
    async with client_session(ANYWHERE, 60.0) as session:
        findings = await check(session, ANYWHERE, url)
    assert [each for each in findings if each.verdict is Verdict.MUST] == []


async def answers(url):
    async def once():
        try:
            async with aiohttp.ClientSession() as client, client.get(url) as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    await until_async(once, url)


class Files(SimpleHTTPRequestHandler):
    """A plain web server."""

    def log_message(self, *arguments):
        pass


@asynccontextmanager
async def files(directory):
    handler = functools.partial(Files, directory=directory)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        await asyncio.to_thread(server.shutdown)
        thread.join()
        server.server_close()


@needs_pelican
@pytest.mark.parametrize("way", ["psph publish", "curl"])
def test_pelican(tmp_path, way):
    async def main():
        served = tmp_path / "served"
        for each in (served, tmp_path / "content"):
            each.mkdir()
        async with world(tmp_path) as w, files(served) as site:
            hub = f"{w.hub_url}/hub"
            write_file(tmp_path, PAGE, "websub.py")
            write_file(tmp_path, PAGE, "pelicanconf.py", {SITE: site, HUB: hub})
            script = replaced(
                block(PAGE, "sh", "pelican content"), {SITE: site, "/srv/blog/": f"{served}/"}
            )
            pings = script.index("psph publish")
            if way == "curl":
                ping = replaced(block(PAGE, "sh", "curl --fail"), {SITE: site, HUB: hub})
                script = script[:pings] + ping
            (tmp_path / "content" / "one.rst").write_text(ARTICLE.format(title="One", day=1))
            await shell(script[:pings], tmp_path)
            async with (
                Subscriber(f"{site}/feeds/all.atom.xml") as reader,
                Subscriber(f"{site}/feeds/all.rss.xml") as rss_reader,
            ):
                await active(w, reader.topic, reader)
                await active(w, rss_reader.topic, rss_reader)
                await nothing_must_change(f"{site}/feeds/all.atom.xml")
                await nothing_must_change(f"{site}/feeds/all.rss.xml")
                (tmp_path / "content" / "two.rst").write_text(ARTICLE.format(title="Two", day=2))
                await shell(script, tmp_path)
                for each in (reader, rss_reader):
                    update = await asyncio.wait_for(anext(each), PATIENCE)
                    assert [entry.title for entry in update.entries] == ["Two", "One"]
                    assert "Text of Two." in update.entries[0].content

    run(main())


@needs_nginx
def test_links_from_nginx(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            port, served = free_port(), tmp_path / "served"
            served.mkdir()
            location = replaced(block(PAGE, "nginx", "add_header"), {HUB: f"{w.hub_url}/hub"})
            (tmp_path / "nginx.conf").write_text(
                f"user {getpass.getuser()}; daemon off; pid {tmp_path}/pid; error_log stderr;\n"
                "events {}\n"
                f"http {{ access_log off; server {{ listen 127.0.0.1:{port}; root {served};\n"
                f"{location}}} }}\n"
            )
            topic = f"http://127.0.0.1:{port}/feed.xml"
            (served / "feed.xml").write_bytes(atom(("a", "1")))
            command = (shutil.which("nginx"), "-p", tmp_path, "-c", tmp_path / "nginx.conf")
            async with running(*command, directory=tmp_path):
                await answers(topic)
                await nothing_must_change(topic)
                async with Subscriber(topic) as reader:
                    assert (reader.topic, reader.hub) == (topic, f"{w.hub_url}/hub")
                    await active(w, topic, reader)
                    await w.ping(topic)
                    update = await asyncio.wait_for(anext(reader), PATIENCE)
                    assert update.content_type == "application/atom+xml"

    run(main())


def test_wordpress(tmp_path):
    """What version 4.0.0 of the plugin sends: its headers, its links in the feed, its ping."""

    async def main():
        async with world(tmp_path) as w:
            hub = f"{w.hub_url}/hub"
            paths = ["/feed/atom/", "/feed/", "/category/x/feed/atom/", "/author/me/feed/"]
            urls = [w.site.url + path for path in paths]

            async def wordpress(request):
                own = w.site.url + request.path
                answer = web.Response(
                    body=atom(("a", "1")).replace(
                        b"</title>",
                        f'</title><link rel="self" type="application/atom+xml" href="{own}" />\n'
                        f'<link rel="hub" href="{hub}" />\n<link rel="self" href="{own}" />\n'
                        .encode(), 1,
                    ),
                    headers={"Content-Type": "application/atom+xml; charset=UTF-8"},
                )  # fmt: skip
                answer.headers.add("Link", f'<{w.site.url}/wp-json/>; rel="https://api.w.org/"')
                answer.headers.add("Link", f'<{hub}>; rel="hub"')
                answer.headers.add("Link", f'<{own}>; rel="self"')
                return answer

            for path in paths:
                w.site.hooks[path] = wordpress
            await nothing_must_change(urls[0])
            async with Subscriber(urls[0]) as reader:
                assert (reader.topic, reader.hub) == (urls[0], hub)
                await active(w, urls[0], reader)
                topics = "".join(f"&hub.url={urllib.parse.quote(each, safe='')}" for each in urls)
                async with w.client.post(
                    hub,
                    data=f"hub.mode=publish{topics}",
                    headers={
                        "User-Agent": f"WordPress/6.8; {w.site.url}; PubSubHubbub/WebSub",
                        "Accept": "*/*",
                        "Accept-Encoding": "deflate, gzip, br, zstd",
                        "Referer": hub,
                        "Connection": "close",
                        "Content-Type": "application/x-www-form-urlencoded",
                    },
                ) as answer:
                    assert answer.status == 204
                update = await asyncio.wait_for(anext(reader), PATIENCE)
                assert [entry.title for entry in update.entries] == ["1"]

    run(main())


def test_a_wordpress_on_a_port_of_its_own_is_told(tmp_path):
    """Its rel=self has no port: psph check says so, as the page promises."""

    async def main():
        async with world(tmp_path) as w:
            own = re.sub(r":\d+$", "", w.site.url) + "/feed/"
            links = f'<{w.hub_url}/hub>; rel="hub", <{own}>; rel="self"'
            url = w.site.put("/feed/", atom(("a", "1")), "application/atom+xml", Link=links)
            async with client_session(ANYWHERE, 60.0) as session:
                found = {each.check: each for each in await check(session, ANYWHERE, url)}
            assert found["rel=self"].verdict is Verdict.MUST
            assert url in found["rel=self"].change

    run(main())


SERVE = "from werkzeug.serving import run_simple; import {0}; run_simple('127.0.0.1', {1}, {0}.{2})"


async def application_is_live(tmp_path, w, name, attribute, feed):
    port = free_port()
    site = f"http://127.0.0.1:{port}"
    write_file(tmp_path, PAGE, f"{name}.py")
    code = f"import sys; sys.path.insert(0, '.'); {SERVE.format(name, port, attribute)}"
    variables = {"HUB": f"{w.hub_url}/hub", "SITE": site, "SECRET_KEY": "x"}
    async with running(sys.executable, "-c", code, directory=tmp_path, **variables):
        await answers(site + feed)
        await nothing_must_change(site + feed)
        async with Subscriber(site + feed) as reader:
            assert reader.topic == site + feed
            await active(w, reader.topic, reader)
            form = {"title": "Hello", "text": "World"}
            path = "/posts/" if name == "news" else "/posts"
            async with w.client.post(site + path, data=form) as answer:
                assert answer.status == 201
            update = await asyncio.wait_for(anext(reader), PATIENCE)
            assert [entry.title for entry in update.new_entries] == ["Hello"]


@needs_flask
def test_flask(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            await application_is_live(tmp_path, w, "blog", "app", "/feed.json")

    run(main())


@needs_django
def test_django(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            await application_is_live(tmp_path, w, "news", "application", "/feed/")

    run(main())
