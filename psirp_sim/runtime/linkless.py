"""Cores without links under asyncio: clock, timers, storage and traces of a node, and no packets.

For a core that is reached otherwise, over HTTP for one: whoever serves it calls its methods from
the event loop.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from psirp_sim.runtime.asyncio_node import AsyncioNode


class LinklessNode(AsyncioNode):
    """Implements `environment.Environment` for one core."""

    def call_core(self, call: Callable[..., None], *args: object) -> None:
        """Call the core from outside; what it raises is counted and logged, as ever."""
        self._guard(call, *args)

    async def _open_socket(self) -> socket.socket:
        # Bound to nothing, so that nothing can arrive.
        return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def _drain(self) -> None:
        self._loop.remove_reader(self._socket)
