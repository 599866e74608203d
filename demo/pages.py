"""Pages: what each one wants to be shown, and the one stream of events that shows it.

A browser opens at most six connections to a server of HTTP/1.1. So a page may have several tabs, of
which each wants something of its own and all share the stream: an event says which tab it is for.

Events that must not be lost (updates, messages) are numbered and kept, a bounded number of them: a
browser that reconnects goes on where it was. Of those that only show how things are (the network,
say) a page is sent the latest; a slow reader gets fewer, and nothing piles up.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

KEPT = 256
"""Events of each tab of a page that a reconnecting browser can still get."""
HEARTBEAT = 15.0
MOST_FEEDS = 16
MOST_CHATS = 8

Jid = Annotated[str, Meta(max_length=1_024)]
Url = Annotated[str, Meta(max_length=2_048)]
After = Annotated[str, Meta(max_length=200)]


class FeedWish(Struct, frozen=True, forbid_unknown_fields=True):
    """A topic, as a reader in that domain gets it."""

    domain: Annotated[str, Meta(max_length=255)]
    topic: Url
    after: After | None = None


class ChatWish(Struct, frozen=True, forbid_unknown_fields=True, rename={"with_": "with"}):
    """A conversation, as `me` sees it."""

    me: Jid
    with_: Jid
    after: Annotated[str, Meta(max_length=1_000)] | None = None


class Wishes(Struct, frozen=True, forbid_unknown_fields=True):
    """All that a tab of a page wants: `PUT /api/pages/ID`, or `.../ID/tabs/TAB`."""

    feeds: Annotated[list[FeedWish], Meta(max_length=MOST_FEEDS)] = []
    chats: Annotated[list[ChatWish], Meta(max_length=MOST_CHATS)] = []
    network: bool = False
    latency: bool = False
    topic: Url | None = None
    """Whose tree is shown in the network."""


class Tab:
    """One tab of a page: what it is to show, and the tasks that bring it that."""

    def __init__(self, page: Page, name: str) -> None:
        self._page = page
        self.name = name
        self.wishes = Wishes()
        self.followers: dict[object, asyncio.Task[None]] = {}
        """By what was wished."""

    def send(self, kind: str, data: Mapping[str, object]) -> None:
        """An event that the tab must get."""
        self._page.send(kind, self._addressed(data))

    def show(self, kind: str, data: Mapping[str, object]) -> None:
        """How something is now; the tab gets the latest."""
        self._page.show(kind, self._addressed(data), self.name)

    def close(self) -> None:
        """Nothing is brought any more."""
        for task in self.followers.values():
            task.cancel()
        self.followers.clear()

    def _addressed(self, data: Mapping[str, object]) -> Mapping[str, object]:
        return {**data, "tab": self.name} if self.name else data


class Page:
    """One page in one browser, and its stream."""

    def __init__(self, name: str, clock: Callable[[], float]) -> None:
        self.name = name
        self._clock = clock
        self.tabs: dict[str, Tab] = {}
        """By name; a page that is in one tab only need not name it."""
        self.listening = 0
        """The number of the stream that is open; 0 while none is."""
        self.left = clock()
        """When the last stream ended."""
        self._streams = 0
        self._last = 0
        self._kept: deque[tuple[int, bytes]] = deque()
        self._latest: dict[tuple[str, str], bytes] = {}
        self._news = asyncio.Event()

    def send(self, kind: str, data: object) -> None:
        """An event that the page must get."""
        self._last += 1
        self._kept.append((self._last, _event(kind, data, self._last)))
        while len(self._kept) > KEPT * max(1, len(self.tabs)):
            self._kept.popleft()
        self._news.set()

    def show(self, kind: str, data: object, tab: str = "") -> None:
        """How something is now; the page, or a tab of it, gets the latest."""
        self._latest[kind, tab] = _event(kind, data)
        self._news.set()

    def close_tabs(self) -> None:
        """Nothing is brought any more, until tabs say again what they want."""
        for tab in self.tabs.values():
            tab.close()
        self.tabs.clear()

    def close(self) -> None:
        """End the stream: nothing more will come."""
        self.listening = 0
        self._news.set()

    async def events(self, after: int | None) -> AsyncIterator[bytes]:
        """The stream, from after an event on. A later stream of the page ends this one."""
        if self._streams == 0 and after is None and self.tabs:
            after = 0  # it said what it wants before it began to listen
        self._streams += 1
        mine = self.listening = self._streams
        self._news.set()
        resumed = after is not None and self._has_all_after(after)
        if not resumed:
            # Whoever has lost something says again where it is.
            self.close_tabs()
            self._kept.clear()
        at = self._last if after is None or not resumed else after
        try:
            yield _event("hello", {"page": self.name, "resumed": resumed})
            while self.listening == mine:
                self._news.clear()
                if self._kept and not self._has_all_after(at):
                    return  # too slow: the browser comes back and says where it is
                for number, event in list(self._kept):
                    if number > at:
                        at = number
                        yield event
                latest, self._latest = self._latest, {}
                for event in latest.values():
                    yield event
                try:
                    await asyncio.wait_for(self._news.wait(), HEARTBEAT)
                except TimeoutError:
                    yield b": still here\n"
        finally:
            self.left = self._clock()
            if self.listening == mine:
                self.listening = 0

    def _has_all_after(self, number: int) -> bool:
        if number > self._last:
            return False  # of an earlier life of this server
        return number == self._last or bool(self._kept and self._kept[0][0] <= number + 1)


def _event(kind: str, data: object, number: int | None = None) -> bytes:
    head = f"id: {number}\n" if number is not None else ""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return f"{head}event: {kind}\ndata: {text}\n\n".encode()


def read_wishes(body: bytes) -> Wishes:
    """ValueError, with one line for people, when the page says something else."""
    try:
        return msgspec.json.decode(body, type=Wishes)
    except msgspec.DecodeError as error:
        # It may quote what was sent.
        raise ValueError(f"no wishes of a page: {' '.join(str(error).split())[:300]}") from None
