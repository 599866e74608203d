"""Which PSPH a client of chat turns to: those it was given, or those of its domain in DNS."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bootstrap import Endpoint, NothingFound, Resolver
from identifiers import jid_topic


class Hubs(Protocol):
    """PSPHs that serve somebody, by their URLs."""

    async def choose(self) -> str:
        """The one to try now. BootstrapError when there is none."""

    def failed(self, hub: str) -> None:
        """It could not be used: another is better, if there is one."""

    def worked(self, hub: str) -> None:
        """It serves us."""


def base_url(text: str) -> str:
    """Where the paths of chat begin, for a PSPH that is named by its address or its /hub."""
    return text.rstrip("/").removesuffix("/hub")


class GivenHubs:
    """In the order they were given, again and again."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = [base_url(each) for each in urls]
        self._at = 0

    async def choose(self) -> str:
        return self._urls[self._at % len(self._urls)]

    def failed(self, hub: str) -> None:
        if hub == self._urls[self._at % len(self._urls)]:
            self._at += 1

    def worked(self, hub: str) -> None:
        pass


class FoundHubs:
    """By the SRV records of a user's domain, which are looked at again every time: they change.

    Users are spread over the PSPHs by their weights, and each comes to the same one every time:
    what one user writes is in order where one PSPH has numbered it.
    """

    def __init__(self, resolver: Resolver, me: str) -> None:
        self._resolver = resolver
        self._key = jid_topic(me)
        self._domain = me.rpartition("@")[2]
        self._endpoints: dict[str, Endpoint] = {}

    async def choose(self) -> str:
        found = await self._resolver.find(self._domain)
        order = self._resolver.order(found.proxies, self._key)
        self._endpoints = {_url(each): each for each in order}
        if not self._endpoints:
            raise NothingFound(f"{self._domain} has no PSPH: give one with --hub")
        return next(iter(self._endpoints))

    def failed(self, hub: str) -> None:
        if hub in self._endpoints:
            self._resolver.failed(self._endpoints[hub])

    def worked(self, hub: str) -> None:
        if hub in self._endpoints:
            self._resolver.worked(self._endpoints[hub])


def _url(endpoint: Endpoint) -> str:
    # By address: the system's name servers need not know the name.
    host = endpoint.addresses[0] if endpoint.addresses else endpoint.host
    return f"http://[{host}]:{endpoint.port}" if ":" in host else f"http://{host}:{endpoint.port}"
