"""`psph up` as a person and a page meet it: one world, real sockets, faults and all."""

from __future__ import annotations

import asyncio
import contextlib
import html
import os
import pty
import re
import signal
import socket
import subprocess
import threading
import time
from urllib.parse import urlsplit
from urllib.request import urlopen

import aiohttp
import pytest
from aiohttp import web

from demo.conversations import GREETING
from demo.world import World, WorldSettings
from psph import cli
from psph.errors import PsphError
from push_hub.feeds import read_feed
from tests.demo.up import PATIENCE, PSPH, Reader, running, until

A, B = "site-a.test", "site-b.test"
ALICE, BOB = f"alice@{A}", f"bob@{B}"


def run(main):
    asyncio.run(main)


def up(capsys, *arguments):
    """Of a call that fails at once: exit code, output, errors. No process is needed for that."""
    code = cli.run(["up", *map(str, arguments)])
    return code, *capsys.readouterr()


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """The directory of a world that runs, its address, and a way to stop it."""
    directory = tmp_path_factory.mktemp("begun") / "data"
    with contextlib.ExitStack() as stack:
        line, _ = stack.enter_context(running(directory))
        yield directory, line.split()[1].rstrip("/"), stack.close


def test_ready_means_that_an_update_crosses(begun):
    """The first test of its world: nothing has gone through it before."""
    _, url, _ = begun

    async def main():
        async with aiohttp.ClientSession() as session, Receiver() as receiver:
            async with session.get(f"{url}/api/world") as answer:
                world = await answer.json()
            a, b = world["domains"]
            admins = {each["name"]: each["status"].rsplit("/", 2)[0] for each in world["nodes"]}
            for domain in (a, b):
                async with session.get(f"{admins[domain['node']]}/proxy/status") as answer:
                    status = await answer.json()
                assert (status["ready"], status["alone"]) == (True, True)
            topic = b["topics"][1]
            form = {"hub.mode": "subscribe", "hub.topic": topic["url"]}
            form["hub.callback"] = receiver.url
            async with session.post(a["hub"], data=form) as answer:
                assert answer.status == 202
            await until(lambda: receiver.confirmed, "the confirmation")
            texts = [f"at once {number}." for number in range(3)]
            for text in texts:
                async with session.post(f"{topic['local']}/publish", data=text) as answer:
                    assert answer.status == 201
                await until(lambda text=text: any(text in post for post in receiver.posts), text)
            assert len(receiver.posts) == len(texts)

    run(main())


class Receiver:
    """A callback, and what was posted to it."""

    def __init__(self):
        self.confirmed = False
        self.posts = []

    async def __aenter__(self):
        app = web.Application()
        app.router.add_get("/", self._confirm)
        app.router.add_post("/", self._post)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/"
        return self

    async def __aexit__(self, *_):
        await self._runner.cleanup()

    async def _confirm(self, request):
        self.confirmed = True
        return web.Response(text=request.query["hub.challenge"])

    async def _post(self, request):
        self.posts.append(await request.text())
        return web.Response()


def test_a_world_goes_on_where_it_stopped(capsys, begun):
    """The same names, the same Positions: a page resumes across a restart."""

    async def first(url):
        async with Reader(url) as page:
            topic = page.topic(1)["url"]
            await page.wish(feeds=[{"domain": A, "topic": topic}])
            await until(lambda: page.of("update"))
            await page.publish(topic, "before the restart")
            await until(lambda: "before the restart" in page.titles())
            return topic, page.of("update")[-1]["position"]

    async def second(url, topic, position):
        async with Reader(url) as page:
            assert page.topic(1)["url"] == topic
            await page.wish(feeds=[{"domain": A, "topic": topic, "after": position}])
            await page.publish(topic, "after the restart")
            await until(lambda: "after the restart" in page.titles())
            assert page.titles() == ["after the restart"]
            assert not page.of("gap")
            assert not page.of("reset")
            await page.wish(chats=[{"me": ALICE, "with": BOB}])
            message = {"me": ALICE, "to": BOB, "text": "once?", "id": "0" * 32}
            assert (await page.ask("POST", "/api/chat", message))[0] == 200
            await until(lambda: "once?" in [each["text"] for each in page.of("chat")])
            assert [each["text"] for each in page.of("chat")] == [GREETING, "once?"]

    directory, url, stop = begun
    topic, position = asyncio.run(first(url))
    code, _, errors = up(capsys, "--port", 0, "--data", directory)
    assert (code, errors.count("\n")) == (1, 1)
    assert "in use" in errors
    stop()
    with running(directory) as (line, _):
        asyncio.run(second(line.split()[1].rstrip("/"), topic, position))


def test_an_update_crosses_and_says_how_long_it_took(world):
    async def main():
        async with Reader(world, "crossing") as page:
            topic = page.topic(1)["url"]
            await page.wish(feeds=[{"domain": A, "topic": topic, "after": None}], latency=True)
            (current,) = await until(lambda: page.of("update"), "the current version")
            assert current["took_ms"] is None, "it was there before"
            published = await page.publish(topic, '5 < 6 & "more"\nsecond line')
            title = '5 < 6 & "more"'
            assert published["title"] == title
            update = await until(
                lambda: [u for u in page.of("update") if u["position"] != current["position"]]
            )
            (entry,) = update[0]["entries"]
            assert (entry["title"], entry["link"]) == (title, published["link"])
            assert entry["summary"].endswith("second line")
            assert update[0]["domain"] == A
            assert 0 < update[0]["took_ms"] < 60_000
            trace = update[0]["trace_id"]
            (crossing,) = await until(
                lambda: [c for c in page.of("crossing") if c["trace_id"] == trace], "the crossing"
            )
            assert (crossing["from"], crossing["to"], crossing["topic"]) == (B, A, topic)
            stages = [stage["stage"] for stage in crossing["stages"]]
            assert [s for s in stages if s != "forwarded"] == [
                "ping_received", "fetched", "published", "delivered", "browser_sent",
            ]  # fmt: skip
            times = [stage["at_ms"] for stage in crossing["stages"]]
            assert times == sorted(times)
            latency = await until(lambda: [x for x in page.of("latency") if x["count"]])
            assert latency[-1]["p50"] <= latency[-1]["p90"] <= latency[-1]["p99"]
            assert sum(each["share"] for each in latency[-1]["by_stage"]) == pytest.approx(
                1, abs=0.01
            )

    run(main())


def test_the_world_is_as_the_design_says(world):
    async def main():
        async with Reader(world, "design") as page:
            assert [d["name"] for d in page.world["domains"]] == [A, B]
            assert {"jid": "alice@site-a.test", "domain": A} in page.world["chat"]
            assert len(page.world["nodes"]) == 8
            for domain in page.world["domains"]:
                host, port = domain["psph"].split(":")
                assert domain["hub"] == f"http://{host}:{port}/hub"
                for topic in domain["topics"]:
                    async with page.session.get(topic["local"]) as answer:
                        links = answer.links
                        feed = read_feed("application/atom+xml", await answer.read())
                    assert str(links["self"]["url"]) == topic["url"]
                    assert str(links["hub"]["url"]) == domain["hub"]
                    async with page.session.get(feed.entries[0].link) as answer:
                        assert answer.status == 200, "a browser can open it"
                        assert html.escape(feed.entries[0].title) in await answer.text()
            for node in page.world["nodes"]:
                async with page.session.get(node["status"]) as answer:
                    assert (await answer.json())["node"] == node["name"]

    run(main())


def test_publishing_at_the_website_reaches_a_page_in_the_same_domain(world):
    async def main():
        async with Reader(world, "website") as page:
            topic = page.topic(0)
            await page.wish(feeds=[{"domain": A, "topic": topic["url"]}])
            await until(lambda: page.of("update"))
            async with page.session.post(topic["local"] + "/publish", data="at home") as answer:
                assert answer.status == 201
            await until(lambda: "at home" in page.titles())

    run(main())


def test_a_page_that_reconnects_gets_what_it_missed(world):
    async def main():
        async with Reader(world, "again") as page:
            topic = page.topic(1)["url"]
            await page.wish(feeds=[{"domain": A, "topic": topic}])
            await until(lambda: page.of("update"))
            await page.leave()
            await page.publish(topic, "while nobody looked")
            page._listening = asyncio.create_task(page._listen())
            await until(lambda: "while nobody looked" in page.titles())
            assert [hello["resumed"] for hello in page.of("hello")] == [False, True]
            assert page.titles().count("while nobody looked") == 1

    run(main())


def test_another_tab_that_takes_over_the_stream_misses_nothing(world):
    async def main():
        async with Reader(world, "shared") as first:
            topic = first.topic(1)["url"]
            wish = {"feeds": [{"domain": A, "topic": topic}]}
            for tab in ("one", "two"):
                path = f"/api/pages/shared/tabs/{tab}"
                assert await first.ask("PUT", path, wish) == (200, {"page": "shared"})
            await until(lambda: {u["tab"] for u in first.of("update")} == {"one", "two"})
            await first.leave()
            await first.publish(topic, "between two leaders")
            async with Reader(world, "shared", after=first.last_id) as second:
                await until(lambda: second.titles().count("between two leaders") == 2)
                assert second.of("hello")[0]["resumed"] is True
                url = f"{world}/api/pages/shared/tabs/one"
                async with second.session.delete(url) as answer:
                    assert answer.status == 204
                await second.publish(topic, "with one tab")
                await second.publish(topic, "and only that")
                await until(lambda: "and only that" in second.titles())
                assert second.titles().count("with one tab") == 1

    run(main())


def test_tabs_with_more_than_a_hundred_streams_are_all_live(world):
    """The server has one at a hub for everything that a tab shows."""

    async def main():
        async with Reader(world, name="many") as page:
            topics = [topic["url"] for each in page.world["domains"] for topic in each["topics"]]
            wish = {"feeds": [{"domain": A, "topic": topic} for topic in topics]}
            tabs = [f"/api/pages/{page.name}/tabs/{number}" for number in range(30)]
            for tab in tabs:
                assert (await page.ask("PUT", tab, wish))[0] == 200
            streams = len(tabs) * len(topics)
            assert streams > 100
            await until(lambda: len(page.of("state")) == streams, "every topic is live")
            await page.publish(topics[1], "For many tabs")
            await until(lambda: page.titles().count("For many tabs") == len(tabs), "the update")
            for tab in tabs:
                async with page.session.delete(f"{world}{tab}") as answer:
                    assert answer.status == 204

    run(main())


def test_a_new_page_goes_on_behind_a_position(world):
    async def main():
        async with Reader(world, "first") as page:
            topic = page.topic(1)["url"]
            await page.wish(feeds=[{"domain": A, "topic": topic}])
            (update,) = await until(lambda: page.of("update"))
            await page.publish(topic, "one more")
            await until(lambda: "one more" in page.titles())
        async with Reader(world, "second") as page:
            feed = {"domain": A, "topic": topic, "after": update["position"]}
            await page.wish(feeds=[feed])
            await until(lambda: "one more" in page.titles())
            assert page.titles() == ["one more"]
            assert page.of("update")[0]["took_ms"] is None, "it came long ago"

    run(main())


def test_a_link_is_cut_and_updates_keep_arriving(world):
    async def main():
        async with Reader(world, "faults") as page:
            topic = page.topic(1)["url"]
            await page.wish(feeds=[{"domain": A, "topic": topic}], network=True, topic=topic)

            def tree():
                found = page.of("network")
                return found and found[-1]["tree"] and set(found[-1]["tree"]["links"])

            before = await until(lambda: len(tree() or ()) == 4 and tree(), "a tree of four links")
            shown = page.of("network")[-1]
            assert shown["tree"]["publisher"] == "psph-b"
            assert shown["tree"]["listeners"] == ["psph-a"]
            assert 0 < shown["tree"]["fill"] < 0.5
            assert {node["name"] for node in shown["nodes"] if "rendezvous" in node["roles"]} == {
                shard["server"] for shard in shown["shards"]
            }
            (cut,) = [link for link in before if link.startswith("n") and "psph" not in link][:1]
            path = f"/api/network/links/{cut}"
            assert (await page.ask("POST", path, {"up": False}))[0] == 200
            await page.publish(topic, "past the cut link")
            await until(lambda: "past the cut link" in page.titles(), "the update")
            await until(lambda: tree() and cut not in tree(), "another tree")

            def link():
                (found,) = [x for x in page.of("network")[-1]["links"] if x["id"] == cut]
                return found

            await until(lambda: not link()["up"] and link()["cut"], "a link that is down")
            assert (await page.ask("POST", path, {"up": True}))[0] == 200
            await until(lambda: link()["up"] and not link()["cut"], "a link that is mended")
            busy = [x for x in page.of("network")[-1]["links"] if x["packets"]]
            assert busy

    run(main())


def test_a_node_is_stopped_and_started(world):
    async def main():
        async with Reader(world, "nodes") as page:
            topic = page.topic(1)["url"]
            await page.wish(feeds=[{"domain": A, "topic": topic}], network=True)
            await until(lambda: page.of("update"))

            def is_up():
                (found,) = [n for n in page.of("network")[-1]["nodes"] if n["name"] == "n5"]
                return found["up"]

            await until(lambda: page.of("network") and is_up())
            assert (await page.ask("POST", "/api/network/nodes/n5", {"up": False}))[0] == 200
            await until(lambda: not is_up())
            await page.publish(topic, "without n5, which is a rendezvous server")
            await until(lambda: "without n5, which is a rendezvous server" in page.titles())
            # A link that is cut while its node is away is cut when it comes back.
            assert (await page.ask("POST", "/api/network/links/n5--n6", {"up": False}))[0] == 200
            assert (await page.ask("POST", "/api/network/nodes/n5", {"up": True}))[0] == 200
            await until(is_up)
            status = next(n["status"] for n in page.world["nodes"] if n["name"] == "n5")
            async with page.session.get(status) as answer:
                assert (await answer.json())["traffic"]["n6"]["cut"]
            assert (await page.ask("POST", "/api/network/links/n5--n6", {"up": True}))[0] == 200

    run(main())


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("PUT", "/api/pages/x", b"{", 400),
        ("PUT", "/api/pages/x", {"feed": []}, 400),
        ("PUT", "/api/pages/x%20y", {}, 400),
        ("PUT", "/api/pages/x", {"feeds": [{"domain": "example.com", "topic": "http://x/"}]}, 400),
        ("PUT", "/api/pages/x", {"chats": [{"me": "eve@example.com", "with": "b@c"}]}, 400),
        ("PUT", "/api/pages/x", {"feeds": [{"domain": A, "topic": "http://x/"}] * 17}, 400),
        ("POST", "/api/topics/publish", {"topic": "http://example.com/", "text": "x"}, 400),
        ("POST", "/api/topics/publish", {"topic": "http://example.com/", "text": ""}, 400),
        (
            "POST",
            "/api/chat",
            {"me": "alice@site-a.test", "to": "b@c", "text": "x", "id": "1"},
            400,
        ),
        ("POST", "/api/network/links/n1--n9", {"up": False}, 404),
        ("POST", "/api/network/nodes/dns", {"up": False}, 404),
        ("POST", "/api/network/nodes/n1", {"up": "no"}, 400),
    ],
)
def test_nonsense_is_answered_with_one_line(world, method, path, body, status):
    async def main():
        async with Reader(world, "nonsense") as page:
            answered, answer = await page.ask(method, path, body)
            assert answered == status
            assert "\n" not in answer["error"]

    run(main())


@pytest.mark.parametrize(
    "topic", ["ftp://news.site-b.test/feed.xml", "http://127.0.0.1:1/", "http://example.com/"]
)
def test_a_feed_that_the_hub_refuses_is_said_to_be(world, topic):
    async def main():
        async with Reader(world, f"refused{len(topic)}") as page:
            await page.wish(feeds=[{"domain": A, "topic": topic}])
            (refused,) = await until(lambda: page.of("refused"))
            assert (refused["domain"], refused["topic"]) == (A, topic)
            assert refused["error"]

    run(main())


@pytest.mark.parametrize("path", ["/", "/web/icon.svg"])
def test_the_page_loads_nothing_of_other_hosts(world, path):
    with urlopen(world + path) as answer:
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'self'")
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_the_documentation_that_the_page_links_to_is_there(world):
    page = urlopen(f"{world}/").read().decode()
    (link,) = re.findall(r'href="(/docs/[^"]*)"', page)
    with urlopen(f"{world}{link}") as answer:
        assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
        assert "GET /api/world" in answer.read().decode()


def test_another_page_or_name_gets_nothing(world):
    async def main():
        async with aiohttp.ClientSession() as session:
            stranger = {"Host": "stranger.example"}
            async with session.get(f"{world}/api/world", headers=stranger) as answer:
                assert answer.status == 421
            other = {"Origin": "http://stranger.example"}
            url = f"{world}/api/network/nodes/n1"
            async with session.post(url, json={"up": False}, headers=other) as answer:
                assert answer.status == 403
            world_now = await (await session.get(f"{world}/api/world")).json()
            local = world_now["domains"][0]["topics"][0]["local"]
            async with session.post(f"{local}/publish", data="x", headers=other) as answer:
                assert answer.status == 403

    run(main())


def test_a_busy_port_is_said_in_one_line(capsys, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, output, errors = up(capsys, "--port", port, "--data", tmp_path / "data")
    assert (code, output) == (1, "")
    assert errors.count("\n") == 1
    assert f":{port}" in errors
    assert "--port" in errors
    assert not (tmp_path / "data").exists(), "nothing was begun"


@pytest.mark.parametrize("host", ["nonsense.invalid", "192.0.2.1"])
def test_an_address_of_others_is_said_in_one_line(capsys, host, tmp_path):
    code, _, errors = up(capsys, "--port", 0, "--host", host, "--data", tmp_path / "data")
    assert (code, errors.count("\n")) == (1, 1)
    assert f"{host} is no address of this machine" in errors


def test_a_directory_that_cannot_be_used_is_said_in_one_line(capsys):
    code, _, errors = up(capsys, "--port", 0, "--data", "/dev/null/data")
    assert (code, errors.count("\n")) == (1, 1)
    assert "--data" in errors


@pytest.mark.parametrize("text", ["", "{", "[]", '{"fabric_key": "x"}'])
def test_secrets_that_cannot_be_read_are_said_in_one_line(tmp_path, text):
    (tmp_path / "secrets.json").write_text(text)
    with pytest.raises(PsphError, match=r"secrets\.json cannot be read: choose another --data$"):
        World(WorldSettings(tmp_path))


def test_beyond_loopback_a_token_is_asked_for(tmp_path):
    with running(tmp_path / "data", "--host", "0.0.0.0") as (line, _):
        url, _, token = line.split()[1].partition("/?token=")
        address = urlsplit(url).hostname  # loopback where the machine has no other
        assert address != "0.0.0.0"
        assert len(token) >= 16

        async def main():
            async with aiohttp.ClientSession() as session:
                hub = f"/hubs/{A}/mobility"
                for path in ("/", "/web/icon.svg", "/api/world", "/api/events?page=x", hub):
                    async with session.get(url + path) as answer:
                        assert answer.status == 401
                    async with session.get(url + path, headers=_bearer(token + "x")) as answer:
                        assert answer.status == 401
                async with session.get(f"{url}/api/world", headers=_bearer(token)) as answer:
                    found = await answer.json()
                jar = aiohttp.CookieJar(unsafe=True)
                async with aiohttp.ClientSession(cookie_jar=jar) as browser:
                    async with browser.get(f"{url}/?token={token}") as answer:
                        assert str(answer.url) == f"{url}/", "the token does not stay in sight"
                    async with browser.get(f"{url}/api/world") as answer:
                        assert answer.status == 200
                async with session.get(url + hub, headers=_bearer(token)) as answer:
                    assert (await answer.json())["proxy"] == f"http://{found['domains'][0]['psph']}"
                topic = found["domains"][0]["topics"][0]
                async with session.get(topic["local"]) as answer:
                    feed = read_feed("application/atom+xml", await answer.read())
                assert feed.entries[0].link.startswith(f"http://{address}:")
                async with session.get(feed.entries[0].link) as answer:
                    assert answer.status == 200
                outside = topic["local"].replace("127.0.0.1", address)
                async with session.post(f"{outside}/publish", data="x") as answer:
                    assert answer.status == (201 if address == "127.0.0.1" else 403)
                if address != "127.0.0.1":
                    with pytest.raises(aiohttp.ClientConnectorError):  # the hubs stay at home
                        await session.get(found["domains"][0]["hub"].replace("127.0.0.1", address))

        run(main())


def test_hubs_are_passed_on_as_far_as_a_client_that_moves_needs_them(world):
    async def main():
        async with aiohttp.ClientSession() as session:
            for method, path in (
                ("GET", f"{A}/hub"), ("GET", f"{A}/t/http://x.test/"), ("POST", f"{A}/hub"),
                ("POST", f"{A}/mobility/relay"), ("GET", f"{A}/chat/stream"),
                ("GET", f"{A}/metrics"), ("GET", "site-c.test/mobility"),
            ):  # fmt: skip
                async with session.request(method, f"{world}/hubs/{path}") as answer:
                    assert answer.status == 404, path
            # What the hub refuses is refused in its words.
            url = f"{world}/hubs/{B}/mobility/messages"
            async with session.post(url, params={"session": "w" * 30}, data="{") as answer:
                assert (answer.status, "no message" in await answer.text()) == (400, True)
            url = f"{world}/hubs/{B}/mobility/publish"
            headers = {"Psph-Publication": f"{'70' * 16}.1.1", **_bearer("wrong")}
            topic = {"topic": f"http://news.{B}/said"}
            async with session.post(url, params=topic, data="x", headers=headers) as answer:
                assert answer.status == 401
            async with session.get(url.replace("publish", "stream?session=" + "w" * 30)) as answer:
                assert answer.content_type == "text/event-stream"
                first = await answer.content.readuntil(b"\n\n")
                assert first == b"retry: 1000\nevent: alive\ndata: 5\n\n"

    run(main())


def _bearer(token):
    return {"Authorization": f"Bearer {token}"}


def test_a_terminal_is_shown_progress_and_a_status_line(tmp_path):
    ours, theirs = pty.openpty()
    shown = bytearray()

    def read():
        # The other end is closed when nobody has it any more.
        with contextlib.suppress(OSError):
            while chunk := os.read(ours, 65_536):
                shown.extend(chunk)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        said = subprocess.run(
            [*PSPH, "up", "--port", "0", "--duration", "1.2", "--data", tmp_path / "data"],
            stdout=subprocess.PIPE, stderr=theirs, text=True, timeout=120,
        )  # fmt: skip
    finally:
        os.close(theirs)
        reader.join()
        os.close(ours)
    assert said.returncode == 0
    assert re.fullmatch(r"ready http://127\.0\.0\.1:\d+/\n", said.stdout)
    text = shown.decode(errors="replace")
    assert "has joined the fabric" in text
    assert "8 of 8 nodes" in text
    assert "Ctrl-C stops" in text
    assert list(tmp_path.glob("data/data/traces/domain=*/date=*/node=psph-a/*.parquet"))


def test_a_terminal_that_is_closed_while_it_starts_stops_it(tmp_path):
    process = subprocess.Popen(
        [*PSPH, "up", "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        # Whoever runs the tests may have told them to outlive their terminal.
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    )  # fmt: skip
    with process:
        deadline = time.monotonic() + PATIENCE
        while not list(tmp_path.glob("*/data/n1")) and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGHUP)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    assert not list(tmp_path.iterdir()), "its directory was a temporary one"
