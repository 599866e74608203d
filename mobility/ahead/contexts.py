"""The contexts that a proxy keeps for others: of clients that may come here next.

    (none) --copy--> passive --copy, active--> active --the client comes--> its handler
                        ^------copy, passive, or pressure--------'
    passive, active --drop, lapse, pressure--> (none)

Each change has its place in an order (claim, then serial number): what is late changes nothing, and
what was dropped is remembered for a while so that nothing late brings it back. A context is durable
before it is confirmed. All of it may be dropped at any time: the client then waits longer, and that
is all.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum

import msgspec
from msgspec import Struct

from mobility.ahead.settings import AheadSettings
from mobility.ahead.waiting import Waiting, Warmth
from mobility.ahead.words import Copy, Drop, Mark, Order, encode
from mobility.claims import Claims
from mobility.handler import Handler, Record, goes_on
from mobility.port import PubSub
from mobility.service import Mode, Quota, Service
from psirp_sim.runtime.environment import Environment

_CONTEXT = b"mobility/ahead/context/"
_TOMBS = 10_000


class Answer(StrEnum):
    """What becomes of a change."""

    HELD = "held"
    LACKING = "lacking"
    REFUSED = "refused"


class _Stored(Struct, frozen=True):
    owner: str
    copy: Copy


class Context:
    """Of one client."""

    def __init__(self, owner: str, copy: Copy) -> None:
        self.owner = owner
        """The proxy that the client is at, or was last."""
        self.copy = copy
        self.size = len(encode(copy))
        self.renewed = 0
        """By this proxy's clock."""
        self.waiting: Waiting | None = None
        """What is buffered, while it is active."""
        self.counted = 0
        """Bytes of it that are in the sum of all."""
        self.counted_topics = 0

    @property
    def bytes(self) -> int:
        return self.size + (0 if self.waiting is None else self.waiting.buffer.bytes)

    @property
    def topics(self) -> int:
        """That are buffered."""
        return 0 if self.waiting is None else self.waiting.buffered_topics


class Contexts:
    """By client id, those that were activated last at the end."""

    def __init__(
        self,
        env: Environment,
        pubsub: PubSub,
        settings: AheadSettings,
        most: Service,
        claims: Claims,
        counters: dict[str, int],
    ) -> None:
        """`most`: what a client may ask for at this proxy."""
        self.kept: dict[str, Context] = {}
        self.refusing = False
        """Nothing new is taken: there is too much else to do."""
        self._env = env
        self._pubsub = pubsub
        self._settings = settings
        self._most = most.within(_bounded(most, settings.context_bytes))
        self._claims = claims
        self._counters = counters
        self.bytes = 0
        """Of all of them, as far as they have been counted."""
        self.topics = 0
        """That all of them buffer."""
        self.warmth = Warmth(pubsub, settings.topics)
        self.of_owner: Counter[str] = Counter()
        self._tombs: dict[str, tuple[Order, int]] = {}

    def __len__(self) -> int:
        return len(self.kept)

    @property
    def active(self) -> int:
        """How many are."""
        return sum(context.waiting is not None for context in self.kept.values())

    def restore(self) -> None:
        """Go on with what was durable."""
        for _, value in self._env.storage.scan(_CONTEXT):
            stored = msgspec.msgpack.decode(value, type=_Stored)
            context = Context(stored.owner, stored.copy)
            context.renewed = self._env.now()
            self._put(context)
            if stored.copy.active:
                self._activate(context, restored=True)
            if self._is_old(stored.copy):
                self._forget(context)  # the client came, and it was not noted any more

    def stop(self) -> None:
        """Nothing is added any more."""
        for context in self.kept.values():
            if context.waiting is not None:
                context.waiting.quit()
                context.waiting.warm.cool()

    # What their proxies say

    def copy(self, owner: str, copy: Copy) -> Answer:
        """Keep it, if it is news."""
        if copy.service.mode is not Mode.POSITION or self._is_old(copy):
            return Answer.REFUSED
        context = self.kept.get(copy.client)
        buried = self._tombs.get(copy.client)
        if (buried is not None and buried[0] >= copy.order) or (
            context is not None and context.copy.order > copy.order
        ):
            return Answer.HELD  # it is late
        if context is not None and context.copy.order == copy.order:
            context.renewed = self._env.now()
            return Answer.HELD
        if not self._have_room(owner, copy, context):
            self._counters["refusals"] += 1
            return Answer.REFUSED
        self._replace(context, owner, copy)
        return Answer.HELD

    def mark(self, owner: str, mark: Mark) -> Answer:
        """Go on keeping it."""
        if self._is_old(mark):
            return Answer.REFUSED
        context = self.kept.get(mark.client)
        if context is None or context.owner != owner or context.copy.order < mark.order:
            return Answer.LACKING
        if context.copy.order == mark.order:
            context.renewed = self._env.now()
        return Answer.HELD

    def drop(self, drop: Drop) -> Answer:
        """Forget it, and what is late about it."""
        buried = self._tombs.pop(drop.client, None)
        order = drop.order if buried is None else max(drop.order, buried[0])
        self._tombs[drop.client] = (order, self._env.now())
        if len(self._tombs) > _TOMBS:
            del self._tombs[next(iter(self._tombs))]
        context = self.kept.get(drop.client)
        if context is not None and context.copy.order <= drop.order:
            self._forget(context)
        return Answer.HELD

    def _is_old(self, change: Copy | Mark) -> bool:
        """The client has been somewhere else since."""
        return self._claims.above(change.client, change.claim) is not None

    def _have_room(self, owner: str, copy: Copy, context: Context | None) -> bool:
        if not copy.active and context is not None:
            return True  # it can only get less
        if self.refusing:
            return False
        size = len(encode(copy)) - (0 if context is None else context.size)
        if self.bytes + size > self._settings.bytes:
            return False
        here = 0 if context is None else context.topics
        if copy.active and self.topics - here + len(copy.topics) > self._settings.topics:
            return False
        if context is not None:
            return True
        settings = self._settings
        return len(self.kept) < settings.contexts and self.of_owner[owner] < settings.share

    # What becomes of one

    def _put(self, context: Context) -> None:
        self.kept[context.copy.client] = context
        self.of_owner[context.owner] += 1
        self._count(context)

    def _pop(self, client: str) -> Context | None:
        context = self.kept.pop(client, None)
        if context is not None:
            self.bytes -= context.counted
            self.topics -= context.counted_topics
            context.counted = context.counted_topics = 0
            self.of_owner[context.owner] -= 1
            if not self.of_owner[context.owner]:
                del self.of_owner[context.owner]
        return context

    def _count(self, context: Context) -> None:
        self.bytes += context.bytes - context.counted
        self.topics += context.topics - context.counted_topics
        context.counted, context.counted_topics = context.bytes, context.topics

    def _replace(self, old: Context | None, owner: str, copy: Copy) -> None:
        context = Context(owner, copy)
        context.renewed = self._env.now()
        self._pop(copy.client)
        waiting = None if old is None else old.waiting
        if waiting is not None:
            if copy.active and self._goes_on(waiting, copy):
                # It has buffered from there on, or from earlier on.
                context.waiting = waiting
                waiting.grew = lambda: self._grew(context)
                waiting.list_topics(waiting.record.asked + 1, copy.topics, {})
                waiting.go_on()
            else:
                self._free(waiting)
        if copy.active and context.waiting is None:
            self._activate(context)
        self._put(context)
        value = msgspec.msgpack.encode(_Stored(owner, copy))
        self._env.storage.write({_key(copy.client): value})

    def _activate(self, context: Context, restored: bool = False) -> None:
        copy = context.copy
        # The number of a stay is none here: a context has one buffer, whoever it is of.
        record = Record(
            client=copy.client,
            epoch=0,
            nonce=0,
            topics=copy.topics,
            service=copy.service.within(self._most),
            alive=1.0,
            state="away",
        )
        waiting = context.waiting = Waiting(self._env, self._pubsub, record)
        waiting.grew = lambda: self._grew(context)
        if restored:
            waiting.restore()  # begun nobody knows when
        else:
            waiting.began = copy.epoch
        waiting.begin(self.warmth)
        if restored:
            self._count(context)

    def _goes_on(self, waiting: Waiting, copy: Copy) -> bool:
        known, wanted = waiting.record.topics, copy.topics
        return waiting.record.service == copy.service.within(self._most) and all(
            goes_on(known[topic], wanted[topic]) for topic in wanted if topic in known
        )

    def _grew(self, context: Context) -> None:
        self._count(context)
        if self.bytes > self._settings.bytes:
            for each in list(self.kept.values()):
                self._shed(each)  # those begun first
                if self.bytes <= self._settings.bytes:
                    return

    def _shed(self, context: Context) -> None:
        if context.waiting is not None:
            self._counters["shed"] += 1
            self._free(context.waiting)
            context.waiting = None
            self._count(context)
            passive = msgspec.structs.replace(context.copy, active=False)
            stored = _Stored(context.owner, passive)
            self._env.storage.write({_key(passive.client): msgspec.msgpack.encode(stored)})

    def shed_all(self) -> None:
        """There is too much else to do: free every buffer."""
        for context in list(self.kept.values()):
            self._shed(context)

    def _forget(self, context: Context) -> None:
        client = context.copy.client
        if context.waiting is not None:
            self._free(context.waiting)
        self._pop(client)
        self._env.storage.write({_key(client): None})

    def _free(self, waiting: Waiting) -> None:
        self._counters["bytes_in_vain"] += waiting.buffer.bytes
        waiting.erase()

    # The client, and time

    def take(self, handler: Handler) -> Context | None:
        """The client came: what was prepared for it is its handler's from now on."""
        context = self._pop(handler.record.client)
        if context is None:
            return None
        waiting = context.waiting
        if waiting is not None:
            before = waiting.buffer.bytes
            if context.copy.claim < handler.claim:
                waiting.bequeath(handler)
                self._counters["bytes_adopted"] += handler.buffer.bytes
                self._counters["bytes_in_vain"] += max(0, before - handler.buffer.bytes)
            else:  # not this client's, or another copy's of it
                self._free(waiting)
                context.waiting = None
        self._env.storage.write({_key(handler.record.client): None})
        return context

    def grow_old(self) -> None:
        """Let those go whose proxy is silent."""
        now, lapse = self._env.now(), self._settings.lapse
        for context in list(self.kept.values()):
            if now - context.renewed > lapse:
                self._counters["lapsed"] += 1
                self._forget(context)
        for client, (_, since) in list(self._tombs.items()):
            if now - since > lapse:
                del self._tombs[client]

    @property
    def remembers(self) -> bool:
        """Whether there is anything for time to do."""
        return bool(self.kept or self._tombs)


def _bounded(most: Service, size: int) -> Service:
    return Service(
        keep=most.keep,
        topic=Quota(most.topic.messages, size),
        client=Quota(most.client.messages, size),
    )


def _key(client: str) -> bytes:
    return _CONTEXT + bytes.fromhex(client)
