"""The publisher: as many messages a second as it is asked for, or as the brokers take.

It waits while a broker has not taken the messages before, as a JMS publisher of persistent messages
does: the rate at which that happens is what the system can sustain.
"""

from __future__ import annotations

from experiments.commuting.itinerary import SELECTORS
from experiments.commuting.ledger import Ledger
from experiments.commuting.wires import Wire
from experiments.commuting.words import Publish, Taken, decode, encode
from psirp_sim.runtime.durations import SECOND
from psirp_sim.runtime.environment import Environment

WINDOW = 8
"""Messages that a broker may not have taken yet."""
ID_BYTES = 8


class Publisher:
    """A core, but for whom a message goes to."""

    def __init__(
        self,
        env: Environment,
        ledger: Ledger,
        rate: float,
        since: int,
        until: int,
        message_bytes: int,
    ) -> None:
        """`since`, `until`: from now on."""
        self._env = env
        self._ledger = ledger
        self._size = message_bytes
        self._wires: dict[str, Wire] = {}
        self._random = env.random
        self._every = round(SECOND / rate)
        self._since = since
        self._ends = env.now() + until
        self._under_way: dict[str, int] = {}
        self._waits = False

    def start(self) -> None:
        for name in self._env.links:
            self._wires[name] = self._wire(name)
        first = self._since + self._env.random.randrange(self._every)
        self._env.call_later(first, self._due)

    def _wire(self, name: str) -> Wire:
        return Wire(self._env, name, lambda message: self.hear(name, message))

    def receive(self, link: str, packet: bytes) -> None:
        self._wires[link].receive(packet)

    def stop(self) -> None:
        """Nothing to do."""

    def sent(self, broker: str) -> None:
        self._under_way[broker] = self._under_way.get(broker, 0) + 1

    def taken(self, broker: str) -> None:
        self._under_way[broker] -= 1
        if self._waits:
            self._due()

    def _due(self) -> None:
        self._waits = any(count >= WINDOW for count in self._under_way.values())
        if not self._waits and self._env.now() < self._ends:
            self.publish()
            self._env.call_later(self._every, self._due)

    def publish(self) -> None:
        """One message."""
        raise NotImplementedError

    def hear(self, broker: str, message: bytes) -> None:
        """What a broker says."""
        raise NotImplementedError


class Flooding(Publisher):
    """Sends every message to every broker."""

    def publish(self) -> None:
        selector = self._random.randrange(SELECTORS)
        id = self._ledger.publish(selector)
        word = encode(Publish(id, selector, body(id, self._size)))
        for name, wire in self._wires.items():
            wire.send(word)
            self.sent(name)

    def hear(self, broker: str, message: bytes) -> None:
        assert isinstance(decode(message), Taken)
        self.taken(broker)


def body(id: int, size: int) -> bytes:
    return id.to_bytes(ID_BYTES).ljust(size, b".")


def id_of(content: bytes) -> int:
    return int.from_bytes(content[:ID_BYTES])
