"""A mobility proxy at an MQTT broker, and its entrance, for as long as it is open."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from mobility import MobilityProxy, ProxySettings
from psirp_sim.runtime.durations import SECOND
from psirp_sim.runtime.linkless import LinklessNode
from psph.mobility.mqtt import MqttPubSub
from psph.mobility.mqtt_entrance import Entrance

KEEP = 24 * 3600
"""Seconds for which the broker keeps what comes while the proxy is down."""
AGAIN = 1 * SECOND
"""Until a connection that was lost, or did not come about, is tried again."""


@asynccontextmanager
async def mqtt_proxy(
    place: str,
    storage: Path | None = None,
    entrance: tuple[str, ...] = (),
    peers: tuple[str, ...] = (),
    settings: ProxySettings | None = None,
    ready: Callable[[], None] = lambda: None,
) -> AsyncIterator[MobilityProxy]:
    """The proxy of the broker at `place` (HOST:PORT), which is its name, too.

    `entrance` names plain topics whose messages get a Position here. `peers` are the brokers whose
    proxies this one talks to, any if there are none. `ready` is called whenever the broker answers.
    """
    async with LinklessNode(place, storage=storage) as node:
        port = MqttPubSub(node, place)
        proxy = MobilityProxy(
            node, place, port, port.send, settings, lambda name: not peers or name in peers
        )
        port.receive = proxy.receive

        def connect() -> None:
            port.connect(place, lost, KEEP, ready)

        def lost() -> None:
            node.call_later(AGAIN, connect)

        # What it buffers is known before the broker sends what waits.
        node.run(lambda env: proxy)
        connect()
        numbering = Entrance(node, place, entrance) if entrance else None
        try:
            yield proxy
        finally:
            port.disconnect()
            if numbering is not None:
                numbering.close()
