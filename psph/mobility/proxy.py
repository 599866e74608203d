"""The mobility proxy of a PSPH: the core, its pub/sub system, its clients and the other proxies."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from aiohttp import web
from aiohttp.abc import AbstractResolver

from bootstrap import Resolver
from mobility import MobilityProxy, PubSub
from mobility.messages import LARGEST
from psirp_sim.runtime.linkless import LinklessNode
from psph.configuration.mobility import MobilityConfiguration
from psph.mobility.hub_port import HubPort
from psph.mobility.peers import KnownProxies, Peers
from psph.mobility.pressure import Pressure
from psph.mobility.publish_routes import PublishRoutes
from psph.mobility.routes import Routes
from psph.mobility.sessions import PEER, Session, Sessions
from push_hub.addresses import AddressPolicy, parse_networks
from push_hub.connecting import guarded_session
from push_hub.hub import Hub
from push_hub.keys import HUB
from push_hub.siblings import base_url
from traces import TraceSink

_TIMEOUT = 8.0
"""Seconds for another proxy to answer; less than the core waits."""
_CONNECTIONS = 64
_LOOK = 0.5
"""Seconds between two looks at how much there is to do."""


class RunningProxy:
    """Starts and stops with the application of a hub."""

    def __init__(
        self,
        settings: MobilityConfiguration,
        *,
        node: str,
        domain: str,
        storage: Path,
        trace: TraceSink,
        history: int,
        power_safe: bool = False,
        records: Resolver | None = None,
        names: AbstractResolver | None = None,
        ports: Callable[[Hub, HubPort], PubSub] = lambda hub, port: port,
    ) -> None:
        """`history`: versions of a topic that can be had again anywhere. `records` finds PSPHs in
        DNS, `names` the addresses of their hosts. `ports` may put another pub/sub system beside
        that of the hub."""
        self.settings = settings
        self._domain = domain
        self._node = LinklessNode(node, storage=storage, trace=trace)
        self._node.power_safe = power_safe
        self._records, self._names = records, names
        self._ports = ports
        self._history = 1 if settings.buffer else history
        self.core: MobilityProxy | None = None
        self.sessions = Sessions(settings.clients, settings.clients_per_address, settings.grace_s)
        self.routes: Routes
        self.peers: Peers

    def add(self, app: web.Application, public_url: str) -> None:
        """Serve it at the hub whose application this is."""
        name = base_url(public_url) or public_url.rstrip("/")
        self.routes = Routes(name, self.sessions, self.settings, self._receive)
        self.routes.add(app)
        self.publish_routes = PublishRoutes(name, self._records)
        self.publish_routes.add(app)
        self.name = name
        app.cleanup_ctx.append(self._run)
        app.on_shutdown.append(self._close)

    async def _run(self, app: web.Application) -> AsyncIterator[None]:
        hub, settings = app[HUB], self.settings
        known = KnownProxies(settings.peers, self._records)
        policy = AddressPolicy(
            parse_networks(settings.allow_peer), "question to another proxy", "mobility.allow_peer"
        )
        session = guarded_session(
            policy, connections=_CONNECTIONS, timeout=_TIMEOUT, resolver=self._names
        )
        self.peers = Peers(session, known, LARGEST, self.name)
        self.peers.answered = self._receive
        self.publish_routes.session = session
        port = HubPort(hub, self._history)
        async with self._node as node:
            core = node.run(
                lambda env: MobilityProxy(
                    env,
                    self.name,
                    self._ports(hub, port),
                    self._send,
                    settings.settings(self._domain),
                    known.may_be,
                )
            )
            assert isinstance(core, MobilityProxy)
            self.core = core
            self.sessions.lost = self._lost
            self.pressure = Pressure(lambda: self._uses(hub))
            looking = asyncio.create_task(self._look())
            try:
                yield
            finally:
                looking.cancel()
                self.core = self.publish_routes.session = None
                await self.peers.stop()
        await port.stop()

    async def _close(self, app: web.Application) -> None:
        self.sessions.close()

    def _receive(self, peer: str, packet: bytes) -> None:
        if self.core is not None:
            self._node.call_core(self.core.receive, peer, packet)

    def _send(self, peer: str, packet: bytes) -> None:
        if not self.routes.send(peer, packet):
            self.peers.send(peer, packet)

    def _lost(self, session: Session) -> None:
        if self.core is not None:
            for client in session.clients:
                self._node.call_core(self.core.connection_lost, client, PEER + session.word)

    def _uses(self, hub: Hub) -> dict[str, tuple[int, int]]:
        settings = self.settings
        stays = 0 if self.core is None else len(self.core.handlers)
        return {
            "sessions": (len(self.sessions), settings.clients),
            "stays": (stays, settings.stays),
            "streams": (len(hub.streams), hub.settings.streams_at_once),
        }

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_LOOK)
            if self.core is not None and self.pressure.look():
                self._node.call_core(self.core.ahead.under_pressure, self.pressure.high)

    # For those who run it

    def status(self) -> dict[str, object]:
        """What `psph mobility status` shows."""
        core = self.core
        stays = [] if core is None else list(core.handlers.values())
        return {
            "proxy": self.name,
            "sessions": len(self.sessions),
            "stays": dict(Counter(each.state for each in stays)),
            "buffered_messages": sum(len(each.buffer) for each in stays),
            "buffered_bytes": sum(each.buffer.bytes for each in stays),
            "dropped_messages": sum(sum(each.drops().values()) for each in stays),
            "counters": self.counters(),
            "prepare": {} if core is None else self._prepared(core),
        }

    def _prepared(self, core: MobilityProxy) -> dict[str, object]:
        """What is prepared here and elsewhere; `share` is that of hand-offs that were."""
        ahead = core.ahead
        counted = ahead.counters["prepared"] + ahead.counters["unprepared"]
        return {
            **ahead.status(),
            "share": ahead.counters["prepared"] / counted if counted else None,
            "pressed": self.pressure.high,
            "used": self.pressure.shares(),
        }

    def counters(self) -> dict[str, int]:
        """What happened, by kind."""
        core = {} if self.core is None else dict(self.core.counters)
        peers = {} if self.core is None else dict(self.peers.counters)
        return {
            **core,
            **{f"peers_{what}": count for what, count in peers.items()},
            **{f"requests_{what}": count for what, count in self.routes.counters.items()},
            "sessions_refused": self.sessions.refused,
            "answers_lost": self.sessions.dropped,
        }
