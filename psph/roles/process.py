"""What the roles of one process share: its configuration, its data, and the admin port."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

from psph import __version__, admin_token
from psph.configuration import NodeConfiguration
from psph.trace_writer import BothSinks, RecentEvents, TraceWriter
from traces import NullSink, TraceSink

PROCESS: web.AppKey[Process] = web.AppKey("process")


class Process:
    """A running `psph serve`. What a role starts it puts on the stack, to be ended in turn."""

    def __init__(
        self, configuration: NodeConfiguration, directory: Path, stack: AsyncExitStack
    ) -> None:
        self.configuration = configuration
        self.directory = directory
        """Relative paths of the configuration are relative to it."""
        self.stack = stack
        self.data = directory / configuration.node.data
        self.data.mkdir(parents=True, exist_ok=True)
        self.token = admin_token.keep(self.data)
        self.recent = RecentEvents(configuration.traces.recent)
        self.trace = self._trace_sink()
        self.metrics = CollectorRegistry()
        self.health: dict[str, Callable[[], str]] = {}
        """For each role what is the matter with it, in a word; "" when it does its work."""
        self.awaited: list[Callable[[], Awaitable[None]]] = []
        """What roles wait for before the node is said to be ready."""
        self.admin = ""
        """The address of the admin port, once it is served."""
        self.addresses: dict[str, str] = {}
        """Where the roles serve, by role: ports may be the system's choice."""
        self.app = web.Application()
        """Of the admin port; roles add their own paths."""
        self.app[PROCESS] = self
        self.app.router.add_get("/healthz", healthz)
        self.app.router.add_get("/metrics", metrics)
        if configuration.traces.recent:
            self.app.router.add_get("/traces/recent", recent_traces)

    def _trace_sink(self) -> TraceSink:
        settings, node = self.configuration.traces, self.configuration.node
        if settings.directory is None:
            return self.recent if settings.recent else NullSink()
        writer = TraceWriter(self.directory / settings.directory, node.name, node.domain, settings)
        self.stack.enter_context(writer)
        return BothSinks(writer, self.recent) if settings.recent else writer

    def check_token(self, request: web.Request) -> None:
        """Refuse a request that would change something and does not show the admin token."""
        if not admin_token.shown(request.headers.get("Authorization", ""), self.token):
            raise web.HTTPUnauthorized(text="this needs the node's admin token\n")


async def healthz(request: web.Request) -> web.Response:
    """200 once every role has taken up its work; else what each of them lacks."""
    troubles = {role: ask() for role, ask in request.app[PROCESS].health.items()}
    lacking = {role: trouble for role, trouble in troubles.items() if trouble}
    answer: dict[str, object] = {"status": "starting" if lacking else "ok", "version": __version__}
    if addresses := request.app[PROCESS].addresses:
        answer["addresses"] = addresses
    if lacking:
        answer["roles"] = lacking
    return web.json_response(answer, status=503 if lacking else 200)


async def recent_traces(request: web.Request) -> web.Response:
    """The trace events that came after a number; what was forgotten since then is counted."""
    after = request.query.get("after", "0")
    if not after.isdecimal() or len(after) > 18:
        raise web.HTTPBadRequest(text="after is the number of the last event you have\n")
    return web.json_response(request.app[PROCESS].recent.after(int(after)))


async def metrics(request: web.Request) -> web.Response:
    """Prometheus text format."""
    return web.Response(
        body=generate_latest(request.app[PROCESS].metrics),
        headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
    )
