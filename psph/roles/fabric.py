"""The roles forwarder, topology and rendezvous: one node of the fabric."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from pathlib import Path

from psirp_sim.admission import Admission
from psirp_sim.node import FabricNode
from psirp_sim.runtime.asyncio_node import AsyncioNode
from psirp_sim.runtime.faults import FaultyNode
from psirp_sim.runtime.udp import UdpNode
from psph.configuration.addresses import parse_address
from psph.configuration.node import FabricConfiguration, LinkSettings
from psph.roles import fabric_admin
from psph.roles.process import Process
from traces import TraceSink

_LONGEST_BEGINNING = 10.0
"""Seconds."""


@dataclass(frozen=True)
class RunningNode:
    """The node's links and sockets, and the core that runs on them."""

    node: AsyncioNode
    core: FabricNode


async def start(process: Process, fabric: FabricConfiguration) -> RunningNode:
    """Take part in the fabric."""
    configuration = process.configuration
    node = _make_node(configuration.node.name, fabric, process.data, process.trace)
    node.power_safe = configuration.node.power_safe
    await process.stack.enter_async_context(node)
    if isinstance(node, UdpNode):
        for link in fabric.link:
            assert link.address is not None
            node.add_link(link.name, parse_address(link.address), **_mtu(link))
        for name, server in fabric.rendezvous_links().items():
            node.add_link(name, server)
    settings = fabric.settings(
        configuration.rendezvous.settings(), configuration.publications.settings()
    )
    roles = [role for role in configuration.node.roles if role in ("topology", "rendezvous")]
    core = node.run(
        lambda env: FabricNode(env, settings, roles=roles, domain=configuration.node.domain)
    )
    assert isinstance(core, FabricNode)
    if isinstance(node, UdpNode) and fabric.accept_links:
        node.accept_links(Admission(core, fabric.accept_links))
    await _begun(node)
    running = RunningNode(node, core)
    fabric_admin.add(process, running.node, running.core)
    return running


async def _begun(node: AsyncioNode) -> None:
    """Until the node has taken up its work, so that who is told "ready" finds it at work.

    A disk that does not let it begin is not waited for: the node's health tells the rest.
    """
    begun = asyncio.Event()
    # The node begins when its first write is durable, and writes are reported in order.
    node.storage.write({}, begun.set)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(begun.wait(), _LONGEST_BEGINNING)


def _make_node(name: str, fabric: FabricConfiguration, data: Path, trace: TraceSink) -> AsyncioNode:
    storage = data / "fabric.sqlite"
    if fabric.ethernet:
        from psirp_sim.runtime.ethernet import EthernetNode

        ethernet = EthernetNode(name, storage=storage, trace=trace)
        for link in fabric.link:
            assert link.interface is not None
            assert link.mac is not None
            ethernet.add_link(link.name, link.interface, link.mac, **_mtu(link))
        return ethernet
    assert fabric.listen is not None
    kind = FaultyNode if fabric.faults else UdpNode
    return kind(name, parse_address(fabric.listen), storage=storage, trace=trace)


def _mtu(link: LinkSettings) -> dict[str, int]:
    """Only where it is configured: each kind of link has a default of its own."""
    return {} if link.mtu is None else {"mtu": link.mtu}
