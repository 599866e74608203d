"""Topics that readers here want, on their way out of the fabric.

What has to be done for a topic depends on its zone: without a fabric it is plain WebSub, and the
hub sees for itself. Otherwise we listen to it in the fabric, after whatever the hub has of it, and
ask a proxy of its zone to publish it, unless we are one; those who wait for the topic are told when
that is so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from identifiers import PublisherId, Topic
from psirp_sim.client import Client
from psirp_sim.publications.events import Update
from psirp_sim.runtime.environment import Environment, Timer
from psph.proxy.asking import Asking
from psph.proxy.listening import Listener, Listening
from psph.proxy.mapping import Mapping
from psph.proxy.messages import Answer
from psph.proxy.ports import Directory, Web
from psph.proxy.settings import ProxySettings


class State(StrEnum):
    """How a topic comes here."""

    LOOKING = "its zone is being looked up"
    PLAIN = "plain WebSub"
    ASKING = "a proxy of its zone has been asked"
    REFUSED = "refused"
    READY = "the fabric brings it"


Ready = Callable[[State, str], None]
"""With PLAIN, REFUSED and the reason, or READY."""

UNWANTED = "it is not wanted any more"
ELSEWHERE = "another proxy of this domain writes it"
READERS, STANDBY = "readers", "standby"
"""Why a topic is followed."""


@dataclass(slots=True, eq=False)
class Incoming:
    """A topic that is wanted here."""

    listener: Listener
    state: State = State.LOOKING
    note: str = ""
    reasons: set[str] = field(default_factory=set)
    waiting: list[Ready] = field(default_factory=list)
    releasing: Timer | None = None

    @property
    def topic(self) -> Topic:
        return self.listener.topic


class Writers(Protocol):
    """Who writes a topic of our own hosts."""

    def writer(self, canonical: str) -> PublisherId | None:
        """Who numbers it; None while that is not known."""

    def is_elsewhere(self, canonical: str) -> bool:
        """Whether that is another proxy."""

    def turn(self, canonical: str) -> int:
        """Since which one it is followed, when that is us; else 0."""

    def has_others(self, host: str) -> bool:
        """Whether there are other proxies of a host."""


class Inflow:
    """All topics that are wanted here."""

    def __init__(
        self,
        env: Environment,
        settings: ProxySettings,
        client: Client,
        mapping: Mapping,
        directory: Directory,
        web: Web,
        asking: Asking,
        counters: Counter[str],
        writers: Writers,
    ) -> None:
        """`writers` knows who writes the topics of our own hosts."""
        self._writers = writers
        self._env = env
        self._settings = settings
        self._mapping = mapping
        self._directory = directory
        self._web = web
        self._asking = asking
        self._counters = counters
        self._listening = Listening(
            env, client, mapping, web, counters, turn=self._turn_of, progress=self._progress
        )
        self.topics: dict[str, Incoming] = {}
        self._zones: dict[str, dict[str, Incoming]] = {}
        """The same, by zone."""

    # Who wants what

    def want(self, canonical: str, reason: str = READERS) -> None:
        """Somebody here wants it, or it may be our turn to write it."""
        incoming = self.topics.get(canonical)
        if incoming is None:
            topic = self._mapping.activate(canonical)
            incoming = self.topics[canonical] = Incoming(Listener(topic), reasons={reason})
            self._zones.setdefault(topic.zone, {})[canonical] = incoming
            self._look(incoming)
            return
        incoming.reasons.add(reason)
        if incoming.releasing is not None:
            incoming.releasing.cancel()
            incoming.releasing = None
        self._look(incoming)

    def unwant(self, canonical: str, reason: str = READERS) -> None:
        """Not for that reason any more; they may be back soon."""
        incoming = self.topics.get(canonical)
        if incoming is None:
            return
        incoming.reasons.discard(reason)
        if incoming.reasons:
            self._look(incoming)
        elif incoming.releasing is None:
            incoming.releasing = self._env.call_later(
                self._settings.linger, self._release, incoming
            )

    def when_ready(self, canonical: str, ready: Ready) -> None:
        """Call back when it is decided how a topic that is wanted comes here, and what was there
        before has come."""
        incoming = self.topics.get(canonical)
        if incoming is None:
            self._env.call_later(0, ready, State.REFUSED, UNWANTED)
        else:
            incoming.waiting.append(ready)
            self._tell(incoming)

    def brings(self, canonical: str, host: str) -> str | None:
        """In words, how the fabric brings a topic; None when it does not."""
        incoming = self.topics.get(canonical)
        if incoming is None or incoming.state is State.PLAIN:
            return None
        if self._settings.serves(host):
            return ELSEWHERE if self._writers.is_elsewhere(canonical) else None
        return f"{incoming.state}: {incoming.topic.zone}"

    def zone_changed(self, zone: str) -> None:
        """More is known of a zone, or something else."""
        for incoming in list(self._zones.get(zone, {}).values()):
            self._look(incoming)

    def answered(self, canonical: str, answer: Answer | None) -> None:
        """A proxy of the topic's zone has answered, or gone back on it."""
        self.turned(canonical)

    def turned(self, canonical: str) -> None:
        """Somebody else writes the topic than before."""
        incoming = self.topics.get(canonical)
        if incoming is not None:
            self._listening.take_up(incoming.listener)
            self._look(incoming)

    # Deciding

    def _look(self, incoming: Incoming) -> None:
        """Do what is to be done now for a topic, from what is known now."""
        state, note = self._decide(incoming)
        if (state, note) != (incoming.state, incoming.note):
            carried = self.brings(incoming.topic.canonical, incoming.topic.host)
            incoming.state, incoming.note = state, note
            if carried != self.brings(incoming.topic.canonical, incoming.topic.host):
                self._web.carried(incoming.topic)
            if state is State.REFUSED:
                self._counters["refused"] += 1
                self._web.deny(incoming.topic, note)
        self._tell(incoming)

    def _decide(self, incoming: Incoming) -> tuple[State, str]:
        topic = incoming.topic
        ours = self._settings.serves(topic.host)
        zone = self._directory.look_up(topic.zone)
        if zone is None and not ours:
            return State.LOOKING, ""
        if zone is not None and not zone.has_fabric and not ours:
            self._stop(incoming)
            return State.PLAIN, zone.note or f"{topic.zone} has no fabric"
        self._listening.start(incoming.listener)
        if ours:
            # The others of our host have it ready, and follow it, only if somebody asks.
            if READERS in incoming.reasons and self._writers.has_others(topic.host):
                self._asking.add(topic)
            else:
                self._asking.remove(topic)
            return State.READY, ""
        if not self._asking.add(topic):
            return State.ASKING, f"{topic.zone} cannot be asked"
        answer = self._asking.answer(topic)
        if answer is None:
            return State.ASKING, ""
        if answer.refused:
            return State.REFUSED, answer.refused
        return State.READY, ""

    def _tell(self, incoming: Incoming) -> None:
        """Those who wait, if the time has come."""
        if not incoming.waiting or not self._is_decided(incoming):
            return
        listener = incoming.listener
        if incoming.state is State.READY and (listener.since is None or listener.noting):
            if listener.since is None:
                self._listening.follow(listener, self._turn(incoming.topic))
            return  # told when it is written down
        waiting, incoming.waiting = incoming.waiting, []
        for ready in waiting:
            self._env.call_later(0, ready, incoming.state, incoming.note)

    def _turn(self, topic: Topic) -> int:
        """Which it is, as far as we were told."""
        if self._settings.serves(topic.host):
            return self._writers.turn(topic.canonical)
        answer = self._asking.answer(topic)
        return 0 if answer is None else answer.turn

    def _is_decided(self, incoming: Incoming) -> bool:
        if incoming.state in (State.PLAIN, State.REFUSED):
            return True
        if incoming.state is not State.READY:
            return False
        topic, listener = incoming.topic, incoming.listener
        if self._settings.serves(topic.host):
            writer = self._writers.writer(topic.canonical)
            return writer == self._web.publisher or (
                writer is not None and listener.has_begun(writer.raw)
            )
        answer = self._asking.answer(topic)
        return answer is not None and listener.has_begun(
            bytes.fromhex(answer.publisher), (answer.epoch, answer.version)
        )

    # Releasing

    def _release(self, incoming: Incoming) -> None:
        """Nobody has come back."""
        topic = incoming.topic
        del self.topics[topic.canonical]
        self._stop(incoming)
        self._listening.forget(incoming.listener)
        self._mapping.deactivate(topic)
        del self._zones[topic.zone][topic.canonical]
        if not self._zones[topic.zone]:
            del self._zones[topic.zone]
            self._directory.forget(topic.zone)
        for ready in incoming.waiting:
            self._env.call_later(0, ready, State.REFUSED, UNWANTED)
        self._web.carried(topic)

    def _stop(self, incoming: Incoming) -> None:
        self._listening.stop(incoming.listener)
        self._asking.remove(incoming.topic)

    # What listening asks for

    def _progress(self, topic: Topic) -> None:
        incoming = self.topics.get(topic.canonical)
        if incoming is not None:
            self._tell(incoming)

    def _turn_of(self, topic: Topic, update: Update, number: int) -> int | None:
        """Since which turn a topic is followed whose first version came, with that number; None if
        it is not by who writes the topic now."""
        if self._settings.serves(topic.host):
            return number if self._writers.writer(topic.canonical) == update.publisher else None
        answer = self._asking.answer(topic)
        if answer is None or answer.publisher != update.publisher.raw.hex():
            return None
        return answer.turn
