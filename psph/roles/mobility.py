"""The mobility proxy of a hub that `psph serve` runs, and what the admin port says of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from aiohttp import web
from aiohttp.abc import AbstractResolver
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from bootstrap import Resolver
from mobility import PubSub
from mobility.ahead.preparation import Preparation
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
    process.metrics.register(MobilityCollector(proxy))
    process.app.router.add_get("/mobility/status", partial(_status, proxy))


async def _status(proxy: RunningProxy, request: web.Request) -> web.Response:
    return web.json_response(proxy.status())


class MobilityCollector:
    """The counters of a mobility proxy, read when Prometheus asks."""

    def __init__(self, proxy: RunningProxy) -> None:
        self._proxy = proxy

    def collect(self) -> Iterable[Metric]:
        proxy = self._proxy
        events = CounterMetricFamily(
            "psph_mobility_events", "What the mobility proxy did, and refused", labels=["what"]
        )
        for what, count in proxy.counters().items():
            events.add_metric([what], count)
        core = proxy.core
        if core is not None:
            for what, count in core.ahead.counters.items():
                events.add_metric([f"prepare_{what}"], count)
        yield events
        sessions = GaugeMetricFamily("psph_mobility_sessions", "Clients that are connected")
        sessions.add_metric([], len(proxy.sessions))
        yield sessions
        stays = GaugeMetricFamily(
            "psph_mobility_stays", "Stays that are kept, by state", labels=["state"]
        )
        handlers = () if core is None else tuple(core.handlers.values())
        for state in ("here", "away", "expired"):
            stays.add_metric([state], sum(each.state == state for each in handlers))
        yield stays
        waiting = GaugeMetricFamily(
            "psph_mobility_buffered_bytes", "What waits for clients that are away"
        )
        waiting.add_metric([], sum(each.buffer.bytes for each in handlers))
        yield waiting
        if core is not None:
            yield from _prepared(core.ahead)


def _prepared(ahead: Preparation) -> Iterable[Metric]:
    neighbours = GaugeMetricFamily(
        "psph_mobility_neighbours", "Proxies that clients move to and come from"
    )
    neighbours.add_metric([], len(ahead.neighbours.known))
    yield neighbours
    contexts = GaugeMetricFamily(
        "psph_mobility_contexts", "Contexts kept for other proxies, by state", labels=["state"]
    )
    active = ahead.contexts.active
    contexts.add_metric(["active"], active)
    contexts.add_metric(["passive"], len(ahead.contexts) - active)
    yield contexts
    size = GaugeMetricFamily(
        "psph_mobility_context_bytes", "Of these contexts, with what is buffered for them"
    )
    size.add_metric([], ahead.contexts.bytes)
    yield size
