"""Joining a fabric that is known by its domain only: DNS says where its rendezvous servers are."""

from __future__ import annotations

import asyncio
import logging

from bootstrap import BootstrapError, Endpoint, Resolver
from psirp_sim.runtime.accepting import link_name
from psirp_sim.runtime.asyncio_node import AsyncioNode
from psirp_sim.runtime.udp import UdpNode
from psph.configuration.node import FabricConfiguration
from traces import LogEvent

_log = logging.getLogger(__name__)

_RETRY = 1.0
_LONGEST = 300.0
_MOST = 16
"""Rendezvous servers that are linked to; the fabric leads to the others."""


class Joining:
    """Makes a link to every rendezvous server in DNS, also to those that come later.

    A node whose configuration names links or servers needs none of it.
    """

    def __init__(
        self,
        node: AsyncioNode,
        fabric: FabricConfiguration | None,
        resolver: Resolver,
        domain: str,
    ) -> None:
        self._node = node
        self._resolver = resolver
        self._domain = domain
        self.state = "the configuration names the links"
        self._task: asyncio.Task[None] | None = None
        configured = fabric is not None and (fabric.link or fabric.rendezvous)
        if not configured and isinstance(node, UdpNode):
            self.state = "looking for rendezvous servers"
            self._task = asyncio.create_task(self._keep_joined(node))

    async def stop(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _keep_joined(self, node: UdpNode) -> None:
        while True:
            try:
                found = await self._resolver.find(self._domain)
                pause = min(max(found.expires_in, _RETRY), _LONGEST)
                self._link(node, self._resolver.order(found.rendezvous))
            except BootstrapError as error:
                pause, self.state = _RETRY, f"no rendezvous server found: {error}"
                _log.warning(
                    LogEvent("rendezvous.lookup_failed", domain=self._domain, reason=error)
                )
            await asyncio.sleep(pause)

    def _link(self, node: UdpNode, servers: list[Endpoint]) -> None:
        for server in servers:
            for address in server.addresses:
                name = link_name("rv", address, server.port)
                if name not in node.links and len(node.links) < _MOST:
                    node.add_link(name, (address, server.port))
                    _log.info(LogEvent("link.added", link=name))
        self.state = f"linked to {len(node.links)} rendezvous servers found in DNS"
        if not node.links:
            self.state = f"DNS names no rendezvous server for {self._domain}"
