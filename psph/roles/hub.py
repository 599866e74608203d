"""The role `hub`: a WebSub hub, alone or with a proxy behind it."""

from __future__ import annotations

import gc
import socket
import sys
from collections.abc import Callable

from aiohttp import web

from bootstrap.http_resolver import ZoneResolver
from psph.configuration.addresses import parse_address
from psph.configuration.hub import HubConfiguration
from psph.errors import PsphError
from psph.roles.process import Process
from push_hub import Hub, create_app
from push_hub.errors import StoreError


async def start(
    process: Process,
    configuration: HubConfiguration,
    *,
    started: Callable[[Hub], None] = lambda hub: None,
    extend: Callable[[web.Application], None] = lambda app: None,
) -> str:
    """Serve a hub; its URL. `started` gets the hub before anything is served, `extend` may add
    paths."""
    be_quick()
    node = process.configuration.node
    host, port = parse_address(configuration.listen)
    # Bound before the hub starts, because its links name the port.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, port), family=family, backlog=1024)
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{listening.getsockname()[1]}"
    resolver = None
    if configuration.dns_zones and process.configuration.bootstrap is not None:
        resolver = ZoneResolver(
            configuration.dns_zones, process.configuration.bootstrap.nameservers
        )
        process.stack.push_async_callback(resolver.close)
    app = create_app(
        configuration.settings(url, process.token),
        process.data,
        trace=process.trace,
        node=node.name,
        domain=node.domain,
        resolver=resolver,
        started=started,
    )
    extend(app)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=2)
    process.stack.push_async_callback(runner.cleanup)
    try:
        await runner.setup()
    except StoreError as error:
        listening.close()
        raise PsphError(f"the hub cannot run: {error}") from error
    await web.SockSite(runner, listening).start()
    process.addresses["hub"] = url
    return url


def be_quick() -> None:
    """Settings of the interpreter that suit a hub."""
    # The store's thread lets go of the interpreter with every statement; by default it waits 5 ms
    # for a busy event loop to hand it back.
    sys.setswitchinterval(0.0005)
    # A delivery makes and drops hundreds of objects, hardly any of them in cycles.
    gc.freeze()
    gc.set_threshold(20_000, 50, 50)
