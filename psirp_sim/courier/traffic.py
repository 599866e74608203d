"""An application of Courier: post a message to every neighbour now and then, keep what comes.

What was delivered is durable in `received`, so that a scenario or a test can compare the two
ends after any number of crashes.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from psirp_sim.courier.core import Courier, OutboxFull
from psirp_sim.runtime.durations import parse_duration
from psirp_sim.runtime.environment import Changes, CoreFactory, Environment

_RECEIVED = b"received "


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a scenario may set for a node that runs `courier`."""

    messages: int = 100
    """How many to post to each neighbour; 0 only listens."""
    every: str = "20 ms"
    """Time between two posts."""
    size: int = 64
    """Bytes in a message; at least 8."""

    def __post_init__(self) -> None:
        if parse_duration(self.every) == 0:
            raise ValueError("every is longer than nothing")
        if self.messages < 0 or not 8 <= self.size <= 1400:
            raise ValueError("messages must not be negative, and size lies between 8 and 1400")


class CourierTraffic:
    """A core: a Courier and somebody who uses it."""

    def __init__(self, env: Environment, settings: Settings) -> None:
        self.env = env
        self.courier = Courier(env, self._deliver)
        self.settings = settings
        self._interval = parse_duration(settings.every)
        self._refused = 0

    def start(self) -> None:
        self.courier.start()
        if self.settings.messages:
            self.env.call_later(self._interval, self._post)

    def receive(self, link: str, packet: bytes) -> None:
        self.courier.receive(link, packet)

    def stop(self) -> None:
        self.courier.stop()

    def counters(self) -> Mapping[str, int]:
        return {**self.courier.counters, "refused": self._refused}

    def received(self, link: str) -> list[bytes]:
        """Every payload ever delivered from that neighbour, in order."""
        prefix = _RECEIVED + link.encode() + b"\0"
        return [payload for _, payload in self.env.storage.scan(prefix)]

    def _post(self) -> None:
        more = False
        for link, stream in self.courier.outgoing.items():
            number = stream.next_number
            if number <= self.settings.messages:
                more = True
                try:
                    self.courier.post(link, number.to_bytes(8).ljust(self.settings.size, b"."))
                except (OutboxFull, ValueError):  # or too large for this link
                    self._refused += 1
        if more:
            self.env.call_later(self._interval, self._post)

    def _deliver(self, link: str, number: int, payload: bytes) -> Changes:
        return {_RECEIVED + link.encode() + b"\0" + number.to_bytes(8): payload}


def protocol(settings: Mapping[str, object]) -> CoreFactory:
    """What the scenario file calls `courier`."""
    checked = msgspec.convert(settings, Settings)
    return lambda env: CourierTraffic(env, checked)
