"""What a running node tells those who run it, over HTTP: health, metrics, status, captures.

It listens on the loopback interface unless configured otherwise, and says nothing secret; but a
capture shows what passes the node, so the port is for operators only. What changes something needs
the admin token.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import asdict

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from psirp_sim.node import FabricNode
from psirp_sim.rendezvous.server import RendezvousServer
from psirp_sim.runtime.asyncio_node import AsyncioNode
from psirp_sim.runtime.pcap import PcapWriter
from psph import __version__, admin_token

NODE: web.AppKey[AsyncioNode] = web.AppKey("node", AsyncioNode)
CORE: web.AppKey[FabricNode] = web.AppKey("core", FabricNode)
TOKEN: web.AppKey[str] = web.AppKey("token", str)
METRICS: web.AppKey[CollectorRegistry] = web.AppKey("metrics", CollectorRegistry)

CAPTURE_QUEUE = 4 << 20
"""Bytes of a capture that may wait for its reader; packets beyond that are left out."""


def create_app(node: AsyncioNode, core: FabricNode, token: str) -> web.Application:
    """The application of one fabric node."""
    app = web.Application()
    app[NODE], app[CORE], app[TOKEN] = node, core, token
    registry = app[METRICS] = CollectorRegistry()
    registry.register(FabricCollector(node, core))
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/fabric/status", status)
    app.router.add_get("/fabric/capture", capture)
    app.router.add_post("/rendezvous/drain", drain)
    app.router.add_post("/rendezvous/rejoin", rejoin)
    app.router.add_post("/rendezvous/remove/{server}", remove)
    return app


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


async def healthz(request: web.Request) -> web.Response:
    """200 once the node has taken up its work."""
    begun = request.app[CORE].begun
    return web.json_response(
        {"status": "ok" if begun else "starting", "version": __version__},
        status=200 if begun else 503,
    )


async def metrics(request: web.Request) -> web.Response:
    """Prometheus text format."""
    return web.Response(
        body=generate_latest(request.app[METRICS]),
        headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
    )


async def status(request: web.Request) -> web.Response:
    """What `psph fabric status` shows."""
    core, node = request.app[CORE], request.app[NODE]
    if not core.begun:
        raise web.HTTPServiceUnavailable(text="the node is starting\n")
    return web.json_response(
        core.status() | {"driver": node.driver_name, "socket": asdict(node.counters)}
    )


def _server(request: web.Request) -> RendezvousServer:
    """The rendezvous server an operator wants to change."""
    if not admin_token.shown(request.headers.get("Authorization", ""), request.app[TOKEN]):
        raise web.HTTPUnauthorized(text="this needs the node's admin token\n")
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
