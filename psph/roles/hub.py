"""The role `hub`: a WebSub hub, alone or with a proxy behind it."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from bootstrap import Resolver
from bootstrap.http_resolver import ZoneResolver
from mobility import PubSub
from psph.configuration.addresses import parse_address
from psph.configuration.hub import HubConfiguration
from psph.hub_serving import be_quick, serving
from psph.mobility.hub_port import HubPort
from psph.roles import mobility
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
    records: Resolver | None = None,
    ports: Callable[[Hub, HubPort], PubSub] = lambda hub, port: port,
) -> None:
    """Serve a hub. `started` gets it before anything is served, `extend` may add paths,
    `siblings` knows the other hubs of the domain. `records` and `ports` are for its mobility
    proxy: where PSPHs are found, and what it subscribes at besides the hub."""
    be_quick()
    node = process.configuration.node
    resolver = None
    if configuration.dns_zones and process.configuration.bootstrap is not None:
        resolver = ZoneResolver(
            configuration.dns_zones, process.configuration.bootstrap.nameservers
        )
        process.stack.push_async_callback(resolver.close)

    def hub_started(hub: Hub) -> None:
        process.before_scrape.append(hub.refresh_metrics)
        started(hub)

    def make(url: str) -> web.Application:
        settings = configuration.settings(url, process.token)
        app = create_app(
            settings,
            process.data,
            trace=process.trace,
            node=node.name,
            domain=node.domain,
            resolver=resolver,
            started=hub_started,
            siblings=siblings,
            registry=process.metrics,
            power_safe=node.power_safe,
        )
        extend(app)
        mobility.add(
            process, app, settings.public_url, records=records, names=resolver, ports=ports
        )
        return app

    host, port = parse_address(configuration.listen)
    process.addresses["hub"] = await process.stack.enter_async_context(serving(host, port, make))
