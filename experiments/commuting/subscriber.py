"""A subscriber of the baselines. It consumes whatever a broker sends, twice if that comes twice."""

from __future__ import annotations

from experiments.commuting.ledger import Ledger
from experiments.commuting.wires import Wire
from experiments.commuting.words import Connect, Message, decode, encode
from psirp_sim.runtime.environment import Environment


class Subscriber:
    """A core."""

    def __init__(self, env: Environment, ledger: Ledger) -> None:
        self._env = env
        self._ledger = ledger
        self._first = ledger.itineraries[env.node].first
        self._old = ""
        """The broker that it was last connected to."""
        self._last = 0
        """Id of the last message."""
        self._wires: dict[str, Wire] = {}

    def start(self) -> None:
        for link in self._env.links:
            self._wires[link] = Wire(self._env, link, self._hear)

    def receive(self, link: str, packet: bytes) -> None:
        self._wires[link].receive(packet)

    def stop(self) -> None:
        """Nothing to do."""

    def connect(self, broker: str) -> None:
        """It came within reach of a broker."""
        self._wires[broker].renew()
        self._wires[broker].send(encode(Connect(self._first, self._old, self._last)))
        self._old = broker

    def leave(self) -> None:
        """It is out of reach, and says nothing."""

    def _hear(self, message: bytes) -> None:
        word = decode(message)
        assert isinstance(word, Message)
        self._last = max(self._last, word.id)
        self._ledger.receive(self._env.node, word.id)
