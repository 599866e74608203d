"""Other mobility proxies: which ones this one may talk to, and asking them.

A client names the proxies it has been at. So a name is only believed when it was configured, or
when it is the address of a PSPH in the records of its own zone; and whatever the records say, the
connection goes to no address that the rules for callbacks would refuse.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from bootstrap import BootstrapError, NothingFound, Resolver
from identifiers import InvalidTopic
from mobility.ahead.words import WORDS, kind_of
from psph.guide import base_url as endpoint_url
from psph.mobility.several import MOST, bundled, unbundled
from push_hub.connecting import exact_url, reason_of
from push_hub.siblings import base_url
from traces import LogEvent

_log = logging.getLogger(__name__)

_REMEMBERED = 60.0
"""Seconds for which the records of a proxy's zone are believed."""
_MOST = 10_000
"""Names whose standing is remembered."""
AT_ONCE = 8
"""Requests to one proxy under way: what comes meanwhile goes together in the next."""
MOST_WAITING = 4_096
"""Questions to other proxies that wait; beyond it they are lost, and asked again."""
WORDS_AT_ONCE = 64
"""Words to other proxies under way, each alone; clients' questions do not wait for them."""
BETWEEN_PASSES = 0.5
"""Seconds between two passes to one proxy: anybody may have it sent one."""


class KnownProxies:
    """Whether a name is that of a proxy."""

    def __init__(self, configured: Iterable[str], resolver: Resolver | None) -> None:
        self._configured = frozenset(filter(None, map(base_url, configured)))
        self._resolver = resolver
        self._found: dict[str, tuple[bool, float]] = {}

    def may_be(self, name: str) -> bool:
        """False when it is none for certain; what is not known yet is for `is_known` to say."""
        if name in self._configured:
            return True
        if self._resolver is None or base_url(name) != name:
            return False
        found = self._found.get(name)
        return found is None or found[0] or time.monotonic() > found[1]

    async def is_known(self, name: str) -> bool:
        """Whether the name is configured, or in the records of its zone."""
        if name in self._configured:
            return True
        if self._resolver is None or base_url(name) != name:
            return False
        found = self._found.pop(name, None)
        if found is None or time.monotonic() > found[1]:
            try:
                records = await self._resolver.find(urlsplit(name).hostname or "")
                named = name in {base_url(endpoint_url(each)) for each in records.proxies}
            except (NothingFound, InvalidTopic):
                named = False
            except BootstrapError as error:
                _log.info(LogEvent("zone.lookup_failed", peer=name, reason=error))
                return False
            found = (named, time.monotonic() + _REMEMBERED)
        self._found[name] = found
        if len(self._found) > _MOST:
            del self._found[next(iter(self._found))]
        return found[0]


class Peers:
    """Asks other proxies; what they answer goes to `answered`, with their name."""

    def __init__(
        self, session: aiohttp.ClientSession, known: KnownProxies, largest: int, own: str
    ) -> None:
        self._session = session
        self.known = known
        self._largest = largest
        self._own = own
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: dict[str, deque[bytes]] = {}
        self._asking: Counter[str] = Counter()
        self._words: set[asyncio.Task[None]] = set()
        self._passed: dict[str, float] = {}
        self.answered: Callable[[str, bytes], None] = lambda name, packet: None
        self.counters = Counter({"crowded": 0, "unknown": 0, "failed": 0, "answered": 0})

    def send(self, name: str, packet: bytes) -> None:
        """Ask a proxy, or tell it a word. Nothing comes back when it cannot be reached: who wants
        an answer asks again."""
        kind = kind_of(packet)
        if kind in WORDS:
            if len(self._words) >= WORDS_AT_ONCE or (kind == "pass" and not self._may_pass(name)):
                self.counters["crowded"] += 1
            else:
                self._start(self._words, self._ask(name, [packet]))
            return
        if sum(map(len, self._waiting.values())) >= MOST_WAITING:
            self.counters["crowded"] += 1
            return
        self._waiting.setdefault(name, deque()).append(packet)
        if self._asking[name] < AT_ONCE:
            self._asking[name] += 1
            self._start(self._tasks, self._ask_all(name))

    def _start(self, tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def _may_pass(self, name: str) -> bool:
        now = time.monotonic()
        last = self._passed.pop(name, -BETWEEN_PASSES)
        ready = now - last >= BETWEEN_PASSES
        self._passed[name] = now if ready else last
        if len(self._passed) > _MOST:
            del self._passed[next(iter(self._passed))]
        return ready

    async def stop(self) -> None:
        """Nobody is asked any more."""
        tasks = self._tasks | self._words
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._session.close()

    async def _ask_all(self, name: str) -> None:
        """What waits for one proxy, until nothing does."""
        try:
            while waiting := self._waiting.get(name):
                packets = [waiting.popleft() for _ in range(min(MOST, len(waiting)))]
                if not waiting:
                    del self._waiting[name]
                await self._ask(name, packets)
        finally:
            self._asking[name] -= 1
            if not self._asking[name]:
                del self._asking[name]

    async def _ask(self, name: str, packets: list[bytes]) -> None:
        if not await self.known.is_known(name):
            self.counters["unknown"] += len(packets)
            return
        body, media_type = bundled(packets)
        try:
            async with self._session.post(
                exact_url(f"{name}/mobility/relay"),
                data=body,
                headers={"Content-Type": media_type},
                allow_redirects=False,
            ) as answer:
                content = await answer.content.read(self._largest + 1)
                while not answer.content.at_eof() and len(content) <= self._largest:
                    content += await answer.content.read(self._largest + 1 - len(content))
                if answer.status != 200 or len(content) > self._largest:
                    self.counters["failed"] += len(packets)
                    _log.info(LogEvent("peer.refused", peer=name, status=answer.status))
                    return
                answers = unbundled(content, answer.content_type)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            self.counters["failed"] += len(packets)
            _log.info(LogEvent("peer.unreachable", peer=name, reason=reason_of(error)))
            return
        self.counters["answered"] += len(answers)
        for each in answers:
            self.answered(name, each)
