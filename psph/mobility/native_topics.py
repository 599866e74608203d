"""Two pub/sub systems as one: topics of the fabric itself, and those that a hub has."""

from __future__ import annotations

from collections.abc import Callable

from identifiers import Position
from mobility import After, Listener, Message, PubSub, Subscription

NATIVE = "psirp:"


class NativeTopics:
    """Implements `mobility.port.PubSub`: native topics at the fabric, all others elsewhere."""

    def __init__(self, fabric: PubSub, others: PubSub) -> None:
        self._fabric = fabric
        self._others = others

    def _home(self, topic: str) -> PubSub:
        return self._fabric if topic.startswith(NATIVE) else self._others

    def history(self, topic: str) -> int:
        return self._home(topic).history(topic)

    def subscribe(self, topic: str, after: After, listener: Listener) -> Subscription:
        return self._home(topic).subscribe(topic, after, listener)

    def publish(
        self, topic: str, position: Position | None, message: Message, done: Callable[[], None]
    ) -> None:
        self._home(topic).publish(topic, position, message, done)
