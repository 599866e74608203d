"""What clients and proxies say to each other, and proxies among themselves.

A client asks and a proxy answers; each question carries the number of its `call`, is repeated until
it is answered, and may be answered twice. `Fetch` and `Release` name the proxy they are for: any
other one passes them on, under a number of its own, and the answer back. So the same structs travel
between client and proxy and between proxies.

In bytes they are MessagePack or, where the first byte is `{`, JSON; a proxy answers in the form it
was asked in. Positions are text, as everywhere outside the fabric.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, TypedDict

import msgspec
from msgspec import Meta, Struct

from identifiers import InvalidId, InvalidPosition, Position
from mobility.identity import SECRET_BYTES, Claim
from mobility.port import After
from mobility.service import LONGEST_KIND, Service, TopicText

VERSION = 1
LARGEST = 16 << 20
"""Bytes of a message."""
MOST_TOPICS = 10_000
MOST_STREAMS = 64
"""Publishers of one topic that a Position is kept of."""
MOST_ITEMS = 10_000
LONGEST_NAME = 255
LONGEST_REASON = 200
_U63 = (1 << 63) - 1

Name = Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME)]
"""Of a proxy, as other proxies reach it."""
Number = Annotated[int, Meta(ge=0, le=_U63)]
PositionText = Annotated[str, Meta(max_length=80)]
Places = Annotated[tuple[PositionText, ...], Meta(max_length=MOST_STREAMS)]
Topics = Annotated[dict[TopicText, Places | None], Meta(max_length=MOST_TOPICS)]
"""Topics with the Positions last consumed; None where the first subscription never began."""
Gone = Annotated[dict[TopicText, Number], Meta(max_length=MOST_TOPICS)]
"""Topics whose subscription ended, with the call that said so first: once is enough, and the topic
may have been subscribed to again since."""
Secret = Annotated[bytes, Meta(min_length=SECRET_BYTES, max_length=SECRET_BYTES)]


class MalformedMessage(ValueError):
    """Not what a client or a proxy says."""


class Who(TypedDict):
    """The part of a question that says who asks."""

    secret: bytes
    epoch: int
    nonce: int


class Question(Struct, frozen=True, omit_defaults=True, tag_field="type", kw_only=True):
    """What every question says. `v` is the version of the protocol."""

    secret: Secret
    epoch: Number
    nonce: Number
    call: Number
    v: Annotated[int, Meta(ge=VERSION, le=VERSION)] = VERSION

    @property
    def claim(self) -> Claim:
        return Claim(self.epoch, self.nonce)


class MoveIn(Question, frozen=True, tag="move_in"):
    """A client came. From here on the proxy takes its disappearance for a move-out."""

    topics: Topics
    since: Annotated[dict[TopicText, Number], Meta(max_length=MOST_TOPICS)] = {}
    """Topics subscribed to after the first stay, and in which: what was prepared before is none
    of that subscription's."""
    service: Service = Service()
    alive: Annotated[float, Meta(gt=0, le=86_400)] = 5.0
    """Seconds between two signs of life."""


class Alive(Question, frozen=True, tag="alive"):
    """A sign of life, with what changed since the last one that was answered."""

    topics: Topics = {}
    gone: Gone = {}
    """Subscriptions that are over; one that is among the topics, too, began anew."""


class Arrived(Question, frozen=True, tag="arrived"):
    """The move-in is over: everything that waited has been consumed, or is known to be missing."""

    bytes: Number = 0
    """Collected from other proxies."""
    peer: Annotated[str, Meta(max_length=LONGEST_NAME)] = ""
    reason: Annotated[str, Meta(max_length=LONGEST_REASON)] = ""
    """Why something is missing, if it is."""


class MoveOut(Question, frozen=True, tag="move_out"):
    """The client wants to go; it stays attached until the answer."""

    topics: Topics
    """All of them."""
    gone: Gone = {}
    """Also of those: what was kept of them is of a subscription that is over."""


class Fetch(Question, frozen=True, tag="fetch"):
    """What waits at `proxy` for the client's move-in number `stay`, after a serial number?"""

    proxy: Name
    stay: Number
    life: Number = 0
    """Of the handler that gave out the serial number `after`; in another life it means nothing."""
    after: Number = 0
    most: Annotated[int, Meta(ge=1, le=LARGEST)] = 16 << 10
    """Bytes of messages in the answer, except that one always fits."""
    stop: bool = False
    """Unsubscribe first: nothing is added to the buffer from now on."""
    consumed: Topics = {}
    """Positions consumed since the last answer that had everything, of the topics where there are
    any: what they cover is left out of the answer."""


class Release(Question, frozen=True, tag="release"):
    """What waits at `proxy` for that stay has been consumed and may be forgotten."""

    proxy: Name
    stay: Number


class Answer(Struct, frozen=True, omit_defaults=True, tag_field="type", kw_only=True):
    """What every answer says."""

    call: Number
    v: Annotated[int, Meta(ge=VERSION, le=VERSION)] = VERSION


class Welcome(Answer, frozen=True, tag="welcome"):
    """To MoveIn, when it is durable."""

    service: Service = Service()
    """What is given of what was asked for."""
    report: bool = False
    """Whether signs of life should say what was consumed."""
    prepared: Batch | None = None
    """What the proxy has for this stay already, if it expected the client: the first items, as
    if they had been asked for."""


class Heard(Answer, frozen=True, tag="heard"):
    """To Alive and Arrived."""


class MovedOut(Answer, frozen=True, tag="moved_out"):
    """To MoveOut: the handler is durable and its subscriptions are in effect."""


class Item(Struct, frozen=True, array_like=True, omit_defaults=True):
    """A message in a buffer."""

    topic: TopicText
    position: PositionText | None
    body: bytes | None
    """None where it was excluded from the service."""
    kind: Annotated[str, Meta(max_length=LONGEST_KIND)] = ""


class State(StrEnum):
    """Of what a proxy keeps for a stay."""

    KEPT = "kept"
    EXPIRED = "expired"
    """The time to keep is over."""
    UNKNOWN = "unknown"
    """It was released, or never was."""


class Batch(Answer, frozen=True, tag="batch"):
    """To Fetch: items in the order of their serial numbers."""

    state: State
    life: Number = 0
    """Differs after each start of the proxy: serial numbers begin anew."""
    last: Number = 0
    """Every item up to this serial number was sent, or need not be."""
    items: Annotated[tuple[Item, ...], Meta(max_length=MOST_ITEMS)] = ()
    more: bool = False
    """There are more items, or the handler's subscriptions are not in effect yet."""
    seen: Topics = {}
    """With the last items: how far the handler has come, dropped messages included."""
    dropped: Annotated[dict[TopicText, Number], Meta(max_length=MOST_TOPICS)] = {}
    """How many messages a quota cost."""


class Released(Answer, frozen=True, tag="released"):
    """To Release."""

    kept: bool = False
    """There was such a stay; False when it is asked once more."""


class Code(StrEnum):
    """Why a question was refused."""

    SUPERSEDED = "superseded"
    """A move-in with a higher claim is known of: `epoch` and `nonce` are its."""
    STRANGER = "stranger"
    """This proxy knows nothing of the stay: move in again."""
    BUSY = "busy"
    """A limit of the proxy's is reached."""
    FORBIDDEN = "forbidden"
    """The named proxy is none that this one talks to."""


class Refused(Answer, frozen=True, tag="refused"):
    """To anything."""

    code: Code
    epoch: Number = 0
    nonce: Number = 0


AnyQuestion = MoveIn | Alive | Arrived | MoveOut | Fetch | Release
AnyAnswer = Welcome | Heard | MovedOut | Batch | Released | Refused

AnyMessage = AnyQuestion | AnyAnswer

_packed = msgspec.msgpack.Decoder(AnyMessage)
_written = msgspec.json.Decoder(AnyMessage)
_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, InvalidPosition, InvalidId)


def encode(message: AnyMessage, *, json: bool = False) -> bytes:
    """A message in bytes."""
    return msgspec.json.encode(message) if json else msgspec.msgpack.encode(message)


def is_json(content: bytes) -> bool:
    """Whether a message is written in JSON: no message in MessagePack begins so."""
    return content[:1] == b"{"


def read(content: bytes) -> AnyMessage:
    """MalformedMessage when it is none."""
    if len(content) > LARGEST:
        raise MalformedMessage(f"{len(content)} bytes are too many")
    try:
        found: AnyMessage = (_written if is_json(content) else _packed).decode(content)
        if isinstance(found, MoveIn | Alive | MoveOut):
            check_places(found.topics)
        elif isinstance(found, Fetch):
            check_places(found.consumed)
        elif isinstance(found, Batch):
            _check_batch(found)
        elif isinstance(found, Welcome) and found.prepared is not None:
            _check_batch(found.prepared)
    except _ERRORS as error:
        raise MalformedMessage(str(error)) from error
    return found


def _check_batch(batch: Batch) -> None:
    check_places(batch.seen)
    for item in batch.items:
        if item.position is not None:
            Position.parse(item.position)


def check_places(topics: Topics) -> None:
    """Raises when one of them is no Position."""
    for places in topics.values():
        for text in places or ():
            Position.parse(text)


def write_places(after: After) -> Places | None:
    """Positions as they travel."""
    return None if after is None else tuple(map(str, after))


def read_places(places: Places | None) -> After:
    """The inverse, of what has been checked."""
    return None if places is None else tuple(map(Position.parse, places))
