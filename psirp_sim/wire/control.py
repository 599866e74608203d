"""Control messages: what nodes and servers of a fabric say to each other, under its key.

A message is sealed as

    0      type
    1-16   MAC: BLAKE3 keyed with the fabric's key over type and body, first 16 bytes
    17-    body: the message as a MessagePack array

and travels either to the neighbour, behind the two bytes `version, CONTROL`, or across the
fabric as the payload of a data packet of protocol `Protocol.CONTROL`. A message too long for one
packet is cut into `Fragment` messages.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from enum import IntEnum
from hmac import compare_digest
from typing import Annotated, ClassVar, Self

import msgspec
from blake3 import blake3
from msgspec import Meta

from psirp_sim.wire.data import VERSION, Kind, MalformedPacket
from psirp_sim.zfilters import ZFilter, descriptor_length

MAC = 16
SEAL = 1 + MAC
NEIGHBOUR = bytes((VERSION, Kind.CONTROL))
"""What a control packet for the neighbour begins with."""
LONGEST = 256 * 1024
"""Bytes of a sealed message that is put together from fragments."""

MOST_LINKS = 1_024
"""Links of one node."""
MOST_FILTERS = 64
"""Filters of one tree."""
MOST_RECEIVERS = 1_024

Name = Annotated[str, Meta(min_length=1, max_length=63)]
Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]
"""A counter or a time; a signed 64-bit number holds it everywhere."""


class Protocol(IntEnum):
    """The first byte of a data packet's payload."""

    CONTROL = 0
    """A sealed control message for a node's fabric functions."""
    TEST = 1
    """Traffic of tests and probes."""


class WrongKey(Exception):
    """A message whose MAC is not by any of the fabric's keys."""


class FabricKeys:
    """The fabric's key, and while it is being replaced the other one: both are accepted."""

    def __init__(self, *secrets: str) -> None:
        """The first is the one used for sending."""
        if not 1 <= len(secrets) <= 2:
            raise ValueError("a fabric has one key, or two while one replaces the other")
        self._keys = [
            blake3(secret.encode(), derive_key_context="psph 1 fabric key").digest()
            for secret in secrets
        ]

    def seal(self, message: Message) -> bytes:
        """The bytes of a message under the key."""
        kind = bytes((message.type,))
        body = msgspec.msgpack.encode(message)
        return kind + _mac(self._keys[0], kind + body) + body

    def open(self, sealed: bytes) -> Message:
        """The message, if the key is right and the bytes make sense."""
        if len(sealed) < SEAL:
            raise MalformedPacket(f"a control message has at least {SEAL} bytes")
        kind, mac, body = sealed[:1], sealed[1:SEAL], sealed[SEAL:]
        if not any(compare_digest(_mac(key, kind + body), mac) for key in self._keys):
            raise WrongKey("the MAC is not by a key of this fabric")
        decoder = _DECODERS.get(kind[0])
        if decoder is None:
            raise MalformedPacket(f"there is no control message of type {kind[0]}")
        try:
            return decoder.decode(body)
        except (msgspec.DecodeError, RecursionError) as error:
            raise MalformedPacket(f"type {kind[0]}: {error}") from error


def _mac(key: bytes, data: bytes) -> bytes:
    return blake3(data, key=key).digest(length=MAC)


class Message(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A control message; `type` stands in front of its body."""

    type: ClassVar[int]


class Hello(Message, frozen=True, array_like=True):
    """To the neighbour, every hello interval: I am here, and this is what I hear of you."""

    type: ClassVar[int] = 1
    node: Name
    link: Name
    """What the sender calls the link."""
    boot: Number
    """Grows with every start of the sender."""
    hears: tuple[Name, Name, Number] | None
    """Node, link and boot of the last hello that came over this link, while it is fresh."""
    sent: Number
    """Wall clock of the sender: t3 of a clock probe."""
    echo: tuple[Number, Number] | None
    """`sent` of the last hello heard (t1), and when it came by the sender's clock (t2)."""
    state: Annotated[bytes, Meta(min_length=8, max_length=8)]
    """Digest of the sender's link-state database."""
    id_version: Annotated[str, Meta(max_length=63)]
    answer: bool = False
    """Asks for a hello at once: one has been missed."""


class ReportedLink(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A link that works both ways, as one end reports it."""

    name: Name
    peer: Name
    peer_link: Name
    cost: Annotated[int, Meta(ge=1, le=1_000_000)] = 1


Rank = tuple[int, int, int]
"""Boot, sequence, fingerprint of the content."""


class LinkState(Message, frozen=True, array_like=True):
    """What a node tells the whole fabric about itself; what has the highest rank counts."""

    type: ClassVar[int] = 2
    origin: Name
    boot: Number
    sequence: Number
    roles: Annotated[list[Name], Meta(max_length=16)]
    links: Annotated[list[ReportedLink], Meta(max_length=MOST_LINKS)]
    age: Number = 0
    """Milliseconds since the origin said it, as far as each holder on the way measured."""

    @property
    def rank(self) -> Rank:
        """Of two statements of an origin, the one of higher rank counts.

        A node that lost its storage may use a boot and a sequence again for something else; a
        fingerprint of the content tells the two apart, and decides the same way everywhere.
        """
        content = blake3(msgspec.msgpack.encode((self.roles, self.links))).digest(length=7)
        return self.boot, self.sequence, int.from_bytes(content)


class Summary(Message, frozen=True, array_like=True):
    """What the sender's database holds of the origins after `after` up to and with `last`."""

    type: ClassVar[int] = 3
    after: Annotated[str, Meta(max_length=63)]
    """Empty: from the beginning."""
    last: Annotated[str, Meta(max_length=63)]
    """Empty: to the end."""
    entries: list[tuple[Name, Number, Number, Number]]
    """Origin and rank."""


class Wanted(Message, frozen=True, array_like=True):
    """Asks for the link state of these origins."""

    type: ClassVar[int] = 4
    origins: list[Name]


class Fragment(Message, frozen=True, array_like=True):
    """A piece of a sealed message that is too long for one packet."""

    type: ClassVar[int] = 5
    message: Annotated[bytes, Meta(min_length=8, max_length=8)]
    index: Annotated[int, Meta(ge=0, le=255)]
    count: Annotated[int, Meta(ge=2, le=256)]
    piece: bytes


class WireFilter(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A zFilter inside a message."""

    descriptor: Annotated[int, Meta(ge=0, le=127)]
    numbering: Annotated[int, Meta(ge=0, le=2**32 - 1)]
    bits: Annotated[bytes, Meta(max_length=504)]

    @classmethod
    def of(cls, zfilter: ZFilter) -> Self:
        return cls(zfilter.descriptor, zfilter.numbering, zfilter.to_bytes())

    def zfilter(self) -> ZFilter:
        """As forwarding knows it; MalformedPacket when its parts do not fit together."""
        if not self.bits or descriptor_length(self.descriptor) != len(self.bits):
            raise MalformedPacket("a filter whose length is not what its descriptor says")
        return ZFilter(self.descriptor, int.from_bytes(self.bits, "little"), self.numbering)


Filters = Annotated[list[WireFilter], Meta(max_length=MOST_FILTERS)]
Receivers = Annotated[list[Name], Meta(max_length=MOST_RECEIVERS)]


class Route(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """How a node reaches a server, and the server the node."""

    server: Name
    roles: Annotated[list[Name], Meta(max_length=16)]
    there: Filters
    back: Filters


class Routes(Message, frozen=True, array_like=True):
    """From the topology manager to a node: the servers it may need, all of them."""

    type: ClassVar[int] = 16
    node: Name
    """Whom it is for: a false copy may bring it to others."""
    manager: Name
    boot: Number
    version: Number
    routes: Annotated[list[Route], Meta(max_length=256)]


class RoutesTaken(Message, frozen=True, array_like=True):
    """The answer to `Routes`, repeated now and then: whom a node follows, and how far."""

    type: ClassVar[int] = 17
    node: Name
    manager: Name
    boot: Number
    version: Number
    relayed: bool = False
    """Passed on by a manager that stands by; never passed on again."""


class TreeRequest(Message, frozen=True, array_like=True):
    """To the topology manager: filters from a source to receivers, and every change of them.

    Repeated for as long as the tree is wanted; the manager forgets it otherwise.
    """

    type: ClassVar[int] = 18
    tree: Annotated[bytes, Meta(min_length=16, max_length=16)]
    requester: Name
    source: Name
    receivers: Receivers
    known: tuple[Name, Number, Number] | None
    """Manager, boot and version of the filters the requester has."""
    relayed: bool = False
    """Passed on by a manager that stands by; never passed on again."""


class TreeReply(Message, frozen=True, array_like=True):
    """From the topology manager: the filters of a tree."""

    type: ClassVar[int] = 19
    requester: Name
    tree: Annotated[bytes, Meta(min_length=16, max_length=16)]
    manager: Name
    boot: Number
    version: Number
    filters: Filters
    unreached: Receivers
    """Receivers to which there is no path at present."""


_DECODERS: dict[int, msgspec.msgpack.Decoder[Message]] = {
    kind.type: msgspec.msgpack.Decoder(kind)
    for kind in (
        Hello,
        LinkState,
        Summary,
        Wanted,
        Fragment,
        Routes,
        RoutesTaken,
        TreeRequest,
        TreeReply,
    )
}


def pieces(keys: FabricKeys, message: Message, name: bytes, room: int) -> Iterator[bytes]:
    """The sealed message, or its sealed fragments where it needs more than `room` bytes.

    `name` is eight bytes that tell this message's fragments from those of others.
    """
    sealed = keys.seal(message)
    if len(sealed) <= room:
        yield sealed
        return
    size = room - SEAL - 32  # what the fragment's own fields need at most
    count = -(-len(sealed) // size)
    if len(sealed) > LONGEST or count > 256:
        raise ValueError(f"a control message of {len(sealed)} bytes is too long")
    for index in range(count):
        piece = sealed[index * size : (index + 1) * size]
        yield keys.seal(Fragment(name, index, count, piece))


class Reassembly:
    """Puts fragments together; holds a bounded number of unfinished messages."""

    def __init__(self, most: int = 16) -> None:
        self._most = most
        self._parts: OrderedDict[tuple[str, bytes], dict[int, bytes]] = OrderedDict()

    def add(self, source: str, fragment: Fragment) -> bytes | None:
        """Take a fragment from that source; the sealed message once it is complete."""
        key = (source, fragment.message)
        parts = self._parts.setdefault(key, {})
        self._parts.move_to_end(key)
        if fragment.index < fragment.count:
            parts[fragment.index] = fragment.piece
        if len(parts) == fragment.count:
            del self._parts[key]
            return b"".join(parts[index] for index in sorted(parts))
        if sum(map(len, parts.values())) > LONGEST:
            del self._parts[key]
        elif len(self._parts) > self._most:
            self._parts.popitem(last=False)
        return None
