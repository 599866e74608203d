"""Fabric nodes whose publications have a bug each. The fault schedules must find every one of them.

The parts of a stream are made when it begins, so most bugs are planted in their classes, for as
long as a node of the kind runs: a trial has nodes of one kind only.
"""

from __future__ import annotations

import msgspec

from psirp_sim.publications import delivery, publisher, subscriber
from psirp_sim.publications import offer as offers
from psirp_sim.publications.assembly import WaitingRoom
from psirp_sim.publications.delivery import Subscription
from psirp_sim.publications.history import History
from psirp_sim.publications.pacing import Follower, Pace
from psirp_sim.publications.reception import Reception
from psirp_sim.publications.sending import Sending
from tests.psirp_sim.forwarding.planted import Careless


class Planted(Careless):
    """Puts other classes in the place of `classes` in its client."""

    sending = Sending
    reception = Reception
    subscription = Subscription
    history = History

    def plant(self):
        kind = type(self)
        client = self.client
        client.offer = _with(
            client.offer, (offers, "Sending", kind.sending), (publisher, "History", kind.history)
        )
        client.subscribe = _with(client.subscribe, (subscriber, "Subscription", kind.subscription))
        client.subscriber._reception = _with(
            client.subscriber._reception, (subscriber, "Reception", kind.reception)
        )


def _with(call, *replacements):
    """The call, while other classes stand in the place of the true ones."""

    def replaced(*args, **options):
        usual = [getattr(module, name) for module, name, _ in replacements]
        for module, name, other in replacements:
            setattr(module, name, other)
        try:
            return call(*args, **options)
        finally:
            for (module, name, _), true in zip(replacements, usual, strict=True):
                setattr(module, name, true)

    return replaced


class NeverRepairs(Planted):
    """What was lost stays lost."""

    class sending(Sending):
        def _mend(self, follower, message):
            pass


class RepairsTheFirstUnitOnly(Planted):
    """Of several units that are missing one is sent again, and the rest taken for sent."""

    class sending(Sending):
        def _lost(self, follower, version, begin, end):
            return super()._lost(follower, version, 0, 1)


class NeverAsksItsListeners(Planted):
    """Whether the last version arrived is nobody's concern."""

    class sending(Sending):
        def _expect_reports(self):
            pass


class ForgetsWhoIsBehind(Planted):
    """A listener that reports is taken to have everything."""

    class sending(Sending):
        def reported(self, message):
            known = super().reported(message)
            self._behind.clear()
            return known


class SendsBeforeItIsDurable(Planted):
    """A version is told to the world although a crash can still undo it."""

    class history(History):
        def append(self, envelope, done):
            super().append(envelope, lambda: None)
            done()


class StartsANewEpochAtEveryStart(Planted):
    """What was kept is not found again."""

    class history(History):
        def _load(self, renew):
            pass


class KeepsItsEpochWithoutItsState(Planted):
    """Versions are given twice under the same epoch."""

    def plant(self):
        super().plant()
        self.client.publisher._new_epoch = lambda: 1


class ForgetsTooEarly(Planted):
    """The history is shorter than promised."""

    class history(History):
        def _trim(self):
            while len(self) > 3:
                self.forget_oldest()
            super()._trim()


class KeepsEverything(Planted):
    """The history has no bounds."""

    class history(History):
        def _trim(self):
            pass


class BeginsAfterTheBase(Planted):
    """The version that was the latest at the subscription is left out."""

    class subscription(Subscription):
        def follow(self, reception, base):
            super().follow(reception, base + 1)


class BeginsWithTheNewest(Planted):
    """A subscriber that comes back goes on with what is new."""

    class subscription(Subscription):
        def _load(self, prefix):
            return {}


class IgnoresWhereItWas(Planted):
    """`after` is not looked at."""

    class subscription(Subscription):
        def __init__(self, *args, after, **options):
            super().__init__(*args, after=(), **options)


class CommitsTooEarly(Planted):
    """The cursor of a durable subscriber is ahead of its listener."""

    class subscription(Subscription):
        def _commit(self, cursor):
            for held in cursor.in_hand:
                held.done = True
            super()._commit(cursor)


class HandsOnTwice(Planted):
    """A listener that is not done gets the event again."""

    class subscription(Subscription):
        def done(self, event):
            super().done(event)
            for cursor in self.cursors.values():
                if cursor.next > 1 and cursor.next % 7 == 0:
                    cursor.next -= 1


class HandsOnWhatThereIs(Planted):
    """A version that is missing is passed over."""

    class subscription(Subscription):
        def _next_event(self, cursor, reception):
            later = [v for v, held in reception.held.items() if held.header is not None]
            if cursor.reset is None and later and min(later) > cursor.next:
                cursor.next = min(later)
            return super()._next_event(cursor, reception)


class SaysNothingOfGaps(Planted):
    """Versions that cannot be had are passed over in silence."""

    class subscription(Subscription):
        def _hand_on(self, cursor, event):
            if isinstance(event, delivery.Gap):
                cursor.next = event.last + 1
                return True
            return super()._hand_on(cursor, event)


class SaysNothingOfResets(Planted):
    """A new epoch begins in silence."""

    class subscription(Subscription):
        def _begin_epoch(self, cursor, reception):
            cursor.epoch, cursor.next = reception.epoch, 1


class TakesAnyPromptListener(Planted):
    """A listener gets more than it can hold."""

    class subscription(Subscription):
        def _is_full(self):
            return False


class NeverAsks(Planted):
    """A listener waits for what is lost."""

    class reception(Reception):
        def ask_soon(self, delay):
            pass

        def _report(self, node, answers):
            pass


class AsksOnce(Planted):
    """A listener asks for what is lost, but not again."""

    class reception(Reception):
        def _ask(self):
            if self._tries < 1:
                super()._ask()
            self._tries = 5

        def said(self, message):
            super().said(msgspec.structs.replace(message, answer_ms=None))


class StaysInItsEpoch(Planted):
    """An outdated stream goes on under its old epoch."""

    class reception(Reception):
        def hear(self, node, life, epoch, latest):
            super().hear(node, life, epoch if self.epoch < 0 else self.epoch, latest)


class AsksForWhatIsGone(Planted):
    """What the publisher has let go is asked for again and again."""

    class reception(Reception):
        def lost_from(self, version):
            return version - 1


class HoardsWhatHasCome(Planted):
    """The waiting room has no walls."""

    class reception(Reception):
        def _has_room(self, version, size):
            return True

    def plant(self):
        super().plant()

        class Endless(WaitingRoom):
            def admit(self, assembly, now):
                self._assemblies[assembly] = None
                self.bytes += assembly.size
                return True

        self.client.subscriber._room.__class__ = Endless


class ClosesTheWindow(Planted):
    """After a loss nothing is sent any more."""

    class sending(Sending):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)

            class Shrinking(Pace):
                def reported(self, name, follower):
                    if follower.lost:
                        self.window = 0

            self.pace = Shrinking()


class TakesWhatIsLostToBeUnderWay(Planted):
    """A listener waits for ever for what it has lost."""

    class sending(Sending):
        def listeners_changed(self, listeners):
            super().listeners_changed(listeners)
            for each in self.followers.values():
                each.__class__ = Late


class Late(Follower):
    """Nothing that was sent is ever lost for it."""

    __slots__ = ()

    @property
    def floor(self):
        return 0


class GoesOnAfterAPowerCut(Planted):
    """A durable stream goes on with versions that were given before the power was cut."""

    class history(History):
        def _load(self, renew):
            super()._load(renew)
            self.is_stale = False


PLANTED: dict[type[Planted], int] = {
    GoesOnAfterAPowerCut: 27,
    NeverRepairs: 18,
    RepairsTheFirstUnitOnly: 200,
    NeverAsksItsListeners: 0,
    ForgetsWhoIsBehind: 0,
    SendsBeforeItIsDurable: 97,
    StartsANewEpochAtEveryStart: 6,
    KeepsItsEpochWithoutItsState: 1,
    ForgetsTooEarly: 0,
    KeepsEverything: 7,
    BeginsAfterTheBase: 12,
    BeginsWithTheNewest: 3,
    IgnoresWhereItWas: 7,
    CommitsTooEarly: 36,
    HandsOnTwice: 1,
    HandsOnWhatThereIs: 0,
    SaysNothingOfGaps: 9,
    SaysNothingOfResets: 0,
    TakesAnyPromptListener: 2,
    NeverAsks: 0,
    AsksOnce: 0,
    StaysInItsEpoch: 28,
    AsksForWhatIsGone: 9,
    HoardsWhatHasCome: 7,
    ClosesTheWindow: 18,
    TakesWhatIsLostToBeUnderWay: 18,
}
"""Each with a seed that finds it quickly."""
