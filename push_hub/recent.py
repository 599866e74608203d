"""The last updates of every topic in memory, so that a reader who was here a moment ago, or at
another hub, goes on without a question to the store.

Updates are added in the order they were recorded in. Those of a topic from the first one kept on
are all that were recorded since, as far as this hub was told of them: a reader of whom the last
one is kept here needs nothing older.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from identifiers import Position
from push_hub.event_stream import Event, update_event
from push_hub.store.records import Update

MOST_BYTES: Final = 16 << 20
"""For all topics; the oldest update goes first, whatever its topic."""
_COPIES: Final = 3
"""What is kept of a body: itself, and its event, which is longer."""
_OVERHEAD: Final = 1_000


class Remembered:
    """An update, and what was made of it for readers."""

    __slots__ = ("_events", "size", "update")

    def __init__(self, update: Update) -> None:
        self.update = update
        self.size = _OVERHEAD + _COPIES * (len(update.body) + len(update.entries or ""))
        self._events: dict[tuple[str, bool], Event] = {}

    def event(self, spelling: str, whole: bool) -> Event:
        """Made once for all who spell the topic alike."""
        made = self._events.get((spelling, whole))
        if made is None:
            made = update_event(self.update, spelling, whole)
            if len(self._events) < _COPIES:  # anybody may think of one more spelling
                self._events[spelling, whole] = made
        return made


class _Topic:
    """Of one topic, in the order they were recorded in."""

    def __init__(self, canonical: str) -> None:
        self.canonical = canonical
        self.kept: dict[int, Remembered] = {}
        self.places: dict[Position, int] = {}

    def drop_first(self) -> int:
        """How many bytes that were."""
        seq = next(iter(self.kept))
        gone = self.kept.pop(seq)
        if self.places.get(gone.update.position) == seq:
            del self.places[gone.update.position]
        return gone.size


class Recent:
    """Of all topics of a hub. `history`: how many of one topic are kept at most."""

    def __init__(self, history: int, most_bytes: int = MOST_BYTES) -> None:
        self._history = history
        self._most_bytes = most_bytes
        self._topics: dict[int, _Topic] = {}
        self._ids: dict[str, int] = {}
        """By canonical name. A topic that had an update is never forgotten: its number stays."""
        self._order: deque[tuple[int, int]] = deque()
        """The topic and number of each that was added, kept still or not."""
        self.bytes = 0
        self.last_seq = 0
        """The number of the update last added, or recorded before the first was."""

    def add(self, update: Update) -> Remembered:
        """An update was recorded."""
        made = Remembered(update)
        self.last_seq = max(self.last_seq, update.seq)
        topic = self._topics.get(update.topic_id)
        if topic is not None and next(reversed(topic.kept)) >= update.seq:
            # Something is out of order: nobody is to go on in what may have a hole.
            self._forget(update.topic_id)
            topic = None
        if topic is None:
            topic = self._topics[update.topic_id] = _Topic(update.topic)
            self._ids[update.topic] = update.topic_id
        topic.kept[update.seq] = made
        topic.places[update.position] = update.seq
        self.bytes += made.size
        self._order.append((update.topic_id, update.seq))
        if len(topic.kept) > self._history:
            self.bytes -= topic.drop_first()
        while self.bytes > self._most_bytes or len(self._order) > 2 * self._count_limit:
            self._drop_oldest()
        return made

    def topic_id(self, canonical: str) -> int | None:
        """The number of a topic of which something is here."""
        return self._ids.get(canonical)

    def find(self, topic_id: int, position: Position) -> int | None:
        """The number of the update with this Position, from which on all are here."""
        topic = self._topics.get(topic_id)
        return None if topic is None else topic.places.get(position)

    def place(self, topic_id: int, after: Sequence[Position]) -> int | None:
        """The number of the update after which a reader with these Positions goes on; None when
        not all that it may lack is here."""
        found = [self.find(topic_id, each) for each in after]
        places = [each for each in found if each is not None]
        return min(places) if places and len(places) == len(found) else None

    def after(self, topic_id: int, seq: int) -> list[Remembered] | None:
        """Those recorded after number `seq`, oldest first; None when not all of them are here."""
        topic = self._topics.get(topic_id)
        if topic is None or next(iter(topic.kept)) > seq:
            return None
        found = list(_newer(topic, seq))
        found.reverse()
        return found

    @property
    def _count_limit(self) -> int:
        return self._most_bytes // _OVERHEAD

    def _drop_oldest(self) -> None:
        topic_id, seq = self._order.popleft()
        topic = self._topics.get(topic_id)
        if topic is not None and seq in topic.kept:
            self.bytes -= topic.drop_first()
            if not topic.kept:
                self._forget(topic_id)

    def _forget(self, topic_id: int) -> None:
        gone = self._topics.pop(topic_id)
        del self._ids[gone.canonical]
        self.bytes -= sum(each.size for each in gone.kept.values())


def _newer(topic: _Topic, seq: int) -> Iterator[Remembered]:
    for number in reversed(topic.kept):
        if number <= seq:
            return
        yield topic.kept[number]
