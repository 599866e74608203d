"""Says of the users of a PSPH that they are there: those who have a stream open."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Final

from psph.chat import presence
from psph.chat.conversation import presence_of
from psph.chat.message import CONTENT_TYPE
from push_hub.context import Tasks, woken
from push_hub.errors import Busy, HubError
from push_hub.hub import Hub
from traces import LogEvent

_log = logging.getLogger(__name__)

MOST_STREAMS: Final = 32
"""Of one user."""
_GRACE: Final = 3.0
"""Seconds for which somebody who left may come back unnoticed, if that is not long for a word."""


class Presences:
    """Who of our users is there."""

    def __init__(self, hub: Hub, ttl: float) -> None:
        """`ttl` are the seconds for which a word holds; it is said again every third of it."""
        self._hub = hub
        self._ttl = ttl
        self._streams: Counter[str] = Counter()
        self._changed: dict[str, asyncio.Event] = {}
        """Of those of whom we say something."""
        self._stopped = False
        self._tasks = Tasks()

    async def stop(self) -> None:
        """What was said last holds for a while: they may go on elsewhere, or here."""
        self._stopped = True
        await self._tasks.stop()

    def joined(self, jid: str) -> None:
        """A stream of the user is open; Busy when there are too many."""
        if self._streams[jid] >= MOST_STREAMS:
            raise Busy(f"{jid} has {MOST_STREAMS} streams open: close some")
        self._streams[jid] += 1
        if jid in self._changed:
            self._changed[jid].set()
        else:
            self._changed[jid] = asyncio.Event()
            self._tasks.start(self._follow(jid, self._changed[jid]))

    def left(self, jid: str) -> None:
        """One of them is not any more."""
        self._streams[jid] -= 1
        if not self._streams[jid]:
            del self._streams[jid]
            self._changed[jid].set()

    async def _follow(self, jid: str, changed: asyncio.Event) -> None:
        """Until the user has left."""
        try:
            while self._streams[jid]:
                await self._say(jid, True)
                end = asyncio.get_running_loop().time() + self._ttl / 3
                while (left := end - asyncio.get_running_loop().time()) > 0:
                    changed.clear()
                    if not self._streams[jid]:
                        await woken(changed, min(_GRACE, self._ttl / 3))
                        if not self._streams[jid]:
                            break
                    else:
                        await woken(changed, left)
            await self._say(jid, False)
        finally:
            del self._changed[jid]
            if self._streams[jid] and not self._stopped:  # came while it was said that they left
                self._changed[jid] = asyncio.Event()
                self._tasks.start(self._follow(jid, self._changed[jid]))

    async def _say(self, jid: str, here: bool) -> None:
        said = presence.write(presence.Presence(jid, here, self._ttl))
        try:
            await self._hub.publish(presence_of(jid), CONTENT_TYPE, said, superseding=True)
        except HubError as error:
            _log.error(LogEvent("presence.failed", reason=error))
