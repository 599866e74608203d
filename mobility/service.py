"""What a client asks of the service: how its moves are synchronised, and what is kept how long."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

LONGEST_TOPIC = 2_048
LONGEST_KIND = 64
MOST_NAMES = 1_000
LONGEST_KEEP = 30 * 86_400.0
LARGEST_QUOTA = 1 << 40

TopicText = Annotated[str, Meta(min_length=1, max_length=LONGEST_TOPIC)]
Kind = Annotated[str, Meta(max_length=LONGEST_KIND)]
_Amount = Annotated[int, Meta(ge=0, le=LARGEST_QUOTA)]


class Mode(StrEnum):
    """How a hand-over is synchronised."""

    NONE = "none"
    """No service: what is published while the client is away is lost."""
    BASIC = "basic"
    """The paper's service: the old proxy's subscriptions go when its buffer is collected."""
    PING = "ping"
    """As basic, once a ping through the pub/sub system has come back from the old proxy."""
    DELAY = "delay"
    """As basic, a configured time after subscribing at the new place."""
    POSITION = "position"
    """Ours: old buffer and live flow are merged on the Position last consumed."""


class Sacrifice(StrEnum):
    """What goes first when a quota is reached."""

    OLDEST = "oldest"
    NEWEST = "newest"
    TOPIC = "topic"
    """The oldest of the least important topic."""


class Quota(Struct, frozen=True):
    """How much is kept at most."""

    messages: _Amount = 1_000
    bytes: _Amount = 4 << 20


class Service(Struct, frozen=True, omit_defaults=True):
    """The quality of service of one client."""

    mode: Mode = Mode.POSITION
    keep: Annotated[float, Meta(gt=0, le=LONGEST_KEEP)] = 3_600.0
    """Seconds for which a client may be away before what waits for it is given up."""
    topic: Quota = Quota()
    """Of each topic."""
    client: Quota = Quota(10_000, 16 << 20)
    """Of all topics together."""
    first: Sacrifice = Sacrifice.OLDEST
    unimportant: Annotated[tuple[TopicText, ...], Meta(max_length=MOST_NAMES)] = ()
    """For `Sacrifice.TOPIC`: the least important topic first; topics not named are important."""
    exclude: Annotated[tuple[TopicText, ...], Meta(max_length=MOST_NAMES)] = ()
    """Topics the service leaves alone; `*` at the end stands for anything."""
    exclude_kinds: Annotated[tuple[Kind, ...], Meta(max_length=MOST_NAMES)] = ()
    """Kinds of messages that are not kept."""

    def excludes(self, topic: str) -> bool:
        """Whether nothing of that topic is kept."""
        return any(
            topic.startswith(name[:-1]) if name.endswith("*") else topic == name
            for name in self.exclude
        )

    def within(self, most: Service) -> Service:
        """The same, with no more of anything than `most` allows."""
        return Service(
            mode=self.mode,
            keep=min(self.keep, most.keep),
            topic=_least(self.topic, most.topic),
            client=_least(self.client, most.client),
            first=self.first,
            unimportant=self.unimportant,
            exclude=self.exclude,
            exclude_kinds=self.exclude_kinds,
        )


def _least(one: Quota, other: Quota) -> Quota:
    return Quota(min(one.messages, other.messages), min(one.bytes, other.bytes))


def ping_topic(client: str, stay: int) -> str:
    """In mode ping: where the proxy of that stay is asked whether routes are in place."""
    return f"mobility:ping:{client}:{stay}"


def pong_topic(client: str, stay: int) -> str:
    """And where it answers."""
    return f"mobility:pong:{client}:{stay}"
