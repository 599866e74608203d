"""The subscriber's side of matches: which publishers have said that we are subscribed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from identifiers import Position, PublisherId
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
    base: Position | None
    """This version and all after it are delivered; None: from the first on."""
    listener: Listener
    tree: tuple[SharedTree, int] | None = None
    known: bool = False
    """Whether the way back is known, and the subscriber has been told."""
    ended: bool = False
    unreached_since: int | None = None

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
        send: Callable[[list[ZFilter], Message], None],
        at_home: Callable[[SubscribedTaken], None],
    ) -> None:
        """`send` sends along filters; `at_home` answers a publisher on this node."""
        self._env = env
        self._settings = settings
        self._trees = trees
        self._epoch = epoch
        self._send = send
        self._at_home = at_home
        self.subscriptions: dict[tuple[bytes, bytes], Subscription] = {}
        self.sources: dict[tuple[bytes, bytes, str], Source] = {}
        """By scope, item and publishing node."""
        self._ended: dict[tuple[bytes, bytes, str], tuple[int, int, int]] = {}
        """Epoch and number of what has ended, and until when a belated copy may come."""

    def start(self) -> None:
        self._env.call_later(self._settings.lease // 3, self._tick)

    def add(self, subscription: Subscription) -> None:
        """From now on its publishers count."""
        self.subscriptions[subscription.sid, subscription.rid] = subscription

    def remove(self, sid: bytes, rid: bytes) -> None:
        """Forget the publishers that nobody here listens to any more."""
        self.subscriptions.pop((sid, rid), None)
        for source in [each for each in self.sources.values() if each.sid == sid]:
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
            if mine and listener.sequence in sequences:
                self._subscribed(message, listener)
        return True

    def _interested(self, sid: bytes, rid: bytes) -> Iterator[Subscription]:
        for key in ((sid, rid), (sid, b"")):
            subscription = self.subscriptions.get(key)
            if subscription is not None:
                yield subscription

    def _subscribed(self, message: Subscribed, listener: Listener) -> None:
        key = (message.sid, message.rid, message.publisher)
        source = self.sources.get(key)
        rank = (message.epoch, message.number)
        if source is not None and (source.epoch, source.number) > rank:
            return
        if self._ended.get(key, (0, 0, 0))[:2] >= rank:
            return
        if message.ended:
            self._ended[key] = (*rank, self._env.now() + self._settings.lease)
            if source is not None:
                self._end(source)
            return
        base = None
        if message.base is not None:
            publisher, epoch, version = message.base
            base = Position(PublisherId(publisher), epoch, version)
        if source is None:
            source = Source(message.publisher, *rank, message.sid, message.rid, base, listener)
            self.sources[key] = source
            if message.publisher != self._env.node:
                source.tree = self._trees.use(
                    [message.publisher], lambda: self._way_changed(source)
                )
        elif (source.epoch, source.number) != rank or source.listener != listener:
            source.epoch, source.number = rank
            source.base, source.listener, source.known = base, listener, False
        if not source.known:
            self._way_changed(source)
        else:
            self._answer(source)

    def _way_changed(self, source: Source) -> None:
        if not source.known and (source.filters or source.publisher == self._env.node):
            source.known = True
            self._answer(source)
            self._tell(source)

    def _tell(self, source: Source) -> None:
        for subscription in self._interested(source.sid, source.rid):
            subscription.changed(source)

    def _answer(self, source: Source) -> None:
        taken = SubscribedTaken(
            source.publisher, source.epoch, source.sid, source.rid, source.listener
        )
        if source.publisher == self._env.node:
            self._env.call_later(0, self._at_home, taken)
        else:
            self._send(source.filters, taken)

    def _end(self, source: Source) -> None:
        self._forget(source)
        source.ended = True
        self._tell(source)

    def _forget(self, source: Source) -> None:
        del self.sources[source.sid, source.rid, source.publisher]
        if source.tree is not None:
            self._trees.release(*source.tree)

    def _tick(self) -> None:
        """A publisher that could not be reached for the length of a lease has ended."""
        now = self._env.now()
        for source in list(self.sources.values()):
            if source.tree is None or source.filters:
                source.unreached_since = None
            elif source.unreached_since is None:
                source.unreached_since = now
            elif now - source.unreached_since > self._settings.lease:
                self._end(source)
        for key, (_, _, until) in list(self._ended.items()):
            if until < now:
                del self._ended[key]
        self._env.call_later(self._settings.lease // 3, self._tick)
