"""`psph hub` as a process, a site that never heard of it, and a browser that watches the site."""

import asyncio
import re
import subprocess
import sys
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from tests.ports import free_port
from tests.push_hub.browser import chromium, installed, opened
from tests.push_hub.feeds.documents import atom
from tests.push_hub.world import Site, run, served
from tests.sizes import size

pytestmark = pytest.mark.skipif(
    installed() is None, reason="Chromium is not installed: apt-get install chromium"
)

START = "import sys; from psph.commands.hub import hub; hub(sys.argv[1:], standalone_mode=False)"
KILLS = size(2, 3)
HOME = b"<!doctype html><link rel=alternate type=application/atom+xml title=News href=/feed.xml>"


@asynccontextmanager
async def hub(data, port):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", START, "--listen", f"127.0.0.1:{port}", "--data", str(data),
        "--allow-fetch", "127.0.0.0/8", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert (await process.stdout.readline()).startswith(b"ready http://")
        yield
    finally:
        process.kill()
        await process.wait()


def test_a_browser_follows_a_site_through_kills_of_the_hub(tmp_path):
    site, numbers = Site(), []
    port = free_port()

    def write(number):
        numbers.insert(0, number)
        feed = atom(*((str(each), f"Number {each}") for each in numbers))
        site.put("/feed.xml", feed, "application/atom+xml")

    async def ping():
        form = {"hub.mode": "publish", "hub.url": f"{site.url}/feed.xml"}
        async with (
            aiohttp.ClientSession() as client,
            client.post(f"http://127.0.0.1:{port}/hub", data=form) as answer,
        ):
            assert answer.status == 204

    async def main(address):
        app = web.Application()
        app.router.add_get("/{path:.*}", site.answer)
        async with served(app) as site.url, opened(address) as page:
            site.put("/", HOME, "text/html")
            write(1)
            async with hub(tmp_path, port):
                await page.go(f"http://127.0.0.1:{port}/")
                await page.type("#url", f"{site.url}/")
                await page.until("document.querySelector('#offers li button')")
                await page.click("#offers li button")
                # Nobody pinged: the hub looked, because somebody watches.
                await page.until("document.body.innerText.includes('Number 1')")
            for round_ in range(KILLS):
                await page.until("document.querySelector('#connection[data-state=lost]')")
                write(10 * round_ + 2)
                async with hub(tmp_path, port):
                    await ping()
                    await page.until("document.querySelector('#connection[data-state=live]')")
                    write(10 * round_ + 3)
                    await ping()
                    await page.until(f"document.body.innerText.includes('Number {numbers[0]}')")
            shown = [int(re.sub(r"\D", "", each)) for each in await page.texts("#entries h2")]
            assert shown == numbers
            assert page.exceptions == []

    with chromium() as address:
        run(main(address))
