"""The source's pro-active broker: contexts one hop ahead, with flooding, in its eight steps.

    passive --activate--> active --the subscriber reconnects here--> arriving --missed--> here
       ^---deactivate-------'                                                              |
    away <---------------------------it acknowledges nothing------------------------------'

What the source leaves open is decided in its favour: the reconnection request carries the
subscription, as JMS asks for it anyway, and the last id; the new broker begins to deliver when it
has what the old one kept from before the activation, so that order and ids hold; and the old one
answers when it has seen every message that it is asked for. Its weaknesses are its own: what is
overwritten in a queue is lost without a word, at the old broker as at the new one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from experiments.commuting.broker import Broker, BrokerSettings, Record, bodies
from experiments.commuting.neighbours import Neighbours
from experiments.commuting.words import (
    Activate,
    Activated,
    Connect,
    Deactivate,
    Missed,
    Propagate,
    Reconnected,
    RemoveMessages,
    RemoveSubscription,
    Unsubscribe,
    Word,
    encode,
)
from experiments.commuting.worker import Tally
from psirp_sim.runtime.durations import SECOND
from psirp_sim.runtime.environment import Environment, Timer

EDGE_AGE = 600 * SECOND
"""T of the source: how long an edge is kept that nobody uses. Ours."""
DEGREE = 8
"""M of the source. Ours."""


@dataclass(slots=True, eq=False)
class _Context(Record):
    """Sub(S) and Msgs(S)."""

    buffered: bool = False
    dummy: bool = False
    """The subscriber is elsewhere, and this broker a neighbour of where it is."""
    arriving: bool = False
    """It reconnected here, and what the old broker has is under way."""
    mark: int = 0
    """Everything after this id has been stored."""
    timeout: Timer | None = None


class PaperBroker(Broker):
    """A core."""

    def __init__(self, env: Environment, settings: BrokerSettings) -> None:
        super().__init__(env, settings)
        self.neighbours = Neighbours(env, EDGE_AGE, DEGREE)
        self.context_messages = 0
        self.context_bytes = 0
        self.vain = 0
        """Bytes that dummies stored and nobody came for."""
        self.prepared: dict[bool, int] = {False: 0, True: 0}
        """How many came from another broker, by whether a context was active here."""
        self._waiting: list[tuple[int, Callable[[], int]]] = []
        """Answers that wait for a message id to come by."""

    @property
    def tally(self) -> Tally:
        return Tally(
            self.worker.operations,
            self.worker.cpu,
            self.context_messages,
            self.context_bytes,
            self.vain,
            self.prepared[True],
            self.prepared[False],
        )

    def _context(self, subscriber: str) -> _Context | None:
        record = self.records.get(subscriber)
        assert record is None or isinstance(record, _Context)
        return record

    def _hear(self, peer: str, word: Word) -> int:
        if isinstance(word, Reconnected):
            self.neighbours.learn(peer)
            return self._when_seen(word.mark, lambda: self._hand_over(peer, word))
        if isinstance(word, Missed):
            return self._take_over(word)
        if isinstance(word, Propagate):
            return self._propagated(peer, word)
        if isinstance(word, Activate):
            return self._activate(peer, word)
        if isinstance(word, Deactivate | RemoveMessages | RemoveSubscription):
            return self._clean_up(word)
        if isinstance(word, Unsubscribe):
            return self._unsubscribe(peer)
        operations = super()._hear(peer, word)
        ready = [answer for mark, answer in self._waiting if mark <= self.latest]
        self._waiting = [each for each in self._waiting if each[0] > self.latest]
        return operations + sum(answer() for answer in ready)

    # The broker where the subscriber is, or was last

    def _connect(self, subscriber: str, word: Connect) -> int:
        context = self._context(subscriber)
        if word.old and word.old != self.env.node:
            return self._arrive(subscriber, word)
        if context is None:
            context = self.records[subscriber] = _Context(subscriber, first=word.first)
            tell = self._propagate(context)  # step 1
        else:
            tell = self._tell_all(  # step 3
                self.neighbours.names, Deactivate(subscriber), RemoveMessages(subscriber)
            )
        self._settle(context, word.last)
        return 1 + tell

    def _vanished(self, record: Record) -> int:
        """Step 2."""
        assert isinstance(record, _Context)
        record.buffered = True
        record.timeout = self.env.call_later(
            self.settings.valid, lambda: self.worker.do(lambda: self._give_up(record))
        )
        return self._tell_all(self.neighbours.names, Activate(record.name, record.last))

    def _hand_over(self, peer: str, word: Reconnected) -> int:
        """Step 4, at the old broker."""
        context = self._context(word.subscriber)
        copies = () if context is None or context.dummy else context.copies.values()
        missed = bodies(copy for copy in copies if word.last < copy.id <= word.mark)
        operations = self._tell(peer, Missed(word.subscriber, missed, self.neighbours.names))
        for name in self.neighbours.names:
            if name != peer:
                common = name in word.neighbours
                first = Deactivate if common else RemoveSubscription
                operations += self._tell_all(
                    (name,), first(word.subscriber), RemoveMessages(word.subscriber)
                )
        if context is not None and not context.dummy:
            self._forget(context)
        return operations

    def _unsubscribe(self, subscriber: str) -> int:
        """Step 6."""
        context = self._context(subscriber)
        if context is None:
            return 0
        self._forget(context)
        return self._remove_everywhere(subscriber)

    def _give_up(self, context: _Context) -> int:
        """Step 8."""
        if self.records.get(context.name) is not context or context.here:
            return 0
        self._forget(context)
        return self._remove_everywhere(context.name)

    def _remove_everywhere(self, subscriber: str) -> int:
        words = RemoveSubscription(subscriber), RemoveMessages(subscriber)
        return self._tell_all(self.neighbours.names, *words)

    # The broker where it comes to

    def _arrive(self, subscriber: str, word: Connect) -> int:
        """Steps 4 and 5, at the new broker."""
        self.neighbours.learn(word.old)
        context = self._context(subscriber)
        self.prepared[context is not None and context.buffered] += 1
        if context is None:
            context = self.records[subscriber] = _Context(subscriber, first=word.first)
        if not context.buffered:
            context.buffered = True
            context.mark = self.latest
        context.dummy = False
        context.arriving = True
        context.last = word.last
        reconnected = Reconnected(subscriber, word.last, context.mark, self.neighbours.names)
        return 1 + self._tell(word.old, reconnected)

    def _take_over(self, word: Missed) -> int:
        context = self._context(word.subscriber)
        if context is None or not context.arriving:
            return 0
        stored = bodies(context.copies.values())
        self.store.purge(context)
        for id, body in (*word.messages, *stored):
            self._keep(context, id, body, self.env.now())
        self._settle(context, context.last)
        return len(word.messages) + self._propagate(context)

    def _settle(self, context: _Context, last: int) -> None:
        """The subscriber is here; nothing is brought that it has."""
        if context.timeout is not None:
            context.timeout.cancel()
            context.timeout = None
        context.dummy = context.arriving = context.buffered = False
        context.last = max(context.last, last)
        for copy in [copy for id, copy in context.copies.items() if id <= context.last]:
            self.store.remove(copy)
        self.deliver(context)

    # The neighbours

    def _propagate(self, context: _Context) -> int:
        return self._tell_all(self.neighbours.names, Propagate(context.name, context.first))

    def _propagated(self, peer: str, word: Propagate) -> int:
        """Step 7: stored, which is what the operation is for."""
        self.neighbours.learn(peer)
        if self._context(word.subscriber) is None:
            passive = _Context(word.subscriber, first=word.first, dummy=True)
            self.records[word.subscriber] = passive
        return 1

    def _activate(self, peer: str, word: Activate) -> int:
        context = self._context(word.subscriber)
        if context is None or not context.dummy:
            return 0
        context.buffered = True
        context.mark = self.latest
        context.last = word.last
        return 1 + self._tell(peer, Activated(word.subscriber))

    def _clean_up(self, word: Deactivate | RemoveMessages | RemoveSubscription) -> int:
        context = self._context(word.subscriber)
        if context is None or not context.dummy:
            return 0
        if isinstance(word, Deactivate):
            context.buffered = False
        elif isinstance(word, RemoveMessages):
            self.vain += self.store.purge(context)
        else:
            self._forget(context)
        return 1

    # What all of these do

    def _when_seen(self, mark: int, answer: Callable[[], int]) -> int:
        if mark <= self.latest:
            return answer()
        self._waiting.append((mark, answer))
        return 0

    def _forget(self, context: _Context) -> None:
        if context.timeout is not None:
            context.timeout.cancel()
        purged = self.store.purge(context)
        if context.dummy:
            self.vain += purged
        context.here = False
        del self.records[context.name]

    def _tell_all(self, names: tuple[str, ...], *words: Word) -> int:
        return sum(self._tell(name, word) for name in names for word in words)

    def _tell(self, peer: str, word: Word) -> int:
        content = encode(word)
        self.context_messages += 1
        self.context_bytes += len(content) if not isinstance(word, Missed) else 0
        self.wire(peer).send(content)
        return 1
