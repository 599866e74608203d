"""Host names for aiohttp: chosen zones through a chosen name server, the rest as always.

With it, http://news.site-a.test:8081/feed.xml can be fetched on a machine whose own name servers
have never heard of site-a.test.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterable

from aiohttp import DefaultResolver
from aiohttp.abc import AbstractResolver, ResolveResult

from bootstrap.asking import Asker, Heard
from bootstrap.caching import CacheBounds
from bootstrap.errors import NameServerFailed
from bootstrap.lookup import Kind, LookupSettings, Server
from identifiers import InvalidTopic, normalise_host

_FAMILIES: dict[Kind, socket.AddressFamily] = {"A": socket.AF_INET, "AAAA": socket.AF_INET6}


class ZoneResolver(AbstractResolver):
    """For `aiohttp.TCPConnector(resolver=...)`, which asks it for every host that is a name."""

    def __init__(
        self,
        zones: Iterable[str],
        nameservers: Iterable[Server | str],
        *,
        rest: AbstractResolver | None = None,
        clock: Callable[[], float] = time.monotonic,
        bounds: CacheBounds | None = None,
        settings: LookupSettings | None = None,
    ) -> None:
        """`rest` answers for all other hosts: the system, unless another is given. It is closed
        with this one."""
        self._zones = frozenset(normalise_host(zone) for zone in zones)
        servers = [Server.parse(each) if isinstance(each, str) else each for each in nameservers]
        if not servers:
            raise ValueError("name at least one name server for the zones")
        self._asker = Asker(
            servers,
            clock=clock,
            bounds=bounds or CacheBounds(),
            settings=settings or LookupSettings(),
        )
        self._rest = rest

    def serves(self, host: str) -> bool:
        """Whether a host lies in one of the zones."""
        try:
            labels = normalise_host(host).split(".")
        except InvalidTopic:
            return False
        return any(".".join(labels[start:]) in self._zones for start in range(len(labels)))

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of a host; OSError, as aiohttp expects it, when it has none."""
        if not self.serves(host):
            if self._rest is None:
                self._rest = DefaultResolver()
            return await self._rest.resolve(host, port, family)
        kinds = [kind for kind, each in _FAMILIES.items() if family in (each, socket.AF_UNSPEC)]
        name = normalise_host(host)
        answers = await asyncio.gather(
            *(self._asker.ask(name, kind) for kind in kinds), return_exceptions=True
        )
        found = [
            _result(host, record.to_text(), port, _FAMILIES[each.answer.kind])
            for each in answers
            if isinstance(each, Heard)
            for record in each.answer.records
        ]
        if found:
            return found
        for each in answers:
            if isinstance(each, NameServerFailed):
                raise OSError(None, str(each)) from each
            if isinstance(each, BaseException):
                raise each
        raise OSError(None, f"{host} has no address")

    async def close(self) -> None:
        """End questions that are under way."""
        await self._asker.close()
        if self._rest is not None:
            await self._rest.close()


def _result(hostname: str, address: str, port: int, family: socket.AddressFamily) -> ResolveResult:
    return ResolveResult(
        hostname=hostname,
        host=address,
        port=port,
        family=family,
        proto=0,
        flags=socket.AI_NUMERICHOST,
    )
