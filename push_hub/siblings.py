"""The other hubs of a hub's domain, where its readers go on when it dies.

Who they are is somebody else's to know: a Pub/Sub Proxy Hub reads it from the records of its
domain. What they say goes into a Content-Security-Policy, so it is looked at closely here.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final
from urllib.parse import urlsplit

from push_hub.following import is_own
from traces import LogEvent

_log = logging.getLogger(__name__)

MOST: Final = 8
_PATIENCE: Final = 2.0
"""Seconds that somebody who opens the page waits for a list that is not there yet."""
_REST: Final = 10.0
"""Seconds for which whoever failed to say is not asked again: others wait meanwhile."""
_REMEMBERED: Final = 86_400.0
"""Seconds for which the pages of a hub are known after it was named last: its records may be taken
back when it dies, and its readers come all the same."""
_MOST_REMEMBERED: Final = 64
_LONGEST: Final = 300
_LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_BASE: Final = re.compile(
    rf"(https?://{_LABEL}(?:\.{_LABEL})*(?::([1-9][0-9]{{0,4}}))?)((?:/[A-Za-z0-9._~-]+)*)/?"
)

Siblings = Callable[[], Awaitable[Sequence[str]]]
"""Gives the public base URLs of the other hubs: their /hub and /stream are below."""


def base_url(text: str) -> str | None:
    """A base URL as we write it, without a slash at the end; None for what is not one."""
    if len(text) > _LONGEST:
        return None
    scheme, mark, rest = text.partition("://")
    host, slash, path = rest.partition("/")
    found = _BASE.fullmatch(f"{scheme.lower()}{mark}{host.lower()}{slash}{path}")
    if found is None or int(found[2] or 1) > 65_535:
        return None
    return found[1] + found[3]


def origin(base: str) -> str:
    """Of a base URL, as browsers name it in the header Origin."""
    parts = urlsplit(base)
    usual = {"http": 80, "https": 443}[parts.scheme]
    host = parts.hostname or ""
    return f"{parts.scheme}://{host}" + ("" if parts.port in (None, usual) else f":{parts.port}")


class KnownSiblings:
    """The hub's side of them: well-formed, without ourselves, and the last known when asking
    fails."""

    def __init__(self, ask: Siblings | None, own: str) -> None:
        self._ask = ask
        self._own = own
        self._known: tuple[str, ...] = ()
        self._heard: dict[str, float] = {}
        """By origin: when it was named last."""
        self._rests_until = 0.0

    async def bases(self) -> tuple[str, ...]:
        """Their base URLs, at most 8."""
        if self._ask is None or time.monotonic() < self._rests_until:
            return self._known
        try:
            async with asyncio.timeout(_PATIENCE):
                said = await self._ask()
        except Exception as error:
            self._rests_until = time.monotonic() + _REST
            reason = str(error) or "no answer in time"
            _log.warning(LogEvent("siblings.lookup_failed", reason=reason))
            return self._known
        bases = dict.fromkeys(base for each in said if (base := base_url(each)) is not None)
        others = [each for each in bases if not is_own(each, self._own)]
        self._known = tuple(others[:MOST])
        for each in map(origin, self._known):
            self._heard.pop(each, None)
            self._heard[each] = time.monotonic()
        while len(self._heard) > _MOST_REMEMBERED:
            del self._heard[next(iter(self._heard))]
        return self._known

    async def origins(self) -> frozenset[str]:
        """From which their pages ask, and those of others that were here until lately."""
        await self.bases()
        since = time.monotonic() - _REMEMBERED
        return frozenset(each for each, heard in self._heard.items() if heard > since)
