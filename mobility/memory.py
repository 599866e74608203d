"""What a client remembers across a crash: its claim, subscriptions, Positions and debts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import msgspec
from msgspec import Struct

from identifiers import Position
from mobility.merging import Flow
from mobility.messages import Places, read_places, write_places
from mobility.port import After
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
    floor: Places = ()


@dataclass(slots=True)
class _Note:
    """What is to be written of a topic."""

    after: After
    whole: bool
    heard: tuple[Position, ...]
    since: int
    floor: tuple[Position, ...]
    effect: dict[bytes, bytes | None]
    done: Callable[[], None] | None

    def changes(self, topic: str) -> dict[bytes, bytes | None]:
        heard = write_places(self.heard) or ()
        floor = write_places(self.floor) or ()
        place = _Place(write_places(self.after), self.whole, heard, self.since, floor)
        return {**self.effect, _TOPIC + topic.encode(): msgspec.msgpack.encode(place)}


class Memory:
    """Of one client, in the storage of its environment."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._held: dict[str, _Note] | None = None
        """By topic, while notes are held."""

    def hold(self) -> bool:
        """From here to `flush`, what is noted becomes one write; False if that was so already."""
        if self._held is not None:
            return False
        self._held = {}
        return True

    def flush(self) -> None:
        """Write what was held."""
        held, self._held = self._held, None
        if held:
            changes: dict[bytes, bytes | None] = {}
            for topic, note in held.items():
                changes.update(note.changes(topic))
            calls = [note.done for note in held.values() if note.done is not None]
            self._env.storage.write(changes, partial(_call, calls))

    def claimed(self) -> Claimed:
        value = self._env.storage.get(_CLAIM)
        return Claimed() if value is None else msgspec.msgpack.decode(value, type=Claimed)

    def save(self, claimed: Claimed, done: Callable[[], None] | None = None) -> None:
        # Synced: after a power cut an earlier claim would be taken for that of another client, and
        # the client would not collect from a stay that is not noted.
        self._write({_CLAIM: msgspec.msgpack.encode(claimed)}, done, sync=True)

    def flows(self) -> Iterable[Flow]:
        for key, value in self._env.storage.scan(_TOPIC):
            place = msgspec.msgpack.decode(value, type=_Place)
            topic = key[len(_TOPIC) :].decode()
            places, heard = read_places(place.places), read_places(place.heard)
            floor = read_places(place.floor) or ()
            yield Flow(topic, places, place.whole, heard or (), place.since, floor)

    def note(
        self, flow: Flow, effect: Changes | None = None, done: Callable[[], None] | None = None
    ) -> None:
        """How far a topic has come, together with the effect of its coming so far. Of notes that
        are written together, what the last one is to be called back with stands for all."""
        flow.noted = dict(flow.heard)
        heard = tuple(flow.heard.values())
        floor = tuple(flow.floor.values())
        note = _Note(flow.after, flow.whole, heard, flow.since, floor, dict(effect or {}), done)
        if self._held is None:
            self._env.storage.write(note.changes(flow.topic), done)
            return
        before = self._held.get(flow.topic)
        if before is not None:
            note.effect = {**before.effect, **note.effect} if before.effect else note.effect
            note.done = done or before.done
        self._held[flow.topic] = note

    def forget(self, topic: str, effect: Changes | None = None) -> None:
        self._write({**(effect or {}), _TOPIC + topic.encode(): None})

    def _write(
        self, changes: Changes, done: Callable[[], None] | None = None, *, sync: bool = False
    ) -> None:
        """After everything that was noted before."""
        if self._held is not None:
            self.flush()
            self.hold()
        self._env.storage.write(changes, done, sync=sync)


def _call(calls: Iterable[Callable[[], None]]) -> None:
    for each in calls:
        each()
