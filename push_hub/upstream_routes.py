"""Where other hubs reach this one as their subscriber: verification and pushes.

The last part of the path is a secret shared with one hub for one topic.
"""

from __future__ import annotations

from aiohttp import web

from push_hub.keys import HUB
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
    if not await hub.upstream.push(token, request.headers.get("X-Hub-Signature", ""), body):
        raise web.HTTPGone(text="nobody here follows that any more\n")
    # Also to a wrong signature: whoever forges learns nothing.
    return web.Response(status=202)
