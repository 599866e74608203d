"""The hub with software nobody here wrote: Flask-WebSub, django-push, curl.

The Python packages run in processes of their own: they have warnings, and threads, of their own.
"""

import asyncio
import contextlib
import json
import shutil
import subprocess
import sys
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from aiohttp import web

from push_hub import Subscriber, create_app
from push_hub.app import HUB
from push_hub.client.asking import ping
from push_hub.client.checking import check
from push_hub.client.checks import Verdict
from push_hub.client.finding import ANYWHERE, client_session
from push_hub.lifecycle import State
from tests.push_hub.feeds.documents import atom
from tests.push_hub.interop.certificates import loopback_tls
from tests.push_hub.world import PATIENCE, chosen, run, until, until_async, world

HERE = Path(__file__).parent
ATOM = "application/atom+xml"

needs_flask_websub = pytest.mark.skipif(
    find_spec("flask_websub") is None, reason="Flask-WebSub is not installed"
)
needs_django_push = pytest.mark.skipif(
    find_spec("django_push") is None, reason="django-push is not installed"
)
needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


class FlaskReader:
    """The process of flask_websub_reader.py."""

    def __init__(self, process):
        self._process = process

    async def hear(self, event):
        """The next event of a kind; others are passed over."""
        while True:
            line = await asyncio.wait_for(self._process.stdout.readline(), PATIENCE)
            assert line, "Flask-WebSub ended"
            said = json.loads(line)
            if said["event"] == event:
                return said

    async def tell(self, **wish):
        self._process.stdin.write(json.dumps(wish).encode() + b"\n")
        await self._process.stdin.drain()


@asynccontextmanager
async def flask_reader(directory):
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(HERE / "flask_websub_reader.py"), str(directory / "reader.sqlite"),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    reader = FlaskReader(process)
    try:
        await reader.hear("ready")
        yield reader
    finally:
        process.kill()
        await process.communicate()


@needs_flask_websub
def test_flask_websub_subscribes_renews_reads_and_unsubscribes(tmp_path):
    async def main():
        async with world(tmp_path) as w, flask_reader(tmp_path) as reader:
            topic = f"{w.site.url}/feed"
            links = f'<{topic}>; rel="self", <{w.hub_url}/hub>; rel="hub"'
            w.site.put("/feed", atom(("a", "1")), ATOM, Link=links)
            await reader.tell(do="subscribe", url=topic, lease=600)
            confirmed = await reader.hear("success")
            assert (confirmed["topic"], confirmed["mode"]) == (topic, "subscribe")
            await until_async(w.settled, "the confirmation")
            await w.ping(topic)
            assert (await reader.hear("content"))["body"] == atom(("a", "1")).decode()

            await reader.tell(do="renew", id=confirmed["id"])
            assert (await reader.hear("success"))["mode"] == "subscribe"
            w.site.put("/feed", atom(("b", "2")), ATOM, Link=links)
            await until_async(w.settled, "the renewal")
            await w.ping(topic)
            assert (await reader.hear("content"))["body"] == atom(("b", "2")).decode()

            await reader.tell(do="unsubscribe", id=confirmed["id"])
            assert (await reader.hear("success"))["mode"] == "unsubscribe"
            await until_async(w.settled, "the end")
            (record,) = await w.hub.store.subscriptions()
            assert record.state is State.UNSUBSCRIBED

    run(main())


@needs_flask_websub
def test_flask_websub_hears_of_a_denial(tmp_path):
    async def main():
        async with (
            world(tmp_path, topic_hosts=("example.com",)) as w,
            flask_reader(tmp_path) as reader,
        ):
            links = f'<{w.site.url}/t>; rel="self", <{w.hub_url}/hub>; rel="hub"'
            w.site.put("/t", b"x", Link=links)
            await reader.tell(do="subscribe", url=f"{w.site.url}/t")
            assert "does not serve" in (await reader.hear("error"))["reason"]

    run(main())


@needs_flask_websub
def test_flask_websub_believes_our_signatures(tmp_path):
    """It sends a secret only where the hub speaks https."""
    context, ca = loopback_tls(tmp_path)

    async def main():
        app = create_app(chosen(), tmp_path)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
            hub_url = f"https://127.0.0.1:{runner.addresses[0][1]}/hub"
            data = tmp_path / "other"
            data.mkdir()
            async with world(data) as w, flask_reader(data) as reader:
                links = f'<{w.site.url}/t>; rel="self", <{hub_url}>; rel="hub"'
                topic = w.site.put("/t", b"signed", Link=links)
                await reader.tell(do="subscribe", url=topic, ca=ca)
                await reader.hear("success")
                hub = app[HUB]
                await until(lambda: hub.counters["verifications_confirmed"] == 1)
                (record,) = await hub.store.subscriptions()
                assert record.secret
                form = {"hub.mode": "publish", "hub.url": topic}
                async with w.client.post(hub_url, data=form, ssl=False) as answer:
                    assert answer.status == 204
                assert (await reader.hear("content"))["body"] == "signed"
        finally:
            await runner.cleanup()

    run(main())


@needs_flask_websub
@pytest.mark.parametrize("algorithm", ["sha1", "sha256", "sha384", "sha512"])
def test_our_subscriber_at_the_hub_of_flask_websub(tmp_path, algorithm):
    async def main():
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(HERE / "flask_websub_hub.py"), str(tmp_path / "theirs.sqlite"),
            algorithm, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            hub = (await asyncio.wait_for(process.stdout.readline(), PATIENCE)).decode().strip()
            async with world(tmp_path) as w, client_session(ANYWHERE, 60.0) as session:
                topic = f"{w.site.url}/t"
                links = f'<{topic}>; rel="self", <{hub}>; rel="hub"'
                w.site.put("/t", atom(("a", "1")), ATOM, Link=links)
                verdicts = {each.verdict for each in await check(session, ANYWHERE, topic)}
                assert verdicts == {Verdict.OK}
                async with Subscriber(topic, lease_seconds=100) as subscriber:
                    assert (subscriber.hub, subscriber.lease_seconds) == (hub, 100)
                    update = None
                    while update is None:  # it stores us some time after we confirmed
                        await ping(session, ANYWHERE, hub, topic)
                        with contextlib.suppress(TimeoutError):
                            update = await asyncio.wait_for(anext(subscriber), 0.5)
                    assert [entry.title for entry in update.entries] == ["1"]
                    assert update.content == atom(("a", "1"))
                    assert subscriber.counters["rejected"] == 0
        finally:
            process.kill()
            await process.communicate()

    run(main())


@needs_django_push
def test_django_push_pings(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            known = w.site.put("/feed", atom(("a", "1")), ATOM)
            await w.subscribe(known)
            process = await asyncio.create_subprocess_exec(
                sys.executable, str(HERE / "django_push_ping.py"), f"{w.hub_url}/hub", known,
                "http://unknown.example/feed?a=1&b=\u00fc", stdout=subprocess.PIPE,
            )  # fmt: skip
            out, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
            assert out.split() == [b"204", b"204"]
            await until(lambda: w.reader.received)
            assert w.reader.received[0].body == atom(("a", "1"))

    run(main())


@needs_curl
@pytest.mark.parametrize(
    "options", [[], ["--http2"], ["--http1.0"], ["-H", "Expect: 100-continue"]]
)
def test_curl_subscribes_and_publishes(tmp_path, options):
    """`--http2` asks for Upgrade: h2c, which a server may ignore and must not stumble over."""

    async def curl(*arguments):
        process = await asyncio.create_subprocess_exec(
            "curl", "-sS", "-m", "60", *options, *arguments, stdout=subprocess.PIPE
        )
        out, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
        return out.decode()

    async def main():
        async with world(tmp_path) as w:
            topic = w.site.put("/t", b"hello")
            status = ["-o", "/dev/null", "-w", "%{http_code} %{http_version}"]
            answer = await curl(
                *status, f"{w.hub_url}/hub", "-d", "hub.mode=subscribe",
                "--data-urlencode", f"hub.topic={topic}",
                "--data-urlencode", f"hub.callback={w.reader.url}/cb",
            )  # fmt: skip
            assert answer.startswith("202 1")
            await until(lambda: w.hub.counters["verifications_confirmed"] == 1)
            await until_async(w.settled, "the confirmation")
            answer = await curl(*status, f"{w.hub_url}/hub", "-d", "hub.mode=publish",
                                "--data-urlencode", f"hub.url={topic}")  # fmt: skip
            assert answer.startswith("204 1")
            await until(lambda: w.reader.received)
            assert w.reader.received[0].body == b"hello"
            assert await curl(f"{w.hub_url}/healthz") == "ok\n"

    run(main())
