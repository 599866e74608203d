"""`psph serve`: the roles of a configuration, running in one process until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from psirp_sim.runtime.sqlite_storage import StorageError
from psph.configuration import NodeConfiguration
from psph.configuration.node import FABRIC_ROLES
from psph.errors import PsphError
from psph.roles.process import Process
from traces import LogEvent

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
    name = configuration.node.name
    try:
        async with AsyncExitStack() as stack:
            process = await start(configuration, directory, stack)
            ending = asyncio.create_task(stopped.wait())
            for wait in process.awaited:
                waiting = asyncio.ensure_future(wait())
                await asyncio.wait([waiting, ending], return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
            if not stopped.is_set():
                ready(process.admin)
                _log.info(LogEvent("node.started", node=name, admin=process.admin))
            await ending
            _log.info(LogEvent("node.stopping", node=name))
    except (OSError, StorageError, ValueError) as error:
        raise PsphError(f"node {name} cannot run: {error}") from error


async def start(
    configuration: NodeConfiguration, directory: Path, stack: AsyncExitStack
) -> Process:
    """Run the roles until the stack is left."""
    roles = configuration.node.roles
    if not roles:
        raise PsphError("the configuration names no role to run: set node.roles")
    process = Process(configuration, directory, stack)
    # In this order, because a role asks those before it. Each is loaded where it runs: a node that
    # only forwards starts a third sooner.
    if "dns" in roles:
        from psph.roles import dns

        assert configuration.dns is not None
        await dns.start(process, configuration.dns)
    if FABRIC_ROLES.intersection(roles):
        from psph.roles import fabric

        assert configuration.fabric is not None
        node = await fabric.start(process, configuration.fabric)
        if "proxy" in roles:
            from psph.roles import proxy

            await proxy.start(process, node)
    if "hub" in roles and "proxy" not in roles:
        from psph.roles import hub

        await hub.start(process, configuration.hub)
    process.admin = await process.serve(configuration.node.admin, stack)
    return process
