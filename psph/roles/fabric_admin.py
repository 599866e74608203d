"""What a node of the fabric tells those who run it, over HTTP: metrics, status, captures.

It listens on the loopback interface unless configured otherwise, and says nothing secret; but a
capture shows what passes the node, so the port is for operators only. What changes something needs
the admin token.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import asdict
from functools import partial

from aiohttp import web
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from psirp_sim.node import FabricNode
from psirp_sim.rendezvous.server import RendezvousServer
from psirp_sim.runtime.asyncio_node import AsyncioNode
from psirp_sim.runtime.faults import FaultyNode
from psirp_sim.runtime.pcap import PcapWriter
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
    process.metrics.register(FabricCollector(node, core))
    process.health["fabric"] = lambda: "" if core.begun else "starting"
    app.router.add_get("/fabric/status", status)
    app.router.add_get("/fabric/tree", partial(fabric_tree.tree, core))
    app.router.add_get("/fabric/capture", capture)
    if isinstance(node, FaultyNode):
        fabric_faults.add(process, node)
    app.router.add_post("/rendezvous/drain", drain)
    app.router.add_post("/rendezvous/rejoin", rejoin)
    app.router.add_post("/rendezvous/remove/{server}", remove)


class FabricCollector:
    """The counters of a node, read when Prometheus asks."""

    def __init__(self, node: AsyncioNode, core: FabricNode) -> None:
        self._node = node
        self._core = core

    def collect(self) -> Iterable[Metric]:
        links = GaugeMetricFamily("psph_link_up", "Whether a link works both ways", labels=["link"])
        up = set(self._core.neighbours.up()) if self._core.begun else set()
        for link in self._node.links:
            links.add_metric([link], link in up)
        yield links
        events = CounterMetricFamily(
            "psph_forwarding", "Data packets, by what became of them", labels=["what"]
        )
        for what, count in self._core.forwarding.as_dict().items():
            events.add_metric([what], count)
        yield events
        packets = CounterMetricFamily("psph_socket", "Events at the socket", labels=["what"])
        for what in asdict(self._node.counters):
            packets.add_metric([what], getattr(self._node.counters, what))
        yield packets
        yield from self._rendezvous()
        control = CounterMetricFamily(
            "psph_control", "Control messages and deliveries that went wrong", labels=["what"]
        )
        for what in ("malformed", "wrong_key", "false_deliveries"):
            control.add_metric([what], self._core.counters[what])
        yield control
        if not self._core.begun:
            return
        publications = CounterMetricFamily(
            "psph_publications",
            "Publications that came for listeners here, and why some were dropped",
            labels=["what"],
        )
        for what, count in list(self._core.client.counters.items()):
            publications.add_metric([what], count)
        yield publications

    def _rendezvous(self) -> Iterable[Metric]:
        server = self._core.server
        if server is None:
            return
        held = GaugeMetricFamily(
            "psph_rendezvous", "What the rendezvous server holds", labels=["what"]
        )
        status = server.status()
        for what in ("clients", "registrations", "scopes", "items", "untold_matches"):
            value = status[what]
            assert isinstance(value, int)
            held.add_metric([what], value)
        yield held
        requests = CounterMetricFamily(
            "psph_rendezvous_requests", "Registrations by how they ended", labels=["code"]
        )
        for code, count in server.counters.items():
            requests.add_metric([code], count)
        yield requests


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
