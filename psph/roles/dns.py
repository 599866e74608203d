"""The role `dns`: the embedded name server, and what the admin port says of it."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from bootstrap.server.keeping import KeepingError
from bootstrap.server.serving import NameServer
from psph.configuration.dns import DnsConfiguration
from psph.errors import PsphError
from psph.roles.process import Process


async def start(process: Process, dns: DnsConfiguration) -> NameServer:
    """Serve the zones of the configuration."""
    server = NameServer(dns.settings(), process.data / "zones.sqlite")
    # Before it begins: whoever asks meanwhile is told so.
    process.health["dns"] = lambda: "" if server.serving else "starting"
    process.metrics.register(DnsCollector(server))
    try:
        await process.stack.enter_async_context(server)
    except KeepingError as error:
        raise PsphError(f"the name server cannot run: {error}") from error
    return server


class DnsCollector:
    """The counters of the name server, read when Prometheus asks."""

    def __init__(self, server: NameServer) -> None:
        self._server = server

    def collect(self) -> Iterable[Metric]:
        yield self._counted("questions", "question", "Questions by how they were answered")
        yield self._counted("updates", "update", "Dynamic updates by how they were answered")
        yield self._counted("transfers", "transfer", "Zone transfers by how they were answered")
        yield self._counted("other", "other", "Messages that are none of these")
        connections = GaugeMetricFamily("psph_dns_connections", "Open connections over TCP")
        connections.add_metric([], self._server.connections.open)
        yield connections
        refused = CounterMetricFamily("psph_dns_refused_connections", "Connections beyond a limit")
        refused.add_metric([], self._server.connections.refused)
        yield refused
        if not self._server.serving:
            return
        serials = GaugeMetricFamily("psph_dns_serial", "The serial of a zone", labels=["zone"])
        records = GaugeMetricFamily("psph_dns_records", "Records of a zone", labels=["zone"])
        for zone in self._server.zones():
            origin = zone.origin.to_text(True)
            serials.add_metric([origin], zone.serial)
            records.add_metric([origin], zone.count)
        yield serials
        yield records

    def _counted(self, name: str, kind: str, meaning: str) -> Metric:
        family = CounterMetricFamily(f"psph_dns_{name}", meaning, labels=["rcode"])
        for (counted, rcode), count in list(self._server.counters.items()):
            if counted == kind:
                family.add_metric([rcode], count)
        return family
