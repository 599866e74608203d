"""A small website: two feeds, a page for each entry, and a hub that is told of what is new."""

from __future__ import annotations

import asyncio
import html
import json
import logging
import os
import re
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Annotated, Self
from xml.sax.saxutils import escape, quoteattr

import aiohttp
import msgspec
from aiohttp import web
from msgspec import Meta

from demo.guarding import is_loopback
from demo.headlines import headline
from psph.configuration import load
from psph.configuration.addresses import parse_address
from traces import LogEvent

_log = logging.getLogger(__name__)

ENTRIES = 50
"""Kept of each feed."""
LONGEST = 4_000
"""Characters of an entry."""
LONGEST_TITLE = 120
_STYLE = (
    ":root { color-scheme: light dark } body { font: 1.05rem/1.6 system-ui, sans-serif;"
    " max-width: 40rem; margin: 2.5rem auto; padding: 0 1rem; overflow-wrap: anywhere }"
    " h1 { line-height: 1.25 } time { opacity: 0.75; font-size: 0.9rem }"
)
_UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


class SiteSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The configuration file of a website."""

    domain: str
    listen: list[str]
    """The first names the port that topics have."""
    hub: str
    """Its hub's URL, for pings and for the feed's rel=hub."""
    feeds: list[str]
    """The first grows by itself."""
    reachable: str
    """http://HOST:PORT where a browser reaches it: the links of its entries begin so."""
    file: str
    """Where its entries are kept."""
    every_s: Annotated[float, Meta(ge=0)] = 20.0
    """Seconds between two entries that come by themselves; 0: none do."""

    def topic(self, feed: str) -> str:
        """The feed's public name."""
        return f"http://news.{self.domain}:{parse_address(self.listen[0])[1]}/{feed}"


@dataclass(frozen=True, slots=True)
class Entry:
    number: int
    title: str
    text: str
    at: str


class Website:
    """Its feeds and the application that serves them; used as a context it grows."""

    def __init__(self, settings: SiteSettings, directory: Path) -> None:
        """Its file is relative to the directory."""
        self._settings = settings
        self._file = directory / settings.file
        self._random = Random()
        self._feeds: dict[str, list[Entry]] = {name: [] for name in settings.feeds}
        self._growing: asyncio.Task[None] | None = None
        self._load()
        app = self.app = web.Application(client_max_size=4 * LONGEST)
        app.router.add_get("/", self._index)
        app.router.add_get("/healthz", _healthz)
        app.router.add_get("/{feed}/entries/{number:[0-9]{1,9}}", self._entry)
        app.router.add_get("/{feed}", self._feed)
        app.router.add_post("/{feed}/publish", self._publish)

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10))
        for name, entries in self._feeds.items():
            if not entries:
                self._add(name, f"{name} of {self._settings.domain} begins here")
        if self._settings.every_s:
            self._growing = asyncio.create_task(self._grow())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._growing is not None:
            self._growing.cancel()
            await asyncio.gather(self._growing, return_exceptions=True)
        await self._session.close()

    async def publish(self, feed: str, text: str) -> Entry:
        """Add an entry and tell the hub."""
        entry = self._add(feed, text)
        topic = self._settings.topic(feed)
        form = {"hub.mode": "publish", "hub.url": topic}
        async with self._session.post(self._settings.hub, data=form) as answer:
            if answer.status != 204:
                raise aiohttp.ClientError(f"the hub answered {answer.status}")
        return entry

    async def _grow(self) -> None:
        while True:
            await asyncio.sleep(self._settings.every_s * self._random.uniform(0.8, 1.2))
            try:
                await self.publish(self._settings.feeds[0], headline(self._random))
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                # The hub may be stopped for a while; the next ping brings this entry, too.
                _log.warning(LogEvent("ping.failed", domain=self._settings.domain, reason=error))

    # Keeping

    def _load(self) -> None:
        if self._file.exists():
            kept = json.loads(self._file.read_text())
            for name in self._feeds:
                self._feeds[name] = [Entry(**entry) for entry in kept.get(name, [])]

    def _add(self, feed: str, text: str) -> Entry:
        entries = self._feeds[feed]
        number = entries[-1].number + 1 if entries else 1
        title = text.strip().splitlines()[0][:LONGEST_TITLE]
        entry = Entry(number, title, text.strip(), datetime.now(UTC).isoformat())
        entries.append(entry)
        del entries[:-ENTRIES]
        whole = {
            name: [asdict(each) for each in each_feed] for name, each_feed in self._feeds.items()
        }
        unfinished = self._file.with_suffix(".new")
        unfinished.write_text(json.dumps(whole))
        os.replace(unfinished, self._file)
        return entry

    # Serving

    def _entries(self, request: web.Request) -> tuple[str, list[Entry]]:
        feed = request.match_info["feed"]
        if feed not in self._feeds:
            raise web.HTTPNotFound(text="there is no such feed\n")
        return feed, self._feeds[feed]

    def _link(self, feed: str, entry: Entry) -> str:
        return f"{self._settings.reachable}/{feed}/entries/{entry.number}"

    async def _feed(self, request: web.Request) -> web.Response:
        feed, entries = self._entries(request)
        topic, hub = self._settings.topic(feed), self._settings.hub
        listed = "".join(
            f"<entry><id>{escape(topic)}#{entry.number}</id><title>{_xml(entry.title)}</title>"
            f"<link href={quoteattr(self._link(feed, entry))}/><updated>{entry.at}</updated>"
            f"<summary>{_xml(entry.text)}</summary></entry>\n"
            for entry in reversed(entries)
        )
        text = (
            '<?xml version="1.0" encoding="utf-8"?>\n<feed xmlns="http://www.w3.org/2005/Atom">'
            f"<title>{escape(feed.removesuffix('.xml'))} of {escape(self._settings.domain)}</title>"
            f"<id>{escape(topic)}</id><updated>{entries[-1].at}</updated>"
            f"<author><name>{escape(self._settings.domain)}</name></author>\n"
            f'<link rel="self" href={quoteattr(topic)}/><link rel="hub" href={quoteattr(hub)}/>\n'
            f"{listed}</feed>\n"
        )
        return web.Response(
            body=text.encode(),
            content_type="application/atom+xml",
            headers={"Link": f'<{hub}>; rel="hub", <{topic}>; rel="self"'},
        )

    async def _entry(self, request: web.Request) -> web.Response:
        feed, entries = self._entries(request)
        number = int(request.match_info["number"])
        for entry in entries:
            if entry.number == number:
                return _page(
                    entry.title,
                    f"<p>{html.escape(entry.text)}</p><p><time>{entry.at}</time></p>"
                    f'<p><a href="/">{html.escape(self._settings.domain)}</a></p>',
                )
        raise web.HTTPNotFound(text=f"{feed} has no entry {number} (any more)\n")

    async def _index(self, request: web.Request) -> web.Response:
        parts = []
        for feed, entries in self._feeds.items():
            parts.append(f'<h2><a href="/{feed}">{feed}</a></h2><ul>')
            parts += [
                f'<li><a href="/{feed}/entries/{entry.number}">{html.escape(entry.title)}</a></li>'
                for entry in reversed(entries)
            ]
            parts.append("</ul>")
        return _page(self._settings.domain, "".join(parts))

    async def _publish(self, request: web.Request) -> web.Response:
        feed, _ = self._entries(request)
        # Programs and our page's server may, but not somebody else's web page in a browser.
        if not is_loopback(request.remote or "") or "Origin" in request.headers:
            raise web.HTTPForbidden(text="entries are added from this machine only\n")
        text = (await request.read()).decode(errors="replace").strip()
        if not text or len(text) > LONGEST:
            raise web.HTTPBadRequest(text=f"send the entry as text, 1 to {LONGEST} characters\n")
        try:
            entry = await self.publish(feed, text)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            # What a connection that failed says of itself is for the log.
            silent = isinstance(error, aiohttp.ClientConnectionError | OSError)
            why = "it does not answer" if silent else str(error)
            raise web.HTTPBadGateway(
                text=f"the entry is there, but its hub was not told: {why}\n"
            ) from error
        return web.json_response(
            {
                "topic": self._settings.topic(feed),
                "number": entry.number,
                "title": entry.title,
                "link": self._link(feed, entry),
            },
            status=201,
        )


async def _healthz(request: web.Request) -> web.Response:
    return web.Response(text="ok\n")


async def serve(file: Path, stack: AsyncExitStack) -> None:
    """Run the website of a configuration file until the stack is left."""
    settings = load(file, SiteSettings)
    site = Website(settings, file.parent)
    runner = web.AppRunner(site.app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    for each in settings.listen:
        await web.TCPSite(runner, *parse_address(each)).start()
    await stack.enter_async_context(site)


def _xml(text: str) -> str:
    """Text as XML 1.0 may have it, which knows hardly any control characters."""
    return escape(_UNFIT.sub("", text))


def _page(title: str, body: str) -> web.Response:
    text = (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style>"
        f"<h1>{html.escape(title)}</h1>{body}</html>\n"
    )
    return web.Response(
        text=text,
        content_type="text/html",
        headers={"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"},
    )
