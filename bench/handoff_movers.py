"""Clients that move between two places: ours, over HTTP and over MQTT, and one that relies on what
mosquitto keeps. All count alike: numbers, in the order they came, and when a move was over.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from mobility import ClientSettings, Message, MobileClient, MovedIn, Stage, Update
from mobility.events import Consumed, Notice
from psirp_sim.runtime.environment import Changes, Environment
from psph.mobility.mqtt import SETTINGS, MqttAccessPoint
from psph.mobility.mqtt_connection import Connection, Received
from psph.mobility.roamer import Roamer

TOPIC = "news"
PATIENCE = 60.0
"""Seconds after which something is not waited for any more."""
KEEP = 3600
"""Seconds for which mosquitto keeps the session of a client that went."""


async def until(condition: Callable[[], object]) -> None:
    """Wait for something that happens on this loop; everybody waits alike."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError("a client of the benchmark waits in vain")
        await asyncio.sleep(0.01)


class Mover(Protocol):
    """A client that moves. `come` and `go` begin it."""

    arrivals: Arrivals

    @property
    def live(self) -> bool: ...

    @property
    def gone(self) -> bool: ...

    async def come(self, place: str) -> None: ...

    async def go(self) -> None: ...


async def arrive(movers: Iterable[Mover], place: str) -> None:
    """All at once; until the last is live."""
    moving = list(movers)
    await asyncio.gather(*(each.come(place) for each in moving))
    await until(lambda: all(each.live for each in moving))


async def leave(movers: Iterable[Mover]) -> None:
    """All at once, each properly."""
    moving = list(movers)
    await asyncio.gather(*(each.go() for each in moving))
    await until(lambda: all(each.gone for each in moving))


class Arrivals:
    """What came to one client."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.other: list[object] = []
        """Whatever is no message: gaps."""
        self.moved_at = self.first_at = self.live_at = 0.0
        self.caught_up_at = 0.0
        """When the first came that was published after the last move began."""

    def begin(self) -> None:
        """The client is about to move in."""
        self.moved_at = time.monotonic()
        self.first_at = self.live_at = self.caught_up_at = 0.0

    def take(self, body: bytes) -> None:
        number, sent, _ = body.split(b" ")
        self.numbers.append(int(number))
        if not self.first_at:
            self.first_at = time.monotonic()
        if not self.caught_up_at and float(sent) >= self.moved_at:
            self.caught_up_at = time.monotonic()

    def lost(self, upto: int) -> int:
        """Of those from the first that came up to that number."""
        if not self.numbers:
            return upto
        return len(set(range(min(self.numbers), upto + 1)) - set(self.numbers))

    @property
    def doubled(self) -> int:
        return len(self.numbers) - len(set(self.numbers))


def body(number: int) -> bytes:
    """Of message `number`, 100 bytes: its number and when it was sent."""
    return f"{number} {time.monotonic():.6f} ".encode().ljust(100, b".")


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


class HubRoamer:
    """A client of ours at hubs, over HTTP."""

    def __init__(self, topic: str) -> None:
        self.arrivals = Arrivals()
        self.roamer = Roamer([topic], consume=self._consume, notice=self._notice)

    @property
    def live(self) -> bool:
        return self.roamer.stage is Stage.LIVE

    @property
    def gone(self) -> bool:
        return self.roamer.stage is Stage.DETACHED

    async def come(self, place: str) -> None:
        self.arrivals.begin()
        await self.roamer.move(place)

    async def go(self) -> None:
        if not await self.roamer.move_out(PATIENCE):
            raise RuntimeError("a hub did not let a client of the benchmark go")

    def _consume(self, event: Consumed) -> None:
        if isinstance(event, Update):
            self.arrivals.take(event.message.body)
        else:
            self.arrivals.other.append(event)

    def _notice(self, notice: Notice) -> None:
        if isinstance(notice, MovedIn):
            self.arrivals.live_at = time.monotonic()


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
