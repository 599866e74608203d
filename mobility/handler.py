"""The client handler: what a proxy keeps of one stay of one client.

    here --move-out, silence, seen elsewhere--> away --time to keep--> expired --> forgotten
      ^-------------a sign of life----------------'

Here, the client is attached and gets its messages itself; the handler knows where it would go on.
Away, the handler is subscribed in the client's place and buffers. Two exceptions, both in mode
`position`: a topic whose history is at least as long as the quota is left to that history, nothing
of it is buffered; and of a topic without any history a buffer is kept while the client is here,
too (and trimmed by what it says it consumed), because nobody could bring back what is published
between the moment a client vanishes and the moment that is noticed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from identifiers import Position
from mobility.buffer import Buffer
from mobility.identity import Claim
from mobility.merging import furthest
from mobility.messages import (
    Batch,
    Fetch,
    Gone,
    Item,
    Places,
    State,
    Topics,
    read_places,
    write_places,
)
from mobility.port import After, Message, Subscription
from mobility.relaying import Asker
from mobility.service import Mode, Service, ping_topic, pong_topic
from psirp_sim.runtime.environment import Environment, Timer

if TYPE_CHECKING:
    from mobility.port import PubSub

_SHELF = b"mobility/"
_HANDLER = b"handler/"
_ITEM = b"item/"
_TALLY = b"tally/"


class Record(Struct, frozen=True):
    """What is durable of a stay, besides its items."""

    client: str
    epoch: int
    nonce: int
    topics: Topics
    service: Service
    alive: float
    state: str = "here"
    since: int = 0
    """By the proxy's wall clock: when the client went."""
    final: bool = False
    """It moved out: whatever else it said in this stay is late."""
    asked: int = 0
    """The number of the call that last changed the topics: those with lower ones are late."""
    extra: int = 0
    """Up to this serial number, items were inherited."""


class _Seen(Struct, frozen=True):
    """What is durable of a topic, where that cannot be told from its items."""

    topic: str
    seen: Places
    dropped: int


class Handler:
    """One stay. The proxy decides when it changes its state."""

    shelf = _SHELF
    """Where it keeps what is durable."""

    def __init__(self, env: Environment, pubsub: PubSub, record: Record) -> None:
        self._env = env
        self._pubsub = pubsub
        self.record = record
        self.buffer = Buffer(record.service, record.extra)
        # Browsers know whole numbers only so far.
        self.life = env.random.randrange(1, 1 << 53)
        self.since: dict[str, int] = {}
        """In which stay the client subscribed to topics, as its move-in said."""
        self.began = record.epoch
        """The stay from which on it has buffered."""
        self.peer = ""
        """Where the client was last heard of."""
        self.trace_id = ""
        self.timer: Timer | None = None
        """Until it has vanished, or is expired, or is forgotten."""
        self.on_effective: Callable[[], None] | None = None
        self.to_welcome: Asker | None = None
        self.to_dismiss: Asker | None = None
        """Who waits for every subscription to be in effect."""
        self._subscriptions: dict[str, Subscription] = {}
        self._pending: set[str] = set()
        """Topics whose subscription is not in effect yet."""

    @property
    def claim(self) -> Claim:
        return Claim(self.record.epoch, self.record.nonce)

    @property
    def state(self) -> str:
        return self.record.state

    @property
    def effective(self) -> bool:
        """Every subscription it asked for is in effect."""
        return not self._pending

    # Its life

    def save(self, done: Callable[[], None] | None = None) -> None:
        """Make the record durable."""
        self._env.storage.write({self._key(_HANDLER): _encode(self.record)}, done)

    def stand_by(self) -> None:
        """The client is here: buffer only what could not be had again."""
        for topic in list(self._subscriptions):
            if self._pubsub.history(topic) or topic not in self.record.topics:
                self._cancel(topic)
        if self.record.service.mode is Mode.POSITION:
            for topic in self.record.topics:
                if self._buffers(topic) and not self._pubsub.history(topic):
                    self._subscribe(topic)

    def take_over(self) -> None:
        """The client is away: buffer everything that it should have."""
        for topic in self.record.topics:
            if self._buffers(topic):
                self._subscribe(topic)
        if self.record.service.mode is Mode.PING:
            self._subscribe(ping_topic(self.record.client, self.record.epoch))

    def quit(self) -> None:
        """Nothing is added any more."""
        for topic in list(self._subscriptions):
            self._cancel(topic)

    def dismiss(self) -> None:
        """The client moved out."""
        self.record = msgspec.structs.replace(self.record, final=True)

    def become(self, state: str, since: int = 0) -> None:
        """Another state; `save` makes it durable."""
        self.record = msgspec.structs.replace(self.record, state=state, since=since)

    def update(self, call: int, topics: Topics, gone: Gone) -> None:
        """What the client has consumed, and what it subscribes to, has changed. A topic that is
        among both was subscribed to again: nothing earlier counts."""
        if call <= self.record.asked:
            return  # it was answered before, or overtaken
        known = dict(self.record.topics)
        erased: dict[bytes, bytes | None] = {}
        for topic, said in gone.items():
            if said <= self.record.asked:
                continue  # its answer was lost, or is under way
            known.pop(topic, None)
            self._cancel(topic)
            erased[self._tally(topic)[0]] = None
            erased.update((self._item_key(serial), None) for serial in self.buffer.forget(topic))
        for topic, places in topics.items():
            known[topic] = places
            for serial in self.buffer.trim(topic, read_places(places) or ()):
                erased[self._item_key(serial)] = None
        self.record = msgspec.structs.replace(self.record, topics=known, asked=call)
        if erased:
            self._env.storage.write(erased)

    def list_topics(self, call: int, topics: Topics, gone: Gone) -> None:
        """The same, where these are all topics."""
        others = {topic: call for topic in self.record.topics if topic not in topics}
        self.update(call, topics, gone | others)

    def expire(self) -> None:
        """The time to keep is over: keep only the count of what was lost."""
        self.quit()
        erased: dict[bytes, bytes | None] = {self._item_key(n): None for n in self.buffer.items}
        lost = Buffer(self.record.service)
        for topic in self.buffer.topics:
            lost.note(topic, self.buffer.seen(topic), self.buffer.dropped(topic))
        for item in self.buffer.items.values():
            lost.note(item.topic, (), 1)
        self.buffer = lost
        erased.update(self._tally(topic) for topic in lost.topics)
        self._env.storage.write(erased)

    def erase(self) -> None:
        """Forget it, on disk too."""
        self.quit()
        if self.timer is not None:
            self.timer.cancel()
        keys = [self._item_key(serial) for serial in self.buffer.items]
        keys += [self._tally(topic)[0] for topic in self.buffer.topics]
        keys.append(self._key(_HANDLER))
        self._env.storage.write(dict.fromkeys(keys))

    # Subscriptions

    def _buffers(self, topic: str) -> bool:
        service = self.record.service
        if service.mode is Mode.NONE or service.excludes(topic):
            return False
        return not self.left_to_history(topic)

    def left_to_history(self, topic: str) -> bool:
        """Nothing of the topic is buffered: its history is as long as the buffer might get."""
        service = self.record.service
        return (
            service.mode is Mode.POSITION
            and self._pubsub.history(topic) >= service.topic.messages > 0
        )

    def _subscribe(self, topic: str) -> None:
        if topic in self._subscriptions:
            return
        self._pending.add(topic)
        after: After = None
        if self.record.service.mode is Mode.POSITION:
            consumed = read_places(self.record.topics.get(topic))
            if consumed is None and self._pubsub.history(topic):
                # The client's first subscription may have begun without a word to this proxy.
                consumed = ()
            after = None if consumed is None else furthest(consumed, self.buffer.seen(topic))
        self._subscriptions[topic] = self._pubsub.subscribe(topic, after, self)

    def _cancel(self, topic: str) -> None:
        subscription = self._subscriptions.pop(topic, None)
        if subscription is not None:
            subscription.cancel()
        self._became_effective(topic)

    def _became_effective(self, topic: str) -> None:
        self._pending.discard(topic)
        if not self._pending and self.on_effective is not None:
            self.on_effective()

    # What the pub/sub system calls

    def subscribed(self, topic: str, base: After) -> None:
        self._became_effective(topic)

    def deliver(self, topic: str, position: Position | None, message: Message) -> None:
        if topic not in self._subscriptions:
            return
        record = self.record
        if record.service.mode is Mode.PING and topic == ping_topic(record.client, record.epoch):
            pong = pong_topic(record.client, record.epoch)
            self._pubsub.publish(pong, None, Message(b"pong"), _nothing)
            return
        if position is not None and record.service.mode is Mode.POSITION:
            seen = {each.publisher: each for each in self.buffer.seen(topic)}
            known = seen.get(position.publisher)
            if known is not None and position <= known:
                return
        excluded = message.kind in record.service.exclude_kinds
        text = None if position is None else str(position)
        if excluded and text is None:
            return
        item = Item(topic, text, None if excluded else message.body, message.kind)
        serial, gone = self.buffer.add(item)
        changes: dict[bytes, bytes | None] = {self._item_key(serial): _encode(item)}
        if gone:
            changes.update((self._item_key(n), None) for n in gone)
            changes.update(self._tally(each) for each in gone.values())
        self._env.storage.write(changes)

    def gap(self, topic: str, first: Position, last: Position) -> None:
        self.buffer.note(topic, (last,))
        self._env.storage.write(dict([self._tally(topic)]))

    # What was prepared for the stay before it began

    def inherit(self, other: Handler) -> None:
        """Take what another one has that was subscribed in the client's place, and what it is
        subscribed to. It is extra: who kept it in the stay before has it still, so it gives way
        to whatever comes later."""
        changes: dict[bytes, bytes | None] = {}
        self.buffer.extra = other.buffer.next_serial
        topics = {t for t in self.record.topics if self._may_inherit(t, other)}
        for item in other.buffer.items.values():
            if item.topic in topics:
                serial, gone = self.buffer.add(item)
                changes[self._item_key(serial)] = _encode(item)
                changes.update((self._item_key(n), None) for n in gone)
        for topic in topics:
            consumed = read_places(self.record.topics[topic]) or ()
            changes.update((self._item_key(n), None) for n in self.buffer.trim(topic, consumed))
            self.buffer.note(topic, other.buffer.seen(topic))
            if topic in other._subscriptions:
                self._subscriptions[topic] = other._subscriptions.pop(topic)
                self._pending |= other._pending & {topic}
        self.buffer.extra = self.buffer.next_serial - 1
        self.record = msgspec.structs.replace(self.record, extra=self.buffer.extra)
        # At once with the record: nothing is left of a stay that a crash did not let begin.
        self._env.storage.write({**changes, self._key(_HANDLER): _encode(self.record)})

    def _may_inherit(self, topic: str, other: Handler) -> bool:
        known = other.record.topics
        if topic in self.since and self.since[topic] >= other.began:
            return False  # of an earlier subscription, perhaps
        if topic not in known or not goes_on(known[topic], self.record.topics[topic]):
            return False
        # What it dropped, a subscription of its own might bring again.
        return not (self._pubsub.history(topic) and other.buffer.dropped(topic))

    # What the client collects

    def batch(self, question: Fetch) -> Batch:
        """The answer to Fetch, under the same call."""
        after = question.after if question.life == self.life else 0
        return self._batch(question.call, after, question.most, question.consumed)

    def first_batch(self, most: int) -> Batch:
        """What the answer would be to a client that has not asked yet."""
        return self._batch(0, 0, most, {})

    def _batch(self, call: int, after: int, most: int, consumed: Topics) -> Batch:
        upto = {topic: read_places(places) or () for topic, places in consumed.items()}
        items, last = self.buffer.after(after, most, upto)
        ended = last is None
        return Batch(
            call=call,
            state=State.EXPIRED if self.state == "expired" else State.KEPT,
            life=self.life,
            last=self.buffer.next_serial - 1 if last is None else last,
            items=tuple(items),
            more=not ended or not self.effective,
            seen={t: write_places(self.buffer.seen(t)) for t in self.buffer.topics}
            if ended
            else {},
            dropped=self.drops() if ended else {},
        )

    def drops(self) -> dict[str, int]:
        """How many messages of each topic were dropped, where any were."""
        return {t: n for t in self.buffer.topics if (n := self.buffer.dropped(t))}

    # Durable state

    def restore(self) -> None:
        """Read the items back after a restart."""
        for _, value in self._env.storage.scan(self._key(_TALLY)):
            seen = msgspec.msgpack.decode(value, type=_Seen)
            self.buffer.note(seen.topic, read_places(seen.seen) or (), seen.dropped)
        for key, value in self._env.storage.scan(self._key(_ITEM)):
            serial = int.from_bytes(key[-8:])
            self.buffer.restore(serial, msgspec.msgpack.decode(value, type=Item))

    def _item_key(self, serial: int) -> bytes:
        return self._key(_ITEM) + serial.to_bytes(8)

    def _key(self, kind: bytes) -> bytes:
        stay = bytes.fromhex(self.record.client) + self.record.epoch.to_bytes(8)
        return self.shelf + kind + stay

    def _tally(self, topic: str) -> tuple[bytes, bytes]:
        key = self._key(_TALLY) + topic.encode()
        seen = write_places(self.buffer.seen(topic)) or ()
        return key, _encode(_Seen(topic, seen, self.buffer.dropped(topic)))


def stored(env: Environment) -> list[Record]:
    """Every record on disk."""
    values = env.storage.scan(_SHELF + _HANDLER)
    return [msgspec.msgpack.decode(value, type=Record) for _, value in values]


def goes_on(begun: Places | None, consumed: Places | None) -> bool:
    """Whether what was buffered from the former Positions on lacks nothing after the latter."""
    at = {each.publisher: each for each in read_places(consumed) or ()}
    since = read_places(begun) or ()
    return all(each.publisher in at and at[each.publisher] >= each for each in since)


def _encode(value: Struct) -> bytes:
    return msgspec.msgpack.encode(value)


def _nothing() -> None:
    """Nobody waits for a pong to be taken."""
