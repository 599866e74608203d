"""Topics of our own hosts, on their way into the fabric.

A topic is open when somebody outside wants it, or when it had news lately: we hold its writer lease
and offer it. Its versions have the Positions that the hub gave them, and the hub keeps them, so the
history in the fabric is only a copy: it is filled from the hub's whenever the topic is opened and
whenever something was missed. Whatever fails between the two, the hub is asked again for what comes
after the last version that was published.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from identifiers import Position, Topic, identify
from psirp_sim.client import Client
from psirp_sim.publications.errors import HistoryFull, NotPublished
from psirp_sim.rendezvous.writer import WriterLease, WriterLeases
from psirp_sim.runtime.environment import Environment, Timer
from psph.proxy.mapping import Mapping
from psph.proxy.messages import Answer
from psph.proxy.ports import Web, WebUpdate
from psph.proxy.settings import ProxySettings


@dataclass(slots=True, eq=False)
class OwnTopic:
    """A topic of ours that is open, or about to be."""

    topic: Topic
    lease: WriterLease | None = None
    looked: bool = False
    """Whether the hub has had a look at it, so that there is something to begin with."""
    last: Position | None = None
    """Of what was published last."""
    passed_over: Position | None = None
    """Of what the fabric can never take; the stream began again after it."""
    asking: bool = False
    """Whether the hub was asked for what comes after that."""
    again: bool = False
    """Whether it has to be asked once more."""
    open: bool = False
    """Whether everything the hub had was published, so that it can be had."""
    closing: Timer | None = None
    retry: Timer | None = None


class Origin:
    """All topics of ours."""

    def __init__(
        self,
        env: Environment,
        settings: ProxySettings,
        client: Client,
        leases: WriterLeases,
        mapping: Mapping,
        web: Web,
        counters: Counter[str],
        changed: Callable[[str], None],
    ) -> None:
        """`changed` is called with a topic that can be had from now on, or no longer."""
        self._env = env
        self._settings = settings
        self._client = client
        self._leases = leases
        self._mapping = mapping
        self._web = web
        self._counters = counters
        self._changed = changed
        self.topics: dict[str, OwnTopic] = {}
        self._announced: OrderedDict[str, Timer] = OrderedDict()
        """Topics with news, and when that is too long ago; the oldest first."""
        self._wanted: set[str] = set()

    # Who wants what

    def want(self, canonical: str) -> None:
        """Somebody outside wants it."""
        self._wanted.add(canonical)
        own = self._open(canonical)
        if own is not None:
            self._web.keep(own.topic, partial(self._looked, own))

    def unwant(self, canonical: str) -> None:
        """Nobody outside wants it any more."""
        self._wanted.discard(canonical)
        own = self.topics.get(canonical)
        if own is not None:
            self._web.let_go(own.topic)
            self._close_soon(own)

    def offered(self, canonical: str) -> Answer | None:
        """Who publishes it and how far that is, once it can be had."""
        own = self.topics.get(canonical)
        if own is None or not own.open:
            return None
        epoch, version = (0, 0) if own.last is None else (own.last.epoch, own.last.version)
        return Answer(self._web.publisher.raw.hex(), epoch, version)

    def recorded(self, update: WebUpdate) -> None:
        """The hub has a new version."""
        if update.position.publisher != self._web.publisher:
            return  # it came over the fabric, or from another hub, who publishes it
        own = self._open(update.topic)
        if own is None:
            return
        own.looked = True
        self._announce(update.topic)
        if own.open and _follows(own.last, update.position):
            self._publish(own, update)
        else:
            self._ask(own)

    def _announce(self, canonical: str) -> None:
        known = self._announced.pop(canonical, None)
        if known is not None:
            known.cancel()
        self._announced[canonical] = self._env.call_later(
            self._settings.announce, self._announced_enough, canonical
        )
        if len(self._announced) > self._settings.most_announced:
            self._announced_enough(next(iter(self._announced)))

    def _announced_enough(self, canonical: str) -> None:
        self._announced.pop(canonical).cancel()
        own = self.topics.get(canonical)
        if own is not None:
            self._close_soon(own)

    # Opening and closing

    def _open(self, canonical: str) -> OwnTopic | None:
        own = self.topics.get(canonical)
        if own is not None:
            if own.closing is not None:
                own.closing.cancel()
                own.closing = None
            return own
        if not self._settings.serves(identify(canonical).host) or self._settings.refuses(canonical):
            return None
        topic = self._mapping.activate(canonical)
        own = self.topics[canonical] = OwnTopic(topic)
        own.lease = self._leases.acquire(
            topic.sid.raw, topic.rid.raw, lambda lease: self._lease_changed(own)
        )
        return own

    def _looked(self, own: OwnTopic) -> None:
        if not own.looked and self._is_ours(own):
            own.looked = True
            self._ask(own)

    def _lease_changed(self, own: OwnTopic) -> None:
        assert own.lease is not None
        if not self._is_ours(own):
            return
        if own.lease.held:
            self._ask(own)
            return
        self._shut(own)
        if own.lease.holder:
            # Another proxy publishes it; what we have of it would only be in the way.
            self._withdraw(own)

    def _close_soon(self, own: OwnTopic) -> None:
        canonical = own.topic.canonical
        if canonical in self._wanted or canonical in self._announced or own.closing is not None:
            return
        own.closing = self._env.call_later(self._settings.linger, self._close, own)

    def _close(self, own: OwnTopic) -> None:
        del self.topics[own.topic.canonical]
        if own.retry is not None:
            own.retry.cancel()
        self._shut(own)
        self._withdraw(own)
        assert own.lease is not None
        own.lease.release()
        self._mapping.deactivate(own.topic)

    def _shut(self, own: OwnTopic) -> None:
        if own.open:
            own.open = False
            self._changed(own.topic.canonical)

    def _withdraw(self, own: OwnTopic) -> None:
        own.last = None
        self._client.withdraw(own.topic.sid.raw, own.topic.rid.raw)

    # Publishing

    def _ask(self, own: OwnTopic) -> None:
        """Publish what the hub has after the last version that was."""
        assert own.lease is not None
        if not own.lease.held or not own.looked:
            return
        if own.asking:
            own.again = True
            return
        own.asking, own.again = True, False
        after = own.last or own.passed_over
        self._web.backlog(own.topic, after, partial(self._fill, own, after))

    def _fill(self, own: OwnTopic, after: Position | None, updates: Sequence[WebUpdate]) -> None:
        own.asking = False
        if not self._is_ours(own) or own.lease is None or not own.lease.held:
            return
        if own.last is None and after != own.passed_over:
            self._ask(own)  # it was withdrawn meanwhile, and begins with what is oldest
            return
        if own.last is not None and updates and _is_beyond(own.last, updates[0].position):
            # The hub has forgotten what we missed. The stream ends here, and goes on as another.
            self._counters["history_exceeded"] += 1
            self._shut(own)
            self._withdraw(own)
        if own.last is None and not self._begin(own, updates):
            return
        for update in updates:
            is_new = own.last is None or update.position > own.last
            if is_new and not self._publish(own, update):
                return
        if updates or own.again:
            self._ask(own)  # until there is nothing more
        elif not own.open:
            own.open = True
            self._changed(own.topic.canonical)

    def _begin(self, own: OwnTopic, updates: Sequence[WebUpdate]) -> bool:
        """Offer the stream where the hub's history begins."""
        sid, rid = own.topic.sid.raw, own.topic.rid.raw
        offer = self._client.offers.get((sid, rid))
        first = updates[0].position if updates else None
        if offer is not None and first is not None and not self._is_next(own, first):
            # There was nothing to begin with when it was offered, and now not the first version.
            self._shut(own)
            self._withdraw(own)
        if offer is not None and offer.closing:
            self._try_again(own)
            return False
        if offer is None:
            self._client.offer(
                sid,
                rid,
                publisher=self._web.publisher,
                epoch=first.epoch if first else self._web.epoch,
                latest=first.version - 1 if first else 0,
                key=self._settings.key,
            )
        return True

    def _publish(self, own: OwnTopic, update: WebUpdate) -> bool:
        assert own.lease is not None
        if not own.lease.held:
            self._shut(own)
            return False
        try:
            self._client.publish(
                own.topic.sid.raw,
                own.topic.rid.raw,
                update.body,
                self._mapping.describe(update),
                position=update.position,
            )
        except NotPublished as error:
            self._counters["not_published"] += 1
            self._env.log("not published", topic=own.topic.canonical, error=str(error))
            self._shut(own)
            if self._is_next(own, update.position) and not isinstance(error, HistoryFull):
                # It is too large, and will be. The others must not wait for it for ever.
                own.passed_over = update.position
                self._withdraw(own)
            self._try_again(own)
            return False
        self._counters["published"] += 1
        own.last = update.position
        return True

    def _is_next(self, own: OwnTopic, position: Position) -> bool:
        offer = self._client.offers.get((own.topic.sid.raw, own.topic.rid.raw))
        following = 0 if offer is None or offer.closing else offer.history.latest + 1
        return position.version == following

    def _try_again(self, own: OwnTopic) -> None:
        if own.retry is not None:
            own.retry.cancel()
        own.retry = self._env.call_later(self._settings.retry, self._retried, own)

    def _retried(self, own: OwnTopic) -> None:
        own.retry = None
        if self._is_ours(own):
            self._ask(own)

    def _is_ours(self, own: OwnTopic) -> bool:
        return self.topics.get(own.topic.canonical) is own


def _follows(last: Position | None, position: Position) -> bool:
    return last is None or position.directly_follows(last)


def _is_beyond(last: Position, position: Position) -> bool:
    """Whether there was something in between."""
    if position.epoch == last.epoch:
        return position.version > last.version + 1
    return position.version > 1
