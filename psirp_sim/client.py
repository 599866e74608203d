"""Publishing and subscribing at a node: what applications use of the fabric.

An item is named by scope and rendezvous id. `publish` gives a version its place in the stream of
the item, keeps it and sends it to whoever listens; `subscribe` hands every version on, once and in
order, or says that some cannot be had (`publications.events`). Whatever happens to the fabric in
between is made good behind these calls.

Applications under asyncio use `runtime.client.FabricClient`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from blake3 import blake3
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from identifiers import Position, PublisherId
from psirp_sim.publications.assembly import WaitingRoom
from psirp_sim.publications.delivery import Subscription
from psirp_sim.publications.envelope import Keys, check_metadata, make
from psirp_sim.publications.errors import NotPublished
from psirp_sim.publications.events import Event, Update
from psirp_sim.publications.history import History, Shelf
from psirp_sim.publications.offer import Offer
from psirp_sim.publications.reception import Reception
from psirp_sim.publications.settings import PublicationSettings
from psirp_sim.rendezvous.client import RendezvousClient
from psirp_sim.rendezvous.registrar import Done
from psirp_sim.rendezvous.subscribing import Source
from psirp_sim.runtime.durations import SECOND
from psirp_sim.runtime.environment import Environment
from psirp_sim.wire.message import Message
from psirp_sim.wire.publications import Header, Latest, Packet, Report, unpack
from psirp_sim.wire.rendezvous import FINAL, Access, Code
from psirp_sim.wire.sealing import FabricKeys
from psirp_sim.zfilters import ZFilter
from traces import Stage, TraceEvent, new_trace_id

TRACE_ID = "trace_id"
"""The key of the metadata that ties together what is written about an update."""
RETRY = SECOND
"""After which a registration that failed for a while is made again."""
STREAMS = 20
"""Bits of an epoch that count the streams begun in one life; the others are its number."""
Item = tuple[bytes, bytes]


def publisher_of(node: str) -> PublisherId:
    """The id in the Positions of what a node publishes, unless it is given another."""
    context = "psph 1 node publisher"
    return PublisherId(blake3(node.encode(), derive_key_context=context).digest(length=16))


class Interest:
    """One registration at the rendezvous, for all subscriptions here to the same thing."""

    def __init__(self, guest: bool, key: Ed25519PrivateKey | None) -> None:
        self.guest, self.key = guest, key
        self.subscriptions: list[Subscription] = []
        self.registered: Code | None = None
        self.done: list[Done] = []


class Client:
    """What one node publishes and subscribes to."""

    def __init__(
        self,
        env: Environment,
        settings: PublicationSettings,
        keys: FabricKeys,
        rendezvous: RendezvousClient,
        *,
        domain: str,
        life: Callable[[], int],
        transmit: Callable[[list[ZFilter], bytes, bool], None],
        along: Callable[[list[ZFilter], Message], None],
    ) -> None:
        """`life` is the number of this node's; `transmit` sends a payload along filters, and says
        whether forwarding nodes are to write traces of it; `along` sends a message."""
        self._env = env
        self._settings = settings
        self._keys = keys
        self._rendezvous = rendezvous
        self._domain = domain or "-"
        self._life = life
        self._transmit = transmit
        self._along = along
        self._shelf = Shelf(settings, env.storage)
        self._room = WaitingRoom(settings.waiting_bytes)
        self.offers: dict[Item, Offer] = {}
        self._interests: dict[Item, Interest] = {}
        self.receptions: dict[tuple[bytes, bytes, bytes], Reception] = {}
        """By scope, item and publisher."""
        self._by_tag: dict[bytes, Reception] = {}
        self._busy: dict[Reception, bool] = {}
        """Those being handed on, and whether that has to be done once more."""
        self._streams = 0
        """Begun in this life."""
        self.counters: Counter[str] = Counter()
        self.keys_of: Callable[[bytes], Keys | None] = lambda sid: ()
        """The keys of the zone that a scope belongs to; None while they are not known."""
        self.moved: Callable[[Offer], None] = lambda offer: None
        """Called when listeners of an item have got on."""

    @property
    def waiting_bytes(self) -> int:
        """What has come and cannot be handed on yet."""
        return self._room.bytes

    # Publishing

    def offer(
        self,
        sid: bytes,
        rid: bytes,
        done: Done = lambda code: None,
        *,
        publisher: PublisherId | None = None,
        durable: bool = False,
        key: Ed25519PrivateKey | None = None,
        access: Access | None = None,
        guest: bool = False,
    ) -> Offer:
        """Say that we publish an item, before its first version or instead of one.

        A durable stream goes on where an earlier life of this node left it. `key` signs what is
        published. `access` are the rules of the scope, should nobody have made it yet.
        """
        if (sid, rid) in self.offers:
            raise ValueError("the item is offered already: withdraw it first")
        history = History(self._shelf, sid, rid, durable=durable)
        mine = publisher or publisher_of(self._env.node)
        if history.publisher != mine.raw:
            history.begin(mine.raw, self._new_epoch(), 0)
        offer = self.offers[sid, rid] = Offer(
            self._env,
            self._settings,
            history,
            sid,
            rid,
            trees=self._rendezvous.trees,
            life=self._life,
            transmit=self._transmit,
            along=self._along,
            at_home=self._at_home,
            moved=self._moved,
            key=key,
            access=access,
            guest=guest,
        )
        offer.done.append(done)
        self._register_offer(offer)
        return offer

    def _new_epoch(self) -> int:
        """Higher than any that this node used before, in this life or an earlier one."""
        self._streams += 1
        return (self._life() << STREAMS) + min(self._streams, (1 << STREAMS) - 1)

    def publish(
        self,
        sid: bytes,
        rid: bytes,
        content: bytes,
        metadata: Mapping[str, str] | None = None,
        *,
        position: Position | None = None,
        done: Callable[[], None] = lambda: None,
    ) -> Position:
        """The next version of an item; `done` when it is kept and may be told to the world.

        A `position` is given where somebody else has numbered the version: the next one of the
        stream, the first of a higher epoch, or anything before the first was published here.
        """
        if len(content) > self._settings.largest:
            raise NotPublished(
                f"a publication has at most {self._settings.largest} bytes, not {len(content)}"
            )
        described = dict(metadata or {})
        described.setdefault(TRACE_ID, new_trace_id(self._env.random.randbytes(16)))
        check_metadata(described)
        offer = self.offers.get((sid, rid)) or self.offer(sid, rid)
        if offer.closing:
            raise NotPublished("the item is being withdrawn")
        history = offer.history
        position = self._place(history, position)
        envelope = make(self._keys, sid, rid, position, described, content, offer.key)
        history.check(len(envelope))
        if (position.publisher.raw, position.epoch) != (history.publisher, history.epoch) or (
            position.version != history.latest + 1
        ):
            history.begin(position.publisher.raw, position.epoch, position.version - 1)
        history.append(
            envelope, partial(self._published, offer, position, described, len(content), done)
        )
        return position

    def _place(self, history: History, position: Position | None) -> Position:
        """Where in the stream the next version belongs."""
        following = Position(PublisherId(history.publisher), history.epoch, history.latest + 1)
        if position is None or position == following:
            return following
        if history.latest:
            if position.publisher.raw != history.publisher:
                raise NotPublished("the item has another publisher here: withdraw it first")
            if position.epoch <= history.epoch or position.version != 1:
                raise NotPublished(f"after {following} comes not {position}")
        return position

    def _published(
        self,
        offer: Offer,
        position: Position,
        metadata: Mapping[str, str],
        size: int,
        done: Callable[[], None],
    ) -> None:
        self._trace(Stage.PUBLISHED, offer.sid, offer.rid, position, metadata, size)
        if self.offers.get((offer.sid, offer.rid)) is offer:
            offer.sending.release(position.epoch, position.version)
        done()

    def withdraw(
        self, sid: bytes, rid: bytes, done: Done = lambda code: None, *, keep: bool = False
    ) -> None:
        """Publish an item no longer, once its listeners have everything or time is up.

        What a durable stream has kept is given up with it, unless it is to be kept for an offer
        to come; a node that only stops does not withdraw anything.
        """
        offer = self.offers.get((sid, rid))
        if offer is None or offer.closing:
            self._env.call_later(0, done, Code.NOT_REGISTERED)
            return
        offer.closing, offer.keep = True, keep
        offer.done.append(done)
        self._env.call_later(self._settings.linger, self._end_offer, offer)
        self._moved(offer)

    def _moved(self, offer: Offer) -> None:
        if offer.closing and offer.sending.complete:
            self._env.call_later(0, self._end_offer, offer)
        self.moved(offer)

    def _end_offer(self, offer: Offer) -> None:
        if self.offers.get((offer.sid, offer.rid)) is not offer:
            return
        del self.offers[offer.sid, offer.rid]
        offer.close()
        offer.history.close(keep=offer.keep)
        waiting, offer.done = offer.done, []
        self._rendezvous.unpublish(offer.sid, offer.rid, partial(_tell_all, waiting))

    def _register_offer(self, offer: Offer) -> None:
        if self.offers.get((offer.sid, offer.rid)) is not offer:
            return
        result = partial(self._offered, offer)
        self._rendezvous.publish(
            offer.sid,
            offer.rid,
            result,
            base=lambda: offer.sending.base,
            changed=offer.changed,
            guest=offer.guest,
            key=offer.key,
            refused=result,
        )

    def _offered(self, offer: Offer, code: Code) -> None:
        if self.offers.get((offer.sid, offer.rid)) is not offer or offer.closing:
            return
        if code is Code.NO_SUCH_SCOPE:
            self._rendezvous.publish_scope(
                offer.sid,
                lambda code: self._offered(offer, code if code in FINAL else Code.TIMED_OUT),
                offer.access,
                key=offer.key,
            )
        elif code is Code.OK or code in FINAL:
            offer.registered = code
            waiting, offer.done = offer.done, []
            _tell_all(waiting, code)
        else:
            soon = 0 if offer.registered is None and code is Code.TIMED_OUT else RETRY
            self._env.call_later(soon, self._register_offer, offer)

    # Subscribing

    def subscribe(
        self,
        sid: bytes,
        rid: bytes,
        listener: Callable[[Event], None],
        done: Done = lambda code: None,
        *,
        after: Position | Iterable[tuple[bytes, Position]] | None = None,
        durable: str | None = None,
        by_hand: bool = False,
        name: str | None = None,
        guest: bool = False,
        key: Ed25519PrivateKey | None = None,
        refused: Done = lambda code: None,
    ) -> Subscription:
        """Listen to an item, or to all of a scope when `rid` is empty.

        It begins with the latest version there is; `after` a Position (in a scope: items and
        Positions) it goes on from there. A `durable` subscription, which is known by that name,
        goes on where an earlier life of this node was done. With `by_hand` the listener is done
        with an event when `Subscription.done` is called, otherwise when it returns. `name` is
        what traces call the subscriber. `refused` is called when the rendezvous says no, now or
        later.
        """
        if durable is not None and not (0 < len(durable.encode()) <= 64 and "\0" not in durable):
            raise ValueError("the name of a durable subscription has 1 to 64 bytes")
        if isinstance(after, Position):
            if not rid:
                raise ValueError("in a scope, say which item the position belongs to")
            after = [(rid, after)]
        subscription = Subscription(
            self._env,
            self._settings,
            sid,
            rid,
            listener,
            after=after or (),
            durable=durable,
            by_hand=by_hand,
            name=name or durable or self._env.node,
            progress=self._progress,
            delivered=self._delivered,
        )
        subscription.refused = refused
        interest = self._interests.get((sid, rid))
        if interest is None:
            interest = self._interests[sid, rid] = Interest(guest, key)
        interest.subscriptions.append(subscription)
        for source in list(self._rendezvous.subscribing.sources.values()):
            if source.known and subscription.wants(source.sid, source.rid):
                self._follow(source)
        if interest.registered is Code.OK:
            self._env.call_later(0, done, Code.OK)
        else:
            interest.done.append(done)
            if len(interest.subscriptions) == 1 or interest.registered in FINAL:
                interest.registered = None
                self._register_interest(sid, rid, interest)
        return subscription

    def unsubscribe(self, subscription: Subscription, done: Done = lambda code: None) -> None:
        """Listen no longer."""
        item = (subscription.sid, subscription.rid)
        interest = self._interests.get(item)
        if interest is None or subscription not in interest.subscriptions:
            self._env.call_later(0, done, Code.NOT_REGISTERED)
            return
        subscription.close()
        interest.subscriptions.remove(subscription)
        if interest.subscriptions:
            self._env.call_later(0, done, Code.OK)
        else:
            del self._interests[item]
            self._rendezvous.unsubscribe(*item, done)
        for reception in list(self.receptions.values()):
            if subscription.wants(reception.sid, reception.rid):
                self._progress(reception)

    def _register_interest(self, sid: bytes, rid: bytes, interest: Interest) -> None:
        if self._interests.get((sid, rid)) is not interest:
            return
        result = partial(self._subscribed, sid, rid, interest)
        self._rendezvous.subscribe(
            sid,
            rid,
            result,
            changed=self._source_changed,
            guest=interest.guest,
            key=interest.key,
            refused=result,
        )

    def _subscribed(self, sid: bytes, rid: bytes, interest: Interest, code: Code) -> None:
        if self._interests.get((sid, rid)) is not interest:
            return
        interest.registered = code
        if code is Code.OK or code in FINAL:
            waiting, interest.done = interest.done, []
            _tell_all(waiting, code)
            if code in FINAL:
                _tell_all([each.refused for each in interest.subscriptions], code)
        else:
            self._env.call_later(RETRY, self._register_interest, sid, rid, interest)

    # Streams

    def _source_changed(self, source: Source) -> None:
        if not source.ended:
            self._follow(source)
            return
        for reception in list(self.receptions.values()):
            mine = (reception.sid, reception.rid) == (source.sid, source.rid)
            if mine and source.publisher in reception.origins:
                reception.left(source.publisher)
                self._progress(reception)

    def _follow(self, source: Source) -> None:
        if source.base is not None:
            publisher, epoch, version = source.base
            reception = self._reception(source.sid, source.rid, publisher)
            reception.hear(source.publisher, source.epoch, epoch, version)
            self._begin(reception)

    def _reception(self, sid: bytes, rid: bytes, publisher: bytes) -> Reception:
        reception = self.receptions.get((sid, rid, publisher))
        if reception is None:
            reception = self.receptions[sid, rid, publisher] = Reception(
                self._env,
                self._settings,
                self._keys,
                self._room,
                sid,
                rid,
                publisher,
                life=self._life,
                zone=lambda sid: self.keys_of(sid),
                tell=partial(self._tell_publisher, sid, rid),
                changed=self._changed,
                dropped=self._dropped,
                counters=self.counters,
            )
        return reception

    def _begin(self, reception: Reception) -> None:
        """Let everybody here who wants the stream begin with its latest version, or go on with
        its new epoch."""
        if self._by_tag.get(reception.tag) is not reception:
            self._by_tag = {t: r for t, r in self._by_tag.items() if r is not reception}
            self._by_tag[reception.tag] = reception
        for subscription in self._interested(reception):
            subscription.follow(reception)
        self._progress(reception)

    def _interested(self, reception: Reception) -> list[Subscription]:
        return [
            subscription
            for rid in (reception.rid, b"")
            if (interest := self._interests.get((reception.sid, rid))) is not None
            for subscription in interest.subscriptions
        ]

    def _changed(self, reception: Reception) -> None:
        if self._by_tag.get(reception.tag) is not reception:
            self._begin(reception)  # a new epoch
        else:
            self._progress(reception)

    def _progress(self, reception: Reception) -> None:
        """Hand on what there is, and say what is needed next."""
        if reception in self._busy:  # a listener has caused this
            self._busy[reception] = True
            return
        again = True
        while again:
            self._busy[reception] = False
            interested = self._interested(reception)
            for subscription in interested:
                subscription.advance(reception)
            again = self._busy.pop(reception)
        needed = [
            version
            for subscription in self._interested(reception)
            if (version := subscription.needed(reception)) is not None
        ]
        reception.need(min(needed) if needed else None)
        if not self._interested(reception) or not (reception.origins or reception.held):
            self._close(reception)

    def _close(self, reception: Reception) -> None:
        reception.close()
        key = (reception.sid, reception.rid, reception.publisher)
        if self.receptions.get(key) is reception:
            del self.receptions[key]
        if self._by_tag.get(reception.tag) is reception:
            del self._by_tag[reception.tag]

    # What comes

    def payload(self, payload: bytes) -> bool:
        """A packet of a publication; whether anybody here wants it."""
        packet = unpack(payload)
        return self._packet(packet)

    def _packet(self, packet: Packet) -> bool:
        reception = self._by_tag.get(packet.tag)
        if reception is None:
            return False
        reception.came(packet)
        return True

    def receive(self, message: Message) -> bool:
        """A message about publications; whether it is for us."""
        match message:
            case Latest():
                return self._said(message)
            case Report():
                if message.node != self._env.node:
                    return False
                offer = self.offers.get((message.sid, message.rid))
                return offer is not None and offer.sending.reported(message)
        return False

    def _said(self, message: Latest) -> bool:
        key = (message.sid, message.rid, message.node)
        source = self._rendezvous.subscribing.sources.get(key)
        if source is None or not source.known:
            return False
        self._reception(message.sid, message.rid, message.publisher).said(message)
        return True

    def _at_home(self, what: bytes | Message) -> None:
        self._env.call_later(0, self._from_home, what)

    def _from_home(self, what: bytes | Message) -> None:
        if isinstance(what, bytes):
            self.payload(what)
        else:
            self.receive(what)

    def _tell_publisher(self, sid: bytes, rid: bytes, node: str, report: Report) -> None:
        if node == self._env.node:
            self._at_home(report)
            return
        source = self._rendezvous.subscribing.sources.get((sid, rid, node))
        if source is not None:
            self._along(source.filters, report)

    # Traces

    def _delivered(self, subscription: Subscription, update: Update) -> None:
        self.counters["delivered"] += 1
        self._trace(
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
        self._trace(
            Stage.DROPPED,
            reception.sid,
            reception.rid,
            position,
            metadata,
            size,
            reason=reason,
        )

    def _trace(
        self,
        stage: Stage,
        sid: bytes,
        rid: bytes,
        position: Position,
        metadata: Mapping[str, str],
        size: int,
        *,
        subscriber: str | None = None,
        reason: str | None = None,
    ) -> None:
        self._env.trace.emit(
            TraceEvent(
                trace_id=metadata.get(TRACE_ID),
                sid=sid,
                rid=rid,
                topic=metadata.get("topic"),
                publisher=position.publisher.raw,
                epoch=position.epoch,
                version=position.version,
                stage=stage,
                node=self._env.node,
                domain=self._domain,
                subscriber=subscriber,
                wall_ns=self._env.wall(),
                mono_ns=self._env.now(),
                bytes=size,
                reason=reason,
            )
        )


def _tell_all(waiting: Iterable[Done], code: Code) -> None:
    for done in waiting:
        done(code)
