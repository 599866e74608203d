"""What a node of the fabric tells those who run it, over HTTP: metrics, status, captures.

It listens on the loopback interface unless configured otherwise, and says nothing secret; but a
capture shows what passes the node, so the port is for operators only. What changes something needs
the admin token.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict
from functools import partial
from typing import cast

from aiohttp import web
from prometheus_client import Gauge

from psirp_sim.node import FabricNode
from psirp_sim.rendezvous.server import RendezvousServer
from psirp_sim.runtime.asyncio_node import AsyncioNode
from psirp_sim.runtime.faults import FaultyNode
from psirp_sim.runtime.pcap import PcapWriter
from psph.admin_port import PlainCounters
from psph.roles import fabric_faults, fabric_tree
from psph.roles.process import PROCESS, Process

NODE: web.AppKey[AsyncioNode] = web.AppKey("node", AsyncioNode)
CORE: web.AppKey[FabricNode] = web.AppKey("core", FabricNode)

CAPTURE_QUEUE = 4 << 20
"""Bytes of a capture that may wait for its reader; packets beyond that are left out."""


def add(process: Process, node: AsyncioNode, core: FabricNode) -> None:
    """Show a node of the fabric at the admin port of its process."""
    app = process.app
    app[NODE], app[CORE] = node, core
    _measure(process, node, core)
    process.health["fabric"] = lambda: "" if core.begun else "starting"
    app.router.add_get("/fabric/status", status)
    app.router.add_get("/fabric/tree", partial(fabric_tree.tree, core))
    app.router.add_get("/fabric/capture", capture)
    if isinstance(node, FaultyNode):
        fabric_faults.add(process, node)
    app.router.add_post("/rendezvous/drain", drain)
    app.router.add_post("/rendezvous/rejoin", rejoin)
    app.router.add_post("/rendezvous/remove/{server}", remove)


_CONTROL = ("malformed", "wrong_key", "false_deliveries", "too_long")
_HELD = ("clients", "registrations", "scopes", "items", "untold_matches")


def _measure(process: Process, node: AsyncioNode, core: FabricNode) -> None:
    """Numbers that are read from the node at a scrape."""

    def publications() -> dict[str, int]:
        return dict(core.client.counters) if core.begun else {}

    def requests() -> dict[str, int]:
        return {} if core.server is None else dict(core.server.counters)

    registry = process.metrics
    for name, meaning, read in (
        ("forwarding", "Data packets, by what became of them", core.forwarding.as_dict),
        ("socket", "Events at the socket", lambda: asdict(node.counters)),
        (
            "control",
            "Control messages and deliveries that went wrong",
            lambda: {what: core.counters[what] for what in _CONTROL},
        ),
        (
            "publications",
            "Publications that came for listeners here, and why some were dropped",
            publications,
        ),
    ):
        registry.register(PlainCounters(f"psph_{name}", meaning, read))
    if "rendezvous" in core.roles:
        meaning = "Registrations by how they ended"
        registry.register(PlainCounters("psph_rendezvous_requests", meaning, requests, "code"))
        held = Gauge(
            "psph_rendezvous", "What the rendezvous server holds", ["what"], registry=registry
        )
    links = Gauge("psph_link_up", "Whether a link works both ways", ["link"], registry=registry)

    async def look_at_the_node() -> None:
        up = set(core.neighbours.up()) if core.begun else set()
        links.clear()  # those that were accepted end, too
        for link in node.links:
            links.labels(link).set(link in up)
        if core.server is not None:
            status = core.server.status()
            for what in _HELD:
                held.labels(what).set(cast("int", status[what]))

    process.before_scrape.append(look_at_the_node)


async def status(request: web.Request) -> web.Response:
    """What `psph fabric status` shows."""
    core, node = request.app[CORE], request.app[NODE]
    if not core.begun:
        raise web.HTTPServiceUnavailable(text="the node is starting\n")
    answer = core.status() | {"driver": node.driver_name, "socket": asdict(node.counters)}
    if isinstance(node, FaultyNode):
        answer["traffic"] = {link: asdict(node.traffic(link)) for link in node.links}
    return web.json_response(answer)


def _server(request: web.Request) -> RendezvousServer:
    """The rendezvous server an operator wants to change."""
    request.app[PROCESS].check_token(request)
    server = request.app[CORE].server
    if server is None:
        raise web.HTTPConflict(text="this node is no rendezvous server\n")
    return server


async def drain(request: web.Request) -> web.Response:
    """Clients go to the other servers, and the view without this one."""
    _server(request)
    try:
        request.app[CORE].drain()
    except ValueError as error:
        raise web.HTTPConflict(text=f"{error}\n") from error
    return web.json_response({"draining": True})


async def rejoin(request: web.Request) -> web.Response:
    """Take part again after having been drained."""
    _server(request)
    request.app[CORE].rejoin()
    return web.json_response({"draining": False})


async def remove(request: web.Request) -> web.Response:
    """Take a server that is gone for good out of the view."""
    server = _server(request)
    try:
        server.membership.remove(request.match_info["server"])
    except ValueError as error:
        raise web.HTTPConflict(text=f"{error}\n") from error
    return web.json_response({"removed": request.match_info["server"]})


async def capture(request: web.Request) -> web.StreamResponse:
    """Everything that passes the node from now on, as a pcap stream, until the client leaves."""
    node = request.app[NODE]
    if node.tap is not None:
        raise web.HTTPConflict(text="another capture is running at this node\n")
    chunks: asyncio.Queue[bytes] = asyncio.Queue()
    waiting = 0

    def write(chunk: bytes) -> None:
        nonlocal waiting
        if waiting + len(chunk) <= CAPTURE_QUEUE:
            waiting += len(chunk)
            chunks.put_nowait(chunk)

    writer = PcapWriter(write)

    def tap(outgoing: bool, link: str, packet: bytes) -> None:
        writer.packet(time.time_ns(), node.node, link, outgoing, packet)

    response = web.StreamResponse(headers={"Content-Type": "application/vnd.tcpdump.pcap"})
    node.tap = tap
    try:
        await response.prepare(request)
        while True:
            chunk = await chunks.get()
            while not chunks.empty():
                chunk += chunks.get_nowait()
            waiting -= len(chunk)
            await response.write(chunk)
    except ConnectionResetError:
        return response  # the client has what it wanted
    finally:
        node.tap = None
