"""The admin port of a node with `fabric.faults`: links are cut and mended here."""

from __future__ import annotations

import msgspec
from aiohttp import web

from psirp_sim.runtime.faults import FaultyNode
from psph.roles.process import PROCESS, Process

FAULTY: web.AppKey[FaultyNode] = web.AppKey("faulty", FaultyNode)


class LinkWish(msgspec.Struct, forbid_unknown_fields=True):
    """What is to become of a link."""

    up: bool


def add(process: Process, node: FaultyNode) -> None:
    """Let operators cut the links of a node."""
    process.app[FAULTY] = node
    process.app.router.add_post("/fabric/links/{link}", change)


async def change(request: web.Request) -> web.Response:
    """`{"up": false}` cuts a link, `{"up": true}` mends it; needs the admin token."""
    request.app[PROCESS].check_token(request)
    link = request.match_info["link"]
    try:
        wish = msgspec.json.decode(await request.read(), type=LinkWish)
    except msgspec.DecodeError as error:
        raise web.HTTPBadRequest(text=f"{error}\n") from None
    try:
        request.app[FAULTY].cut(link, not wish.up)
    except KeyError:
        raise web.HTTPNotFound(text=f"this node has no link {link[:80]!r}\n") from None
    return web.json_response({"link": link, "cut": not wish.up})
