"""From a topic to the hub of our own domain's PSPH, where the topic's zone has a fabric.

A stand-alone hub follows such topics there: their updates come through the fabric, numbered by the
hub of their own zone. All others are plain WebSub.
"""

from __future__ import annotations

from bootstrap import Endpoint, NothingFound, Resolver
from identifiers import Topic


class DomainGuide:
    """Implements `push_hub.guide.Guide`."""

    def __init__(self, resolver: Resolver, domain: str) -> None:
        self._resolver = resolver
        self._domain = domain
        self._chosen: Endpoint | None = None

    async def hub_for(self, topic: Topic) -> str | None:
        """NameServerFailed when it cannot be known."""
        try:
            zone = await self._resolver.find(topic.host)
            ours = await self._resolver.find(self._domain)
        except NothingFound:
            return None
        # A zone whose records lie has no fabric that could be trusted.
        if zone.refused or not ours.proxies:
            return None
        at = {hub_url(each): each for each in ours.proxies}
        # One for all topics, and for as long as it works: each change is a subscription anew.
        if self._chosen is None or hub_url(self._chosen) not in at:
            self._chosen = self._resolver.order(ours.proxies)[0]
        return hub_url(self._chosen)

    def failed(self, hub: str) -> None:
        """Try another one, if there is."""
        if self._chosen is not None and hub_url(self._chosen) == hub:
            self._resolver.failed(self._chosen)
            self._chosen = None


def hub_url(endpoint: Endpoint) -> str:
    """Where the hub of a PSPH is."""
    return f"http://{endpoint.host}:{endpoint.port}/hub"
