"""A mobility proxy at an MQTT broker, for as long as it is open."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from mobility import MobilityProxy, ProxySettings
from psirp_sim.runtime.durations import SECOND
from psirp_sim.runtime.udp import UdpNode
from psph.mobility.mqtt import MqttPubSub

KEEP = 24 * 3600
"""Seconds for which the broker keeps what comes while the proxy is down."""
AGAIN = 1 * SECOND
"""Until a connection that was lost, or did not come about, is tried again."""


@asynccontextmanager
async def mqtt_proxy(
    place: str, data: Path | None = None, settings: ProxySettings | None = None
) -> AsyncIterator[MobilityProxy]:
    """The proxy of the broker at `place` (HOST:PORT), which is its name, too."""
    if data is not None:
        data.mkdir(parents=True, exist_ok=True)
    storage = None if data is None else data / "mobility"
    async with UdpNode(place, ("127.0.0.1", 0), storage=storage) as node:
        port = MqttPubSub(node, place)
        proxy = MobilityProxy(node, place, port, port.send, settings)
        port.receive = proxy.receive

        def connect() -> None:
            port.connect(place, lambda: (node.call_later(AGAIN, connect), None)[1], KEEP)

        # What it buffers is known before the broker sends what waits.
        node.run(lambda env: proxy)
        connect()
        try:
            yield proxy
        finally:
            port.disconnect()
