"""`psph serve`: the roles of a configuration, running in one process until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from aiohttp import web

from psirp_sim.admission import Admission
from psirp_sim.node import FabricNode
from psirp_sim.runtime.asyncio_node import AsyncioNode
from psirp_sim.runtime.sqlite_storage import StorageError
from psirp_sim.runtime.udp import UdpNode
from psph import admin, admin_token
from psph.configuration import NodeConfiguration
from psph.configuration.addresses import parse_address
from psph.configuration.node import FabricConfiguration, LinkSettings
from psph.errors import PsphError
from psph.trace_writer import TraceWriter
from traces import NullSink, TraceSink

_log = logging.getLogger(__name__)


async def serve(
    configuration: NodeConfiguration, directory: Path, ready: Callable[[str], None]
) -> None:
    """Run until SIGINT or SIGTERM. `ready` gets the address of the admin port.

    Relative paths of the configuration are relative to the directory.
    """
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    try:
        async with AsyncExitStack() as stack:
            address = await _start(configuration, directory, stack)
            ready(address)
            await stopped.wait()
            _log.info("stopping")
    except (OSError, StorageError, ValueError) as error:
        raise PsphError(f"node {configuration.node.name} cannot run: {error}") from error


async def _start(configuration: NodeConfiguration, directory: Path, stack: AsyncExitStack) -> str:
    fabric = configuration.fabric
    if fabric is None or not configuration.node.roles:
        raise PsphError("the configuration names no role to run: set node.roles")
    data = directory / configuration.node.data
    data.mkdir(parents=True, exist_ok=True)
    trace = _trace_sink(configuration, directory, stack)
    node = _make_node(configuration, fabric, data, trace)
    node.power_safe = configuration.node.power_safe
    await stack.enter_async_context(node)
    if isinstance(node, UdpNode):
        for link in fabric.link:
            assert link.address is not None
            node.add_link(link.name, parse_address(link.address), **_mtu(link))
        for name, server in fabric.rendezvous_links().items():
            node.add_link(name, server)
    settings = fabric.settings(
        configuration.rendezvous.settings(), configuration.publications.settings()
    )
    roles = [role for role in configuration.node.roles if role != "forwarder"]
    core = node.run(
        lambda env: FabricNode(env, settings, roles=roles, domain=configuration.node.domain)
    )
    assert isinstance(core, FabricNode)
    if isinstance(node, UdpNode) and fabric.accept_links:
        node.accept_links(Admission(core, fabric.accept_links))
    app = admin.create_app(node, core, admin_token.keep(data))
    return await _serve_admin(app, configuration.node.admin, stack)


def _make_node(
    configuration: NodeConfiguration, fabric: FabricConfiguration, data: Path, trace: TraceSink
) -> AsyncioNode:
    name, storage = configuration.node.name, data / "fabric.sqlite"
    if fabric.ethernet:
        from psirp_sim.runtime.ethernet import EthernetNode

        ethernet = EthernetNode(name, storage=storage, trace=trace)
        for link in fabric.link:
            assert link.interface is not None
            assert link.mac is not None
            ethernet.add_link(link.name, link.interface, link.mac, **_mtu(link))
        return ethernet
    assert fabric.listen is not None
    return UdpNode(name, parse_address(fabric.listen), storage=storage, trace=trace)


def _mtu(link: LinkSettings) -> dict[str, int]:
    """Only where it is configured: each kind of link has a default of its own."""
    return {} if link.mtu is None else {"mtu": link.mtu}


def _trace_sink(
    configuration: NodeConfiguration, directory: Path, stack: AsyncExitStack
) -> TraceSink:
    settings = configuration.traces
    if settings.directory is None:
        return NullSink()
    node = configuration.node
    writer = TraceWriter(directory / settings.directory, node.name, node.domain, settings)
    return stack.enter_context(writer)


async def _serve_admin(app: web.Application, listen: str, stack: AsyncExitStack) -> str:
    host, port = parse_address(listen)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, host, port).start()
    bound_host, bound_port = runner.addresses[0][:2]
    shown = f"[{bound_host}]" if ":" in bound_host else bound_host
    return f"{shown}:{bound_port}"
