"""Clients and proxies with a bug each. The fault schedules must find every one of them."""

from __future__ import annotations

from msgspec.structs import replace

from mobility import arrival as arrival_parts
from mobility.client import MobileClient
from mobility.collecting import Collector
from mobility.handler import Handler
from mobility.identity import client_id
from mobility.merging import Flow
from mobility.messages import Alive, Arrived, MovedOut, Welcome
from mobility.proxy import MobilityProxy
from mobility.stays import Stays


def with_flow(part):
    """A client whose merge queues are of that class, the restored ones too."""

    class Client(MobileClient):
        def start(self):
            super().start()
            for flow in self.flows.values():
                flow.__class__ = part

        def subscribe(self, topic):
            super().subscribe(topic)
            self.flows[topic].__class__ = part

    return named(Client, part)


def with_stays(part):
    """A proxy whose stays are of that class."""

    class Proxy(MobilityProxy):
        def __init__(self, *args):
            super().__init__(*args)
            self._stays.__class__ = part

    return named(Proxy, part)


def with_handler(part):
    """A proxy whose handlers are of that class."""

    class ItsStays(Stays):
        def add(self, record):
            handler = super().add(record)
            handler.__class__ = part
            return handler

    return named(with_stays(ItsStays), part)


def with_collector(part):
    """A client whose collectors are of that class."""

    class Client(MobileClient):
        def _arrive(self):
            usual, arrival_parts.Collector = arrival_parts.Collector, part
            try:
                super()._arrive()
            finally:
                arrival_parts.Collector = usual

    return named(Client, part)


def named(core, part):
    core.__name__, core.__doc__ = part.__name__, part.__doc__
    return core


# The client


class _TakesDuplicates(Flow):
    """What was consumed already is consumed again when a buffer has it, too."""

    def _is_new(self, position):
        return True

    def _next(self, publisher):
        return min(self._held[publisher])


class _SkipsHoles(Flow):
    """The message behind a missing one is consumed in its place, and nobody is told."""

    def _hole(self, publisher, key, reason):
        return iter(())


class _DoesNotWaitForBuffers(Flow):
    """What the live flow does not have is called missing although a proxy keeps it."""

    @property
    def lacking(self):
        return False


class _ForgetsItsCursor(Flow):
    """After a move the subscription begins from now on."""

    @property
    def after(self):
        return None


class _HoldsTheBeginning(Flow):
    """What is heard first of a stream waits for something earlier although its topic began here."""

    def _next(self, publisher):
        if publisher not in self.cursor and not self.whole:
            return (-1, 0)
        return super()._next(publisher)


class _ForgetsWhatItHeard(Flow):
    """Nobody is told of what was heard of a new stream and not consumed before the next move."""

    def restart(self):
        self.heard.clear()
        super().restart()


class StartsAnewAfterACrash(MobileClient):
    """A client that crashed does not know where it was."""

    def start(self):
        super().start()
        self._debts.claimed = replace(self._debts.claimed, debts=())


class ForgetsEarlierStays(MobileClient):
    """A client that moved on before it had arrived collects from the last proxy only."""

    def move_in(self, proxy):
        claimed = self._debts.claimed
        self._debts.claimed = replace(claimed, debts=claimed.debts[-1:])
        super().move_in(proxy)


class _ReleasesTooEarly(Collector):
    """A proxy is told to forget before what it kept has been consumed."""

    def _answered(self, answer):
        client = self._client._client
        client._attendance.release(self.debt, lambda debt: None)
        super()._answered(answer)


class NeverRepeats(MobileClient):
    """A question that is lost is never asked again."""

    def __init__(self, *args):
        super().__init__(*args)
        self.calls._repeat = lambda number: None


class DetachesBeforeTheAnswer(MobileClient):
    """A client leaves before the proxy has taken over."""

    def move_out(self):
        super().move_out()
        if self._ear is not None:
            self._ear.deaf = True


class _LosesItsPlace(Collector):
    """What an earlier life of a proxy numbered is taken for the numbers of this one."""

    def _answered(self, answer):
        self._life = getattr(answer, "life", self._life)
        super()._answered(answer)

    def ask(self):
        self._after += 1 if self._after else 0
        super().ask()


class _WaitsForEveryTopic(Collector):
    """A proxy is asked again only when the subscriptions to all topics are in effect."""

    def _look_again(self):
        env, settings = self._client.env, self._client.settings
        if self._client.caught_up:
            super()._look_again()
        else:
            self.heard_at = env.now()
            self._timer = env.call_later(settings.poll, self._look_again)


class SendsOutgoingTwice(MobileClient):
    """A publication that was taken is given another Position at the next place."""

    def _arrive(self):
        for topic in list(self.outgoing._versions):
            if not len(self.outgoing):
                self.outgoing._versions[topic] += 1
        super()._arrive()


class ForgetsOutgoing(MobileClient):
    """What waited to be published when the client crashed is never sent."""

    def start(self):
        super().start()
        self.outgoing._waiting.clear()


class ReportsWhatIsNotDurable(MobileClient):
    """A proxy is told a Position that a crash would take back."""

    def _note(self, flow, effect):
        super()._note(flow, effect)
        flow.durable = flow.after
        self._attendance.consumed(flow.topic)


class ReusesOutgoingPositions(MobileClient):
    """A client that crashed gives a Position to a second publication."""

    def start(self):
        super().start()
        self.outgoing._versions = {t: max(0, n - 1) for t, n in self.outgoing._versions.items()}


class SendsOutgoingInAnyOrder(MobileClient):
    """What waited is sent from the next place the wrong way round."""

    def _arrive(self):
        self.outgoing._waiting = dict(reversed(self.outgoing._waiting.items()))
        super()._arrive()


class CollectsForAnEarlierSubscription(MobileClient):
    """What proxies kept before the client unsubscribed comes when it has subscribed again."""

    def subscribe(self, topic):
        super().subscribe(topic)
        self.flows[topic].since = 0
        self.flows[topic].floor.clear()


class NamesNoNewTopicWhileLeaving(MobileClient):
    """A topic subscribed to after the proxy was asked to take over is not in its list."""

    def __init__(self, *args):
        super().__init__(*args)
        usual = self._attendance.subscribed
        self._attendance.subscribed = lambda topic: self._leaving or usual(topic)


class UnsubscribesUntilItCrashes(MobileClient):
    """A topic that is not wanted any more comes back from the disk."""

    def __init__(self, *args):
        super().__init__(*args)
        self._memory.forget = lambda topic, effect: self.env.storage.write(effect)


# The proxy


class _DoesNotStandBy(Handler):
    """Nothing is buffered while a client is here, whatever the system can bring back."""

    def stand_by(self):
        for topic in list(self._subscriptions):
            self._cancel(topic)


class DismissesTooEarly(MobilityProxy):
    """A client is told to go before the subscriptions in its place are in effect."""

    def _move_out(self, asker, handler, question):
        super()._move_out(asker, handler, question)
        handler.save(lambda: self._tell(asker, MovedOut(call=asker.call)))


class WelcomesTooEarly(MobilityProxy):
    """A client relies on a proxy that is not subscribed yet."""

    def _move_in(self, asker, client, question):
        super()._move_in(asker, client, question)
        handler = self.handlers.get((client, question.epoch))
        if handler is not None:
            welcome = Welcome(call=asker.call, service=handler.record.service, report=True)
            handler.save(lambda: self._tell(asker, welcome))


class IgnoresClaims(MobilityProxy):
    """Whoever has the secret is as good as any other."""

    def _claim(self, client, claim):
        pass


class _NeverNoticesSilence(Stays):
    """A client that vanished is taken to be here for ever."""

    def watch(self, handler):
        pass


class LetsLateWordsCount(MobilityProxy):
    """A sign of life that is late brings back a client that has moved out."""

    def _asked(self, asker, question):
        if isinstance(question, Alive | Arrived):
            handler = self.handlers.get((client_id(question.secret), question.epoch))
            if handler is not None:
                handler.record = replace(handler.record, final=False)
        super()._asked(asker, question)


class _DoesNotRestoreItems(Handler):
    """A proxy that crashed has lost its buffers."""

    def restore(self):
        pass


class _NeverWritesItems(Handler):
    """Buffers are in memory only."""

    def deliver(self, topic, position, message):
        storage, self._env = self._env, _Forgetful(self._env)
        try:
            super().deliver(topic, position, message)
        finally:
            self._env = storage


class _Forgetful:
    def __init__(self, env):
        self.__dict__.update(env=env, storage=self)

    def __getattr__(self, name):
        return getattr(self.env, name)

    def write(self, changes, done=None, *, sync=False):
        pass


class _StopsWhenCollected(Handler):
    """The handler's subscriptions go before the client's are in effect."""

    def batch(self, question):
        self.quit()
        return super().batch(question)


class _TrimsOneTooMany(Handler):
    """A buffer forgets a message that was not consumed."""

    def batch(self, question):
        for serial in list(self.buffer.items)[:1]:
            self.buffer._remove(serial)
        return super().batch(question)


class _BeginsFromNowOn(Handler):
    """A handler does not go on where the client was."""

    def _subscribe(self, topic):
        if topic in self._subscriptions:
            return
        self._pending.add(topic)
        self._subscriptions[topic] = self._pubsub.subscribe(topic, None, self)


class _ForgetsNothing(Stays):
    """Buffers are never forgotten."""

    def forget(self, handler):
        pass


class _LetsLateListsCount(Handler):
    """A list of topics that was overtaken, or came twice, undoes what was said since."""

    def update(self, call, topics, gone):
        self.record = replace(self.record, asked=0)
        super().update(call, topics, gone)


class _ExpiresTooEarly(Stays):
    """A client is given a tenth of the time to keep that it was promised."""

    def _after(self, handler, delay, then):
        super()._after(handler, delay // 10 if then == self._expire else delay, then)


class _DoesNotSayThatItExpired(Stays):
    """What the time to keep cost is missing for no reason."""

    def _expire(self, handler):
        super()._expire(handler)
        handler.become("away", self._env.wall())


# Each with a seed that is known to find it.

CLIENTS = [
    (with_flow(_TakesDuplicates), 0),
    (with_flow(_SkipsHoles), 1),
    (with_flow(_DoesNotWaitForBuffers), 1),
    (with_flow(_ForgetsItsCursor), 0),
    (with_flow(_HoldsTheBeginning), 335),
    (with_flow(_ForgetsWhatItHeard), 127),
    (StartsAnewAfterACrash, 0),
    (ForgetsEarlierStays, 0),
    (with_collector(_ReleasesTooEarly), 5),
    (NeverRepeats, 1),
    (DetachesBeforeTheAnswer, 8),
    (with_collector(_LosesItsPlace), 10),
    (with_collector(_WaitsForEveryTopic), 27),
    (SendsOutgoingTwice, 7),
    (ForgetsOutgoing, 49),
    (ReusesOutgoingPositions, 23),
    (SendsOutgoingInAnyOrder, 2),
    (ReportsWhatIsNotDurable, 1),
    (CollectsForAnEarlierSubscription, 101),
    (NamesNoNewTopicWhileLeaving, 111),
    (UnsubscribesUntilItCrashes, 73),
]
PROXIES = [
    (with_handler(_DoesNotRestoreItems), 101),
    (with_handler(_NeverWritesItems), 101),
    (with_handler(_StopsWhenCollected), 1),
    (with_handler(_TrimsOneTooMany), 1),
    (with_handler(_BeginsFromNowOn), 4),
    (with_stays(_ForgetsNothing), 0),
    (with_handler(_DoesNotStandBy), 10),
    (DismissesTooEarly, 112),
    (WelcomesTooEarly, 12),
    (IgnoresClaims, 1),
    (with_stays(_NeverNoticesSilence), 5),
    (LetsLateWordsCount, 332),
    (with_handler(_LetsLateListsCount), 322),
    (with_stays(_ExpiresTooEarly), 15),
    (with_stays(_DoesNotSayThatItExpired), 9),
]
