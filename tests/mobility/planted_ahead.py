"""Proxies that prepare, with a bug each. The suite `proactive` must find every one of them."""

from __future__ import annotations

from msgspec.structs import replace

from mobility.ahead.contexts import Contexts
from mobility.ahead.conversation import Conversation
from mobility.ahead.neighbours import Neighbours
from mobility.ahead.passes import Passes
from mobility.ahead.preparation import Preparation
from mobility.ahead.preparing import Preparing
from mobility.ahead.waiting import Waiting
from mobility.collecting import Collector
from mobility.proxy import MobilityProxy
from tests.mobility.planted import named, with_collector


def planted(part, where):
    """A proxy of which that part is of that class."""

    class Proxy(MobilityProxy):
        def __init__(self, *args):
            super().__init__(*args)
            where(self.ahead).__class__ = part

    return named(Proxy, part)


def with_preparation(part):
    class Proxy(MobilityProxy):
        def __init__(self, *args):
            super().__init__(*args)
            self.ahead.__class__ = part
            self._stays.changed = self.ahead.reconsider

    return named(Proxy, part)


def with_preparing(part):
    return planted(part, lambda ahead: ahead.preparing)


def with_contexts(part):
    return planted(part, lambda ahead: ahead.contexts)


def with_waiting(part):
    class _Its(Contexts):
        def _activate(self, context, restored=False):
            super()._activate(context, restored)
            context.waiting.__class__ = part

    return named(with_contexts(_Its), part)


# What a proxy tells its neighbours


class _ActivatesWithoutPositions(Preparing):
    """Neighbours are not told what the client has consumed."""

    def propagate(self, client, claim, topics, service, active):
        super().propagate(client, claim, dict.fromkeys(topics), service, active)


class _NeverDiscards(Preparing):
    """Neighbours are not told that a client went elsewhere."""

    def went(self, client, claim, to, theirs):
        known = self.clients.get(client)
        if known is not None and known.copy.claim < claim:
            self._stay(known)
            del self.clients[client]


class _DeletesAtNeighboursOfBoth(Preparing):
    """A neighbour of the next proxy, too, is told to forget."""

    def went(self, client, claim, to, theirs):
        super().went(client, claim, to, ())


class _NeverDeactivatesAtNeighboursOfBoth(Preparing):
    """A neighbour of the next proxy, too, is not told to stop."""

    def went(self, client, claim, to, theirs):
        known = self.clients.get(client)
        if known is not None:
            for name in theirs:
                known.at.pop(name, None)
        super().went(client, claim, to, theirs)


class _KeepsOldTopics(Preparing):
    """Neighbours are not told what a client subscribes to, and not any more, while it is here."""

    def propagate(self, client, claim, topics, service, active):
        known = self.clients.get(client)
        if active or known is None or known.copy.active or known.copy.claim != claim:
            super().propagate(client, claim, topics, service, active)


class _PreparesForEver(Preparation):
    """A client that is gone for good is prepared for as long as the proxy lives."""

    def reconsider(self, handler):
        if handler.state != "expired" and self._stays.knows(handler):
            super().reconsider(handler)


class _NeverParts(Preparing):
    """One that is no neighbour any more is not told so."""

    def part(self, name):
        for known in self.clients.values():
            known.at.pop(name, None)


class _KnowsTooMany(Neighbours):
    """There is no end to the neighbours."""

    def _bound(self):
        pass


# What a proxy keeps for others


class _LetsEarlierOnesWin(Contexts):
    """What was said last counts, however late it is."""

    def copy(self, owner, copy):
        context = self.kept.get(copy.client)
        if context is not None and context.copy.order > copy.order:
            self._forget(context)
        return super().copy(owner, copy)


class _ForgetsWhatWasDropped(Contexts):
    """A late copy brings a context back."""

    def drop(self, drop):
        answer = super().drop(drop)
        self._tombs.clear()
        return answer


class _NeverDeactivates(Contexts):
    """A client that came back is buffered for all the same."""

    def _replace(self, old, owner, copy):
        if old is not None and old.waiting is not None and not copy.active:
            copy = replace(copy, active=True)
        super()._replace(old, owner, copy)


class _NeverFrees(Contexts):
    """A context that is not active any more keeps its buffer."""

    def _free(self, waiting):
        pass


class _LosesContexts(Contexts):
    """A proxy that crashed has lost what it said to keep."""

    def restore(self):
        for key, _ in self._env.storage.scan(b"mobility/ahead/context/"):
            self._env.storage.write({key: None})


class _ConfirmsTooEarly(Conversation):
    """A context is confirmed before it is durable."""

    def receive(self, peer, packet):
        storage, self.env = self.env, _AtOnce(self.env)
        try:
            return super().receive(peer, packet)
        finally:
            self.env = storage


class _AtOnce:
    def __init__(self, env):
        self.__dict__.update(env=env, storage=self)

    def __getattr__(self, name):
        return getattr(self.env, name)

    def write(self, changes, done=None, *, sync=False):
        done()


class _NeverLapses(Contexts):
    """A context of a proxy that is dead lives for ever."""

    def grow_old(self):
        pass


class _TakesEverything(Contexts):
    """Nothing is ever too much."""

    def _have_room(self, owner, copy, context):
        return True


class _LeavesTheHeirNothing(Waiting):
    """What a subscription brings goes to the context, not to the stay that inherited it."""

    def bequeath(self, heir):
        super().bequeath(heir)
        self.heir = None


class _BelievesAnybody(Passes):
    """A pass is not looked at."""

    def admits(self, name, token):
        return True


class _Trusts(Collector):
    """A client takes what was prepared for everything."""

    def offered(self, batch):
        for each in self._client._collectors:
            each.close()
        super().offered(batch)


PROXIES = [
    (with_preparing(_ActivatesWithoutPositions), 1),
    (with_preparing(_NeverDiscards), 4),
    (with_preparing(_DeletesAtNeighboursOfBoth), 1),
    (with_preparing(_NeverDeactivatesAtNeighboursOfBoth), 131),
    (with_contexts(_NeverDeactivates), 21),
    (with_preparing(_NeverParts), 147),
    (with_preparing(_KeepsOldTopics), 86),
    (with_preparation(_PreparesForEver), 0),
    (planted(_KnowsTooMany, lambda ahead: ahead.neighbours), 4),
    (with_contexts(_LetsEarlierOnesWin), 1),
    (with_contexts(_ForgetsWhatWasDropped), 6),
    (with_contexts(_NeverFrees), 0),
    (with_contexts(_LosesContexts), 3),
    (with_contexts(_NeverLapses), 139),
    (with_contexts(_TakesEverything), 5),
    (planted(_ConfirmsTooEarly, lambda ahead: ahead.conversation), 204),
    (planted(_BelievesAnybody, lambda ahead: ahead.conversation.passes), 1),
    (with_waiting(_LeavesTheHeirNothing), 1),
]
CLIENTS = [(with_collector(_Trusts), 11)]
