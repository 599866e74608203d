"""Control messages: what neighbours say to each other, and nodes and the topology manager.

How they are sealed is in `wire.sealing`.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
from blake3 import blake3
from msgspec import Meta

from psirp_sim.wire.data import VERSION, Kind
from psirp_sim.wire.message import Filters, Message, Name, Number, Receivers

NEIGHBOUR = bytes((VERSION, Kind.CONTROL))
"""What a control packet for the neighbour begins with."""
MOST_LINKS = 1_024
"""Links of one node."""


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


MESSAGES: tuple[type[Message], ...] = (
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
