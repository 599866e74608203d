"""Clients and proxies with a bug each. The fault schedules must find every one of them."""

from __future__ import annotations

from msgspec.structs import replace

from mobility import client as client_parts
from mobility import proxy as proxy_parts
from mobility.client import MobileClient
from mobility.collecting import Collector
from mobility.handler import Handler
from mobility.identity import Claim
from mobility.merging import Flow
from mobility.proxy import MobilityProxy


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


def with_handler(part):
    """A proxy whose handlers are of that class."""

    class Proxy(MobilityProxy):
        def _add(self, record):
            usual, proxy_parts.Handler = proxy_parts.Handler, part
            try:
                return super()._add(record)
            finally:
                proxy_parts.Handler = usual

    return named(Proxy, part)


def with_collector(part):
    """A client whose collectors are of that class."""

    class Client(MobileClient):
        def _arrive(self):
            usual, client_parts.Collector = client_parts.Collector, part
            try:
                super()._arrive()
            finally:
                client_parts.Collector = usual

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


class StartsAnewAfterACrash(MobileClient):
    """A client that crashed does not know where it was."""

    def start(self):
        super().start()
        self._claimed = replace(self._claimed, debts=())


class ForgetsEarlierStays(MobileClient):
    """A client that moved on before it had arrived collects from the last proxy only."""

    def move_in(self, proxy):
        self._claimed = replace(self._claimed, debts=self._claimed.debts[-1:])
        super().move_in(proxy)


class ReleasesTooEarly(MobileClient):
    """A proxy is told to forget before what it kept has been consumed."""

    def collected(self, collector, items, batch):
        self._release(collector.debt)
        super().collected(collector, items, batch)


class ReportsWhatIsNotDurable(MobileClient):
    """A proxy begins after a Position that a crash takes back."""

    def _places(self, topics):
        for flow in self.flows.values():
            flow.durable = flow.after
        return super()._places(topics)

    def _pass_on(self, events):
        super()._pass_on(events)
        if self._welcomed:
            self._dirty.update(dict.fromkeys(self.flows))
            self._sign_of_life()


class NeverRepeats(MobileClient):
    """A question that is lost is never asked again."""

    def __init__(self, *args):
        super().__init__(*args)
        self._calls._repeat = lambda number: None


class DetachesBeforeTheAnswer(MobileClient):
    """A client leaves before the proxy has taken over."""

    def _ask_to_leave(self):
        super()._ask_to_leave()
        self._ear.deaf = True


class _LosesItsPlace(Collector):
    """What an earlier life of a proxy numbered is taken for the numbers of this one."""

    def _answered(self, answer):
        self._life = getattr(answer, "life", self._life)
        super()._answered(answer)

    def ask(self):
        self._after += 1 if self._after else 0
        super().ask()


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


# The proxy


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

    def write(self, changes, done=None):
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


class _DoesNotStandBy(Handler):
    """What is published before a client is missed is buffered by nobody."""

    def stand_by(self):
        pass


class AnswersBeforeItsSubscriptions(MobilityProxy):
    """A client may leave before its handler's subscriptions are in effect."""

    def _moved_out(self, stay):
        handler = self.handlers.get(stay)
        if handler is not None:
            handler._pending.clear()
        super()._moved_out(stay)


class IgnoresClaims(MobilityProxy):
    """A proxy does not learn that its client is somewhere else, and keeps what is over."""

    def _claim(self, client, claim):
        self._claims.setdefault(client, Claim(0, 0))


class NeverNoticesSilence(MobilityProxy):
    """A client that vanished is waited for, and nothing is kept for it."""

    def _vanished(self, handler):
        pass

    def _claim(self, client, claim):
        self._claims[client] = max(claim, self._claims.get(client, claim))


class ReleasesNothing(MobilityProxy):
    """Buffers are never forgotten."""

    def _forget(self, handler):
        pass


CLIENTS = [
    with_flow(_TakesDuplicates),
    with_flow(_SkipsHoles),
    with_flow(_DoesNotWaitForBuffers),
    with_flow(_ForgetsItsCursor),
    StartsAnewAfterACrash,
    ForgetsEarlierStays,
    ReleasesTooEarly,
    ReportsWhatIsNotDurable,
    NeverRepeats,
    DetachesBeforeTheAnswer,
    with_collector(_LosesItsPlace),
    SendsOutgoingTwice,
    ForgetsOutgoing,
]
PROXIES = [
    with_handler(_DoesNotRestoreItems),
    with_handler(_NeverWritesItems),
    with_handler(_StopsWhenCollected),
    with_handler(_TrimsOneTooMany),
    with_handler(_BeginsFromNowOn),
    with_handler(_DoesNotStandBy),
    AnswersBeforeItsSubscriptions,
    IgnoresClaims,
    NeverNoticesSilence,
    ReleasesNothing,
]
