"""Fetching a topic to learn which hubs it names and what it calls itself."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

import aiohttp
from aiohttp.abc import AbstractResolver

from push_hub.addresses import AddressPolicy
from push_hub.client.errors import NoHub
from push_hub.connecting import guarded_session
from push_hub.discovery import Discovery, discover
from push_hub.errors import FetchFailed
from push_hub.fetching import Fetched, fetch

MAX_BODY = 10 << 20
MAX_REDIRECTS = 5
USER_AGENT = "psph-client/0.1"

ANYWHERE = AddressPolicy(
    (ipaddress.IPv4Network("0.0.0.0/0"), ipaddress.IPv6Network("::/0")), "request", "policy"
)
"""For a program whose own user names the topics. Where strangers name them, pass a policy that
allows the public internet only: `AddressPolicy((), "fetch", "policy")`."""


@dataclass(frozen=True, slots=True)
class Found:
    """A topic that was fetched, and its links."""

    topic: str
    """What to subscribe to: rel=self or, where there is none, the URL that was asked for."""
    links: Discovery
    fetched: Fetched


def client_session(
    policy: AddressPolicy, timeout: float, resolver: AbstractResolver | None = None
) -> aiohttp.ClientSession:
    """A session for a client of hubs."""
    return guarded_session(policy, connections=8, timeout=timeout, resolver=resolver)


async def find(session: aiohttp.ClientSession, policy: AddressPolicy, url: str) -> Found:
    """Fetch a topic and read its links; a FetchFailed says why not."""
    fetched = await fetch(
        session,
        policy,
        url,
        etag=None,
        last_modified=None,
        user_agent=USER_AGENT,
        max_body=MAX_BODY,
        max_redirects=MAX_REDIRECTS,
    )
    links = discover(fetched.url, fetched.links, fetched.content_type, fetched.body or b"")
    return Found(links.self_url or url, links, fetched)


async def find_hubs(session: aiohttp.ClientSession, policy: AddressPolicy, url: str) -> Found:
    """As `find`, for a topic that has to name a hub: a NoHub or FetchFailed says what is wrong."""
    try:
        found = await find(session, policy, url)
    except FetchFailed as failure:
        raise FetchFailed(f"{url} cannot be fetched: {failure}") from failure
    if not found.links.hubs:
        offered = found.links.alternates
        hint = f"; it offers the feed {offered[0]}" if offered else ""
        raise NoHub(f"{url} names no hub (rel=hub){hint}: give one, or see `psph check {url}`")
    return found
