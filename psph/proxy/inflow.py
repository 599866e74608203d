"""Topics that readers here want, on their way out of the fabric.

What has to be done for a topic depends on its zone: without a fabric it is plain WebSub, and the
hub sees for itself. Otherwise we listen to it in the fabric, after whatever the hub has of it, and
ask a proxy of its zone to publish it, unless we are the one. Every version goes to the hub, which
recognises what it has; the fabric is told that a version is done when the hub has it for good.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial

from identifiers import Position, Topic, is_conversation
from psirp_sim.client import Client
from psirp_sim.publications.delivery import Subscription
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


@dataclass(slots=True, eq=False)
class Incoming:
    """A topic that is wanted here."""

    topic: Topic
    state: State = State.LOOKING
    note: str = ""
    subscription: Subscription | None = None
    subscribing: bool = False
    """Whether the hub was asked how far it is, and is to be subscribed for then."""
    waiting: list[Ready] = field(default_factory=list)
    releasing: Timer | None = None


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
    ) -> None:
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

    def want(self, canonical: str) -> None:
        """Somebody here wants it."""
        incoming = self.topics.get(canonical)
        if incoming is None:
            topic = self._mapping.activate(canonical)
            incoming = self.topics[canonical] = Incoming(topic)
            self._zones.setdefault(topic.zone, {})[canonical] = incoming
            self._look(incoming)
        elif incoming.releasing is not None:
            incoming.releasing.cancel()
            incoming.releasing = None

    def unwant(self, canonical: str) -> None:
        """Nobody here wants it any more; they may be back soon."""
        incoming = self.topics.get(canonical)
        if incoming is not None and incoming.releasing is None:
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
        if incoming is None or self._settings.serves(host):
            return None
        if incoming.state is State.PLAIN:
            return None
        return f"{incoming.state}: {incoming.topic.zone}"

    def zone_changed(self, zone: str) -> None:
        """More is known of a zone, or something else."""
        for incoming in list(self._zones.get(zone, {}).values()):
            self._look(incoming)

    def answered(self, canonical: str, answer: Answer | None) -> None:
        """A proxy of the topic's zone has answered, or gone back on it."""
        incoming = self.topics.get(canonical)
        if incoming is not None:
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
        if answer.refused:
            return State.REFUSED, answer.refused
        return State.READY, ""

    def _tell(self, incoming: Incoming) -> None:
        """Those who wait, if the time has come."""
        if not incoming.waiting or not self._is_decided(incoming):
            return
        waiting, incoming.waiting = incoming.waiting, []
        for ready in waiting:
            self._env.call_later(0, ready, incoming.state, incoming.note)

    def _is_decided(self, incoming: Incoming) -> bool:
        if incoming.state in (State.PLAIN, State.REFUSED):
            return True
        if incoming.state is not State.READY:
            return False
        if self._settings.serves(incoming.topic.host):
            return True
        answer = self._asking.answer(incoming.topic)
        subscription = incoming.subscription
        return (
            answer is not None
            and subscription is not None
            and subscription.has_begun(
                incoming.topic.rid.raw,
                bytes.fromhex(answer.publisher),
                (answer.epoch, answer.version),
            )
        )

    # Listening

    def _subscribe(self, incoming: Incoming) -> None:
        if incoming.subscription is None and not incoming.subscribing:
            incoming.subscribing = True
            self._web.positions(incoming.topic, partial(self._resume, incoming))

    def _resume(self, incoming: Incoming, positions: Sequence[Position]) -> None:
        if not incoming.subscribing:
            return  # it was not wanted any more
        incoming.subscribing = False
        topic = incoming.topic
        incoming.subscription = self._client.subscribe(
            topic.sid.raw,
            topic.rid.raw,
            partial(self._heard, incoming),
            after=[(topic.rid.raw, position) for position in positions],
            # The hub has no position in a stream that is still empty, and yet it has begun.
            durable=topic.rid.raw.hex(),
            by_hand=True,
            # Who comes late to a conversation has not read it; of the rest the latest is enough.
            whole=is_conversation(topic.canonical),
            name="proxy",
            began=lambda: self._tell(incoming),
        )

    def _heard(self, incoming: Incoming, event: Event) -> None:
        if isinstance(event, Update) and event.publisher != self._web.publisher:
            update = self._mapping.convert(event)
            if update is not None:
                self._counters["received"] += 1
                self._web.deliver(incoming.topic, update, partial(self._done, incoming, event))
                return
        elif isinstance(event, Gap):
            self._counters["gaps"] += 1
            self._env.log(
                "versions were lost", topic=incoming.topic.canonical, first=event.first,
                last=event.last,
            )  # fmt: skip
        # Later: the fabric has not returned from handing it over.
        self._env.call_later(0, self._done, incoming, event)

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
        self._asking.remove(incoming.topic)
