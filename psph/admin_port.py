"""The admin port of a process: /healthz, /metrics, and what its roles add.

One registry holds the metrics of everything that runs in the process, so there is one address to
scrape. It is for operators: nothing here is served on the public port.
"""

from __future__ import annotations

import platform
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack

from aiohttp import web
from prometheus_client import (
    CollectorRegistry,
    Gauge,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, Metric

from psph import __version__
from psph.configuration.addresses import parse_address
from push_hub.metrics import CONTENT_TYPE

ADMIN: web.AppKey[AdminPort] = web.AppKey("admin")


class AdminPort:
    """What a process tells its operator over HTTP."""

    def __init__(self) -> None:
        # When a counter was made is when the process began, which process metrics say once.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.metrics = CollectorRegistry()
        self.before_scrape: list[Callable[[], Awaitable[None]]] = []
        """What has to be asked before the metrics are read, such as a hub's store."""
        self.health: dict[str, Callable[[], str]] = {}
        """For each role what is the matter with it, in a word; "" when it does its work."""
        self.addresses: dict[str, str] = {}
        """Where the roles serve, by role: ports may be the system's choice."""
        self.app = web.Application()
        """Roles add their own paths."""
        self.app[ADMIN] = self
        self.app.router.add_get("/healthz", healthz)
        self.app.router.add_get("/metrics", metrics)
        ProcessCollector(registry=self.metrics)
        build = Gauge(
            "psph_build_info", "1; the labels say which psph runs, on which Python",
            ["version", "python"], registry=self.metrics,
        )  # fmt: skip
        build.labels(__version__, platform.python_version()).set(1)

    async def exposition(self) -> bytes:
        """All metrics of the process in Prometheus' text format."""
        for ask in self.before_scrape:
            await ask()
        return generate_latest(self.metrics)

    async def serve(self, listen: str, stack: AsyncExitStack) -> str:
        """Serve at HOST:PORT until the stack is left; the address, with the port that it got."""
        host, port = parse_address(listen)
        runner = web.AppRunner(self.app, access_log=None, shutdown_timeout=1)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, host, port).start()
        bound_host, bound_port = runner.addresses[0][:2]
        shown = f"[{bound_host}]" if ":" in bound_host else bound_host
        return f"{shown}:{bound_port}"


class PlainCounters:
    """Counters that their owner keeps as plain integers, read at a scrape.

    Cores import no metrics library, because the simulator runs them, and the link driver in C
    counts in an array. Their owners begin with every name at 0.
    """

    def __init__(
        self,
        name: str,
        meaning: str,
        read: Callable[[], Mapping[str, float]],
        label: str | None = "what",
    ) -> None:
        """`read` has the counts by the value of the label; a single one where there is none."""
        self._name = name
        self._meaning = meaning
        self._read = read
        self._label = label

    def collect(self) -> Iterable[Metric]:
        labels = [] if self._label is None else [self._label]
        family = CounterMetricFamily(self._name, self._meaning, labels=labels)
        for what, count in tuple(self._read().items()):
            family.add_metric([what] if labels else [], count)
        yield family


async def healthz(request: web.Request) -> web.Response:
    """200 once every role has taken up its work; else what each of them lacks."""
    admin = request.app[ADMIN]
    troubles = {role: ask() for role, ask in admin.health.items()}
    lacking = {role: trouble for role, trouble in troubles.items() if trouble}
    answer: dict[str, object] = {"status": "starting" if lacking else "ok", "version": __version__}
    if admin.addresses:
        answer["addresses"] = admin.addresses
    if lacking:
        answer["roles"] = lacking
    return web.json_response(answer, status=503 if lacking else 200)


async def metrics(request: web.Request) -> web.Response:
    """For Prometheus."""
    body = await request.app[ADMIN].exposition()
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})
