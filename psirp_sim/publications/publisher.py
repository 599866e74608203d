"""What a node publishes: offers, their versions, and their registration at the rendezvous."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from blake3 import blake3
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from identifiers import Position, PublisherId
from psirp_sim.publications.envelope import check_metadata, make, marked_anew, open_envelope
from psirp_sim.publications.errors import NotPublished
from psirp_sim.publications.history import History, Shelf
from psirp_sim.publications.offer import Offer
from psirp_sim.publications.settings import PublicationSettings
from psirp_sim.publications.tracing import TRACE_ID, Tracing
from psirp_sim.rendezvous.client import RendezvousClient
from psirp_sim.rendezvous.registrar import Done
from psirp_sim.runtime.durations import SECOND
from psirp_sim.runtime.environment import Environment
from psirp_sim.wire.message import Message
from psirp_sim.wire.publications import Report
from psirp_sim.wire.rendezvous import FINAL, Access, Code
from psirp_sim.wire.sealing import FabricKeys
from psirp_sim.zfilters import ZFilter
from traces import Stage, new_trace_id

RETRY = SECOND
"""After which a registration that failed for a while is made again."""
STREAMS = 20
"""Bits of an epoch that count the streams begun in one life; the others are its number."""
Item = tuple[bytes, bytes]


def publisher_of(node: str) -> PublisherId:
    """The id in the Positions of what a node publishes, unless it is given another."""
    context = "psph 1 node publisher"
    return PublisherId(blake3(node.encode(), derive_key_context=context).digest(length=16))


class Publisher:
    """The publications of one node."""

    def __init__(
        self,
        env: Environment,
        settings: PublicationSettings,
        keys: FabricKeys,
        rendezvous: RendezvousClient,
        tracing: Tracing,
        *,
        life: Callable[[], int],
        transmit: Callable[[list[ZFilter], bytes, bool], None],
        along: Callable[[list[ZFilter], Message], None],
        at_home: Callable[[bytes | Message], None],
    ) -> None:
        """`life` is the number of this node's; `transmit` sends a payload along filters, and says
        whether forwarding nodes are to write traces of it; `along` sends a message; `at_home`
        takes either to the listeners on this node."""
        self._env = env
        self._settings = settings
        self._keys = keys
        self._rendezvous = rendezvous
        self._tracing = tracing
        self._life = life
        self._transmit = transmit
        self._along = along
        self._at_home = at_home
        self.shelf = Shelf(settings, env.storage)
        self.offers: dict[Item, Offer] = {}
        self._scopes: dict[bytes, int] = {}
        """How many items are offered in each scope that we publish."""
        self._streams = 0
        """Begun in this life."""
        self.moved: Callable[[Offer], None] = lambda offer: None
        """Called when listeners of an item have got on."""

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

        A durable stream goes on where an earlier life of this node left it; in a new epoch, if a
        power cut may have taken versions that were published. A caller that numbers versions
        elsewhere gives the `epoch` and the `latest` version before those that will be published
        here. `key` signs what is published. `access` are the rules of the scope, should
        nobody have made it yet.
        """
        if (sid, rid) in self.offers:
            raise ValueError("the item is offered already, or still being withdrawn")
        renew = partial(marked_anew, self._keys)
        history = History(self.shelf, sid, rid, durable=durable, renew=renew)
        kept = PublisherId(history.publisher) if history.publisher else None
        mine = publisher or kept or publisher_of(self._env.node)
        made_here = epoch is None and mine != kept
        if made_here:
            history.begin(mine.raw, self._new_epoch(), 0)
        elif epoch is not None and (
            history.is_stale or (mine.raw, epoch) != (history.publisher, history.epoch)
        ):
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
        offer.epoch_is_ours = made_here or history.is_stale
        offer.done.append(done)
        if history.is_stale:
            self._begin_again(offer)
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
        self._tracing.write(Stage.PUBLISHED, offer.sid, offer.rid, position, metadata, size)
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
            if offer.epoch_is_ours and not offer.closing:
                self._begin_again(offer)

    def _begin_again(self, offer: Offer) -> None:
        history = offer.history
        kept = [open_envelope(self._keys, each) for each in history.envelopes()]
        history.begin(history.publisher, max(self._new_epoch(), history.epoch + 1), 0)
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

    def reported(self, message: Report) -> bool:
        """A listener says what it has; whether it is one of ours."""
        offer = self.offers.get((message.sid, message.rid))
        return offer is not None and offer.sending.reported(message)


def _tell_all(waiting: Iterable[Done], code: Code) -> None:
    for done in waiting:
        done(code)
