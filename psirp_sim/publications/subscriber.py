"""What a node subscribes to: registrations, the streams that follow, and who here gets them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from identifiers import Position, PublisherId
from psirp_sim.publications.assembly import WaitingRoom
from psirp_sim.publications.delivery import Subscription
from psirp_sim.publications.envelope import Keys
from psirp_sim.publications.events import Event, Update
from psirp_sim.publications.interests import Interests
from psirp_sim.publications.reception import Reception
from psirp_sim.publications.settings import PublicationSettings
from psirp_sim.publications.tracing import Tracing
from psirp_sim.rendezvous.client import RendezvousClient
from psirp_sim.rendezvous.registrar import Done
from psirp_sim.rendezvous.subscribing import Source
from psirp_sim.runtime.durations import SECOND
from psirp_sim.runtime.environment import Environment
from psirp_sim.wire.message import Message
from psirp_sim.wire.publications import Header, Latest, Report, unpack
from psirp_sim.wire.sealing import FabricKeys
from psirp_sim.zfilters import ZFilter
from traces import Stage

FAREWELL = 3 * SECOND
"""How long a stream may be offered anew before those who miss something of it are told."""
Item = tuple[bytes, bytes]


class Subscriber:
    """The subscriptions of one node."""

    def __init__(
        self,
        env: Environment,
        settings: PublicationSettings,
        keys: FabricKeys,
        rendezvous: RendezvousClient,
        tracing: Tracing,
        counters: Counter[str],
        *,
        life: Callable[[], int],
        keys_of: Callable[[bytes], Keys | None],
        along: Callable[[list[ZFilter], Message], None],
        at_home: Callable[[bytes | Message], None],
    ) -> None:
        """`life` is the number of this node's; `keys_of` knows the keys of a scope's zone; `along`
        sends a message along filters, `at_home` takes it to a publisher on this node."""
        self._env = env
        self._settings = settings
        self._keys = keys
        self._rendezvous = rendezvous
        self._tracing = tracing
        self.counters = counters
        self._life = life
        self._keys_of = keys_of
        self._along = along
        self._at_home = at_home
        self._room = WaitingRoom(settings.waiting_bytes)
        self._interests = Interests(
            env, rendezvous, changed=self._source_changed, catch_up=self._catch_up
        )
        self._sources: dict[Item, dict[str, Source]] = {}
        """Who publishes an item, by node."""
        self.receptions: dict[Item, dict[bytes, Reception]] = {}
        """By publisher."""
        self._by_tag: dict[bytes, Reception] = {}
        self._tag_of: dict[Reception, bytes] = {}
        """Under which it is found there."""
        self._busy: dict[Reception, bool] = {}
        """Those being handed on, and whether that has to be done once more."""

    @property
    def waiting_bytes(self) -> int:
        """What has come and cannot be handed on yet."""
        return self._room.bytes

    @property
    def subscriptions(self) -> list[Subscription]:
        return list(self._interests)

    def subscribe(
        self,
        sid: bytes,
        rid: bytes,
        listener: Callable[[Event], None],
        done: Done = lambda code: None,
        *,
        after: Position | Iterable[tuple[bytes, Position]] | None = None,
        from_first: Iterable[tuple[bytes, PublisherId, int]] = (),
        others_from_first: bool = False,
        durable: str | None = None,
        by_hand: bool = False,
        name: str | None = None,
        guest: bool = False,
        key: Ed25519PrivateKey | None = None,
        refused: Done = lambda code: None,
        began: Callable[[], None] = lambda: None,
    ) -> Subscription:
        """Listen to an item, or to all of a scope when `rid` is empty.

        It begins with the latest version there is; `after` a Position (in a scope: items and
        Positions) it goes on from there, and in the streams named in `from_first` (item, publisher
        and epoch) it begins with the first version; with `others_from_first` in all others, too. A
        `durable` subscription, which is known by that name, goes on where an earlier life of this
        node was done, but for what `after` says.
        With `by_hand` the listener is done with an event when `Subscription.done` is called,
        otherwise when it returns. `name` is what traces call the subscriber. `refused` is called
        when the rendezvous says no, now or later; `began` when a publisher knows of the
        subscription.
        """
        if durable is not None and not (0 < len(durable.encode()) <= 64 and "\0" not in durable):
            raise ValueError("the name of a durable subscription has 1 to 64 bytes")
        if isinstance(after, Position):
            if not rid:
                raise ValueError("in a scope, say which item the position belongs to")
            after = [(rid, after)]
        interest = self._interests.find(sid, rid, guest, key)
        if durable and any((each.sid, each.durable) == (sid, durable) for each in self._interests):
            raise ValueError(f"somebody listens under the name {durable!r} already")
        subscription = Subscription(
            self._env,
            self._settings,
            sid,
            rid,
            listener,
            after=after or (),
            from_first=from_first,
            others_from_first=others_from_first,
            durable=durable,
            by_hand=by_hand,
            name=name or durable or self._env.node,
            progress=self._progress,
            delivered=self._delivered,
        )
        subscription.refused, subscription.began = refused, began
        if interest.allowed:
            # Its cursors begin now; its listener is called when it has its subscription.
            for reception in self._receptions_for(subscription):
                subscription.follow(reception, reception.latest)
            self._env.call_later(0, self._catch_up, subscription)
        self._interests.add(interest, subscription, done)
        return subscription

    def unsubscribe(self, subscription: Subscription, done: Done = lambda code: None) -> None:
        """Listen no longer."""
        if not self._interests.remove(subscription, done):
            return
        subscription.close()
        for reception in self._receptions_for(subscription):
            self._progress(reception)
            if not self._interested(reception):
                self._sources.pop((reception.sid, reception.rid), None)

    # Streams

    def _source_changed(self, source: Source) -> None:
        item = (source.sid, source.rid)
        if not source.ended:
            self._sources.setdefault(item, {})[source.publisher] = source
            news = self._interests.allowed_by(source)
            self._follow(source)
            for subscription in news:
                self._catch_up(subscription)
            return
        known = self._sources.get(item, {})
        known.pop(source.publisher, None)
        if not known:
            self._sources.pop(item, None)
        for reception in list(self.receptions.get(item, {}).values()):
            if source.publisher in reception.origins:
                reception.left(source.publisher, for_good=not source.given_up)
                if reception.is_ending:
                    self._env.call_later(FAREWELL, self._end, reception)
                self._progress(reception)

    def _end(self, reception: Reception) -> None:
        reception.end()
        self._progress(reception)

    def _catch_up(self, subscription: Subscription) -> None:
        """Begin with the streams that others here follow already."""
        if subscription.closed:
            return
        for reception in self._receptions_for(subscription):
            subscription.follow(reception, reception.latest)
        for source in self._sources_for(subscription):
            self._follow(source)

    def _sources_for(self, subscription: Subscription) -> list[Source]:
        items = [(subscription.sid, subscription.rid)]
        if not subscription.rid:
            items = [item for item in self._sources if item[0] == subscription.sid]
        return [each for item in items for each in self._sources.get(item, {}).values()]

    def _receptions_for(self, subscription: Subscription) -> list[Reception]:
        items = [(subscription.sid, subscription.rid)]
        if not subscription.rid:
            items = [item for item in self.receptions if item[0] == subscription.sid]
        return [each for item in items for each in self.receptions.get(item, {}).values()]

    def _follow(self, source: Source) -> None:
        if source.base is not None:
            publisher, epoch, version = source.base
            reception = self._reception(source.sid, source.rid, publisher)
            reception.hear(source.publisher, source.epoch, epoch, version)
            self._begin(reception, version if epoch == reception.epoch else reception.latest)

    def _reception(self, sid: bytes, rid: bytes, publisher: bytes) -> Reception:
        item = self.receptions.setdefault((sid, rid), {})
        reception = item.get(publisher)
        if reception is None:
            reception = item[publisher] = Reception(
                self._env,
                self._settings,
                self._keys,
                self._room,
                sid,
                rid,
                publisher,
                life=self._life,
                zone=self._keys_of,
                tell=partial(self._tell_publisher, sid, rid),
                changed=self._changed,
                dropped=self._dropped,
                counters=self.counters,
            )
        return reception

    def _begin(self, reception: Reception, base: int) -> None:
        """Let everybody here who wants the stream begin with that version, or go on with it or
        its new epoch."""
        if self._by_tag.get(reception.tag) is not reception:
            self._by_tag.pop(self._tag_of.get(reception, b""), None)
            self._by_tag[reception.tag] = reception
            self._tag_of[reception] = reception.tag
        for subscription in self._interested(reception):
            subscription.follow(reception, base)
        self._progress(reception)

    def _interested(self, reception: Reception) -> list[Subscription]:
        return self._interests.hearing(reception.sid, reception.rid)

    def _changed(self, reception: Reception) -> None:
        if self._by_tag.get(reception.tag) is not reception:
            self._begin(reception, reception.latest)  # a new epoch
        else:
            self._progress(reception)

    def _progress(self, reception: Reception) -> None:
        """Hand on what there is, and say what is needed next."""
        if not self._is_current(reception):
            return
        if reception in self._busy:  # a listener has caused this
            self._busy[reception] = True
            return
        try:
            self._busy[reception] = True
            while self._busy[reception]:
                self._busy[reception] = False
                for subscription in self._interested(reception):
                    subscription.advance(reception)
        finally:
            del self._busy[reception]
        reception.need(self._needed(reception))
        owed = any(each.is_stuck(reception) for each in self._interested(reception))
        useful = reception.origins or reception.held or reception.is_ending or owed
        if not self._interested(reception) or not useful:
            self._close(reception)

    def _needed(self, reception: Reception) -> int | None:
        """The oldest version that somebody here wants. What waits for who is stuck is kept while
        there is room; then the others go on without it."""
        if reception.is_crowded:
            for subscription in self._interested(reception):
                subscription.leave_behind(reception)
        wanted = [
            needed
            for subscription in self._interested(reception)
            if (needed := subscription.needed(reception)) is not None
        ]
        return min(wanted)[1] if wanted else None

    def _is_current(self, reception: Reception) -> bool:
        item = self.receptions.get((reception.sid, reception.rid), {})
        return item.get(reception.publisher) is reception

    def _close(self, reception: Reception) -> None:
        reception.close()
        item = (reception.sid, reception.rid)
        del self.receptions[item][reception.publisher]
        if not self.receptions[item]:
            del self.receptions[item]
        self._by_tag.pop(self._tag_of.pop(reception, b""), None)

    # What comes

    def payload(self, payload: bytes) -> bool:
        """A packet of a publication; whether anybody here wants it."""
        packet = unpack(payload)
        reception = self._by_tag.get(packet.tag)
        if reception is None:
            return False
        reception.came(packet)
        return True

    def said(self, message: Latest) -> bool:
        """A publisher says how far it is; whether anybody here listens to it."""
        source = self._sources.get((message.sid, message.rid), {}).get(message.node)
        if source is None or source.base is None:
            return False
        if message.publisher != source.base.publisher:
            return True  # of an offer that was withdrawn
        self._reception(message.sid, message.rid, message.publisher).said(message)
        return True

    def _tell_publisher(self, sid: bytes, rid: bytes, node: str, report: Report) -> None:
        if node == self._env.node:
            self._at_home(report)
            return
        source = self._sources.get((sid, rid), {}).get(node)
        if source is not None:
            self._along(source.filters, report)

    # Traces

    def _delivered(self, subscription: Subscription, update: Update) -> None:
        self.counters["delivered"] += 1
        self._tracing.write(
            Stage.DELIVERED,
            update.sid,
            update.rid,
            update.position,
            update.metadata,
            len(update.content),
            subscriber=subscription.name,
        )

    def _dropped(
        self, reception: Reception, version: int, reason: str, header: Header | None, size: int
    ) -> None:
        position = Position(PublisherId(reception.publisher), reception.epoch, version)
        metadata = {} if header is None else header.metadata
        self._tracing.write(
            Stage.DROPPED,
            reception.sid,
            reception.rid,
            position,
            metadata,
            size,
            reason=reason,
        )
