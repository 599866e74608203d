"""What proxies say to each other so that a client finds its context wherever it goes next.

A *word* is answered at once, to where it came from, and repeated until it is. Who says it is proven
by a pass (see `passes`), and no client's secret is ever in one: contexts are known by client ids.

    greet      -> noted           who I am; say the pass to that name
    pass       -> noted           the pass, with the challenge of the greeting
    contexts   -> held, rejected  changes of contexts; rejected: the pass is wrong

They are MessagePack and no others understand them: `mobility.messages.read` takes none of them.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from identifiers import InvalidId, InvalidPosition
from mobility.identity import Claim
from mobility.messages import LARGEST, MalformedMessage, Name, Number, Topics, check_places
from mobility.service import Service

VERSION = 1
PASS_BYTES = 16
MOST_CHANGES = 1_000
MOST_NEIGHBOURS = 64

ClientId = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
Secretive = Annotated[bytes, Meta(min_length=PASS_BYTES, max_length=PASS_BYTES)]
Names = Annotated[tuple[Name, ...], Meta(max_length=MOST_NEIGHBOURS)]
Clients = Annotated[tuple[ClientId, ...], Meta(max_length=MOST_CHANGES)]

Order = tuple[int, int, int]
"""Epoch, nonce and serial number: what is later about a client is greater."""


class Change(Struct, frozen=True, omit_defaults=True, tag_field="kind", kw_only=True):
    """Something about the context of one client, from the proxy that it is or was at."""

    client: ClientId
    epoch: Number
    nonce: Number
    serial: Number = 0

    @property
    def claim(self) -> Claim:
        return Claim(self.epoch, self.nonce)

    @property
    def order(self) -> Order:
        return (self.epoch, self.nonce, self.serial)


class Copy(Change, frozen=True, tag="copy"):
    """Keep this context: passive, or active from these Positions on."""

    topics: Topics
    service: Service = Service()
    active: bool = False


class Mark(Change, frozen=True, tag="mark"):
    """Go on keeping it."""


class Drop(Change, frozen=True, tag="drop"):
    """Forget it, and whatever is late about it."""


class Came(Change, frozen=True, tag="came"):
    """The client was with you and is here now, with this claim."""

    directly: bool = True
    """It was nowhere in between."""


AnyChange = Copy | Mark | Drop | Came


class Word(Struct, frozen=True, omit_defaults=True, tag_field="type", kw_only=True):
    """What every word says. `proxy` is who says it, by the name that others reach it under."""

    call: Number
    proxy: Name
    v: Annotated[int, Meta(ge=VERSION, le=VERSION)] = VERSION


class Greet(Word, frozen=True, tag="greet"):
    """Say your pass to the proxy of that name, with this challenge."""

    challenge: Secretive


class Pass(Word, frozen=True, tag="pass"):
    """What the greeting asked for."""

    challenge: Secretive
    token: Secretive


class Contexts(Word, frozen=True, tag="contexts"):
    """Changes, in any order; `token` is the pass that the other one gave."""

    token: Secretive
    changes: Annotated[tuple[AnyChange, ...], Meta(max_length=MOST_CHANGES)]
    neighbours: Names = ()
    """Of who says it; with Came only."""


class Reply(Struct, frozen=True, omit_defaults=True, tag_field="type", kw_only=True):
    """What every answer to a word says."""

    call: Number
    v: Annotated[int, Meta(ge=VERSION, le=VERSION)] = VERSION


class Noted(Reply, frozen=True, tag="noted"):
    """To Greet and Pass."""


class Rejected(Reply, frozen=True, tag="rejected"):
    """The pass is wrong, perhaps an old one: greet again. Nothing was changed."""


class Held(Reply, frozen=True, tag="held"):
    """To Contexts, once they are durable; what is not named here is kept as it was asked."""

    lacking: Clients = ()
    """Marked, and not here: copy them again."""
    refused: Clients = ()
    """Not kept: too much to do, or something later is known of the client."""
    neighbours: Names = ()
    """Of who answers; to Came only."""


AnyWord = Greet | Pass | Contexts
AnyReply = Noted | Rejected | Held

WORDS = frozenset({"greet", "pass", "contexts"})

_decoder = msgspec.msgpack.Decoder(AnyWord | AnyReply)
_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, InvalidPosition, InvalidId)


def encode(message: AnyWord | AnyReply | AnyChange) -> bytes:
    """In bytes."""
    return msgspec.msgpack.encode(message)


class _Kind(Struct):
    type: str


_kinds = msgspec.msgpack.Decoder(_Kind)


def kind_of(content: bytes) -> str:
    """What it says it is, without reading the rest; empty when it is nothing of the sort."""
    try:
        return _kinds.decode(content).type
    except _ERRORS:
        return ""


def read(content: bytes) -> AnyWord | AnyReply:
    """MalformedMessage when it is none."""
    if len(content) > LARGEST:
        raise MalformedMessage(f"{len(content)} bytes are too many")
    try:
        found: AnyWord | AnyReply = _decoder.decode(content)
        if isinstance(found, Contexts):
            for change in found.changes:
                if isinstance(change, Copy):
                    check_places(change.topics)
    except _ERRORS as error:
        raise MalformedMessage(str(error)) from error
    return found
