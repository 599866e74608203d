"""What a hub asks of a guide, which knows the hubs of our own domain that have a topic.

A hub whose domain has a Pub/Sub Proxy Hub follows topics of zones that have a fabric there
(`stream_carrier`). The guide is chosen by the operator and not by a stranger: versions that come
from a hub it names are recorded as they are.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from identifiers import Topic
from push_hub.following import is_own
from traces import LogEvent

_log = logging.getLogger(__name__)

_TIMEOUT_S: Final = 10.0
_REST_S: Final = 30.0
"""For so long a guide that failed is not asked again: each question may take the time above."""


class Guide(Protocol):
    """Names the hubs of our domain that have a topic."""

    async def hubs_for(self, topic: Topic) -> Sequence[str]:
        """The URLs of hubs to follow the topic at, in the order to try them; none: the topic is
        plain WebSub."""

    def failed(self, hub: str) -> None:
        """A hub that it named could not be reached, or a stream from it ended."""

    def worked(self, hub: str) -> None:
        """A stream from a hub that it named stands."""


class Guiding:
    """The hub's side of a guide: no failure of it stops the hub."""

    def __init__(self, guide: Guide, own: str) -> None:
        self._guide = guide
        self._own = own
        self._rests_until = 0.0

    async def hubs_for(self, topic: Topic) -> list[str] | None:
        """The hubs that have the topic, this one left out; None when the guide cannot say."""
        if time.monotonic() < self._rests_until:
            return None
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                hubs = await self._guide.hubs_for(topic)
        except Exception as error:
            self._rests_until = time.monotonic() + _REST_S
            reason = str(error) or "no answer in time"
            _log.warning(LogEvent("guide.failed", call="hubs_for", host=topic.host, reason=reason))
            return None
        return [hub for hub in hubs if not is_own(hub, self._own)]

    def failed(self, hub: str) -> None:
        """Tell the guide, which may know another one."""
        self._tell(self._guide.failed, hub)

    def worked(self, hub: str) -> None:
        """Tell the guide that it need not avoid the hub."""
        self._tell(self._guide.worked, hub)

    def _tell(self, tell: Callable[[str], None], hub: str) -> None:
        try:
            tell(hub)
        except Exception:
            _log.exception(LogEvent("guide.failed", call=tell.__name__, hub=hub))
