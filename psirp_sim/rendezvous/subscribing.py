"""The subscriber's side of matches: which publishers have said that we are subscribed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from psirp_sim.rendezvous.publishing import Base
from psirp_sim.rendezvous.settings import RendezvousSettings
from psirp_sim.rendezvous.trees import SharedTree, TreePool
from psirp_sim.runtime.environment import Environment
from psirp_sim.wire.message import Message
from psirp_sim.wire.rendezvous import Listener, Subscribed, SubscribedTaken
from psirp_sim.zfilters import ZFilter


@dataclass(slots=True, eq=False)
class Source:
    """A publisher of an item that we are subscribed to: SUBSCRIBED(publisher, base)."""

    publisher: str
    """The node; the id in a Position is another matter."""
    epoch: int
    number: int
    """Of the announcement; what the publisher said before does not count any more."""
    sid: bytes
    rid: bytes
    base: Base | None
    """This version and all after it are delivered."""
    listener: Listener
    tree: tuple[SharedTree, int] | None = None
    known: bool = False
    """Whether the way back is known, and the subscriber has been told."""
    ended: bool = False
    given_up: bool = False
    """It ended because it was out of reach, not because it said so."""
    unreached_since: int | None = None
    answered: int = 0
    """When the publisher was last told that we know."""
    kept_until: int = 0
    """Of one that has ended: until then a belated copy of what was said may come."""

    @property
    def rank(self) -> tuple[int, int]:
        """Of two things a publisher says, the one of higher rank counts."""
        return self.epoch, self.number

    @property
    def filters(self) -> list[ZFilter]:
        """The way back to the publisher; none where it is on this node."""
        return [] if self.tree is None else self.tree[0].filters


@dataclass(slots=True, eq=False)
class Subscription:
    """What a node subscribes to: an item, or a whole scope."""

    sid: bytes
    rid: bytes
    """Empty: every item of the scope."""
    changed: Callable[[Source], None]
    """Called with a publisher that says we are subscribed, again when its base or its life is
    another, and when it has ended."""
    sequence: int = 0


class Subscribing:
    """The subscriptions of one node."""

    def __init__(
        self,
        env: Environment,
        settings: RendezvousSettings,
        trees: TreePool,
        *,
        epoch: Callable[[], int],
        life_of: Callable[[str], int],
        send: Callable[[list[ZFilter], Message], None],
        at_home: Callable[[SubscribedTaken], None],
    ) -> None:
        """`life_of` is the number of a node's present life; `send` sends along filters;
        `at_home` answers a publisher on this node."""
        self._env = env
        self._settings = settings
        self._trees = trees
        self._epoch = epoch
        self._life_of = life_of
        self._send = send
        self._at_home = at_home
        self.subscriptions: dict[tuple[bytes, bytes], Subscription] = {}
        self.sources: dict[tuple[bytes, bytes, str], Source] = {}
        """By scope, item and publishing node."""
        self._ended: dict[tuple[bytes, bytes, str], Source] = {}

    def start(self) -> None:
        self._env.call_later(self._settings.lease // 3, self._tick)

    def add(self, subscription: Subscription) -> None:
        """From now on its publishers count."""
        self.subscriptions[subscription.sid, subscription.rid] = subscription

    def remove(self, sid: bytes, rid: bytes) -> None:
        """Forget the publishers that nobody here listens to any more."""
        self.subscriptions.pop((sid, rid), None)
        heard = [*self.sources.values(), *self._ended.values()]
        for source in [each for each in heard if each.sid == sid]:
            if not any(self._interested(source.sid, source.rid)):
                self._forget(source)

    def receive(self, message: Subscribed) -> bool:
        """A publisher says that we are subscribed; whether that is for us."""
        interested = list(self._interested(message.sid, message.rid))
        if not interested:
            return False
        sequences = [subscription.sequence for subscription in interested]
        for listener in message.listeners:
            mine = (listener.node, listener.epoch) == (self._env.node, self._epoch())
            # What has ended has ended, whichever subscription it was heard through.
            if mine and (message.ended or listener.sequence in sequences):
                self._subscribed(message, listener)
        return True

    def _interested(self, sid: bytes, rid: bytes) -> Iterator[Subscription]:
        for key in ((sid, rid), (sid, b"")):
            subscription = self.subscriptions.get(key)
            if subscription is not None:
                yield subscription

    def _subscribed(self, message: Subscribed, listener: Listener) -> None:
        key = (message.sid, message.rid, message.publisher)
        source = self.sources.get(key) or self._ended.get(key)
        rank = (message.epoch, message.number)
        if source is not None and source.rank > rank:
            return
        if source is not None and source.ended and not source.given_up and source.rank == rank:
            self._answer(source)
            return
        base = None if message.base is None else Base(*message.base)
        if source is None:
            source = Source(message.publisher, *rank, message.sid, message.rid, base, listener)
            if message.publisher != self._env.node:
                source.tree = self._trees.use(
                    [message.publisher], lambda: self._way_changed(source)
                )
        elif source.rank != rank or source.listener != listener:
            source.epoch, source.number = rank
            source.base, source.listener, source.known = base, listener, False
        if message.ended:
            self.sources[key] = source
            source.given_up = False
            self._end(source)
            self._answer(source)
            return
        self._ended.pop(key, None)
        self.sources[key] = source
        source.known = source.known and not source.ended
        source.ended = source.given_up = False
        if not source.known:
            self._way_changed(source)
        else:
            self._answer(source)

    def _way_changed(self, source: Source) -> None:
        there = bool(source.filters) or source.publisher == self._env.node
        if there and not source.known and not source.ended:
            source.known = True
            self._answer(source)
            self._tell(source)

    def _tell(self, source: Source) -> None:
        for subscription in self._interested(source.sid, source.rid):
            subscription.changed(source)

    def _answer(self, source: Source) -> None:
        source.answered = self._env.now()
        taken = SubscribedTaken(
            source.publisher, *source.rank, source.sid, source.rid, source.listener
        )
        if source.publisher == self._env.node:
            self._env.call_later(0, self._at_home, taken)
        else:
            self._send(source.filters, taken)

    def _end(self, source: Source) -> None:
        key = (source.sid, source.rid, source.publisher)
        if self.sources.get(key) is not source:
            return  # what was told of another one's end has ended this one too
        self._ended[key] = self.sources.pop(key)
        source.ended = True
        source.kept_until = self._env.now() + self._settings.lease
        self._tell(source)

    def _forget(self, source: Source) -> None:
        self.sources.pop((source.sid, source.rid, source.publisher), None)
        self._ended.pop((source.sid, source.rid, source.publisher), None)
        if source.tree is not None:
            self._trees.release(*source.tree)

    def _tick(self) -> None:
        self._env.call_later(self._settings.lease // 3, self._tick)
        now = self._env.now()
        for source in list(self.sources.values()):
            if not self._is_gone(source):
                source.unreached_since = None
                # Should it have ended, and we not have heard of it, it says so again.
                if source.known and now - source.answered >= self._settings.lease:
                    self._answer(source)
            elif source.unreached_since is None:
                source.unreached_since = now
            elif now - source.unreached_since > self._settings.lease:
                source.given_up = True
                self._end(source)
        for source in list(self._ended.values()):
            if source.given_up and not self._is_gone(source):
                self._take_back(source)
            elif source.kept_until < now and not self._may_come_back(source):
                self._forget(source)

    def _may_come_back(self, source: Source) -> bool:
        return source.given_up and self._life_of(source.publisher) == source.epoch

    def _take_back(self, source: Source) -> None:
        """It was only out of reach, and goes on as if nothing had been."""
        key = (source.sid, source.rid, source.publisher)
        self.sources[key] = self._ended.pop(key)
        source.ended = source.given_up = False
        source.unreached_since = None
        self._answer(source)
        self._tell(source)

    def _is_gone(self, source: Source) -> bool:
        """Out of reach, or in a later life in which it has not said anything yet."""
        if source.publisher == self._env.node:
            return source.epoch < self._epoch()
        return not source.filters or self._life_of(source.publisher) > source.epoch
