"""What waits for one stay of a client: numbered items within quotas, and how many were dropped.

Pure bookkeeping. `Handler` makes it durable: `add`, `trim` and `forget` return the serial numbers
that went.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from identifiers import Position, PublisherId
from mobility.merging import furthest
from mobility.messages import Item
from mobility.service import Sacrifice, Service

ITEM_BYTES = 64
"""What an item is taken to cost besides topic and body."""


def size_of(item: Item) -> int:
    """Bytes an item counts for, in quotas and in answers."""
    return ITEM_BYTES + len(item.topic) + len(item.body or b"")


def _covers(consumed: Mapping[PublisherId, Position], item: Item) -> bool:
    """Whether an item is not after those Positions."""
    if not consumed or item.position is None:
        return False
    position = Position.parse(item.position)
    at = consumed.get(position.publisher)
    return at is not None and position <= at


@dataclass(slots=True)
class _Tally:
    """Of one topic."""

    serials: dict[int, None] = field(default_factory=dict)
    """In order."""
    bytes: int = 0
    dropped: int = 0
    seen: tuple[Position, ...] = ()
    """How far the topic has come, dropped messages included."""


class Buffer:
    """Items by serial number, oldest first."""

    def __init__(self, service: Service, extra: int = 0) -> None:
        self.service = service
        self.extra = extra
        """Items up to this serial number go first and are not missed: somebody else has them."""
        self.items: dict[int, Item] = {}
        self.bytes = 0
        self.next_serial = 1
        self._topics: dict[str, _Tally] = {}

    def __len__(self) -> int:
        return len(self.items)

    # What is known of topics

    def seen(self, topic: str) -> tuple[Position, ...]:
        tally = self._topics.get(topic)
        return () if tally is None else tally.seen

    def dropped(self, topic: str) -> int:
        tally = self._topics.get(topic)
        return 0 if tally is None else tally.dropped

    @property
    def topics(self) -> Iterable[str]:
        return self._topics.keys()

    def note(self, topic: str, seen: Iterable[Position], dropped: int = 0) -> None:
        """The topic has come so far, whatever became of it."""
        tally = self._topics.setdefault(topic, _Tally())
        tally.seen = furthest(tally.seen, seen)
        tally.dropped += dropped

    # Items

    def restore(self, serial: int, item: Item) -> None:
        """An item that was durable."""
        self._put(serial, item)
        self.next_serial = max(self.next_serial, serial + 1)

    def add(self, item: Item) -> tuple[int, dict[int, str]]:
        """Keep an item; its serial number, and what had to go, with the topic of each: the item
        itself may be among it."""
        serial = self.next_serial
        self.next_serial += 1
        self._put(serial, item)
        gone: dict[int, str] = {}
        while (victim := self._victim(item.topic, serial)) is not None:
            gone[victim] = self.items[victim].topic
            self._topics[gone[victim]].dropped += victim > self.extra
            self._remove(victim)
        return serial, gone

    def trim(self, topic: str, consumed: Iterable[Position]) -> list[int]:
        """Forget what the client has consumed; the serial numbers."""
        tally = self._topics.get(topic)
        if tally is None:
            return []
        upto = {position.publisher: position for position in consumed}
        gone = [serial for serial in tally.serials if _covers(upto, self.items[serial])]
        for serial in gone:
            self._remove(serial)
        return gone

    def forget(self, topic: str) -> list[int]:
        """Nothing of that topic is wanted any more; the serial numbers of what was kept."""
        tally = self._topics.get(topic)
        gone = [] if tally is None else list(tally.serials)
        for serial in gone:
            self._remove(serial)
        self._topics.pop(topic, None)
        return gone

    def after(
        self, serial: int, most: int, consumed: Mapping[str, Iterable[Position]]
    ) -> tuple[list[Item], int | None]:
        """Items after a serial number that are not consumed, at most `most` bytes of them but at
        least one; with the serial number of the last, or None when there are no more."""
        upto = {topic: {at.publisher: at for at in each} for topic, each in consumed.items()}
        found: list[Item] = []
        taken, last = 0, serial
        for number, item in self.items.items():
            if number <= serial or _covers(upto.get(item.topic, {}), item):
                continue
            taken += size_of(item)
            if taken > most and found:
                return found, last
            found.append(item)
            last = number
        return found, None

    def _put(self, serial: int, item: Item) -> None:
        tally = self._topics.setdefault(item.topic, _Tally())
        size = size_of(item)
        self.items[serial] = item
        tally.serials[serial] = None
        tally.bytes += size
        self.bytes += size
        if item.position is not None:
            tally.seen = furthest(tally.seen, (Position.parse(item.position),))

    def _remove(self, serial: int) -> None:
        item = self.items.pop(serial)
        tally = self._topics[item.topic]
        del tally.serials[serial]
        tally.bytes -= size_of(item)
        self.bytes -= size_of(item)

    # Quotas

    def _victim(self, topic: str, newest: int) -> int | None:
        """What goes now that the newest came; None when the quotas hold."""
        tally = self._topics[topic]
        of_topic, of_client = self.service.topic, self.service.client
        if len(tally.serials) > of_topic.messages or tally.bytes > of_topic.bytes:
            # Within a topic there is nothing less important than its oldest.
            oldest = next(iter(tally.serials))
            return newest if self._newest_goes(newest) and oldest > self.extra else oldest
        if len(self.items) > of_client.messages or self.bytes > of_client.bytes:
            oldest = next(iter(self.items))
            if oldest <= self.extra:
                return oldest
            return newest if self._newest_goes(newest) else self._least_important()
        return None

    def _newest_goes(self, newest: int) -> bool:
        return self.service.first is Sacrifice.NEWEST and newest in self.items

    def _least_important(self) -> int:
        if self.service.first is Sacrifice.TOPIC:
            for topic in self.service.unimportant:
                tally = self._topics.get(topic)
                if tally is not None and tally.serials:
                    return next(iter(tally.serials))
        return next(iter(self.items))
