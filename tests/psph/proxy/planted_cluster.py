"""Proxies of one host with a bug each, in how they take turns. The fault schedules of the suite
`cluster` must find every one of them."""

from __future__ import annotations

from psph.proxy import listening, own_topics
from psph.proxy.cluster import Cluster
from psph.proxy.listening import Listening
from psph.proxy.origin import Origin
from psph.proxy.turns import Verdict
from psph.proxy.writing import Turn, Writing
from tests.psph.proxy.planted import Planted


class PublishesWithoutTheLease(Planted):
    """It does not wait to be the writer of a topic."""

    class Origin(Origin):
        def _open(self, canonical, news=None):
            own = super()._open(canonical, news)
            if own is not None:
                own.turn.__class__ = Granted
            return own


class Granted(Turn):
    """A turn that never ends."""

    held = True


class NeverHandsOver(Planted):
    """Who writes a topic does so until it dies, whoever has news of it."""

    class Writing(Writing):
        def successor(self, turn, *, settled):
            return ""


class KeepsItsNewsToItself(Planted):
    """What a publisher sent to one that does not write the topic waits until it does."""

    class Cluster(Cluster):
        def claim(self, topic):
            pass


class KeepsPingsToItself(Planted):
    """A ping for a topic that another one writes is not passed on."""

    class Cluster(Cluster):
        def ping(self, topic):
            pass


class ForgetsItsTurns(Planted):
    """What it wrote before a crash, and what it still has to, is forgotten."""

    class Origin(Origin):
        def _open(self, canonical, news=None):
            if canonical not in self.topics:
                self._env.storage.write({own_topics.PREFIX + canonical.encode(): None})
            return super()._open(canonical, news)


class WithdrawsAtTheEnd(Planted):
    """What it wrote in its turn cannot be had any more when that is over."""

    class Origin(Origin):
        def _lost(self, own):
            was_open = own.open
            super()._lost(own)
            if was_open:
                own.kept = (0, 0)
                self._withdraw(own)


class PublishesOutOfTurn(Planted):
    """Who stands by offers all that its hub has."""

    class Origin(Origin):
        def _withheld(self, own, updates):
            super()._withheld(own, updates)
            if updates:
                own.kept = (updates[-1].position.epoch, updates[-1].position.version)
            return list(updates)


class DoesNotLookAfterAll(Planted):
    """The hub is not told that it is to fetch again what another one brought until now."""

    def _turned(self, canonical):
        self.inflow.turned(canonical)


class TakesUpTheLatest(Planted):
    """The versions that another one published before we heard of its turn are left out."""

    class Listening(Listening):
        def _judge(self, listener, event):
            verdict = super()._judge(listener, event)
            return Verdict.GOOD if verdict is Verdict.LATE else verdict


class ForgetsThatItFollowed(Planted):
    """After a crash a topic is begun with anew, though its readers were told that it comes."""

    class Listening(Listening):
        def follow(self, listener, turn):
            super().follow(listener, turn)
            self._env.storage.write({listening.PREFIX + listener.topic.rid.raw: None})


class KeepsWritingAlone(Planted):
    """Who was alone goes on without a lease when another one has come."""

    class Writing(Writing):
        def look(self, turn):
            if not turn.is_alone:
                super().look(turn)


class TellsTheNumberOfItsVersions(Planted):
    """Readers are told a number that the leases of others have not reached yet."""

    class Writing(Writing):
        def begin(self, topic, changed):
            turn = super().begin(topic, changed)
            turn.__class__ = Boastful
            return turn


class Boastful(Turn):
    """Tells readers its own number."""

    @property
    def since(self):
        return self.number


PLANTED: dict[type[Planted], int] = {
    PublishesWithoutTheLease: 0,
    NeverHandsOver: 35,
    KeepsItsNewsToItself: 35,
    KeepsPingsToItself: 26,
    ForgetsItsTurns: 0,
    WithdrawsAtTheEnd: 117,
    PublishesOutOfTurn: 0,
    DoesNotLookAfterAll: 113,
    TakesUpTheLatest: 6,
    ForgetsThatItFollowed: 176,
    KeepsWritingAlone: 7,
    TellsTheNumberOfItsVersions: 6,
}
"""Each with a seed that finds it quickly."""
