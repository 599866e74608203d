"""The sides of `handoff` that move between brokers: ours, and sessions that mosquitto keeps."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from bench.handoff_movers import Arrivals, Mover, Side, arrive, body, leave
from bench.mqtt_bridge import Brokers
from demo.ports import free_ports
from mobility import ClientSettings, Message, MobileClient, MovedIn, Stage, Update
from mobility.events import Consumed, Notice
from psirp_sim.runtime.environment import Changes, Environment
from psirp_sim.runtime.linkless import LinklessNode
from psirp_sim.runtime.seats import Seat, Seats
from psph.mobility.mqtt import SETTINGS, MqttAccessPoint
from psph.mobility.mqtt_connection import Connection, Received

TOPIC = "news"
KEEP = 3600
"""Seconds for which mosquitto keeps the session of a client that went."""
MOST_MADE_AHEAD = 100
_PSPH = "from psph.cli import main; main()"


class BrokerRoamer:
    """A client of ours at brokers. Moves on its own when its broker is gone, if told where to."""

    def __init__(
        self, env: Environment, secret: bytes, settings: ClientSettings = SETTINGS
    ) -> None:
        self.env = env
        self.arrivals = Arrivals()
        self.elsewhere: Callable[[], str | None] = lambda: None
        access = MqttAccessPoint(env, secret.hex()[:16], self._lost)
        self.client = MobileClient(
            env, secret, access, access.send, self._consume, self._notify, settings
        )
        access.receive = self.client.receive

    @property
    def live(self) -> bool:
        return self.client.stage is Stage.LIVE

    @property
    def gone(self) -> bool:
        return self.client.stage is Stage.DETACHED

    def move_in(self, place: str) -> None:
        self.arrivals.begin()
        self.client.move_in(place)

    async def come(self, place: str) -> None:
        self.move_in(place)

    async def go(self) -> None:
        self.client.move_out()

    def publish(self, number: int, topic: str = TOPIC) -> None:
        self.client.publish(topic, Message(body(number)))

    def _consume(self, event: Consumed) -> Changes:
        if isinstance(event, Update):
            self.arrivals.take(event.message.body)
        else:
            self.arrivals.other.append(event)
        return {}

    def _notify(self, notice: Notice) -> None:
        if isinstance(notice, MovedIn):
            self.arrivals.live_at = time.monotonic()

    def _lost(self) -> None:
        self.client.connection_lost()
        place = self.elsewhere()
        if place is not None:
            self.move_in(place)


class Session:
    """A client that has a persistent session at each broker it was at, and nothing else."""

    def __init__(self, name: str, topic: str = f"{TOPIC}/+") -> None:
        self.name = name
        self.topic = topic
        self.arrivals = Arrivals()
        self._connection: Connection | None = None

    @property
    def live(self) -> bool:
        return self.arrivals.live_at > 0

    @property
    def gone(self) -> bool:
        return self._connection is None

    async def come(self, place: str) -> None:
        """Come, and ask for what a session needs: that it is there already does not matter."""
        self.arrivals.begin()
        self._connection = Connection(place, self.name, self._heard, lambda: None, KEEP)
        self._connection.subscribe([self.topic], self._subscribed, retained=False)

    async def go(self) -> None:
        """Go; the broker keeps what comes."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _subscribed(self) -> None:
        self.arrivals.live_at = time.monotonic()

    def _heard(self, connection: Connection, message: Received) -> None:
        if connection is self._connection:
            self.arrivals.take(message.body)
            connection.acknowledge(message)


async def at_brokers(stack: AsyncExitStack, directory: Path) -> dict[str, Side]:
    brokers = Brokers(directory, free_ports(2), topics=("+/+", "mobility/call/+"))
    stack.callback(brokers.stop)
    for name in "AB":
        await asyncio.to_thread(brokers.start, name)
        await asyncio.to_thread(_start_proxy, stack, brokers.places[name], directory / name)
    places = (brokers.places["A"], brokers.places["B"])
    node = await stack.enter_async_context(LinklessNode("crowd", storage=directory / "crowd"))
    seats = Seats()
    node.run(lambda env: seats)
    count = 0

    def client() -> BrokerRoamer:
        nonlocal count
        count += 1
        roamer = BrokerRoamer(Seat(node, str(count)), count.to_bytes(32))
        seats.add(roamer.client)
        return roamer

    writer = client()
    await arrive([writer], places[1])

    async def publish(topic: str, number: int) -> None:
        writer.publish(number, topic)

    async def ours(stack: AsyncExitStack, topic: str, number: int) -> Sequence[Mover]:
        found = [client() for _ in range(number)]
        for each in found:
            each.client.subscribe(topic)
        return found

    async def sessions(stack: AsyncExitStack, topic: str, count: int) -> Sequence[Mover]:
        return [Session(f"{topic}-{number}", f"{topic}/+") for number in range(count)]

    async def made_ahead(stack: AsyncExitStack, topic: str, count: int) -> Sequence[Mover]:
        found = await sessions(stack, topic, count)
        await arrive(found, places[1])
        await leave(found)
        return found

    return {
        "brokers": Side(places, publish, ours, "ours"),
        "mosquitto": Side(places, publish, sessions, "theirs"),
        "made_ahead": Side(places, publish, made_ahead, "ahead", MOST_MADE_AHEAD),
    }


def _start_proxy(stack: AsyncExitStack, place: str, data: Path) -> None:
    command = [sys.executable, "-c", _PSPH, "mqtt-proxy", place, "--data", str(data)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    stack.push(process)
    stack.callback(process.terminate)
    assert process.stdout is not None
    if process.stdout.readline() != f"ready {place}\n":
        raise RuntimeError(f"the proxy of the broker at {place} did not come up")
