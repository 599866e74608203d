"""The role `dns`: the embedded name server, and what the admin port says of it."""

from __future__ import annotations

from functools import partial

from prometheus_client import Gauge

from bootstrap.server.keeping import KeepingError
from bootstrap.server.serving import NameServer
from psph.admin_port import PlainCounters
from psph.configuration.dns import DnsConfiguration
from psph.errors import PsphError
from psph.roles.process import Process


async def start(process: Process, dns: DnsConfiguration) -> NameServer:
    """Serve the zones of the configuration."""
    server = NameServer(dns.settings(), process.data / "zones.sqlite")
    # Before it begins: whoever asks meanwhile is told so.
    process.health["dns"] = lambda: "" if server.serving else "starting"
    _measure(process, server)
    try:
        await process.stack.enter_async_context(server)
    except KeepingError as error:
        raise PsphError(f"the name server cannot run: {error}") from error
    return server


_COUNTED = {
    "questions": ("question", "Questions by how they were answered"),
    "updates": ("update", "Dynamic updates by how they were answered"),
    "transfers": ("transfer", "Zone transfers by how they were answered"),
    "other": ("other", "Messages that are none of these"),
}


def _measure(process: Process, server: NameServer) -> None:
    def counted(kind: str) -> dict[str, float]:
        return {rcode: count for (of, rcode), count in server.counters.items() if of == kind}

    registry = process.metrics
    for name, (kind, meaning) in _COUNTED.items():
        registry.register(
            PlainCounters(f"psph_dns_{name}", meaning, partial(counted, kind), "rcode")
        )
    refused = PlainCounters(
        "psph_dns_refused_connections",
        "Connections beyond a limit",
        lambda: {"": server.connections.refused},
        None,
    )
    registry.register(refused)
    connections = Gauge("psph_dns_connections", "Open connections over TCP", registry=registry)
    connections.set_function(lambda: server.connections.open)
    serials = Gauge("psph_dns_serial", "The serial of a zone", ["zone"], registry=registry)
    records = Gauge("psph_dns_records", "Records of a zone", ["zone"], registry=registry)

    async def look_at_zones() -> None:
        for zone in server.zones() if server.serving else ():
            origin = zone.origin.to_text(True)
            serials.labels(origin).set(zone.serial)
            records.labels(origin).set(zone.count)

    process.before_scrape.append(look_at_zones)
