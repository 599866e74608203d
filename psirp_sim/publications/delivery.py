"""Handing streams on to those who subscribed here: each version once, in order, as they keep up.

A subscription has a cursor in every stream it follows. The listener of a subscription gets one
event after the other and is done with an event when it returns, or when it says so; then the
cursor of a durable subscription is written down. A listener that raises an exception gets the same
event again a little later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from identifiers import Position, PublisherId
from psirp_sim.publications.events import Event, Gap, Reset, Update
from psirp_sim.publications.reception import Reception
from psirp_sim.publications.settings import PublicationSettings
from psirp_sim.runtime.durations import SECOND
from psirp_sim.runtime.environment import Environment
from psirp_sim.wire.rendezvous import Code

Place = tuple[int, int]
"""Epoch and version; version 0 before the first."""
Stream = tuple[bytes, bytes]
"""Rendezvous id and publisher, within the scope of a subscription."""

PREFIX = b"cursor "
AGAIN = SECOND
"""After which a listener that raised an exception gets the event again."""


@dataclass(slots=True, eq=False)
class InHand:
    """An event that the listener has and is not done with."""

    event: Event
    done: bool = False


@dataclass(slots=True, eq=False)
class Cursor:
    """How far a subscription is in a stream."""

    epoch: int
    next: int
    """The version that comes next."""
    last: Place | None = None
    """What was handed on last, or was before the subscription began."""
    reset: Reset | None = None
    """To be told before anything else."""
    in_hand: deque[InHand] = field(default_factory=deque)
    base: int = 0
    """The version that was the latest when it began, or went on."""
    ready: bool = True
    """Of a durable subscription: whether a crash from now on would not make it begin anew."""


class Subscription:
    """What one part of an application listens to: an item, or a whole scope."""

    def __init__(
        self,
        env: Environment,
        settings: PublicationSettings,
        sid: bytes,
        rid: bytes,
        listener: Callable[[Event], None],
        *,
        after: Iterable[tuple[bytes, Position]],
        from_first: Iterable[tuple[bytes, PublisherId, int]],
        others_from_first: bool,
        durable: str | None,
        by_hand: bool,
        name: str,
        progress: Callable[[Reception], None],
        delivered: Callable[[Subscription, Update], None],
    ) -> None:
        """`progress` is called when it may go on with a stream; `delivered` with every update."""
        self._env = env
        self._settings = settings
        self.sid, self.rid = sid, rid
        self.name, self.durable = name, durable
        self._listener = listener
        self._by_hand = by_hand
        self._progress = progress
        self._delivered = delivered
        self._after: dict[Stream, Place] = {
            (item, position.publisher.raw): (position.epoch, position.version)
            for item, position in after
        }
        for item, publisher, epoch in from_first:
            self._after[item, publisher.raw] = (epoch, 0)
        self._others_from_first = others_from_first
        self._stored = None if durable is None else PREFIX + durable.encode() + b"\0" + sid
        if self._stored is not None:
            # Who says where it is knows better than what was written down of it.
            self._after = self._load(self._stored) | self._after
        self.cursors: dict[Stream, Cursor] = {}
        self.refused: Callable[[Code], None] = lambda code: None
        """Called when the rendezvous does not let it listen."""
        self.began: Callable[[], None] = lambda: None
        """Called when it follows another stream."""
        self.closed = False
        self._events = self._bytes = 0
        """In hand."""
        self._stalled: dict[Reception, None] = {}
        """Streams that could go on if the listener had less in hand."""
        self._left_behind: set[Reception] = set()
        self._failed: dict[Reception, None] = {}
        """Streams of which the listener gets an event again in a while."""

    @property
    def in_hand(self) -> int:
        """Events that the listener is not done with."""
        return self._events

    def has_begun(self, rid: bytes, publisher: bytes, place: Place = (0, 0)) -> bool:
        """Whether the publisher knows of it, and it is done with what was there before, and with
        what comes up to that place."""
        cursor = self.cursors.get((rid, publisher))
        if cursor is None or not cursor.ready or cursor.in_hand:
            return False
        done = (cursor.epoch, cursor.next - 1)
        return done >= (cursor.epoch, cursor.base) and done >= place

    def forget(self) -> None:
        """Nobody will go on where it was; only once it is closed."""
        if self._stored is not None:
            stored = [key for key, _ in self._env.storage.scan(self._stored)]
            self._env.storage.write(dict.fromkeys(stored))

    def wants(self, sid: bytes, rid: bytes) -> bool:
        """Whether the item is one of those it listens to."""
        return sid == self.sid and self.rid in (b"", rid)

    def close(self) -> None:
        """The listener gets nothing any more."""
        self.closed = True
        self.cursors.clear()
        self._stalled.clear()
        self._failed.clear()
        self._left_behind.clear()

    # Following streams

    def follow(self, reception: Reception, base: int) -> None:
        """Begin with that version of a stream, or go on where it was left."""
        stream = (reception.rid, reception.publisher)
        cursor = self.cursors.get(stream)
        if cursor is None:
            after = self._after.pop(stream, None)
            if after is None and self._others_from_first:
                after = (reception.epoch, 0)
            if after is None:
                cursor = Cursor(reception.epoch, max(1, base), base=base)
                self._store_beginning(cursor, reception)
            else:
                cursor = Cursor(after[0], after[1] + 1, after)
                if after[0] == reception.epoch:
                    cursor.base = base
            self.cursors[stream] = cursor
            if cursor.ready:
                self._env.call_later(0, self.began)
        if cursor.epoch < reception.epoch:
            self._begin_epoch(cursor, reception)

    def _store_beginning(self, cursor: Cursor, reception: Reception) -> None:
        """Who has been told something must go on after it, whenever it crashes."""
        if self._stored is None:
            return
        cursor.ready = False

        def stored() -> None:
            cursor.ready = True
            if not self.closed:
                self._progress(reception)
                self.began()

        key = self._stored + reception.rid + reception.publisher
        place = (cursor.epoch, cursor.next - 1)
        self._env.storage.write({key: msgspec.msgpack.encode(place)}, stored)

    def _begin_epoch(self, cursor: Cursor, reception: Reception) -> None:
        publisher = PublisherId(reception.publisher)
        previous = cursor.reset.previous if cursor.reset is not None else None
        if cursor.reset is None and cursor.last is not None and cursor.last[1]:
            previous = Position(publisher, *cursor.last)
        cursor.epoch, cursor.next = reception.epoch, 1
        cursor.reset = Reset(reception.sid, reception.rid, publisher, reception.epoch, previous)

    def needed(self, reception: Reception) -> tuple[bool, int] | None:
        """The next version it wants of a stream, and whether the others do not wait for it any
        more; None where the stream has none for it."""
        cursor = self.cursors.get((reception.rid, reception.publisher))
        if cursor is None or cursor.epoch != reception.epoch:
            return None
        return reception in self._left_behind, cursor.next

    def is_stuck(self, reception: Reception) -> bool:
        """Whether it could not take anything just now."""
        return reception in self._stalled or reception in self._failed

    def leave_behind(self, reception: Reception) -> None:
        """Others go on with the stream; it asks for what it missed when it can take it."""
        if self.is_stuck(reception):
            self._left_behind.add(reception)

    def advance(self, reception: Reception) -> None:
        """Hand on what there is, as far as the listener keeps up."""
        cursor = self.cursors.get((reception.rid, reception.publisher))
        if cursor is None or cursor.epoch != reception.epoch or not cursor.ready:
            return
        while not self.closed and reception not in self._failed:
            if self._is_full():
                self._stalled[reception] = None
                return
            event = self._next_event(cursor, reception)
            if event is None:
                return
            if not self._hand_on(cursor, event):
                self._failed[reception] = None
                self._env.call_later(AGAIN, self._try_again, reception)

    def _try_again(self, reception: Reception) -> None:
        self._failed.pop(reception, None)
        self._left_behind.discard(reception)
        if not self.closed:
            self._progress(reception)

    def _next_event(self, cursor: Cursor, reception: Reception) -> Event | None:
        if cursor.reset is not None:
            return cursor.reset
        while (assembly := reception.ripe(cursor.next)) is not None and assembly.refused:
            cursor.next += 1
        if assembly is not None:
            assert assembly.header is not None
            return Update(
                reception.sid,
                reception.rid,
                Position(PublisherId(reception.publisher), cursor.epoch, cursor.next),
                assembly.content,
                assembly.header.metadata,
                assembly.signed,
            )
        last = reception.lost_from(cursor.next)
        if last < cursor.next:
            return None
        publisher = PublisherId(reception.publisher)
        return Gap(reception.sid, reception.rid, publisher, cursor.epoch, cursor.next, last)

    def _is_full(self) -> bool:
        settings = self._settings
        return (
            self._events >= settings.unfinished_events or self._bytes >= settings.unfinished_bytes
        )

    # The listener

    def _hand_on(self, cursor: Cursor, event: Event) -> bool:
        """Whether the listener has taken it."""
        held = InHand(event)
        cursor.in_hand.append(held)
        self._weigh(event, 1)
        try:
            self._listener(event)
        except BaseException as error:
            taken = held not in cursor.in_hand
            if not taken:
                cursor.in_hand.remove(held)
                self._weigh(event, -1)
            if not isinstance(error, Exception):
                raise
            # It is not ours, and must not stop the others.
            self._env.log("listener.failed", reason=repr(error), again=not taken)
            if not taken:
                return False
        if isinstance(event, Reset):
            cursor.reset, cursor.last = None, (event.epoch, 0)
        else:
            cursor.last = _place(event)
            cursor.next = cursor.last[1] + 1
        if isinstance(event, Update):
            self._delivered(self, event)
        if not self._by_hand:
            held.done = True
        self._commit(cursor)
        return True

    def done(self, event: Event) -> None:
        """The listener, which said that it would tell, is done with an event."""
        cursor = self.cursors.get((event.rid, event.publisher.raw))
        held = (
            next((each for each in cursor.in_hand if each.event is event), None) if cursor else None
        )
        if cursor is not None and held is not None:
            held.done = True
            self._commit(cursor)
        if self._stalled and not self._is_full():
            stalled, self._stalled = self._stalled, {}
            for reception in stalled:
                self._left_behind.discard(reception)
                self._progress(reception)

    def _commit(self, cursor: Cursor) -> None:
        """Write down how far the listener is done without a hole."""
        committed = None
        while cursor.in_hand and cursor.in_hand[0].done:
            committed = cursor.in_hand.popleft().event
            self._weigh(committed, -1)
        if committed is not None and self._stored is not None:
            key = self._stored + committed.rid + committed.publisher.raw
            self._env.storage.write({key: msgspec.msgpack.encode(_place(committed))})

    def _weigh(self, event: Event, sign: int) -> None:
        self._events += sign
        if isinstance(event, Update):
            self._bytes += sign * len(event.content)

    def _load(self, prefix: bytes) -> dict[Stream, Place]:
        found: dict[Stream, Place] = {}
        for key, value in self._env.storage.scan(prefix):
            stream = key[len(prefix) :]
            found[stream[:32], stream[32:]] = msgspec.msgpack.decode(value, type=Place)
        return found


def _place(event: Event) -> Place:
    match event:
        case Update():
            return event.position.epoch, event.position.version
        case Gap():
            return event.epoch, event.last
        case Reset():
            return event.epoch, 0
