"""DNS: from a domain to what serves it, and keeping those records true.

    async with Resolver() as resolver:
        found = await resolver.find("http://news.example.com/feed.xml")
        for proxy in resolver.order(found.proxies): ...

Finding: `records` (names and formats), `lookup` (one question), `caching` and `asking` (the same
question once), `found` (what records amount to), `resolver` (from a host up to its zone),
`selection` (RFC 2782), `http_resolver` (chosen zones through a chosen name server, for aiohttp).
Serving: `server/`, an authoritative name server. Registering: `registration/`.
"""

from bootstrap.caching import CacheBounds
from bootstrap.errors import (
    BadRecord,
    BootstrapError,
    NameServerFailed,
    NothingFound,
    Refused,
    WrongKey,
)
from bootstrap.found import Found, Source
from bootstrap.lookup import LookupSettings, Server
from bootstrap.records import ANNOUNCEMENT, PROXY, RENDEZVOUS, Announcement, ZoneKeys, zone_keys
from bootstrap.resolver import Resolver, host_of
from bootstrap.selection import Endpoint

__all__ = [
    "ANNOUNCEMENT",
    "PROXY",
    "RENDEZVOUS",
    "Announcement",
    "BadRecord",
    "BootstrapError",
    "CacheBounds",
    "Endpoint",
    "Found",
    "LookupSettings",
    "NameServerFailed",
    "NothingFound",
    "Refused",
    "Resolver",
    "Server",
    "Source",
    "WrongKey",
    "ZoneKeys",
    "host_of",
    "zone_keys",
]
