"""From a topic to the hubs of our own domain's PSPHs.

A stand-alone hub follows topics of zones that have a fabric there: their updates come through the
fabric, numbered by the hub of their own zone. All others are plain WebSub. Clients that read by
stream go there as well. All choose by topic: readers of one topic meet at one PSPH, and topics are
spread over all by their weights.
"""

from __future__ import annotations

from collections.abc import Iterable

from bootstrap import Endpoint, NothingFound, Resolver
from identifiers import Topic


class _Hubs:
    """The hubs of a domain's PSPHs, and which of them failed lately."""

    def __init__(self, resolver: Resolver, domain: str) -> None:
        self._resolver = resolver
        self._domain = domain
        self._known: dict[str, Endpoint] = {}

    def _order(self, endpoints: Iterable[Endpoint], topic: Topic) -> list[str]:
        order = self._resolver.order(endpoints, topic.canonical)
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


class DomainGuide(_Hubs):
    """Implements `push_hub.guide.Guide`."""

    async def hubs_for(self, topic: Topic) -> list[str]:
        """NameServerFailed when it cannot be known."""
        try:
            zone = await self._resolver.find(topic.host)
            ours = await self._resolver.find(self._domain)
        except NothingFound:
            return []
        # A zone whose records lie has no fabric that could be trusted.
        return [] if zone.refused else self._order(ours.proxies, topic)


class DomainHubs(_Hubs):
    """The hubs of a domain's PSPHs for those who read a topic there, in the order to try them.

    Call it each time one is needed: `push_hub.client.StreamFollower` does, and takes `failed` and
    `worked` as well.
    """

    def __init__(self, resolver: Resolver, domain: str, topic: Topic) -> None:
        super().__init__(resolver, domain)
        self._topic = topic

    async def __call__(self) -> list[str]:
        """NothingFound when the domain has none, NameServerFailed when it cannot be known."""
        found = await self._resolver.find(self._domain)
        if not found.proxies:
            raise NothingFound(f"{self._domain} has no PSPH: nothing at _psirp._tcp")
        return self._order(found.proxies, self._topic)


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
