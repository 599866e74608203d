"""What a client remembers across a crash: its claim, subscriptions, Positions and debts."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
from msgspec import Struct

from mobility.merging import Flow
from mobility.messages import Places, read_places, write_places
from psirp_sim.runtime.environment import Changes, Environment

_CLAIM = b"mobile/claim"
_TOPIC = b"mobile/topic/"


class Debt(Struct, frozen=True, array_like=True):
    """A stay at a proxy that may still keep something for this client."""

    proxy: str
    stay: int


class Claimed(Struct, frozen=True):
    """How often the client moved in, and where something may wait for it, oldest first."""

    epoch: int = 0
    debts: tuple[Debt, ...] = ()
    paid: tuple[Debt, ...] = ()
    """Consumed, and the proxy does not know yet that it may forget it."""


class _Place(Struct, frozen=True):
    places: Places | None
    whole: bool
    heard: Places = ()
    since: int = 0


class Memory:
    """Of one client, in the storage of its environment."""

    def __init__(self, env: Environment) -> None:
        self._env = env

    def claimed(self) -> Claimed:
        value = self._env.storage.get(_CLAIM)
        return Claimed() if value is None else msgspec.msgpack.decode(value, type=Claimed)

    def save(self, claimed: Claimed, done: Callable[[], None] | None = None) -> None:
        self._env.storage.write({_CLAIM: msgspec.msgpack.encode(claimed)}, done)

    def flows(self) -> Iterable[Flow]:
        for key, value in self._env.storage.scan(_TOPIC):
            place = msgspec.msgpack.decode(value, type=_Place)
            topic = key[len(_TOPIC) :].decode()
            places, heard = read_places(place.places), read_places(place.heard)
            yield Flow(topic, places, place.whole, heard or (), place.since)

    def note(
        self, flow: Flow, effect: Changes | None = None, done: Callable[[], None] | None = None
    ) -> None:
        """How far a topic has come, together with the effect of its coming so far."""
        flow.noted = dict(flow.heard)
        heard = write_places(tuple(flow.heard.values())) or ()
        place = _Place(write_places(flow.after), flow.whole, heard, flow.since)
        key = _TOPIC + flow.topic.encode()
        self._env.storage.write({**(effect or {}), key: msgspec.msgpack.encode(place)}, done)

    def forget(self, topic: str, effect: Changes | None = None) -> None:
        self._env.storage.write({**(effect or {}), _TOPIC + topic.encode(): None})
