"""The baseline: durable subscriptions, as JMS has them, at every broker that was visited.

A broker knows a subscriber from its first visit on and stores for it whenever it is not there,
until messages expire: it is not told where the subscriber is instead. So a return brings again what
the subscriber had elsewhere in the meantime, and on a first visit nothing waits.
"""

from __future__ import annotations

from experiments.commuting.broker import Broker, Record
from experiments.commuting.words import Connect


class DurableBroker(Broker):
    """A core."""

    def _connect(self, subscriber: str, word: Connect) -> int:
        record = self.records.get(subscriber)
        if record is None:
            record = self.records[subscriber] = Record(subscriber, first=word.first)
        self.deliver(record)
        return 1
