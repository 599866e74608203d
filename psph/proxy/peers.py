"""The nodes of the fault schedules: proxies with their hubs and readers, a forger, and somebody who
publishes without a hub."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from identifiers import Position, identify
from psirp_sim.node import FabricNode
from psirp_sim.publications.errors import NotPublished
from psirp_sim.publications.tracing import TRACE_ID
from psirp_sim.runtime.durations import MILLISECOND, SECOND
from psirp_sim.runtime.environment import Environment
from psph.proxy.control import Side
from psph.proxy.inflow import State
from psph.proxy.mapping import CONTENT_TYPE, TOPIC
from psph.proxy.model import ModelDirectory, ModelHub, ModelRegistry
from psph.proxy.ports import WebUpdate

if TYPE_CHECKING:
    from psph.proxy.suite import ProxyTrial

LOOKING = 100 * MILLISECOND
FORGED = b"forged"


@dataclass(slots=True, eq=False)
class Reading:
    """Somebody who reads a topic at a proxy; it outlives a crash, as a person does."""

    topic: str
    leased: bool
    """A callback, which the proxy remembers; a browser comes back by itself."""
    wanted: bool = True
    ready_at: dict[bytes, int] = field(default_factory=dict)
    """The version of each hub's stream that had been published when it was told to be ready."""
    told: str = ""
    """What it was told last: the name of a state."""
    said: int = -1
    """When it was last said to the proxy, if it has a lease."""
    began: int = 0
    """When the proxy began to follow the topic for it; 0 where it was ready already, and a version
    may have been on its way."""


class ProxyPeer:
    """A core: a node of the fabric with a proxy and a hub on it."""

    def __init__(self, env: Environment, trial: ProxyTrial) -> None:
        self.env = env
        self.trial = trial
        self.node = FabricNode(env, trial.fabric, domain=env.node)
        self.hub = ModelHub(env, trial.sites[env.node], self._recorded)
        self.directory = ModelDirectory(env, trial.zones, trial.dns_delay)
        self.proxy = trial.proxy(
            env, trial.proxies[env.node], self.node, ModelRegistry(), self.directory, self.hub
        )
        self.directory.changed = self.proxy.zone_changed
        self.hub.listener = self.proxy.recorded
        self.hub.brings, self.hub.pass_on = self.proxy.brings, self.proxy.pinged
        self._reading: set[Reading] = set()
        self.started = False
        self._begun = False

    def start(self) -> None:
        joins = self.trial.joins.get(self.env.node, 0) - self.trial.world.now
        if joins > 0:
            self.env.call_later(joins, self.start)
            return
        self.started = True
        for updates in self.hub.updates.values():
            for update in updates:  # some were written down just before a crash
                self._recorded(update)
        for reading in self.trial.readings[self.env.node]:
            if not reading.leased:
                reading.ready_at.clear()  # the connection is gone, and what it was told
        self.node.start()
        self.proxy.start()
        self.env.call_later(LOOKING, self._look)

    def receive(self, link: str, packet: bytes) -> None:
        if self.started:
            self.node.receive(link, packet)

    def stop(self) -> None:
        if self.started:
            self.node.stop()

    @property
    def met(self) -> set[str]:
        """The other proxies of its hosts that it knows, from an earlier life perhaps."""
        return self.proxy.cluster.met

    def _look(self) -> None:
        """Readers come and go, and the hub looks after what it follows."""
        if self.proxy.begun:
            if not self._begun:
                self._begun = True
                self._watch_publishing()
                self._check_memory()
            self.trial.alive[self.env.node] = self.trial.world.now
            for reading in self.trial.readings[self.env.node]:
                self._read(reading)
            self.proxy.confirmed()
            read = {each.topic for each in self.trial.readings[self.env.node] if each.wanted}
            for site in self.trial.sites[self.env.node]:
                if site.topic in self.hub.kept | read:
                    self.hub.look(site.topic)
        self.env.call_later(LOOKING, self._look)

    def _watch_publishing(self) -> None:
        client, leases = self.node.client, self.node.rendezvous.writers.leases
        publish = client.publish

        def watched(sid: bytes, rid: bytes, *args: Any, **options: Any) -> Position:
            if "position" in options:
                lease = leases.get((sid, rid))
                turn = lease.fence if lease is not None and lease.held else None
                self.trial.publishing(self, (sid, rid), options["position"], turn)
            return publish(sid, rid, *args, **options)

        client.publish = watched

    def _check_memory(self) -> None:
        """What was said well before a crash is known after it, before anybody says it again."""
        known = set(self.proxy.control.topics(Side.WEB))
        for reading in self.trial.readings[self.env.node]:
            surely = 0 <= reading.said < self.trial.alive.get(self.env.node, 0) - SECOND
            if surely and reading.topic not in known:
                self.trial.wrong = f"{self.env.node} forgot that {reading.topic} is wanted"

    def _read(self, reading: Reading) -> None:
        topic = identify(reading.topic)
        if reading.wanted and reading not in self._reading:
            self._reading.add(reading)
            incoming = self.proxy.inflow.topics.get(topic.canonical)
            is_ready = incoming is not None and incoming.state is State.READY
            reading.began = 0 if is_ready else self.trial.world.now
            name = f"reader {self.trial.readings[self.env.node].index(reading)}"
            until = self.env.wall() + 3_600 * SECOND if reading.leased else None
            reading.said = self.trial.world.now if reading.leased else -1
            self.proxy.want(topic, name, until)
            self.proxy.when_ready(topic, lambda state, note: self._ready(reading, state, note))
        elif not reading.wanted:
            # What a reader that left while the proxy was down had asked for ends with `confirmed`.
            reading.said, reading.told = -1, ""
            if reading in self._reading:
                self._reading.discard(reading)
                name = f"reader {self.trial.readings[self.env.node].index(reading)}"
                self.proxy.leave(topic, name)

    def _ready(self, reading: Reading, state: State, note: str) -> None:
        reading.told = state.name.lower()
        if not reading.wanted:
            return  # the reader may return before the proxy learns that it left
        if state is State.READY:
            begun = reading.topic in self.hub.updates and not self.hub.is_beginning(reading.topic)
            if not begun and self.trial.was_there(self.env.node, reading):
                self.trial.wrong = f"{reading.topic} was ready before its hub had what there was"
            self.trial.told_ready(self.env.node, reading)

    def _recorded(self, update: WebUpdate) -> None:
        self.trial.recorded(self.env.node, update)


class Forger:
    """A core: a node of the fabric whose user publishes what is not theirs."""

    def __init__(self, env: Environment, trial: ProxyTrial) -> None:
        self.env = env
        self.trial = trial
        self.node = FabricNode(env, trial.fabric, domain="forger")
        self._key = Ed25519PrivateKey.from_private_bytes(b"f" * 32)

    def start(self) -> None:
        self.node.start()
        self.env.call_later(SECOND, self._forge)

    def receive(self, link: str, packet: bytes) -> None:
        self.node.receive(link, packet)

    def stop(self) -> None:
        self.node.stop()

    def _forge(self) -> None:
        self.env.call_later(SECOND, self._forge)
        if not self.node.begun:
            return
        for sites in self.trial.sites.values():
            for number, site in enumerate(sites):
                topic = identify(site.topic)
                item = (topic.sid.raw, topic.rid.raw)
                right = number % 2 == 0
                named = site.topic if right else site.topic + "/another"
                key = self._key if right else self.trial.keys[topic.zone]
                if item not in self.node.client.offers:
                    self.node.client.offer(*item, key=key)
                try:
                    self.node.client.publish(
                        *item, FORGED, {TOPIC: named, CONTENT_TYPE: "text/plain"}
                    )
                except NotPublished:
                    continue


class Native:
    """A core: a node of the fabric whose user publishes with the zone's key, and has no hub."""

    def __init__(self, env: Environment, trial: ProxyTrial, key: Ed25519PrivateKey) -> None:
        self.env = env
        self.trial = trial
        self.node = FabricNode(env, trial.fabric, domain="native")
        self._key = key

    def start(self) -> None:
        self.node.start()
        self.env.call_later(LOOKING, self._publish)

    def receive(self, link: str, packet: bytes) -> None:
        self.node.receive(link, packet)

    def stop(self) -> None:
        self.node.stop()

    def _publish(self) -> None:
        self.env.call_later(3 * LOOKING, self._publish)
        if not self.node.begun:
            return
        topic = identify(self.trial.native)
        item = (topic.sid.raw, topic.rid.raw)
        client = self.node.client
        if item not in client.offers:
            client.offer(*item, key=self._key, durable=True)
        if self.trial.world.now < self.trial.duration:
            content, trace = self.env.random.randbytes(20), self.env.random.randbytes(16).hex()
            self.trial.native_bodies[content] = trace
            described = {TOPIC: topic.canonical, CONTENT_TYPE: "text/plain", TRACE_ID: trace}
            client.publish(*item, content, described)
        # Afterwards it stays, for who has not heard everything. A crash may have undone a version.
        history = client.offers[item].history
        self.trial.native_latest = history.publisher, history.epoch, history.latest
