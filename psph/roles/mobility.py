"""The mobility proxy of a hub that `psph serve` runs, and what the admin port says of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from aiohttp import web
from aiohttp.abc import AbstractResolver
from prometheus_client import CollectorRegistry, Gauge

from bootstrap import Resolver
from mobility import PubSub
from mobility.proxy import MobilityProxy
from psph.admin_port import PlainCounters
from psph.mobility.hub_port import HubPort
from psph.mobility.proxy import RunningProxy
from psph.roles.process import Process
from push_hub.hub import Hub


def add(
    process: Process,
    app: web.Application,
    public_url: str,
    *,
    records: Resolver | None,
    names: AbstractResolver | None,
    ports: Callable[[Hub, HubPort], PubSub] = lambda hub, port: port,
) -> None:
    """Serve clients that move at the hub of this application."""
    settings, node = process.configuration.mobility, process.configuration.node
    if not settings.enabled:
        return
    proxy = RunningProxy(
        settings,
        node=node.name,
        domain=node.domain,
        storage=process.data / "mobility.sqlite",
        trace=process.trace,
        # A hub that never had a version asks its publisher's node in the fabric.
        history=process.configuration.publications.settings().history_versions,
        power_safe=node.power_safe,
        records=records,
        names=names,
        ports=ports,
    )
    proxy.add(app, public_url)
    process.health["mobility"] = lambda: "" if proxy.core is not None else "starting"
    _measure(process.metrics, proxy)
    process.app.router.add_get("/mobility/status", partial(_status, proxy))


async def _status(proxy: RunningProxy, request: web.Request) -> web.Response:
    return web.json_response(proxy.status())


def _measure(registry: CollectorRegistry, proxy: RunningProxy) -> None:
    """Numbers that are read from the proxy at a scrape; 0 while its core has not begun."""

    def events() -> dict[str, float]:
        core = proxy.core
        ahead = {} if core is None else core.ahead.counters
        prepared = {f"prepare_{what}": count for what, count in ahead.items()}
        return {**proxy.counters(), **prepared}

    def gauge(name: str, meaning: str, read: Callable[[MobilityProxy], int], **label: str) -> None:
        gauges = by_name.get(name)
        if gauges is None:
            gauges = by_name[name] = Gauge(
                f"psph_mobility_{name}", meaning, tuple(label), registry=registry
            )
        child = gauges.labels(**label) if label else gauges
        child.set_function(lambda: 0 if proxy.core is None else read(proxy.core))

    def stays(state: str, core: MobilityProxy) -> int:
        return sum(each.state == state for each in core.handlers.values())

    by_name: dict[str, Gauge] = {}
    meaning = "What the mobility proxy did, and refused"
    registry.register(PlainCounters("psph_mobility_events", meaning, events))
    gauge("sessions", "Clients that are connected", lambda core: len(proxy.sessions))
    for state in ("here", "away", "expired"):
        gauge("stays", "Stays that are kept, by state", partial(stays, state), state=state)
    gauge(
        "buffered_bytes",
        "What waits for clients that are away",
        lambda core: sum(each.buffer.bytes for each in core.handlers.values()),
    )
    gauge(
        "neighbours",
        "Proxies that clients move to and come from",
        lambda core: len(core.ahead.neighbours.known),
    )
    meaning = "Contexts kept for other proxies, by state"
    gauge("contexts", meaning, lambda core: core.ahead.contexts.active, state="active")
    gauge(
        "contexts",
        meaning,
        lambda core: len(core.ahead.contexts) - core.ahead.contexts.active,
        state="passive",
    )
    gauge(
        "context_bytes",
        "Of these contexts, with what is buffered for them",
        lambda core: core.ahead.contexts.bytes,
    )
