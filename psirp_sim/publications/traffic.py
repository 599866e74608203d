"""Who publishes and listens in the fault schedules: applications that go on after every crash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from identifiers import Position, PublisherId
from psirp_sim.node import FabricNode
from psirp_sim.publications.delivery import Subscription
from psirp_sim.publications.envelope import open_envelope
from psirp_sim.publications.events import Event
from psirp_sim.publications.ledger import Ledger, Reader
from psirp_sim.publications.offer import Offer
from psirp_sim.publications.publisher import publisher_of
from psirp_sim.runtime.durations import MILLISECOND
from psirp_sim.runtime.environment import Environment
from psirp_sim.runtime.schedules import InvariantViolated
from psirp_sim.settings import FabricSettings
from psirp_sim.wire.rendezvous import Code

LOOK = 100 * MILLISECOND
SCOPE = b"S" * 32
NUMBERED = 7
"""The epoch of those who number their versions themselves."""


@dataclass(slots=True)
class Author:
    """What a node publishes; it is the application's, and outlives a crash."""

    item: bytes
    durable: bool
    offered: bool = True
    """Whether it wants to publish now."""
    count: int = 0
    lost: bool = False
    """Whether its state was lost since it last published."""
    numbered: bool = False
    """Whether the application numbers its versions, and keeps them itself."""
    latest: bytes = b""
    """What it published last, if it does."""


@dataclass(frozen=True, slots=True)
class Must:
    """A version that a publisher published when it knew of a subscriber."""

    place: tuple[int, int]
    author: str
    life: int
    """A publisher that begins another life learns anew who listens."""


@dataclass(slots=True, eq=False)
class Audience:
    """What a node listens to; it is the application's, and outlives a crash."""

    item: bytes
    """Empty: the whole scope."""
    memory: str
    """After a crash it goes on: "position" where it was, since it keeps the Position with the
    effect; "cursor" where the fabric knows it was done; "none" anew."""
    slow: int
    """Nanoseconds that it takes over an event."""
    moody: bool
    """Whether it raises an exception now and then."""
    name: str
    wanted: bool = True
    readers: dict[tuple[bytes, bytes], Reader] = field(default_factory=dict)
    must: dict[tuple[bytes, bytes], Must] = field(default_factory=dict)
    """What this subscription must not miss, of each stream."""
    done_before: dict[tuple[bytes, bytes], tuple[int, int] | None] = field(default_factory=dict)
    """How far it was in each stream before a power cut, which may have spared its cursor."""


class Trial(Protocol):
    """What says who does what, and is told what comes of it."""

    node: type[FabricNode]
    settings: FabricSettings
    ledger: Ledger
    wrong: str | None
    authors: dict[str, list[Author]]
    audiences: dict[str, list[Audience]]

    def may_miss_nothing_from(self, author: str, item: bytes, position: Position) -> None: ...
    def life_of(self, name: str) -> int: ...


class Peer:
    """A core: a fabric node, and the applications there."""

    def __init__(self, env: Environment, trial: Trial, roles: Sequence[str]) -> None:
        self.env = env
        self.trial = trial
        self.node = trial.node(env, trial.settings, roles=roles, domain="trial")
        self.subscriptions: dict[Audience, Subscription] = {}
        self.registered: set[Audience] = set()
        """Those that the rendezvous has confirmed."""

    def start(self) -> None:
        self.node.start()
        self.env.call_later(LOOK, self._look)

    def receive(self, link: str, packet: bytes) -> None:
        self.node.receive(link, packet)

    def stop(self) -> None:
        self.node.stop()

    def _look(self) -> None:
        """Make what is there what is wished for."""
        if self.node.begun:
            for author in self.trial.authors.get(self.env.node, ()):
                self._offer(author)
            for audience in self.trial.audiences.get(self.env.node, ()):
                self._listen(audience)
        self.env.call_later(LOOK, self._look)

    # Publishing

    def _offer(self, author: Author) -> None:
        client = self.node.client
        there = client.offers.get((SCOPE, author.item))
        if author.offered and there is None:
            if author.numbered:
                self._offer_what_is_numbered(author)
                return
            offer = client.offer(SCOPE, author.item, durable=author.durable)
            if author.lost:
                self._renumbered(author, offer)
            self.trial.ledger.recovered(author.item, offer.sending.base)
            author.lost = author.lost or not author.durable
        elif not author.offered and there is not None and not there.closing:
            client.withdraw(SCOPE, author.item)
            self.trial.ledger.forgotten(author.item, there.history.publisher)
            author.lost = True
        elif there is not None and not author.numbered:
            self.trial.ledger.recovered(author.item, there.sending.base)

    def _renumbered(self, author: Author, offer: Offer) -> None:
        """What a power cut left of a stream has other Positions now."""
        history = offer.history
        for version in range(history.first, history.latest + 1):
            position = Position(PublisherId(history.publisher), history.epoch, version)
            envelope = history.get(version)
            assert envelope is not None
            content = open_envelope(self.trial.settings.keys, envelope)[1]
            self.trial.ledger.published(author.item, position, content, intact=False)

    def _offer_what_is_numbered(self, author: Author) -> None:
        """As a hub does: it offers its stream where it is, and its latest version once more."""
        latest = max(0, author.count - 1)
        publisher = publisher_of(self.env.node)
        self.node.client.offer(
            SCOPE, author.item, publisher=publisher, epoch=NUMBERED, latest=latest
        )
        self.trial.ledger.forgotten(author.item, publisher.raw)
        if author.count:
            author.count, author.lost = latest, True
            self.publish(author, author.latest)

    def publish(self, author: Author, content: bytes) -> None:
        """The next version, if it can be published now."""
        offer = self.node.client.offers.get((SCOPE, author.item)) if self.node.begun else None
        if offer is None or offer.closing:
            return
        author.count += 1
        position: Position | None = None
        ready = False

        def done() -> None:
            nonlocal ready
            ready = True
            if position is not None:
                self._told(author, position)

        # What was lost with the state can only be noticed by a new epoch.
        given = Position(publisher_of(self.env.node), NUMBERED, author.count)
        position = self.node.client.publish(
            SCOPE, author.item, content, done=done, position=given if author.numbered else None
        )
        author.latest = content
        self.trial.ledger.published(author.item, position, content, intact=not author.lost)
        author.lost = False
        if ready:
            self._told(author, position)

    def _told(self, author: Author, position: Position) -> None:
        self.trial.ledger.told(author.item, position)
        self.trial.may_miss_nothing_from(self.env.node, author.item, position)

    # Listening

    def _listen(self, audience: Audience) -> None:
        subscription = self.subscriptions.get(audience)
        if audience.wanted and subscription is None:
            self._begin(audience)
            self.subscriptions[audience] = self.node.client.subscribe(
                SCOPE,
                audience.item,
                partial(self._heard, audience),
                after=[
                    (item, Position(PublisherId(publisher), *reader.last))
                    for (item, publisher), reader in audience.readers.items()
                    if audience.memory == "position" and reader.last and reader.last[1]
                ],
                durable=audience.name if audience.memory == "cursor" else None,
                by_hand=audience.slow > 0,
                done=partial(self._registered, audience),
            )
        elif not audience.wanted and subscription is not None:
            self.node.client.unsubscribe(subscription)
            del self.subscriptions[audience]
            self.registered.discard(audience)

    def _registered(self, audience: Audience, code: Code) -> None:
        if code is Code.OK and audience in self.subscriptions:
            self.registered.add(audience)

    def _begin(self, audience: Audience) -> None:
        """What the next subscription of this audience may be told first."""
        audience.must.clear()
        for stream, reader in list(audience.readers.items()):
            if audience.memory == "none" or not (reader.last and reader.last[1]):
                del audience.readers[stream]
            elif audience.memory == "cursor":
                # What it was not done with must come again, and what it was done with may.
                reader.last, reader.repeats = reader.done, True
                if reader.done is None:
                    del audience.readers[stream]

    def _heard(self, audience: Audience, event: Event) -> None:
        if audience.moody and self.env.random.random() < 0.1:
            raise RuntimeError("not now")
        stream = (event.rid, event.publisher.raw)
        reader = audience.readers.setdefault(stream, Reader())
        try:
            must = audience.must.get(stream)
            known = must is not None and self.trial.life_of(must.author) == must.life
            self.trial.ledger.heard(reader, must.place if must and known else None, event)
        except InvariantViolated as violation:
            # What a listener raises does not leave the core.
            self.trial.wrong = f"{self.env.node}: {violation}"
        if audience.slow:
            self.env.call_later(audience.slow, self._done, audience, event, reader, reader.last)
        else:
            reader.done = reader.last

    def _done(
        self, audience: Audience, event: Event, reader: Reader, place: tuple[int, int]
    ) -> None:
        if audience in self.subscriptions:
            reader.done = place
            self.subscriptions[audience].done(event)
