"""Proxies with a bug each. The fault schedules must find every one of them.

The parts of a proxy are made when it is and when it starts; other classes stand in the place of the
true ones meanwhile.
"""

from __future__ import annotations

from psirp_sim.publications.events import Update
from psirp_sim.publications.tracing import TRACE_ID
from psirp_sim.runtime.durations import SECOND
from psph.proxy import inflow
from psph.proxy import proxy as parts
from psph.proxy.answering import Answering
from psph.proxy.asking import Asking
from psph.proxy.cluster import Cluster
from psph.proxy.control import Control, Side
from psph.proxy.inflow import Inflow, State
from psph.proxy.listening import Listening
from psph.proxy.mapping import CONTENT_TYPE, TOPIC, Mapping
from psph.proxy.origin import Origin
from psph.proxy.ports import WebUpdate
from psph.proxy.proxy import Proxy
from psph.proxy.writing import Writing

PARTS = {
    "Control": parts,
    "Mapping": parts,
    "Asking": parts,
    "Answering": parts,
    "Cluster": parts,
    "Inflow": parts,
    "Listening": inflow,
    "Origin": parts,
    "Writing": parts,
}
"""The name of each part, and the module that makes it."""


class Planted(Proxy):
    """Has other parts: each class attribute takes the place of the part of that name."""

    Control = Control
    Mapping = Mapping
    Asking = Asking
    Answering = Answering
    Cluster = Cluster
    Inflow = Inflow
    Listening = Listening
    Origin = Origin
    Writing = Writing

    def __init__(self, *args):
        self._with_parts(super().__init__, *args)

    def start(self):
        self._with_parts(super().start)

    def _with_parts(self, call, *args):
        usual = {name: getattr(module, name) for name, module in PARTS.items()}
        for name, module in PARTS.items():
            setattr(module, name, getattr(type(self), name))
        try:
            call(*args)
        finally:
            for name, part in usual.items():
                setattr(PARTS[name], name, part)


# Wishes


class ForgetsWishesAtARestart(Planted):
    """What callbacks subscribed to is gone after a crash, until they say it again."""

    class Control(Control):
        def load(self):
            pass


class NeverStopsListening(Planted):
    """What nobody here wants any more still comes."""

    class Inflow(Inflow):
        def unwant(self, canonical, reason="readers"):
            pass


class NeverStopsPublishing(Planted):
    """What nobody outside wants any more is still published."""

    class Origin(Origin):
        def unwant(self, canonical):
            pass


class ForgetsThatTheyCameBack(Planted):
    """A chain is released although somebody wants the topic again."""

    class Inflow(Inflow):
        def want(self, canonical, reason="readers"):
            incoming = self.topics.get(canonical)
            if incoming is None or incoming.releasing is None:
                super().want(canonical, reason)


# Asking and answering


class AsksOnce(Planted):
    """Requests are not made again before their lease is over."""

    class Asking(Asking):
        def _publish_soon(self, asked, delay):
            if delay != self._settings.request_lease // 3:
                super()._publish_soon(asked, delay)


class KeepsWhatItAskedToItself(Planted):
    """A topic that is not wanted any more is still asked for."""

    class Asking(Asking):
        def remove(self, topic):
            pass


class HearsTheLastProxyOnly(Planted):
    """The answer of one proxy of a zone makes it forget those of the others."""

    class Asking(Asking):
        def _heard(self, asked, event):
            if isinstance(event, Update):
                asked.answers.clear()
                for topic in asked.topics:
                    self._answered(topic, None)
            super()._heard(asked, event)


class IgnoresRefusals(Planted):
    """Who asked for what stays at home waits for ever."""

    class Asking(Asking):
        def answer(self, topic):
            answer = super().answer(topic)
            return None if answer is not None and answer.refused else answer


class RefusesNothing(Planted):
    """What stays at home is promised, and never comes."""

    class Answering(Answering):
        def _refusal(self, topic, asker):
            return ""


class ServesTheDead(Planted):
    """The lease of a proxy that cannot be heard has no end."""

    class Answering(Answering):
        def _end(self, zone, asker):
            pass

    class Control(Control):
        def want(self, side, topic, subscriber, until):
            longer = 0 if side is Side.WEB else 3_600 * SECOND
            super().want(side, topic, subscriber, until and until + longer)


class AsksForItsOwn(Planted):
    """Topics of its own hosts are asked for on the channel, and answered by itself."""

    class Inflow(Inflow):
        def _decide(self, incoming):
            decided = super()._decide(incoming)
            if self._settings.serves(incoming.topic.host):
                self._asking.add(incoming.topic)
            return decided

    class Answering(Answering):
        def __init__(self, *args):
            super().__init__(*args)
            self._publisher = None


# Out of the domain


class BeginsWithTheLatest(Planted):
    """What the hub has recorded while it could not be published is left out."""

    class Origin(Origin):
        def _fill(self, own, after, updates):
            if own.last is None and updates:
                mine = self._web.updates[own.topic.canonical]
                updates = [each for each in mine if each.position.publisher == self._web.publisher]
                updates = updates[-1:]
            super()._fill(own, after, updates)


class LooksOnlyOnce(Planted):
    """One page of what was missed is published, and the rest is taken for published."""

    class Origin(Origin):
        def _ask(self, own):
            if own.last is None:
                super()._ask(own)
            elif not own.open:
                own.open = True
                self._changed(own.topic.canonical)


class DoesNotFollow(Planted):
    """The hub is not told that somebody outside wants a topic."""

    class Origin(Origin):
        def want(self, canonical):
            self._wanted.add(canonical)
            own = self._open(canonical)
            if own is not None:
                self._looked(own)


class PublishesWhatItHeard(Planted):
    """Versions that came over the fabric are published once more, as our own."""

    class Origin(Origin):
        def recorded(self, update):
            if update.position.publisher != self._web.publisher:
                self._web.publish(update.topic, update.body, direct=update.published)
            super().recorded(update)


# Into the domain


class ResumesAnywhere(Planted):
    """What the hub has already is not told to the fabric."""

    class Listening(Listening):
        def _resume(self, listener, positions, begin=None):
            super()._resume(listener, (), begin)


class IsReadyAtOnce(Planted):
    """Readers are told that a topic comes as soon as somebody was asked for it."""

    class Inflow(Inflow):
        def _decide(self, incoming):
            state, note = super()._decide(incoming)
            return (State.READY if state is State.ASKING else state), note

        def _is_decided(self, incoming):
            return incoming.state is not State.LOOKING


class IsDoneTooEarly(Planted):
    """The fabric is told that a version is done before the hub has it."""

    class Listening(Listening):
        def _heard(self, listener, event):
            super()._heard(listener, event)
            self._env.call_later(0, self._done, listener, event)


class BelievesTheName(Planted):
    """A publication is taken for the topic that it names."""

    class Mapping(Mapping):
        def _convert(self, update):
            metadata = update.metadata
            return WebUpdate(
                metadata[TOPIC], update.position, metadata[CONTENT_TYPE], update.content,
                metadata.get(TRACE_ID, ""),
            )  # fmt: skip


class TakesAnyKey(Planted):
    """Whoever signs a publication is believed."""

    def keys_of(self, sid):
        return ()


class ForgetsTheTrace(Planted):
    """The trace id does not cross."""

    class Mapping(Mapping):
        @staticmethod
        def describe(update, covered, turn):
            described = Mapping.describe(update, covered, turn)
            return {key: each for key, each in described.items() if key != TRACE_ID}


class StaysPlain(Planted):
    """A zone that has a fabric again is served as plain WebSub for good."""

    class Inflow(Inflow):
        def _decide(self, incoming):
            if incoming.state is State.PLAIN:
                return incoming.state, incoming.note
            return super()._decide(incoming)


PLANTED: dict[type[Planted], int] = {
    ForgetsWishesAtARestart: 1,
    NeverStopsListening: 10,
    NeverStopsPublishing: 2,
    ForgetsThatTheyCameBack: 90,
    AsksOnce: 30,
    KeepsWhatItAskedToItself: 147,
    HearsTheLastProxyOnly: 89,
    IgnoresRefusals: 2,
    RefusesNothing: 2,
    ServesTheDead: 2,
    AsksForItsOwn: 7,
    BeginsWithTheLatest: 41,
    LooksOnlyOnce: 7,
    DoesNotFollow: 63,
    PublishesWhatItHeard: 17,
    ResumesAnywhere: 0,
    IsReadyAtOnce: 9,
    IsDoneTooEarly: 0,
    BelievesTheName: 3,
    TakesAnyKey: 6,
    ForgetsTheTrace: 1,
    StaysPlain: 31,
}
"""Each with a seed that finds it quickly."""
