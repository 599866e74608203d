"""What waits in an active context: a handler for a client that may come here.

It is subscribed from the Positions that the client had consumed when it left, and buffers what is
later. Topics left to history are subscribed to as well, and nothing of them is kept: the first
subscription of a topic at a place is what takes long, so it is made before the client comes. When
the client does come, its own handler is the heir: it has what waits, and every subscription.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from identifiers import Position
from mobility.handler import Handler
from mobility.port import After, Message, PubSub, Subscription


class Waiting(Handler):
    """Durable as any handler, on a shelf of its own."""

    shelf = b"mobility/ahead/"
    heir: Handler | None = None
    grew: Callable[[], None] = staticmethod(lambda: None)
    """Called when there is more than before."""

    def begin(self, warmth: Warmth) -> None:
        """Subscribe in the client's place."""
        self.warm = Warm(warmth)
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

    @property
    def buffered_topics(self) -> int:
        """How many it is subscribed to for their messages."""
        return len(self._subscriptions)

    def _keep_warm(self) -> None:
        topics, service = self.record.topics, self.record.service
        self.warm.keep({t for t in topics if self.left_to_history(t) and not service.excludes(t)})

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


class Warmth:
    """Subscriptions for their own sake: one for each topic, however many contexts want it."""

    def __init__(self, pubsub: PubSub, most: int) -> None:
        self._pubsub = pubsub
        self._most = most
        self._subscriptions: dict[str, Subscription] = {}
        self._wanted: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._subscriptions)

    def want(self, topic: str) -> bool:
        """False when there are too many already."""
        if topic not in self._subscriptions:
            if len(self._subscriptions) >= self._most:
                return False
            self._subscriptions[topic] = self._pubsub.subscribe(topic, None, self)
        self._wanted[topic] += 1
        return True

    def leave(self, topic: str) -> None:
        """One context less wants it."""
        self._wanted[topic] -= 1
        if not self._wanted[topic]:
            del self._wanted[topic]
            self._subscriptions.pop(topic).cancel()

    def subscribed(self, topic: str, base: After) -> None:
        """That is all it is for."""

    def deliver(self, topic: str, position: Position | None, message: Message) -> None:
        """The history has it."""

    def gap(self, topic: str, first: Position, last: Position) -> None:
        """Nothing is kept."""


class Warm:
    """What one context has a part in."""

    def __init__(self, warmth: Warmth) -> None:
        self._warmth = warmth
        self._topics: set[str] = set()

    def __len__(self) -> int:
        return len(self._topics)

    def keep(self, topics: set[str]) -> None:
        """These, and no others."""
        # In order: a set has another one in every process, and a schedule would not be repeatable.
        for topic in sorted(self._topics - topics):
            self._warmth.leave(topic)
        added = sorted(topics - self._topics)
        self._topics &= topics
        self._topics.update(topic for topic in added if self._warmth.want(topic))

    def cool(self) -> None:
        """They are not needed any more."""
        self.keep(set())
