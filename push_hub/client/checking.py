"""Looking at a topic as a hub and its subscribers would. Nothing is changed anywhere."""

from __future__ import annotations

import asyncio

import aiohttp

from push_hub.addresses import AddressPolicy
from push_hub.client import checks
from push_hub.client.asking import ask, ping
from push_hub.client.checks import Finding
from push_hub.client.errors import HubRefused
from push_hub.client.finding import Found, find
from push_hub.errors import FetchFailed

_MAX_HUBS = 5


async def check(
    session: aiohttp.ClientSession, policy: AddressPolicy, url: str, *, pinging: bool = False
) -> list[Finding]:
    """Everything that can be said about the topic at the URL; with `pinging`, also ping its hub."""
    try:
        found = await find(session, policy, url)
    except FetchFailed as failure:
        return [checks.unreachable(f"{url}: {failure}")]
    size = len(found.fetched.body or b"")
    findings = [
        Finding("fetch", checks.Verdict.OK, f"200, {size} bytes"),
        checks.redirects(url, found),
        await asyncio.to_thread(checks.content_type, found),
        checks.validators(found),
        checks.hub_links(found),
        await _self(session, policy, url, found),
    ]
    if disagreement := checks.agreement(found):
        findings.append(disagreement)
    for hub in found.links.hubs[:_MAX_HUBS]:
        findings.append(await _hub(session, policy, hub))
        if pinging:
            findings.append(await _ping(session, policy, hub, found.topic))
    return findings


async def _self(
    session: aiohttp.ClientSession, policy: AddressPolicy, url: str, found: Found
) -> Finding:
    own = found.links.self_url
    if own is None or own in (url, found.fetched.url):
        return checks.self_link(found, None)
    try:
        other = await find(session, policy, own)
    except FetchFailed as failure:
        return checks.self_link(found, False, f"which cannot be fetched: {failure}")
    if other.links.self_url != own:
        return checks.self_link(found, False, "which does not name itself in turn")
    return checks.self_link(found, True)


async def _hub(session: aiohttp.ClientSession, policy: AddressPolicy, hub: str) -> Finding:
    try:
        return checks.hub_answer(hub, await ask(session, policy, hub, [("hub.mode", "")]))
    except HubRefused as refusal:
        return checks.hub_answer(hub, None, str(refusal))


async def _ping(
    session: aiohttp.ClientSession, policy: AddressPolicy, hub: str, topic: str
) -> Finding:
    try:
        return checks.ping_answer(hub, topic, await ping(session, policy, hub, topic))
    except HubRefused as refusal:
        return checks.ping_answer(hub, topic, None, str(refusal))
