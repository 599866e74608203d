"""What publisher, brokers and subscribers of the two baselines say to each other."""

from __future__ import annotations

import msgspec


class _Word(msgspec.Struct, frozen=True, array_like=True, tag=True):
    pass


class Publish(_Word, frozen=True):
    """From the publisher to every broker: messages are flooded."""

    id: int
    selector: int
    body: bytes


class Taken(_Word, frozen=True):
    """Back: the publisher may go on."""

    id: int


class Connect(_Word, frozen=True):
    """A subscriber came: with its selector range, the broker that it was at, and the id of the last
    message that it has. The durable baseline uses the range only."""

    first: int
    old: str
    last: int


class Message(_Word, frozen=True):
    id: int
    body: bytes


class Unsubscribe(_Word, frozen=True):
    """From a subscriber; step 6."""


class Propagate(_Word, frozen=True):
    """A passive copy of a subscription; steps 1 and 5."""

    subscriber: str
    first: int


class Activate(_Word, frozen=True):
    """Step 2; `last` is the id of the last message that was consumed."""

    subscriber: str
    last: int


class Activated(_Word, frozen=True):
    subscriber: str


class Deactivate(_Word, frozen=True):
    """Steps 3 and 4."""

    subscriber: str


class RemoveMessages(_Word, frozen=True):
    subscriber: str


class RemoveSubscription(_Word, frozen=True):
    """Steps 4, 6 and 8."""

    subscriber: str


class Reconnected(_Word, frozen=True):
    """Step 4: the subscriber is here. What came after `last` and up to `mark` is not."""

    subscriber: str
    last: int
    mark: int
    neighbours: tuple[str, ...]


class Missed(_Word, frozen=True):
    """And this is what the old broker has of it."""

    subscriber: str
    messages: tuple[tuple[int, bytes], ...]
    neighbours: tuple[str, ...]


Word = (
    Publish
    | Taken
    | Connect
    | Message
    | Unsubscribe
    | Propagate
    | Activate
    | Activated
    | Deactivate
    | RemoveMessages
    | RemoveSubscription
    | Reconnected
    | Missed
)
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Word)


def encode(word: Word) -> bytes:
    return _encoder.encode(word)


def decode(content: bytes) -> Word:
    word: Word = _decoder.decode(content)
    return word
