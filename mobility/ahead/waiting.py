"""What waits in an active context: a handler for a client that may come here.

It is subscribed from the Positions that the client had consumed when it left, and buffers what is
later. Topics left to history are subscribed to as well, and nothing of them is kept: the first
subscription of a topic at a place is what takes long, so it is made before the client comes. When
the client does come, its own handler is the heir: it has what waits, and every subscription.
"""

from __future__ import annotations

from collections.abc import Callable

from identifiers import Position
from mobility.handler import Handler
from mobility.port import After, Message, Subscription


class Waiting(Handler):
    """Durable as any handler, on a shelf of its own."""

    shelf = b"mobility/ahead/"
    heir: Handler | None = None
    grew: Callable[[], None] = staticmethod(lambda: None)
    """Called when there is more than before."""

    def begin(self) -> None:
        """Subscribe in the client's place."""
        self.warm = Warm()
        self.take_over()
        self._keep_warm()

    def go_on(self) -> None:
        """The topics, or where they go on, have changed."""
        self.take_over()
        self._keep_warm()

    def erase(self) -> None:
        self.warm.cool()
        super().erase()

    def bequeath(self, heir: Handler) -> None:
        """The client came: everything is the heir's from now on. What is kept warm stays so until
        the client has subscribed itself."""
        heir.inherit(self)
        self.heir = heir
        super().erase()

    def _keep_warm(self) -> None:
        service = self.record.service
        for topic in self.record.topics:
            if self.left_to_history(topic) and not service.excludes(topic):
                self.warm.keep(topic, self._pubsub.subscribe)

    # What the pub/sub system calls

    def subscribed(self, topic: str, base: After) -> None:
        if self.heir is not None:
            self.heir.subscribed(topic, base)
        else:
            super().subscribed(topic, base)

    def deliver(self, topic: str, position: Position | None, message: Message) -> None:
        if self.heir is not None:
            self.heir.deliver(topic, position, message)
        elif position is None:
            self._cancel(topic)  # nobody could tell whether the client had it
        else:
            super().deliver(topic, position, message)
            self.grew()

    def gap(self, topic: str, first: Position, last: Position) -> None:
        if self.heir is not None:
            self.heir.gap(topic, first, last)
        else:
            super().gap(topic, first, last)


class Warm:
    """Subscriptions for their own sake."""

    def __init__(self) -> None:
        self._subscriptions: dict[str, Subscription] = {}

    def __len__(self) -> int:
        return len(self._subscriptions)

    def keep(self, topic: str, subscribe: Callable[[str, After, Warm], Subscription]) -> None:
        if topic not in self._subscriptions:
            self._subscriptions[topic] = subscribe(topic, None, self)

    def cool(self) -> None:
        """They are not needed any more."""
        for subscription in self._subscriptions.values():
            subscription.cancel()
        self._subscriptions.clear()

    def subscribed(self, topic: str, base: After) -> None:
        """That is all it is for."""

    def deliver(self, topic: str, position: Position | None, message: Message) -> None:
        """The history has it."""

    def gap(self, topic: str, first: Position, last: Position) -> None:
        """Nothing is kept."""
