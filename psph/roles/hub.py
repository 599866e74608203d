"""The role `hub`: a WebSub hub, alone or with a proxy behind it."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from bootstrap.http_resolver import ZoneResolver
from psph.configuration.addresses import parse_address
from psph.configuration.hub import HubConfiguration
from psph.hub_serving import be_quick, serving
from psph.roles.process import Process
from push_hub import Hub, create_app
from push_hub.siblings import Siblings


async def start(
    process: Process,
    configuration: HubConfiguration,
    *,
    started: Callable[[Hub], None] = lambda hub: None,
    extend: Callable[[web.Application], None] = lambda app: None,
    siblings: Siblings | None = None,
) -> None:
    """Serve a hub. `started` gets it before anything is served, `extend` may add paths,
    `siblings` knows the other hubs of the domain."""
    be_quick()
    node = process.configuration.node
    resolver = None
    if configuration.dns_zones and process.configuration.bootstrap is not None:
        resolver = ZoneResolver(
            configuration.dns_zones, process.configuration.bootstrap.nameservers
        )
        process.stack.push_async_callback(resolver.close)

    def make(url: str) -> web.Application:
        app = create_app(
            configuration.settings(url, process.token),
            process.data,
            trace=process.trace,
            node=node.name,
            domain=node.domain,
            resolver=resolver,
            started=started,
            siblings=siblings,
        )
        extend(app)
        return app

    host, port = parse_address(configuration.listen)
    process.addresses["hub"] = await process.stack.enter_async_context(serving(host, port, make))
