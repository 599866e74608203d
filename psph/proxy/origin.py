"""Topics of our own hosts, on their way into the fabric.

A topic is open when somebody outside wants it, when it had news lately, or when it is read here and
other proxies serve its host too. Whose turn it is to write it is decided in `writing`. Its versions
have the Positions that the hub gave them, and the hub keeps them, so the history in the fabric is
only a copy: it is filled from the hub's whenever the topic is opened and whenever something was
missed. Whatever fails between the two, the hub is asked again for what comes after the last version
that was published.

Who stands by keeps in the fabric what it published while it was the writer, for those who have not
got all of it. What its hub has beyond that, only it can publish: if its publisher sent it, it asks
for the lease; if it was fetched, the writer is told to fetch it too. `covered` is the place in our
own stream up to which nobody needs it who followed the topic while others wrote it. With every
version goes out in which turn it was published and what was covered then, so that readers of
another proxy's versions know where ours begin for them.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from functools import partial

from identifiers import Position, PublisherId, identify
from psirp_sim.client import Client
from psirp_sim.publications.errors import HistoryFull, NotPublished
from psirp_sim.runtime.environment import Environment, Timer
from psph.proxy.cluster import Cluster
from psph.proxy.mapping import Mapping
from psph.proxy.messages import Answer
from psph.proxy.own_topics import OwnTopic, follows, is_beyond, place_of, turn_of
from psph.proxy.ports import Web, WebUpdate
from psph.proxy.settings import ProxySettings
from psph.proxy.writing import Writing


class Origin:
    """All topics of ours."""

    def __init__(
        self,
        env: Environment,
        settings: ProxySettings,
        client: Client,
        writing: Writing,
        cluster: Cluster,
        mapping: Mapping,
        web: Web,
        counters: Counter[str],
        *,
        changed: Callable[[str], None],
        standby: Callable[[str, bool], None],
        turned: Callable[[str], None],
    ) -> None:
        """`changed` is called with a topic that can be had from now on, or no longer; `standby`
        with one that is to be followed in the fabric because others may write it, or no longer;
        `turned` with one that somebody else writes than before."""
        self._env = env
        self._settings = settings
        self._client = client
        self._writing = writing
        self._cluster = cluster
        self._mapping = mapping
        self._web = web
        self._counters = counters
        self._changed = changed
        self._standby = standby
        self._turned = turned
        self.topics: dict[str, OwnTopic] = {}
        self._announced: OrderedDict[str, Timer] = OrderedDict()
        """Topics with news, and when that is too long ago; the oldest first."""
        self._wanted: set[str] = set()
        self._attended: set[str] = set()

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

    def attend(self, canonical: str, read: bool) -> None:
        """Whether it is read here, and others serve its host: who of us writes it matters then."""
        if read and self.has_others(identify(canonical).host):
            if canonical not in self._attended and (own := self._open(canonical)) is not None:
                self._attended.add(canonical)
                own.looked = True  # the hub has begun with it for its readers
                self._ask(own)
        elif canonical in self._attended:
            self._attended.discard(canonical)
            if (own := self.topics.get(canonical)) is not None:
                self._close_soon(own)

    def offered(self, canonical: str) -> Answer | None:
        """Who publishes it and how far that is, once it can be had."""
        own = self.topics.get(canonical)
        if own is None or not own.open:
            return None
        epoch, version = (0, 0) if own.last is None else place_of(own.last)
        return Answer(
            publisher=self._web.publisher.raw.hex(),
            epoch=epoch,
            version=version,
            turn=own.turn.since,
        )

    def writer(self, canonical: str) -> PublisherId | None:
        """Who numbers it: our hub where it is our turn, or not open; None while it is not known."""
        own = self.topics.get(canonical)
        if own is None or own.held:
            return self._web.publisher
        member = self._cluster.members.get(own.turn.elsewhere)
        return None if member is None else member.publisher

    def turn(self, canonical: str) -> int:
        """The turn since which readers here follow it; 0 when it is not ours."""
        own = self.topics.get(canonical)
        return 0 if own is None else own.turn.since

    def is_elsewhere(self, canonical: str) -> bool:
        """Whether another proxy of its host writes it."""
        own = self.topics.get(canonical)
        return own is not None and own.turn.elsewhere in self._cluster.members

    def has_others(self, host: str) -> bool:
        """Whether there are other proxies of a host."""
        return self._cluster.has_others(host)

    def recorded(self, update: WebUpdate) -> None:
        """The hub has a new version."""
        if update.position.publisher != self._web.publisher:
            self._came(update)
            return
        own = self._open(update.topic, update.position)
        if own is None:
            return
        own.looked, own.newest = True, place_of(update.position)
        self._announce(update.topic)
        if own.open and own.held and follows(own.last, update.position):
            if self._publish(own, update):
                self._pass_on(own)
        elif own.held or own.covered is None:
            self._ask(own)
        else:
            self._left_over(own, update.is_unique)

    def members_changed(self) -> None:
        """Another proxy came or went, or has news."""
        for own in list(self.topics.values()):
            self._standby(own.topic.canonical, self.has_others(own.topic.host))
            self._writing.look(own.turn)
            if own.open:
                self._pass_on(own)

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

    def _open(self, canonical: str, news: Position | None = None) -> OwnTopic | None:
        own = self.topics.get(canonical)
        if own is not None:
            if own.closing is not None:
                own.closing.cancel()
                own.closing = None
            return own
        if not self._settings.serves(identify(canonical).host) or self._settings.refuses(canonical):
            return None
        topic = self._mapping.activate(canonical)
        turn = self._writing.begin(topic, lambda: self._turn_changed(canonical))
        own = self.topics[canonical] = OwnTopic(topic, turn)
        if own.load(self._env.storage):
            pass
        elif news is not None:
            own.write_down(self._env.storage, (news.epoch, news.version - 1), wrote=False)
        else:
            self._web.positions(topic, partial(self._found, own))
        if self.has_others(topic.host):
            self._standby(canonical, True)
        return own

    def _found(self, own: OwnTopic, positions: Sequence[Position]) -> None:
        """What the hub had before anybody asked for the topic is news to nobody."""
        if not self._is_ours(own) or own.covered is not None:
            return
        places = [place_of(each) for each in positions if each.publisher == self._web.publisher]
        before = max(places, default=(self._web.epoch, 0))
        if own.newest > (0, 0):  # it came after the question, and perhaps before the answer
            before = min(before, (own.newest[0], own.newest[1] - 1))
        if own.held:
            own.begin_turn(self._env.storage, before)
        else:
            own.write_down(self._env.storage, before, wrote=False)
        self._ask(own)

    def _looked(self, own: OwnTopic) -> None:
        if not own.looked and self._is_ours(own):
            own.looked = True
            self._ask(own)

    def _turn_changed(self, canonical: str) -> None:
        own = self.topics.get(canonical)
        if own is None:
            return
        if own.held:
            self._lost(own)  # the turn before, if we go on without a lease, or with one
            own.settled = False
            if own.covered is not None:
                own.begin_turn(self._env.storage, own.covered)
            self._web.adopt(own.topic, self._cluster.numbers)
        else:
            self._lost(own)
            if own.turn.elsewhere and not own.told:
                # A ping that came before we knew whose turn it is, or before a crash.
                own.told = True
                self._cluster.ping(own.topic)
        self._ask(own)
        self._turned(canonical)

    def _lost(self, own: OwnTopic) -> None:
        """It is not our turn, or not any more."""
        if own.open and own.covered is not None:
            if own.last is not None:
                own.kept = place_of(own.last)
            own.write_down(self._env.storage, max(own.covered, own.kept), wrote=False)
        self._shut(own)

    def _close_soon(self, own: OwnTopic) -> None:
        if self._is_needed(own) or own.closing is not None:
            return
        own.closing = self._env.call_later(self._settings.linger, self._close, own)

    def _is_needed(self, own: OwnTopic) -> bool:
        canonical = own.topic.canonical
        return any(canonical in each for each in (self._wanted, self._announced, self._attended))

    def _close(self, own: OwnTopic) -> None:
        canonical = own.topic.canonical
        self._lost(own)
        del self.topics[canonical]
        if own.retry is not None:
            own.retry.cancel()
        self._withdraw(own)
        self._writing.end(own.turn)
        self._cluster.unclaim(own.topic)
        self._standby(canonical, False)
        self._mapping.deactivate(own.topic)

    def _shut(self, own: OwnTopic) -> None:
        if own.open:
            own.open = False
            self._changed(own.topic.canonical)

    def _withdraw(self, own: OwnTopic) -> None:
        own.last = None
        self._client.withdraw(own.topic.sid.raw, own.topic.rid.raw)

    # Taking turns

    def _came(self, update: WebUpdate) -> None:
        """What another proxy wrote has come: what we fetched before is nothing new any more."""
        own = self.topics.get(update.topic)
        if own is None or own.held or own.owes or own.wrote or own.covered is None:
            return
        if own.newest > own.covered:
            own.write_down(self._env.storage, own.newest, wrote=False)

    def _left_over(self, own: OwnTopic, unique: bool) -> None:
        """The hub has something that we may not publish now."""
        if unique:
            own.owes = True
        if own.owes:
            self._cluster.claim(own.topic)
        elif own.turn.elsewhere:
            self._cluster.ping(own.topic)
            return
        else:
            own.told = False  # the one that writes it, once it is known
        self._writing.hurry(own.turn)

    def _pass_on(self, own: OwnTopic) -> None:
        """Everything is published: perhaps it is another one's turn."""
        successor = self._writing.successor(own.turn, settled=own.settled)
        if successor:
            self._counters["handed_over"] += 1
            self._lost(own)
            self._writing.hand_over(own.turn, successor)

    # Publishing

    def _ask(self, own: OwnTopic) -> None:
        """Publish what the hub has after the last version that was."""
        if not own.looked or own.covered is None:
            return
        if own.asking:
            own.again = True
            return
        own.asking, own.again = True, False
        after = own.last or own.passed_over
        self._web.backlog(own.topic, after, partial(self._fill, own, after))

    def _fill(self, own: OwnTopic, after: Position | None, updates: Sequence[WebUpdate]) -> None:
        own.asking = False
        if not self._is_ours(own):
            return
        if own.last is None and after != own.passed_over:
            self._ask(own)  # it was withdrawn meanwhile, and begins with what is oldest
            return
        if own.last is not None and updates and is_beyond(own.last, updates[0].position):
            # The hub has forgotten what we missed. The stream ends here, and goes on as another.
            self._counters["history_exceeded"] += 1
            self._shut(own)
            self._withdraw(own)
        if updates:
            own.newest = max(own.newest, place_of(updates[-1].position))
        ripe = updates if own.held else self._withheld(own, updates)
        if own.last is None and (ripe or own.held) and not self._begin(own, ripe):
            return
        for update in ripe:
            is_new = own.last is None or update.position > own.last
            if is_new and not self._publish(own, update):
                return
        if own.again or (updates and (own.held or len(ripe) == len(updates))):
            self._ask(own)  # until there is nothing more
        elif own.held and not own.open:
            self._opened(own)

    def _withheld(self, own: OwnTopic, updates: Sequence[WebUpdate]) -> list[WebUpdate]:
        """What may be had from who stands by: what it published when it was its turn."""
        assert own.covered is not None
        covered = own.covered
        beyond = [each for each in updates if place_of(each.position) > covered]
        if beyond:
            self._left_over(own, own.wrote or any(each.is_unique for each in beyond))
        return [each for each in updates if place_of(each.position) <= own.kept]

    def _opened(self, own: OwnTopic) -> None:
        own.open, own.owes = True, False
        self._cluster.unclaim(own.topic)
        self._changed(own.topic.canonical)
        self._pass_on(own)

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
        assert own.covered is not None
        if not own.held and place_of(update.position) > own.kept:
            self._lost(own)
            return False
        try:
            self._client.publish(
                own.topic.sid.raw,
                own.topic.rid.raw,
                update.body,
                self._mapping.describe(update, *turn_of(own, update)),
                position=update.position,
            )
        except NotPublished as error:
            self._counters["not_published"] += 1
            self._env.log("version.not_published", topic=own.topic.canonical, reason=error)
            self._shut(own)
            if self._is_next(own, update.position) and not isinstance(error, HistoryFull):
                # It is too large, and will be. The others must not wait for it for ever.
                own.passed_over = update.position
                self._withdraw(own)
            self._try_again(own)
            return False
        self._counters["published"] += 1
        own.last = update.position
        own.settled |= update.is_unique
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
