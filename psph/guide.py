"""From a topic to the hubs of our own domain's PSPHs.

A stand-alone hub follows topics of zones that have a fabric there: their updates come through the
fabric, numbered by the hub of their own zone. All others are plain WebSub. Who reads by stream goes
there as well. All choose by topic: readers of one topic meet at one PSPH, and topics are spread
over all by their weights.
"""

from __future__ import annotations

from typing import Final

from bootstrap import Endpoint, NothingFound, Resolver
from identifiers import Topic

MAX_CHOICES: Final = 200_000
"""Topics whose PSPH is remembered."""


class DomainGuide:
    """Implements `push_hub.guide.Guide`."""

    def __init__(self, resolver: Resolver, domain: str) -> None:
        self._resolver = resolver
        self._domain = domain
        self._known: dict[str, Endpoint] = {}
        self._failures: dict[str, int] = {}
        self._chosen: dict[str, tuple[str, int]] = {}
        """By topic: a hub, and how often that had failed by then."""

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
        self._known = {hub_url(each): each for each in ours.proxies}
        hub, failures = self._chosen.pop(topic.canonical, ("", 0))
        # For as long as it works: each change is a subscription anew.
        if hub not in self._known or self._failures.get(hub, 0) != failures:
            hub = hub_url(self._resolver.order(ours.proxies, topic.canonical)[0])
        self._chosen[topic.canonical] = (hub, self._failures.get(hub, 0))
        if len(self._chosen) > MAX_CHOICES:
            del self._chosen[next(iter(self._chosen))]
        return hub

    def failed(self, hub: str) -> None:
        """Try another one, if there is; for all topics."""
        if hub in self._known:
            self._resolver.failed(self._known[hub])
            self._failures[hub] = self._failures.get(hub, 0) + 1


class DomainHubs:
    """The hubs of a domain's PSPHs for those who read a topic there, in the order to try them.

    Call it each time one is needed: `push_hub.client.StreamFollower` does, and takes `failed` and
    `worked` as well.
    """

    def __init__(self, resolver: Resolver, domain: str, topic: Topic) -> None:
        self._resolver = resolver
        self._domain = domain
        self._topic = topic
        self._known: dict[str, Endpoint] = {}

    async def __call__(self) -> list[str]:
        """NothingFound when the domain has none, NameServerFailed when it cannot be known."""
        found = await self._resolver.find(self._domain)
        if not found.proxies:
            raise NothingFound(f"{self._domain} has no PSPH: nothing at _psirp._tcp")
        order = self._resolver.order(found.proxies, self._topic.canonical)
        self._known = {hub_url(each): each for each in order}
        return list(self._known)

    def failed(self, hub: str) -> None:
        """It is tried last for a while."""
        if hub in self._known:
            self._resolver.failed(self._known[hub])

    def worked(self, hub: str) -> None:
        """It is forgiven."""
        if hub in self._known:
            self._resolver.worked(self._known[hub])


class SiblingHubs:
    """The base URLs of a domain's other PSPHs: implements `push_hub.siblings.Siblings`."""

    def __init__(self, resolver: Resolver, domain: str, own: str | None) -> None:
        """`own` is the HOST:PORT by which our own records name us."""
        self._resolver = resolver
        self._domain = domain
        self._own = _normal(own or "")

    async def __call__(self) -> list[str]:
        """NameServerFailed when it cannot be known. By chance and weight: those who lose one PSPH
        spread over the others."""
        try:
            found = await self._resolver.find(self._domain)
        except NothingFound:
            return []
        others = [each for each in found.proxies if _normal(str(each)) != self._own]
        return [base_url(each) for each in self._resolver.order(others)]


def hub_url(endpoint: Endpoint) -> str:
    """Where the hub of a PSPH is."""
    return f"{base_url(endpoint)}/hub"


def base_url(endpoint: Endpoint) -> str:
    return f"http://{endpoint.host}:{endpoint.port}"


def _normal(address: str) -> str:
    host, _, port = address.lower().rpartition(":")
    return f"{host.rstrip('.')}:{port}"
