"""What the two baseline brokers have in common: copies for subscribers, sent while they are there.

Messages are persistent: a copy is in the store until it is acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from experiments.commuting.itinerary import RANGE
from experiments.commuting.store import Copy, Holder, Store
from experiments.commuting.wires import Wire
from experiments.commuting.words import Connect, Message, Publish, Taken, Word, decode, encode
from experiments.commuting.worker import Tally, Worker
from psirp_sim.runtime.durations import SECOND
from psirp_sim.runtime.environment import Environment

PUBLISHER = "publisher"
BROKER = "broker"
"""How the names of brokers begin."""
AT_ONCE = 16
"""Messages that a broker sends to one subscriber before it turns to others."""


class BrokerSettings(Protocol):
    """What a broker is told of the case."""

    @property
    def queue(self) -> int:
        """Bytes."""

    @property
    def shared(self) -> bool:
        """Whether its subscribers share them."""

    @property
    def operation(self) -> int: ...

    @property
    def patience(self) -> int:
        """Until a subscriber that acknowledges nothing counts as gone."""

    @property
    def valid(self) -> int:
        """Until a message expires, and a subscriber that is away is given up."""


@dataclass(slots=True, eq=False)
class Record(Holder):
    """A subscriber, as a broker knows it."""

    first: int = 0
    here: bool = False
    """It is connected to this broker, as far as that knows."""
    buffered: bool = True
    """Copies are stored for it while it is not."""
    unsent: dict[int, None] = field(default_factory=dict)
    """Ids of stored copies that are to be sent yet; some may have been overwritten."""
    sent: dict[int, int] = field(default_factory=dict)
    """Ids of messages under way, by the number of their acknowledgement."""
    sending: bool = False
    last: int = 0
    """Id of the last message that it is known to have."""

    def wants(self, selector: int) -> bool:
        return self.first <= selector < self.first + RANGE


class Broker:
    """A core."""

    def __init__(self, env: Environment, settings: BrokerSettings) -> None:
        self.env = env
        self.settings = settings
        self.worker = Worker(env, settings.operation)
        self.store = Store(settings.queue, settings.shared)
        self.records: dict[str, Record] = {}
        self.latest = 0
        """Id of the last message that came."""
        self.wires: dict[str, Wire] = {}

    def start(self) -> None:
        self.env.call_later(SECOND, self._expire)

    def stop(self) -> None:
        """Nothing to do."""

    def receive(self, link: str, packet: bytes) -> None:
        self.wire(link).receive(packet)

    def wire(self, link: str) -> Wire:
        if link not in self.wires:
            fixed = link == PUBLISHER or link.startswith(BROKER)
            self.wires[link] = Wire(
                self.env,
                link,
                lambda message: self.worker.do(lambda: self._hear(link, decode(message))),
                0 if fixed else self.settings.patience,
                lambda number: self.worker.measured(lambda: self._acknowledged(link, number)),
                lambda: self.worker.do(lambda: self._gone(link)),
            )
        return self.wires[link]

    @property
    def tally(self) -> Tally:
        return Tally(self.worker.operations, self.worker.cpu)

    @property
    def buffered(self) -> int:
        """Bytes."""
        return self.store.bytes

    # What differs

    def _hear(self, peer: str, word: Word) -> int:
        """Returns how many operations it took, as all of these do."""
        if isinstance(word, Publish):
            return self._publish(word)
        if isinstance(word, Connect):
            return self._connect(peer, word)
        return 0

    def _connect(self, subscriber: str, word: Connect) -> int:
        raise NotImplementedError

    def _vanished(self, record: Record) -> int:
        """A subscriber is not here any more."""
        return 0

    # Messages

    def _publish(self, word: Publish) -> int:
        self.latest = word.id
        self.wire(PUBLISHER).send(encode(Taken(word.id)))
        operations = 0
        now = self.env.now()
        for record in self.records.values():
            if record.wants(word.selector) and (record.here or record.buffered):
                self._keep(record, word.id, word.body, now)
                operations += 1
                if record.here and not record.sending:
                    self._send(record, word.id)
        return operations

    def _keep(self, record: Record, id: int, body: bytes, now: int) -> None:
        if id > record.last:
            self.store.add(record, id, body, now)
            record.unsent[id] = None

    def _send(self, record: Record, id: int) -> None:
        record.unsent.pop(id, None)
        copy = record.copies.get(id)
        if copy is not None:
            number = self.wire(record.name).send(encode(Message(id, copy.body)))
            record.sent[number] = id

    def _acknowledged(self, subscriber: str, number: int) -> None:
        record = self.records.get(subscriber)
        id = None if record is None else record.sent.pop(number, None)
        if record is not None and id is not None:
            record.last = max(record.last, id)
            copy = record.copies.get(id)
            if copy is not None:
                self.store.remove(copy)

    def deliver(self, record: Record) -> None:
        """Send what waits, some of it at a time, between other jobs."""
        record.here = True
        record.sent.clear()
        record.unsent = dict.fromkeys(record.copies)
        if not record.sending:
            record.sending = True
            self.worker.do(lambda: self._next(record))

    def _next(self, record: Record) -> int:
        operations = 0
        while record.here and record.unsent and operations < AT_ONCE:
            id = next(iter(record.unsent))
            if id in record.copies:
                self._send(record, id)
                operations += 1
            else:
                del record.unsent[id]  # overwritten
        if operations:
            self.worker.do(lambda: self._next(record))
        else:
            record.sending = False
        return operations

    def _gone(self, subscriber: str) -> int:
        record = self.records.get(subscriber)
        if record is None or not record.here:
            return 0
        record.here = False
        record.sent.clear()
        return self._vanished(record)

    def _expire(self) -> None:
        self.store.expire(self.env.now() - self.settings.valid)
        self.env.call_later(SECOND, self._expire)


def bodies(copies: Iterable[Copy]) -> tuple[tuple[int, bytes], ...]:
    return tuple((copy.id, copy.body) for copy in copies)
