"""Who knows a better hub for a topic than the one it names: what the hub asks of them.

A hub whose domain has a Pub/Sub Proxy Hub follows topics of zones that have a fabric there. The
guide's word is the operator's, not a stranger's: what the hub it names pushes, signed, is recorded
as it is.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final, Protocol

from identifiers import Topic
from push_hub.following import is_own
from traces import LogEvent

_log = logging.getLogger(__name__)

_PATIENCE: Final = 10.0
_REST: Final = 30.0
"""Seconds for which a guide that failed is not asked again: others wait meanwhile."""


class Guide(Protocol):
    """Somebody who knows the way to some topics."""

    async def hub_for(self, topic: Topic) -> str | None:
        """The URL of the hub to subscribe to the topic at; None: whichever the topic names."""

    def failed(self, hub: str) -> None:
        """A hub that it named refused, did not confirm or could not be reached."""


class Guiding:
    """The hub's side of a guide, or of none."""

    def __init__(self, guide: Guide | None, own: str) -> None:
        self._guide = guide
        self._own = own
        self._rests_until = 0.0

    @property
    def present(self) -> bool:
        return self._guide is not None

    async def hub_for(self, topic: Topic, before: str | None) -> str | None:
        """What the guide says; `before`, what it said last, when it cannot say anything now."""
        if self._guide is None:
            return None
        if time.monotonic() < self._rests_until:
            return before
        try:
            async with asyncio.timeout(_PATIENCE):
                hub = await self._guide.hub_for(topic)
        except Exception as error:
            self._rests_until = time.monotonic() + _REST
            reason = str(error) or "no answer in time"
            _log.warning(LogEvent("guide.failed", call="hub_for", host=topic.host, reason=reason))
            return before
        return None if hub is None or is_own(hub, self._own) else hub

    def failed(self, hub: str) -> None:
        """Tell the guide, which may know another one."""
        if self._guide is not None:
            try:
                self._guide.failed(hub)
            except Exception:
                _log.exception(LogEvent("guide.failed", call="failed", hub=hub))
