"""All open pages, and what brings each of them what it wants to show."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Self

from demo import conversations, following, layout
from demo.observing import Observer
from demo.pages import Page, Tab, Wishes
from demo.windows import LiveWindows
from demo.world import World
from traces import LogEvent

_log = logging.getLogger(__name__)

MOST_PAGES = 64
"""Each tab of a page counts."""
FORGET = 60.0
"""Seconds after its stream ended that a page is kept for a browser that reconnects."""
_TICK = 0.5
"""Seconds between two looks at the network."""
_SHOWN_AT_FIRST = 20
"""Crossings that a page gets when it begins to look at them."""


class TooManyPages(Exception):
    """Somebody opens pages and does not close them."""


class Showing:
    """Runs while it is entered."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._observer = Observer(world)
        self._pages: dict[str, Page] = {}
        self._begun = time.monotonic()
        self._wanted = asyncio.Event()
        """A tab has just opened the view Network: look without waiting for the tick."""
        self.report = world.settings.directory / "report"
        """Where `psph report` may put what it finds in our traces."""
        self._live = LiveWindows(world.settings.directory / "live" / "latency.json")

    async def __aenter__(self) -> Self:
        self._looking = asyncio.create_task(self._look_for_ever())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._looking.cancel()
        await asyncio.gather(self._looking, return_exceptions=True)
        await self._observer.stop()

    def page(self, name: str) -> Page:
        """The page of that name, which may be new."""
        if name not in self._pages:
            self._check_room()
            self._pages[name] = Page(name, time.monotonic)
            self._pages[name].show("status", self.status())
        return self._pages[name]

    def _check_room(self) -> None:
        if sum(max(1, len(page.tabs)) for page in self._pages.values()) >= MOST_PAGES:
            raise TooManyPages("too many pages are open: close some")

    def _tab(self, page: Page, name: str) -> Tab:
        if name not in page.tabs:
            if page.tabs:
                self._check_room()
            page.tabs[name] = Tab(page, name)
        return page.tabs[name]

    def close_tab(self, page: str, name: str) -> None:
        """It wants nothing any more."""
        tab = self._pages[page].tabs.pop(name, None) if page in self._pages else None
        if tab is not None:
            tab.close()

    def wish(self, name: str, wishes: Wishes, tab_name: str = "") -> None:
        """Set what a tab of a page shows. ValueError when that is not in this world."""
        wanted: dict[object, Callable[[Tab], Coroutine[Any, Any, None]]] = {}
        for feed in wishes.feeds:
            if feed.domain not in layout.DOMAINS:
                raise ValueError(f"there is no domain {feed.domain[:80]!r} here")
            wanted["feed", feed.domain, feed.topic] = partial(
                following.follow, self._world, wish=feed, took=self._observer.took
            )
        for chat in wishes.chats:
            conversations.domain_of(chat.me)
            wanted["chat", chat.me, chat.with_] = partial(
                conversations.follow, self._world, wish=chat
            )
        tab = self._tab(self.page(name), tab_name)
        before, tab.wishes = tab.wishes, wishes
        for key in tab.followers.keys() - wanted.keys():
            tab.followers.pop(key).cancel()
        for key in wanted.keys() - tab.followers.keys():
            tab.followers[key] = asyncio.create_task(self._guarded(wanted[key], tab))
        if wishes.latency and not before.latency:
            for crossing in list(self._observer.crossings.last)[-_SHOWN_AT_FIRST:]:
                tab.send("crossing", crossing)
            tab.show("latency", self._latency())
        if wishes.network and (not before.network or wishes.topic != before.topic):
            self._wanted.set()  # or the map stays empty until the next tick

    async def _guarded(self, follow: Callable[[Tab], Coroutine[Any, Any, None]], tab: Tab) -> None:
        try:
            await follow(tab)
        except Exception:  # a bug in here must not go unseen, and costs one page one feed
            _log.exception(LogEvent("page.failed"))

    def close_pages(self) -> None:
        """Nothing more is shown."""
        for page in self._pages.values():
            page.close_tabs()
            page.close()

    def status(self) -> dict[str, object]:
        """What the status line and every page say of the world."""
        crossings = self._observer.crossings
        latency = self._latency()
        return {
            "uptime_s": int(time.monotonic() - self._begun),
            "domains": len(layout.DOMAINS),
            "nodes": len(layout.NODES),
            "nodes_up": sum(self._world.parts[node].running for node in layout.NODES),
            "pages": sum(page.listening > 0 for page in self._pages.values()),
            "crossings": crossings.count,
            "p50_ms": latency["p50"],
            "processes": self._world.settings.processes,
        }

    def _latency(self) -> dict[str, object]:
        written = (self.report / "report.html").is_file()
        found = self._observer.crossings.latency("/report/" if written else None)
        return found | {"live": self._live.shown}

    # Looking

    async def _look_for_ever(self) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), _TICK)
            self._wanted.clear()
            try:
                await self._look()
            except Exception:  # a bug in here must not end what pages are shown
                _log.exception(LogEvent("look.failed"))

    async def _look(self) -> None:
        self._forget()
        await self._observer.look_at_traces()
        news = self._observer.crossings.finished(time.monotonic_ns())
        closed = self._live.look()
        open_pages = [page for page in self._pages.values() if page.listening]
        for page in open_pages:
            page.show("status", self.status())
        tabs = [tab for page in open_pages for tab in page.tabs.values()]
        for tab in tabs:
            if tab.wishes.latency and (news or closed):
                for crossing in news:
                    tab.send("crossing", crossing)
                tab.show("latency", self._latency())
        wanting = [tab for tab in tabs if tab.wishes.network]
        if wanting:
            await self._show_network(wanting)

    async def _show_network(self, tabs: list[Tab]) -> None:
        network = await self._observer.network()
        topics = {tab.wishes.topic for tab in tabs if tab.wishes.topic}
        trees = {topic: await self._observer.tree(topic) for topic in topics}
        for tab in tabs:
            tab.show("network", network | {"tree": trees.get(tab.wishes.topic or "")})

    def _forget(self) -> None:
        now = time.monotonic()
        for name, page in list(self._pages.items()):
            if not page.listening and now - page.left > FORGET:
                page.close_tabs()
                del self._pages[name]
