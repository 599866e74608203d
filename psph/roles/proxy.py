"""The role `proxy`: a hub and a node of the fabric, and the proxy between them."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import asdict, replace
from functools import partial

from aiohttp import web
from prometheus_client import Gauge

from bootstrap import Resolver
from bootstrap.registration import Registrar
from psph.admin_port import PlainCounters
from psph.configuration.bootstrap import BootstrapConfiguration
from psph.configuration.hub import ProxyConfiguration
from psph.configuration.rendezvous import RendezvousConfiguration
from psph.directory import DnsDirectory
from psph.facades.carrier import ProxyCarrier
from psph.facades.chat import Users, add_chat
from psph.facades.hub import HubSide, web_update
from psph.facades.probe import add_probe
from psph.guide import SiblingHubs
from psph.mobility.fabric_port import FabricPort
from psph.mobility.native_routes import NativeRoutes
from psph.mobility.native_topics import NativeScopes, NativeTopics
from psph.proxy.control import Side
from psph.proxy.proxy import Proxy
from psph.proxy.settings import ProxySettings
from psph.registry import TopicRegistry
from psph.roles import hub as hub_role
from psph.roles.fabric import RunningNode
from psph.roles.joining import Joining
from psph.roles.process import Process
from push_hub import Hub
from traces import LogEvent

PROXY: web.AppKey[Proxy] = web.AppKey("proxy", Proxy)
_BEGINNING = 0.005
_WITHOUT_SERVERS = 10.0
"""Seconds that a rendezvous server is waited for."""

_log = logging.getLogger(__name__)


async def start(process: Process, running: RunningNode) -> None:
    """Join the fabric, serve the hub, and say so in DNS."""
    configuration, domain = process.configuration.proxy, process.configuration.node.domain
    bootstrap = process.configuration.bootstrap or BootstrapConfiguration()
    resolver = await process.stack.enter_async_context(Resolver(bootstrap.nameservers))
    joining = Joining(running.node, process.configuration.fabric, resolver, domain)
    process.stack.push_async_callback(joining.stop)
    while not running.core.begun:  # noqa: ASYNC110  (a core does not know who waits for it)
        await asyncio.sleep(_BEGINNING)
    registry = process.stack.enter_context(TopicRegistry(process.data / "topics.sqlite"))
    directory = DnsDirectory(resolver)
    process.stack.push_async_callback(directory.stop)
    settings = _settings(process, configuration, bootstrap)

    def started(started_hub: Hub) -> None:
        side = HubSide(started_hub)
        process.stack.push_async_callback(side.stop)
        proxy = Proxy(running.core.env, settings, running.core, registry, directory, side)
        directory.changed = proxy.zone_changed
        started_hub.listen(lambda update: proxy.recorded(web_update(update)))
        proxy.start()
        started_hub.carry(ProxyCarrier(proxy, configuration.admit_s))
        process.awaited.append(partial(_until_ready, proxy, process.configuration.rendezvous))
        _show(process, proxy, joining)

    keys = bootstrap.private_keys(process.directory)
    mobility = process.configuration.mobility
    scopes = NativeScopes(mobility.native_scopes)
    users = Users(settings.serves, keys, process.configuration.chat)

    def extend(app: web.Application) -> None:
        add_probe(app, domain)
        add_chat(app, users)
        if mobility.enabled:
            NativeRoutes(running.core, scopes, mobility).add(app)

    await hub_role.start(
        process,
        process.configuration.hub,
        started=started,
        extend=extend,
        siblings=SiblingHubs(resolver, domain, bootstrap.endpoint),
        records=resolver,
        ports=lambda hub, port: NativeTopics(FabricPort(running.core, scopes), port),
    )
    registration = bootstrap.registrar_settings(process.directory)
    if registration is not None:
        registrar = await process.stack.enter_async_context(Registrar(registration))
        process.app.router.add_get("/bootstrap/status", partial(_records, registrar))


async def _until_ready(proxy: Proxy, rendezvous: RendezvousConfiguration) -> None:
    """Until an update can cross at once; not for ever, as the hub serves its own domain without."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    while not proxy.is_ready:
        servers = proxy.node.status()["servers"]
        patience = 2 * rendezvous.writer_lease_s if servers else _WITHOUT_SERVERS
        if loop.time() > begun + patience:
            reason = "writer leases are not given" if servers else "no rendezvous server is reached"
            _log.warning(LogEvent("proxy.late", reason=reason))
            return
        await asyncio.sleep(_BEGINNING)


def _settings(
    process: Process, configuration: ProxyConfiguration, bootstrap: BootstrapConfiguration
) -> ProxySettings:
    settings = configuration.settings(process.configuration.node.domain)
    return replace(
        settings,
        key=bootstrap.signing_key(process.directory),
        priority=bootstrap.priority,
        weight=bootstrap.weight,
    )


def _show(process: Process, proxy: Proxy, joining: Joining) -> None:
    process.app[PROXY] = proxy
    meaning = "What the proxy did, and what it refused"
    process.metrics.register(PlainCounters("psph_proxy_events", meaning, lambda: proxy.counters))
    topics = Gauge(
        "psph_proxy_topics", "Topics with subscribers, by side", ["side"],
        registry=process.metrics,
    )  # fmt: skip
    for side in Side:
        topics.labels(side).set_function(partial(proxy.control.count, side))
    process.health["proxy"] = lambda: "" if proxy.begun else "starting"
    process.app.router.add_get("/proxy/status", partial(_status, proxy, joining))


async def _status(proxy: Proxy, joining: Joining, request: web.Request) -> web.Response:
    """What each topic is about, for operators."""
    answer = proxy.status() | {"joining": joining.state}
    if proxy.begun:
        # What is forged is dropped before the proxy hears of it.
        answer["publications"] = dict(proxy.node.client.counters)
    return web.json_response(answer)


async def _records(registrar: Registrar, request: web.Request) -> web.Response:
    """How it stands with our records in DNS."""
    return web.json_response({zone: asdict(state) for zone, state in registrar.state.items()})
