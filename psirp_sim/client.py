"""Publishing and subscribing at a node: what applications use of the fabric.

An item is named by scope and rendezvous id. `publish` gives a version its place in the stream of
the item, keeps it and sends it to whoever listens; `subscribe` hands every version on, once and in
order, or says that some cannot be had (`publications.events`). Whatever happens to the fabric in
between is made good behind these calls.

Applications under asyncio use `runtime.client.FabricClient`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from blake3 import blake3
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from identifiers import Position, PublisherId
from psirp_sim.publications.assembly import WaitingRoom
from psirp_sim.publications.delivery import Subscription
from psirp_sim.publications.envelope import (
    Keys,
    check_metadata,
    make,
    marked_anew,
    open_envelope,
)
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
from psirp_sim.wire.publications import Header, Latest, Report, unpack
from psirp_sim.wire.rendezvous import FINAL, Access, Code
from psirp_sim.wire.sealing import FabricKeys
from psirp_sim.zfilters import ZFilter
from traces import NullSink, Stage, TraceEvent, new_trace_id

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
        self.asked = False
        """Whether it was asked for."""
        self.done: list[tuple[Subscription, Done]] = []
        """Who waits for that."""


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
        # Making an event costs more than throwing it away.
        self._traces_nothing = isinstance(env.trace, NullSink)
        self._life = life
        self._transmit = transmit
        self._along = along
        self._shelf = Shelf(settings, env.storage)
        self._room = WaitingRoom(settings.waiting_bytes)
        self.offers: dict[Item, Offer] = {}
        self._scopes: dict[bytes, int] = {}
        """How many items are offered in each scope that we publish."""
        self._interests: dict[Item, Interest] = {}
        self._sources: dict[Item, dict[str, Source]] = {}
        """Who publishes an item, by node."""
        self.receptions: dict[Item, dict[bytes, Reception]] = {}
        """By publisher."""
        self._by_tag: dict[bytes, Reception] = {}
        self._tag_of: dict[Reception, bytes] = {}
        """Under which it is found there."""
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

    def status(self) -> dict[str, object]:
        """What `psph fabric status` shows."""
        return {
            "published": len(self.offers),
            "history_bytes": self._shelf.bytes,
            "subscriptions": sum(len(each.subscriptions) for each in self._interests.values()),
            "streams": sum(len(each) for each in self.receptions.values()),
            "waiting_bytes": self.waiting_bytes,
            "counters": dict(self.counters),
        }

    # Publishing

    def offer(
        self,
        sid: bytes,
        rid: bytes,
        done: Done = lambda code: None,
        *,
        publisher: PublisherId | None = None,
        epoch: int | None = None,
        latest: int = 0,
        durable: bool = False,
        key: Ed25519PrivateKey | None = None,
        access: Access | None = None,
        guest: bool = False,
    ) -> Offer:
        """Say that we publish an item, before its first version or instead of one.

        A durable stream goes on where an earlier life of this node left it. Somebody who numbers
        versions elsewhere gives the `epoch` and the `latest` version before those that will be
        published here. `key` signs what is published. `access` are the rules of the scope, should
        nobody have made it yet.
        """
        if (sid, rid) in self.offers:
            raise ValueError("the item is offered already, or still being withdrawn")
        renew = partial(marked_anew, self._keys)
        history = History(self._shelf, sid, rid, durable=durable, renew=renew)
        kept = PublisherId(history.publisher) if history.publisher else None
        mine = publisher or kept or publisher_of(self._env.node)
        made_here = epoch is None and mine != kept
        if made_here:
            history.begin(mine.raw, self._new_epoch(), 0)
        elif epoch is not None and (mine.raw, epoch) != (history.publisher, history.epoch):
            history.begin(mine.raw, epoch, latest)
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
        offer.epoch_is_ours = made_here
        offer.done.append(done)
        self._register_offer(offer)
        return offer

    def _new_epoch(self) -> int:
        """Higher than any that this node used before, in this life or an earlier one."""
        self._streams += 1
        return (self._life() << STREAMS) + self._streams

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
        stream, or the first of a higher epoch. It may begin a stream that was not offered yet.
        """
        if len(content) > self._settings.largest:
            raise NotPublished(
                f"a publication has at most {self._settings.largest} bytes, not {len(content)}"
            )
        described = dict(metadata or {})
        described.setdefault(TRACE_ID, new_trace_id(self._env.random.randbytes(16)))
        check_metadata(described)
        offer = self.offers.get((sid, rid)) or self._offer_at(sid, rid, position)
        if offer.closing:
            raise NotPublished("the item is being withdrawn")
        history = offer.history
        position = self._place(history, position)
        envelope = make(self._keys, sid, rid, position, described, content, offer.key)
        history.check(len(envelope))
        if position.epoch != history.epoch:
            history.begin(history.publisher, position.epoch, 0)
        history.append(
            envelope, partial(self._published, offer, position, described, len(content), done)
        )
        return position

    def _offer_at(self, sid: bytes, rid: bytes, position: Position | None) -> Offer:
        if position is None:
            return self.offer(sid, rid)
        publisher, epoch = position.publisher, position.epoch
        return self.offer(sid, rid, publisher=publisher, epoch=epoch, latest=position.version - 1)

    def _place(self, history: History, position: Position | None) -> Position:
        """Where in the stream the next version belongs."""
        following = Position(PublisherId(history.publisher), history.epoch, history.latest + 1)
        if position is None or position == following:
            return following
        if position.publisher != following.publisher:
            raise NotPublished("the item has another publisher here: withdraw it first")
        if position.epoch <= history.epoch or position.version != 1:
            raise NotPublished(f"{following} is what comes next, not {position}")
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
            self._moved(offer)
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
        if offer.closing and offer.is_complete:
            self._env.call_later(0, self._end_offer, offer)
        self.moved(offer)

    def renew(self) -> None:
        """The life of this node has another number: streams that began in it begin again, because
        their epochs were lower than what an earlier life used."""
        for offer in self.offers.values():
            if offer.epoch_is_ours:
                self._begin_again(offer)

    def _begin_again(self, offer: Offer) -> None:
        history = offer.history
        kept = [open_envelope(self._keys, each) for each in history.envelopes()]
        history.begin(history.publisher, self._new_epoch(), 0)
        for header, content in kept:
            self.publish(offer.sid, offer.rid, content, header.metadata)

    def _end_offer(self, offer: Offer) -> None:
        if self.offers.get((offer.sid, offer.rid)) is not offer:
            return
        del self.offers[offer.sid, offer.rid]
        offer.close()
        offer.history.close(keep=offer.keep)
        waiting, offer.done = offer.done, []
        self._rendezvous.unpublish(offer.sid, offer.rid, partial(_tell_all, waiting))
        self._scopes[offer.sid] -= 1
        if not self._scopes[offer.sid]:
            del self._scopes[offer.sid]
            self._rendezvous.unpublish_scope(offer.sid, lambda code: None)

    def _register_offer(self, offer: Offer) -> None:
        if self.offers.get((offer.sid, offer.rid)) is not offer:
            return
        if offer.sid not in self._scopes:
            self._scopes[offer.sid] = 0
            self._publish_scope(offer.sid, offer)
        if not offer.is_counted:
            offer.is_counted = True
            self._scopes[offer.sid] += 1
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
        if self.offers.get((offer.sid, offer.rid)) is not offer:
            return
        if offer.closing and (code is Code.OK or code in FINAL):
            # Those who listened before must have the time to be heard of.
            self._env.call_later(RETRY, self._settle, offer, code)
        elif code is Code.OK or code in FINAL:
            offer.registered = code
            waiting, offer.done = offer.done, []
            _tell_all(waiting, code)
        else:
            # The scope may not be there yet.
            soon = RETRY // 5 if code is Code.NO_SUCH_SCOPE else RETRY
            self._env.call_later(soon, self._register_offer, offer)

    def _publish_scope(self, sid: bytes, offer: Offer) -> None:
        """Everybody who publishes in a scope publishes the scope: it lives as long as any does."""
        if sid not in self._scopes:
            return

        def ended(code: Code) -> None:
            # Where others have made it with other rules, these say who may publish in it.
            if code is not Code.OK and code not in FINAL:
                self._env.call_later(RETRY, self._publish_scope, sid, offer)

        self._rendezvous.publish_scope(sid, ended, offer.access, key=offer.key)

    def _settle(self, offer: Offer, code: Code) -> None:
        offer.registered = code
        self._moved(offer)

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
        interest = self._interest(sid, rid, guest, key)
        if any(each.durable == durable for each in self._subscriptions_in(sid) if durable):
            raise ValueError(f"somebody listens under the name {durable!r} already")
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
        interest.subscriptions.append(subscription)
        for reception in self._receptions_for(subscription):
            subscription.follow(reception, reception.latest)
        for source in self._sources_for(subscription):
            self._follow(source)
        if interest.registered is Code.OK:
            self._env.call_later(0, done, Code.OK)
        else:
            interest.done.append((subscription, done))
            if not interest.asked:
                interest.asked = True
                self._register_interest(sid, rid, interest)
        return subscription

    def _interest(
        self, sid: bytes, rid: bytes, guest: bool, key: Ed25519PrivateKey | None
    ) -> Interest:
        interest = self._interests.get((sid, rid))
        if interest is None or interest.registered in FINAL:
            waiting = [] if interest is None else interest.subscriptions
            interest = self._interests[sid, rid] = Interest(guest, key)
            interest.subscriptions += waiting
        elif (interest.guest, interest.key) != (guest, key):
            # One registration stands for all of them: nobody may listen in another's name.
            raise ValueError("somebody here listens to it already, with another key or as a guest")
        return interest

    def _subscriptions_in(self, sid: bytes) -> Iterator[Subscription]:
        for (scope, _), interest in self._interests.items():
            if scope == sid:
                yield from interest.subscriptions

    def unsubscribe(self, subscription: Subscription, done: Done = lambda code: None) -> None:
        """Listen no longer."""
        item = (subscription.sid, subscription.rid)
        interest = self._interests.get(item)
        if interest is None or subscription not in interest.subscriptions:
            self._env.call_later(0, done, Code.NOT_REGISTERED)
            return
        subscription.close()
        interest.subscriptions.remove(subscription)
        for each in [each for each in interest.done if each[0] is subscription]:
            interest.done.remove(each)
            self._env.call_later(0, each[1], Code.NOT_REGISTERED)
        if interest.subscriptions:
            self._env.call_later(0, done, Code.OK)
        else:
            del self._interests[item]
            self._rendezvous.unsubscribe(*item, done)
        for reception in self._receptions_for(subscription):
            self._progress(reception)
            if not self._interested(reception):
                self._sources.pop((reception.sid, reception.rid), None)

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
            _tell_all([done for _, done in waiting], code)
            if code in FINAL:
                _tell_all([each.refused for each in interest.subscriptions], code)
        else:
            self._env.call_later(RETRY, self._register_interest, sid, rid, interest)

    # Streams

    def _source_changed(self, source: Source) -> None:
        item = (source.sid, source.rid)
        if not source.ended:
            self._sources.setdefault(item, {})[source.publisher] = source
            self._follow(source)
            return
        known = self._sources.get(item, {})
        known.pop(source.publisher, None)
        if not known:
            self._sources.pop(item, None)
        for reception in list(self.receptions.get(item, {}).values()):
            if source.publisher in reception.origins:
                reception.left(source.publisher, for_good=not source.given_up)
                self._progress(reception)

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
                zone=lambda sid: self.keys_of(sid),
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
        return [
            subscription
            for rid in (reception.rid, b"")
            if (interest := self._interests.get((reception.sid, rid))) is not None
            for subscription in interest.subscriptions
        ]

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
        if not self._interested(reception) or not (reception.origins or reception.held):
            self._close(reception)

    def _needed(self, reception: Reception) -> int | None:
        """The oldest version that somebody here can take; who is stuck asks when it is not."""
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
        source = self._sources.get((message.sid, message.rid), {}).get(message.node)
        if source is None or source.base is None:
            return False
        if message.publisher != source.base.publisher:
            return True  # of an offer that was withdrawn
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
        source = self._sources.get((sid, rid), {}).get(node)
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
        if self._traces_nothing:
            return
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
