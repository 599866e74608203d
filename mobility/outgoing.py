"""What a client publishes: kept while it moves, sent in order, once.

A publication gets its Position here, when it is asked for, and keeps it: the stream of a topic is
the client's own. It is durable until the system has taken it. One that was under way when the
client left is sent again from the next place, under the same Position, so that a system with
Positions takes it once; a plain system may get it twice if it had taken it and could not say so.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import msgspec
from msgspec import Struct

from identifiers import Position, PublisherId
from mobility.port import Message, PubSub
from psirp_sim.runtime.environment import Environment

_OUT = b"mobile/out/"
_VERSION = b"mobile/version/"


class OutgoingFull(Exception):
    """Too many publications wait for the client to be somewhere; try again later."""


class _Waiting(Struct, frozen=True, array_like=True):
    topic: str
    version: int
    body: bytes
    kind: str
    epoch: int = 1


class Outgoing:
    """The publications of one client that no system has taken yet."""

    def __init__(
        self, env: Environment, pubsub: PubSub, publisher: PublisherId, most: int, window: int
    ) -> None:
        self._env = env
        self._pubsub = pubsub
        self._publisher = publisher
        self._most = most
        self._window = window
        # Versions that a power cut took are never given again.
        self._epoch = env.storage.epoch
        self._versions: dict[str, int] = {}
        """By topic, the last of this epoch."""
        self._waiting: dict[int, _Waiting] = {}
        """Durable and not taken, by serial number, in order."""
        self._writing = 0
        self._next = 1
        self._sent = 0
        """The last that was handed to the system since the client came."""
        self._place = 0
        """Counts arrivals and departures: what an earlier place says does not count."""
        self._open = False

    def __len__(self) -> int:
        return len(self._waiting) + self._writing

    def restore(self) -> None:
        """Read back what was durable."""
        for key, value in self._env.storage.scan(_VERSION):
            version, epoch = int.from_bytes(value[:8]), int.from_bytes(value[8:]) or 1
            if epoch == self._epoch:
                self._versions[key[len(_VERSION) :].decode()] = version
        for key, value in self._env.storage.scan(_OUT):
            serial = int.from_bytes(key[len(_OUT) :])
            self._waiting[serial] = msgspec.msgpack.decode(value, type=_Waiting)
            self._next = serial + 1

    def publish(
        self, topic: str, message: Message, accepted: Callable[[Position], None] | None = None
    ) -> None:
        """Publish as soon as possible; `accepted` when it cannot be lost any more."""
        if len(self) >= self._most:
            raise OutgoingFull(f"{self._most} publications wait: move in somewhere first")
        serial, version = self._next, self._versions.get(topic, 0) + 1
        self._next += 1
        self._versions[topic] = version
        self._writing += 1
        waiting = _Waiting(topic, version, message.body, message.kind, self._epoch)

        def durable() -> None:
            self._writing -= 1
            self._waiting[serial] = waiting
            if accepted is not None:
                accepted(Position(self._publisher, self._epoch, version))
            self._transmit()

        self._env.storage.write(
            {
                _OUT + serial.to_bytes(8): msgspec.msgpack.encode(waiting),
                _VERSION + topic.encode(): version.to_bytes(8) + self._epoch.to_bytes(8),
            },
            durable,
        )

    def open(self) -> None:
        """The client came: send."""
        self._place += 1
        self._sent = 0
        self._open = True
        self._transmit()

    def close(self) -> None:
        """It goes: keep."""
        self._place += 1
        self._open = False

    def _transmit(self) -> None:
        if not self._open:
            return
        for serial, waiting in list(islice(self._waiting.items(), self._window)):
            if serial > self._sent:
                self._sent = serial
                position = Position(self._publisher, waiting.epoch, waiting.version)
                message = Message(waiting.body, waiting.kind)
                self._pubsub.publish(waiting.topic, position, message, self._taken(serial))

    def _taken(self, serial: int) -> Callable[[], None]:
        place = self._place

        def done() -> None:
            if place == self._place and self._waiting.pop(serial, None) is not None:
                self._env.storage.write({_OUT + serial.to_bytes(8): None})
                self._transmit()

        return done
