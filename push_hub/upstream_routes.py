"""Where other hubs reach this one as their subscriber: verification and pushes.

The last part of the path is a secret shared with one hub for one topic.
"""

from __future__ import annotations

from aiohttp import web

from identifiers import InvalidPosition, Position
from push_hub.distribution import POSITION_HEADER
from push_hub.errors import NotYet
from push_hub.fetching import passable_type
from push_hub.keys import HUB
from push_hub.upstream import Push
from push_hub.upstream_asking import PATH


def add_upstream(app: web.Application) -> None:
    """Add the routes to the application of a hub."""
    path = PATH + "{token:[A-Za-z0-9_-]{1,64}}"
    app.router.add_get(path, get_verification)
    app.router.add_post(path, post_push)


async def get_verification(request: web.Request) -> web.Response:
    """A hub asks whether we meant to subscribe, or says that it will not have us."""
    query = request.query
    answer = await request.app[HUB].upstream.verify(
        request.match_info["token"],
        query.get("hub.mode", ""),
        query.get("hub.topic", ""),
        query.get("hub.challenge", ""),
        query.get("hub.lease_seconds", ""),
        query.get("hub.reason", ""),
    )
    if answer is None:
        raise web.HTTPNotFound(text="this hub did not ask for that\n")
    return web.Response(text=answer, headers={"X-Content-Type-Options": "nosniff"})


async def post_push(request: web.Request) -> web.Response:
    """A hub says that a topic changed. 410 tells it that nobody here wants to know."""
    hub = request.app[HUB]
    token = request.match_info["token"]
    # Before the body is read: only those who know a token may make us read megabytes.
    if await hub.store.following_by_token(token) is None:
        raise web.HTTPGone(text="nobody here follows that any more\n")
    body = await request.read()  # bounded by the application's client_max_size
    push = Push(body, passable_type(request.headers.get("Content-Type")), _position(request))
    try:
        wanted = await hub.upstream.push(token, request.headers.get("X-Hub-Signature", ""), push)
    except NotYet as reason:
        later = {"Retry-After": "2"}
        raise web.HTTPServiceUnavailable(text=f"{reason}\n", headers=later) from None
    if not wanted:
        raise web.HTTPGone(text="nobody here follows that any more\n")
    # Also to a wrong signature: whoever forges learns nothing.
    return web.Response(status=202)


def _position(request: web.Request) -> Position | None:
    """Of the update, if the other hub says it in a way that can be stored."""
    try:
        position = Position.parse(request.headers.get(POSITION_HEADER, ""))
    except InvalidPosition:
        return None
    return position if max(position.epoch, position.version) < 1 << 63 else None
