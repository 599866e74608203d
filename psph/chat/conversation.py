"""What one reads of conversations: their topics, how far one is in each, what one has seen.

A conversation is two topics: what I write, and what is written to me. A stream of several of them
names its places in one line, which is the id of its events: in the order of the topics, the last
Position of each PSPH that wrote it, or `-` where there is none yet.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from identifiers import InvalidPosition, InvalidTopic, Position, Topic, conversation_topic, identify
from identifiers import jid_topic as presence_topic
from psph.chat.message import BadMessage, normal_jid

MOST_BUDDIES: Final = 16
"""Conversations in one stream."""
REMEMBERED: Final = 1_000
"""Messages of a topic by whose ids one that comes again is known."""
HISTORY: Final = 50
"""Messages of each topic that a stream begins with, unless it says how many."""
MOST_HISTORY: Final = 1_000
MOST_WRITERS: Final = 8
"""PSPHs of one domain whose Positions in a topic are kept."""
_NONE: Final = "-"
_AND: Final = "+"

Place = tuple[Position, ...]
"""At most one Position of each publisher, the latest last."""


@dataclass(frozen=True, slots=True)
class Direction:
    """What one writes to the other."""

    sender: str
    recipient: str

    @property
    def topic(self) -> Topic:
        return topic_of(self.sender, self.recipient)


def topic_of(sender: str, recipient: str) -> Topic:
    """The topic of what one writes to another; BadMessage when they cannot talk."""
    if sender == recipient:
        raise BadMessage("nobody needs a PSPH to talk to themselves")
    try:
        return identify(conversation_topic(sender, recipient))
    except InvalidTopic as error:
        raise BadMessage(str(error)) from None


def presence_of(jid: str) -> Topic:
    """The topic of whether somebody is there."""
    return identify(presence_topic(jid))


def directions(me: str, buddies: Sequence[str]) -> list[Direction]:
    """All that I read, in the order of places: for each buddy what I write, then what they do."""
    both = [(Direction(me, other), Direction(other, me)) for other in buddies]
    return [each for pair in both for each in pair]


def buddies_of(me: str, named: Sequence[str]) -> list[str]:
    """Those I talk with, each once, in normal form; BadMessage when that cannot be."""
    buddies = list(dict.fromkeys(map(normal_jid, named)))
    if not buddies or len(buddies) > MOST_BUDDIES:
        raise BadMessage(f"name from 1 to {MOST_BUDDIES} to talk with")
    for other in buddies:
        topic_of(me, other), topic_of(other, me)
    return buddies


def moved(place: Place, position: Position) -> Place:
    """The place after one more update."""
    others = [each for each in place if each.publisher != position.publisher]
    return (*others[1 - MOST_WRITERS :], position)


def places_text(places: Sequence[Place]) -> str:
    """In one line."""
    return ",".join(_AND.join(map(str, each)) or _NONE for each in places)


def read_places(text: str, count: int) -> list[Place]:
    """The places in a line; BadMessage when they are none of so many topics."""
    parts = text.split(",", count + 1) if text else [_NONE] * count
    if len(parts) != count:
        raise BadMessage(f"a place for each of {count} topics is needed, separated by commas")
    try:
        return [() if each == _NONE else _read_place(each) for each in parts]
    except InvalidPosition as error:
        raise BadMessage(str(error)) from None


def _read_place(text: str) -> Place:
    positions = [Position.parse(each) for each in text.split(_AND, MOST_WRITERS)]
    if len({each.publisher for each in positions}) < len(positions):
        raise BadMessage("a place has one Position of each publisher")
    return tuple(positions)


class Seen:
    """The ids of the last so many messages of a topic: two PSPHs may have taken the same one."""

    def __init__(self, most: int = REMEMBERED) -> None:
        self._most = most
        self._ids: OrderedDict[str, None] = OrderedDict()

    def add(self, identity: str) -> bool:
        """Whether it is new."""
        if identity in self._ids:
            return False
        self._ids[identity] = None
        if len(self._ids) > self._most:
            self._ids.popitem(last=False)
        return True
