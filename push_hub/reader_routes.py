"""GET /t/TOPIC: the latest version of a topic, byte for byte, for any reader.

It is a stranger's content at the hub's own address: no browser may run anything of it there.
"""

from __future__ import annotations

import re
from email.utils import formatdate
from typing import Final

from aiohttp import web

from identifiers import InvalidTopic
from push_hub.addresses import client_address, client_key
from push_hub.errors import BadRequest
from push_hub.fetching import passable_type
from push_hub.hub import Hub
from push_hub.keys import HUB
from push_hub.links import link_header
from push_hub.naming import PATH
from push_hub.readers import NoVersion
from push_hub.store.records import Version

MAX_AGE: Final = 10
"""Seconds for which caches need not ask again."""
_RETRY_AFTER: Final = 10
_ORIGIN: Final = re.compile(r"\A[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")


def add_readers(app: web.Application) -> None:
    """Add the route to the application of a hub."""
    app.router.add_get(PATH + "{topic:.+}", get_topic)


async def get_topic(request: web.Request) -> web.Response:
    """The latest version, or 304 to those who have it."""
    hub = request.app[HUB]
    rest = _rest(request)
    try:
        topic = hub.context.naming.read_at(rest)
    except InvalidTopic as refusal:
        raise BadRequest(f"topic: {refusal}") from None
    client = client_address(
        request.remote or "",
        request.headers.getall("X-Forwarded-For", ()),
        hub.settings.trusted_proxies,
    )
    try:
        record = await hub.readers.current(topic, client_key(client))
    except NoVersion as failure:
        text = f"there is no version of this topic yet: {failure}\n"
        headers = {"Retry-After": str(_RETRY_AFTER), "Cache-Control": "no-store"}
        return web.Response(status=504, text=text, headers=headers)
    latest = (await hub.store.versions(record.id, 2))[:2]
    hub.counters.add("reads")
    if latest and _has(request, latest):
        hub.counters.add("reads_unchanged")
        return web.Response(status=304, headers=_headers(hub, rest, latest[0]))
    update = await hub.store.latest(record.id)
    assert update is not None  # the latest is never forgotten
    now = Version(update.position, update.origin, update.content_type, 0, update.recorded_at)
    headers = _headers(hub, rest, now)
    headers["Content-Type"] = passable_type(update.content_type)
    return web.Response(body=update.body, headers=headers)


def _rest(request: web.Request) -> str:
    """What stands after /t/, exactly as it was sent."""
    resource = request.match_info.route.resource
    # With the path below which the application may be mounted.
    prefix = (resource.canonical if resource is not None else PATH).partition("{")[0]
    # A proxy's request may name the whole URL.
    path = _ORIGIN.sub("", request.raw_path, count=1)
    if not path.startswith(prefix):
        raise BadRequest(f"spell {prefix} without escapes")
    return path.removeprefix(prefix)


def _headers(hub: Hub, rest: str, version: Version) -> dict[str, str]:
    return {
        "ETag": f'"{version.position}"',
        "Last-Modified": formatdate(version.recorded_at, usegmt=True),
        "Cache-Control": f"public, max-age={MAX_AGE}",
        "Link": link_header(hub.settings.hub_url, hub.context.naming.address(rest)),
        "Access-Control-Allow-Origin": "*",
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "X-Content-Type-Options": "nosniff",
    }


def _has(request: web.Request, latest: list[Version]) -> bool:
    """Whether the client has the latest version."""
    if "If-None-Match" in request.headers:
        known = {each.value for each in request.if_none_match or ()}
        return bool(known & {"*", str(latest[0].position)})
    since = request.if_modified_since
    if since is None:
        return False
    seconds = [int(each.recorded_at) for each in latest]
    # Of two versions in one second the client may have the first.
    alone = len(seconds) == 1 or seconds[0] != seconds[1]
    return seconds[0] < since.timestamp() or (alone and seconds[0] == since.timestamp())
