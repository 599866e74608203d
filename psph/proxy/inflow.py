"""Topics that readers here want, on their way out of the fabric.

What has to be done for a topic depends on its zone: without a fabric it is plain WebSub, and the
hub sees for itself. Otherwise we listen to it in the fabric, after whatever the hub has of it, and
ask a proxy of its zone to publish it, unless we are one. Every version goes to the hub, which
recognises what it has; the fabric is told that a version is done when the hub has it for good.

Several proxies may have written a topic one after the other, each in a stream of its own. A stream
that we have nothing of is taken up when its proxy is the one that writes the topic, not before: what
others published in their time is old. Who has followed the topic already gets all of it that those
before have not covered (`Mapping.covered`); who begins, begins with its latest version.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Protocol

from identifiers import Position, PublisherId, Topic
from psirp_sim.client import Client
from psirp_sim.publications.delivery import Place, Subscription
from psirp_sim.publications.events import Event, Gap, Update
from psirp_sim.runtime.environment import Environment, Timer
from psph.proxy.asking import Asking
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
PREFIX = b"followed "


@dataclass(slots=True, eq=False)
class Incoming:
    """A topic that is wanted here."""

    topic: Topic
    state: State = State.LOOKING
    note: str = ""
    reasons: set[str] = field(default_factory=set)
    subscription: Subscription | None = None
    subscribing: bool = False
    """Whether the hub was asked how far it is, and is to be subscribed for then."""
    streams: set[bytes] = field(default_factory=set)
    """The publishers that the hub has versions of, or is about to."""
    held: list[Update] = field(default_factory=list)
    """Of streams that are not taken up yet."""
    turn: int = 0
    """The latest that we know of, of whoever writes it."""
    followed: bool = False
    """Whether somebody was told that nothing will be missed from now on; durable."""
    waiting: list[Ready] = field(default_factory=list)
    releasing: Timer | None = None


class Writers(Protocol):
    """Who writes a topic of our own hosts."""

    def writer(self, canonical: str) -> PublisherId | None:
        """Who numbers it; None while that is not known."""

    def is_elsewhere(self, canonical: str) -> bool:
        """Whether that is another proxy."""


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
        self._client = client
        self._mapping = mapping
        self._directory = directory
        self._web = web
        self._asking = asking
        self._counters = counters
        self.topics: dict[str, Incoming] = {}
        self._zones: dict[str, dict[str, Incoming]] = {}
        """The same, by zone."""

    # Who wants what

    def want(self, canonical: str, reason: str = READERS) -> None:
        """Somebody here wants it, or it may be our turn to write it."""
        incoming = self.topics.get(canonical)
        if incoming is None:
            topic = self._mapping.activate(canonical)
            incoming = self.topics[canonical] = Incoming(topic, reasons={reason})
            self._zones.setdefault(topic.zone, {})[canonical] = incoming
            self._look(incoming)
            return
        incoming.reasons.add(reason)
        if incoming.releasing is not None:
            incoming.releasing.cancel()
            incoming.releasing = None

    def unwant(self, canonical: str, reason: str = READERS) -> None:
        """Not for that reason any more; they may be back soon."""
        incoming = self.topics.get(canonical)
        if incoming is None:
            return
        incoming.reasons.discard(reason)
        if not incoming.reasons and incoming.releasing is None:
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
            self._take_up(incoming)
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
        self._subscribe(incoming)
        if ours:
            return State.READY, ""
        if not self._asking.add(topic):
            return State.ASKING, f"{topic.zone} cannot be asked"
        answer = self._asking.answer(topic)
        if answer is None:
            return State.ASKING, ""
        incoming.turn = max(incoming.turn, answer.turn)
        if answer.refused:
            return State.REFUSED, answer.refused
        return State.READY, ""

    def _tell(self, incoming: Incoming) -> None:
        """Those who wait, if the time has come."""
        if not incoming.waiting or not self._is_decided(incoming):
            return
        if incoming.state is State.READY and not incoming.followed:
            self._follow(incoming)
            return
        waiting, incoming.waiting = incoming.waiting, []
        for ready in waiting:
            self._env.call_later(0, ready, incoming.state, incoming.note)

    def _follow(self, incoming: Incoming) -> None:
        """Write down, before anybody is told, that nothing may be missed from now on."""

        def followed() -> None:
            incoming.followed = True
            self._tell(incoming)

        self._env.storage.write({PREFIX + incoming.topic.rid.raw: b""}, followed)

    def _is_decided(self, incoming: Incoming) -> bool:
        if incoming.state in (State.PLAIN, State.REFUSED):
            return True
        if incoming.state is not State.READY:
            return False
        topic, subscription = incoming.topic, incoming.subscription
        if self._settings.serves(topic.host):
            writer = self._writers.writer(topic.canonical)
            return writer == self._web.publisher or (
                writer is not None
                and subscription is not None
                and subscription.has_begun(topic.rid.raw, writer.raw)
            )
        answer = self._asking.answer(topic)
        return (
            answer is not None
            and subscription is not None
            and subscription.has_begun(
                topic.rid.raw, bytes.fromhex(answer.publisher), (answer.epoch, answer.version)
            )
        )

    # Listening

    def _subscribe(self, incoming: Incoming) -> None:
        if incoming.subscription is None and not incoming.subscribing:
            incoming.subscribing = True
            self._web.positions(incoming.topic, partial(self._resume, incoming))

    def _resume(
        self,
        incoming: Incoming,
        positions: Sequence[Position],
        begin: tuple[PublisherId, Place] | None = None,
    ) -> None:
        """Listen after what the hub has; `begin` is a place in a stream that it has nothing of."""
        if not incoming.subscribing:
            return  # it was not wanted any more
        incoming.subscribing = False
        topic = incoming.topic
        after = [each for each in positions if each.publisher != self._web.publisher]
        incoming.streams = {each.publisher.raw for each in after}
        stored = self._env.storage.get(PREFIX + topic.rid.raw)
        incoming.followed |= bool(after) or stored is not None
        from_first = []
        if begin is not None and begin[0].raw not in incoming.streams:
            publisher, (epoch, version) = begin
            incoming.streams.add(publisher.raw)
            if version > 1:
                after.append(Position(publisher, epoch, version - 1))
            else:
                from_first.append((topic.rid.raw, publisher, epoch))
        incoming.subscription = self._client.subscribe(
            topic.sid.raw,
            topic.rid.raw,
            partial(self._heard, incoming),
            after=[(topic.rid.raw, each) for each in after],
            from_first=from_first,
            # The hub has no position in a stream that is still empty, and yet it has begun.
            durable=topic.rid.raw.hex(),
            by_hand=True,
            name="proxy",
            began=lambda: self._tell(incoming),
        )

    def _heard(self, incoming: Incoming, event: Event) -> None:
        if isinstance(event, Update) and event.publisher != self._web.publisher:
            if event.publisher.raw in incoming.streams:
                self._hand_on(incoming, event)
            else:
                incoming.held.append(event)
                # Later: the fabric has not returned from handing it over.
                self._env.call_later(0, self._take_up, incoming)
            return
        if isinstance(event, Gap):
            self._counters["gaps"] += 1
            self._env.log(
                "versions were lost", topic=incoming.topic.canonical, first=event.first,
                last=event.last,
            )  # fmt: skip
        self._env.call_later(0, self._done, incoming, event)

    def _hand_on(self, incoming: Incoming, event: Update) -> None:
        update = self._mapping.convert(event)
        if update is None:
            self._env.call_later(0, self._done, incoming, event)
            return
        self._counters["received"] += 1
        self._web.deliver(incoming.topic, update, partial(self._done, incoming, event))

    # Taking streams up

    def _take_up(self, incoming: Incoming) -> None:
        """Go on with what waits, if its proxy is the one that writes the topic now."""
        waiting, incoming.held = incoming.held, []
        for event in waiting:
            found = self._mapping.covered(event)
            if found is not None and event.publisher.raw not in incoming.streams:
                covered, turn = found
                place = (event.position.epoch, event.position.version)
                if not self._writes(incoming, event.publisher):
                    incoming.held.append(event)
                    continue
                if incoming.followed and (turn < incoming.turn or place <= covered):
                    self._done(incoming, event)  # from before our time
                    continue
                if incoming.followed and place > _next(covered, place[0]):
                    self._begin_earlier(incoming, event.publisher, _next(covered, place[0]))
                    return
                incoming.turn = max(incoming.turn, turn)
            incoming.streams.add(event.publisher.raw)
            self._hand_on(incoming, event)

    def _writes(self, incoming: Incoming, publisher: PublisherId) -> bool:
        """Whether somebody is who writes the topic now."""
        topic = incoming.topic
        if self._settings.serves(topic.host):
            return self._writers.writer(topic.canonical) == publisher
        answer = self._asking.answer(topic)
        return answer is not None and answer.publisher == publisher.raw.hex()

    def _begin_earlier(self, incoming: Incoming, publisher: PublisherId, first: Place) -> None:
        """We came late to a stream that goes on where another one ended: listen anew."""
        assert incoming.subscription is not None
        self._client.unsubscribe(incoming.subscription)
        incoming.subscription.forget()
        incoming.subscription, incoming.held = None, []
        incoming.subscribing = True
        self._web.positions(
            incoming.topic,
            lambda positions: self._resume(incoming, positions, (publisher, first)),
        )

    def _done(self, incoming: Incoming, event: Event) -> None:
        if incoming.subscription is not None:
            incoming.subscription.done(event)
        self._tell(incoming)

    # Releasing

    def _release(self, incoming: Incoming) -> None:
        """Nobody has come back."""
        topic = incoming.topic
        del self.topics[topic.canonical]
        self._stop(incoming)
        self._env.storage.write({PREFIX + topic.rid.raw: None})
        self._mapping.deactivate(topic)
        del self._zones[topic.zone][topic.canonical]
        if not self._zones[topic.zone]:
            del self._zones[topic.zone]
            self._directory.forget(topic.zone)
        for ready in incoming.waiting:
            self._env.call_later(0, ready, State.REFUSED, UNWANTED)
        self._web.carried(topic)

    def _stop(self, incoming: Incoming) -> None:
        incoming.subscribing = False
        if incoming.subscription is not None:
            self._client.unsubscribe(incoming.subscription)
            incoming.subscription.forget()
            incoming.subscription = None
        incoming.held, incoming.streams = [], set()
        self._asking.remove(incoming.topic)


def _next(covered: Place, epoch: int) -> Place:
    """The first place of an epoch that is not covered."""
    return (epoch, covered[1] + 1) if covered[0] == epoch else (epoch, 1)
