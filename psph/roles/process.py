"""What the roles of one process share: its configuration, its data, and the admin port."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
from aiohttp import web
from prometheus_client import Gauge

from psph import admin_token
from psph.admin_port import AdminPort, PlainCounters
from psph.configuration import NodeConfiguration
from psph.trace_writer import BothSinks, RecentEvents, TraceCounters, TraceWriter
from traces import NullSink, TraceSink

PROCESS: web.AppKey[Process] = web.AppKey("process")


class Process(AdminPort):
    """A running `psph serve`. What a role starts it puts on the stack, to be ended in turn."""

    def __init__(
        self, configuration: NodeConfiguration, directory: Path, stack: AsyncExitStack
    ) -> None:
        super().__init__()
        self.configuration = configuration
        self.directory = directory
        """Relative paths of the configuration are relative to it."""
        self.stack = stack
        self.data = directory / configuration.node.data
        self.data.mkdir(parents=True, exist_ok=True)
        self.token = admin_token.keep(self.data)
        self.recent = RecentEvents(configuration.traces.recent)
        self.trace = self._trace_sink()
        self.awaited: list[Callable[[], Awaitable[None]]] = []
        """What roles wait for before the node is said to be ready."""
        self.admin = ""
        """The address of the admin port, once it is served."""
        self.app[PROCESS] = self
        if configuration.traces.recent:
            self.app.router.add_get("/traces/recent", recent_traces)

    def _trace_sink(self) -> TraceSink:
        settings, node = self.configuration.traces, self.configuration.node
        if settings.directory is None:
            return self.recent if settings.recent else NullSink()
        directory = self.directory / settings.directory
        settings = msgspec.structs.replace(settings, fsync=settings.fsync or node.power_safe)
        writer = TraceWriter(directory, node.name, node.domain, settings)
        self.stack.enter_context(writer)
        self._measure(writer)
        return BothSinks(writer, self.recent) if settings.recent else writer

    def _measure(self, writer: TraceWriter) -> None:
        def counted() -> dict[str, float]:
            counters = writer.counters
            return {what: getattr(counters, what) for what in _TRACES_COUNTED}

        meaning = "Trace events by what became of them; files, their bytes, and failed attempts"
        self.metrics.register(PlainCounters("psph_traces", meaning, counted))
        waiting = Gauge(
            "psph_traces_waiting", "Trace events not on disk yet", registry=self.metrics
        )
        waiting.set_function(lambda: writer.counters.waiting)

    def check_token(self, request: web.Request) -> None:
        """Refuse a request that would change something and does not show the admin token."""
        if not admin_token.shown(request.headers.get("Authorization", ""), self.token):
            raise web.HTTPUnauthorized(text="this needs the node's admin token\n")


_TRACES_COUNTED = tuple(what for what in TraceCounters.__struct_fields__ if what != "waiting")


async def recent_traces(request: web.Request) -> web.Response:
    """The trace events that came after a number; what was forgotten since then is counted."""
    after = request.query.get("after", "0")
    if not after.isdecimal() or len(after) > 18:
        raise web.HTTPBadRequest(text="after is the number of the last event you have\n")
    return web.json_response(request.app[PROCESS].recent.after(int(after)))
