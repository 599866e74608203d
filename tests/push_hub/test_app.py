"""The application: health, metrics, rate limits, mounting, odd clients."""

import asyncio
import shutil
import subprocess

import aiohttp
import pytest
from aiohttp import web

from identifiers import Position, PublisherId, identify
from push_hub import create_app
from push_hub.settings import Rate
from tests.push_hub.world import chosen, run, served, until, world

TOPIC = "http://example.com/feed"


def test_health_and_metrics(tmp_path):
    async def main():
        async with world(tmp_path, public_metrics=True) as w:
            await w.subscribe(TOPIC)
            async with w.client.get(f"{w.hub_url}/healthz") as answer:
                assert (answer.status, await answer.text()) == (200, "ok\n")
            async with w.client.get(f"{w.hub_url}/metrics") as answer:
                text = await answer.text()
            assert 'psph_hub_subscriptions{state="active"} 1.0' in text
            assert "psph_hub_verifications_confirmed_total 1.0" in text
            assert "psph_hub_deliveries_waiting 0.0" in text

    run(main())


def test_metrics_are_not_public_unless_configured(tmp_path):
    async def main():
        async with world(tmp_path) as w, w.client.get(f"{w.hub_url}/metrics") as answer:
            assert answer.status == 404

    run(main())


def test_clients_are_limited(tmp_path):
    async def main():
        async with world(tmp_path, client_rate=Rate(per_second=0.001, burst=5)) as w:
            statuses = [(await w.post(mode="x"))[0] for _ in range(7)]
            assert statuses == [400] * 5 + [429] * 2

    run(main())


def test_it_mounts_in_another_application(tmp_path):
    async def main():
        app = web.Application()
        app.add_subapp("/feeds/", create_app(chosen(), tmp_path))
        async with (
            served(app) as url,
            aiohttp.ClientSession() as client,
            client.get(f"{url}/feeds/healthz") as answer,
        ):
            assert answer.status == 200

    run(main())


def test_updates_from_elsewhere_and_listeners(tmp_path):
    theirs = Position(PublisherId(b"p" * 16), 9, 41)

    async def main():
        async with world(tmp_path) as w:
            heard = []
            w.hub.listen(heard.append)
            w.hub.listen(lambda update: 1 / 0)  # its fault is its own
            await w.subscribe(TOPIC)
            topic = identify(TOPIC)
            more = {"position": theirs, "trace_id": "a" * 32}
            assert await w.hub.accept(topic, "text/plain", b"far", **more) is not None
            assert await w.hub.accept(topic, "text/plain", b"far", **more) is None
            await until(lambda: w.reader.received)
            assert w.reader.received[0].headers["X-Hub-Delivery"].startswith(str(theirs))
            assert [(each.position, each.trace_id) for each in heard] == [(theirs, "a" * 32)]

    run(main())


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("options", [[], ["--http2"], ["-H", "Expect: 100-continue"]])
def test_curl(tmp_path, options):
    async def main():
        async with world(tmp_path) as w:
            command = [
                "curl", "-s", *options, "-w", "%{http_code}", f"{w.hub_url}/hub",
                "-d", "hub.mode=subscribe", "--data-urlencode", f"hub.topic={TOPIC}",
                "--data-urlencode", f"hub.callback={w.reader.url}/cb",
            ]  # fmt: skip
            done = await asyncio.to_thread(
                subprocess.run, command, capture_output=True, text=True, timeout=60
            )
            assert done.stdout == "202"
            await until(lambda: w.hub.counters["verifications_confirmed"] == 1)

    run(main())
