"""Where messages of publishers that know nothing of Positions get theirs.

The entrance of a broker subscribes to plain topics in a session that the broker keeps, numbers what
comes on `topic` in one stream for each topic, and publishes it again as `mqtt` has it. A number is
durable before it is used and a message is acknowledged after it was published again. So one that
the broker sends twice, because either side died in between, is known by its packet id and digest
and gets the number that it had.

A message must enter once: bridges carry `topic/+` and not `topic`, or one broker has an entrance.
"""

from __future__ import annotations

import msgspec
from blake3 import blake3
from msgspec import Struct

from identifiers import Position, PublisherId
from psirp_sim.runtime.durations import SECOND
from psirp_sim.runtime.environment import Environment
from psph.mobility.mqtt import POSITION, mqtt_topic
from psph.mobility.mqtt_connection import Connection, Received

KEEP = 24 * 3600
"""Seconds for which the broker keeps what comes while the entrance is down."""
AGAIN = 1 * SECOND
_PUBLISHER = b"entrance/publisher"
_LAST = b"entrance/last/"
_GIVEN = b"entrance/given/"


class _Given(Struct, frozen=True):
    """The number of a message that may come again."""

    digest: bytes
    version: int
    epoch: int = 1


class Entrance:
    """Of one broker, for some plain topics."""

    def __init__(self, env: Environment, place: str, topics: tuple[str, ...]) -> None:
        self.env = env
        self.numbered = 0
        self._place = place
        self._topics = list(topics)
        stored = env.storage.get(_PUBLISHER) or env.random.randbytes(PublisherId.SIZE)
        env.storage.write({_PUBLISHER: stored})
        self._publisher = PublisherId(stored)
        scan = env.storage.scan
        # Numbers that a power cut took are never given again.
        self._epoch = env.storage.epoch
        self._last = {
            key[len(_LAST) :].decode(): int.from_bytes(value[:8])
            for key, value in scan(_LAST)
            if (int.from_bytes(value[8:]) or 1) == self._epoch
        }
        self._given = {
            int.from_bytes(key[len(_GIVEN) :]): msgspec.msgpack.decode(value, type=_Given)
            for key, value in scan(_GIVEN)
        }
        self._connection: Connection | None = None
        self.connect()

    def connect(self) -> None:
        """Also again, when the connection was lost."""
        name = f"{self._place}-entrance"
        self._connection = Connection(self._place, name, self._heard, self._lost, KEEP)
        self._connection.subscribe(self._topics, lambda: None, retained=False)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _lost(self) -> None:
        self.env.call_later(AGAIN, self.connect)

    def _heard(self, connection: Connection, message: Received) -> None:
        topic, mid = message.topic, message.packet
        digest = blake3(topic.encode() + b"\0" + message.body).digest()
        given = self._given.get(mid)
        if not (message.again and given is not None and given.digest == digest):
            self.numbered += 1
            given = _Given(digest, self._last.get(topic, 0) + 1, self._epoch)
            self._last[topic] = given.version
            self._given[mid] = given
        position = Position(self._publisher, given.epoch, given.version)

        def durable() -> None:
            if connection.open:
                name, pairs = f"{mqtt_topic(topic)}/{self._publisher}", [(POSITION, str(position))]
                connection.publish(name, message.body, pairs, retain=True, done=taken)

        def taken() -> None:
            # Whether the broker hears of it nobody can say, so the number is remembered until the
            # packet id is used again; there are 65,535.
            connection.acknowledge(message)

        changes = {_GIVEN + mid.to_bytes(2): msgspec.msgpack.encode(given)}
        if topic in self._last:
            last = self._last[topic].to_bytes(8) + self._epoch.to_bytes(8)
            changes[_LAST + topic.encode()] = last
        self.env.storage.write(changes, durable)
