"""Messages of the rendezvous: registrations, matches, writer leases, membership, summaries.

They are sealed like control messages (`wire.sealing`) and cross the fabric as data packets of
protocol CONTROL. Every one names whom it is for, because a false copy may bring it to others.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from psirp_sim.wire.message import Filters, Message, Name, Number

MOST_ENTRIES = 64
"""Registrations in one message."""
MOST_LISTENERS = 2_048
"""Subscribers of one item; a message takes so many even with the longest names."""
MOST_KEYS = 16
"""Named keys on either side of a scope's access rule."""
MOST_SERVERS = 32

Id = Annotated[bytes, Meta(min_length=32, max_length=32)]
Key = Annotated[bytes, Meta(min_length=32, max_length=32)]
"""An Ed25519 public key."""
Signature = Annotated[bytes, Meta(min_length=64, max_length=64)]
Digest = Annotated[bytes, Meta(min_length=8, max_length=8)]
Unsigned = Annotated[int, Meta(ge=0)]
"""Up to 2^64-1, as MessagePack has it."""


class Code(IntEnum):
    """How a request ended."""

    OK = 0
    NO_SUCH_SCOPE = 1
    EXISTS = 2
    """The scope is published with other access rules."""
    NOT_ALLOWED = 3
    NO_PATH = 4
    """No rendezvous server can be reached."""
    OVERLOADED = 5
    """The server takes no more for now; try again later."""
    WRONG_KEY = 6
    """The proof is not by the key it names."""
    TOO_MANY = 7
    """The client, or the item, has as many registrations as it may have."""
    NOT_REGISTERED = 8
    NOT_READY = 9
    """The server has just begun and does not know enough to say no."""
    STALE = 10
    """A later life of the client has been heard of, or a later view of the servers."""
    HELD = 11
    """Somebody else holds the writer lease."""
    TIMED_OUT = 12
    """No server answered in time."""


FINAL = frozenset({Code.NOT_ALLOWED, Code.WRONG_KEY, Code.EXISTS})
"""Refusals that time does not change."""


class Side(IntEnum):
    """Which end of a publication a registration is."""

    PUBLISHER = 1
    SUBSCRIBER = 2


class Open(IntEnum):
    """Who may do something in a scope, when no keys are named."""

    ANYONE = 0
    FABRIC = 1
    """Holders of the fabric's key: nodes themselves, not guests they speak for."""


Who = Open | Annotated[tuple[Key, ...], Meta(min_length=1, max_length=MOST_KEYS)]


class Part(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A part of a message."""


class Access(Part, frozen=True, array_like=True):
    """The access rules of a scope."""

    publish: Who = Open.FABRIC
    subscribe: Who = Open.FABRIC


class Registration(Part, frozen=True, array_like=True):
    """What a client wants to be, or no longer to be: publisher or subscriber of a scope or item."""

    sequence: Number
    """Grows with everything the client says in one life; names the request."""
    side: Side
    sid: Id
    rid: Annotated[bytes, Meta(max_length=32)]
    """Empty: the scope itself."""
    present: bool = True
    """False: withdrawn."""
    access: Access | None = None
    """Only where a scope is published."""
    guest: bool = False
    """The node speaks for somebody who has not shown the fabric's key."""
    proof: tuple[Key, Signature] | None = None
    """A named key, and its signature over this registration (`rendezvous.access`)."""

    def __post_init__(self) -> None:
        if len(self.rid) not in (0, 32):
            raise ValueError("a rendezvous id has 32 bytes")


class Register(Message, frozen=True, array_like=True):
    """From a client to a server: take these registrations."""

    type: ClassVar[int] = 32
    server: Name
    client: Name
    epoch: Number
    """Boot of the client's node: of two lives, the later one counts."""
    back: Filters
    """How the server reaches the client."""
    entries: Annotated[list[Registration], Meta(min_length=1, max_length=MOST_ENTRIES)]


class Registered(Message, frozen=True, array_like=True):
    """The answer: what became of each, by `sequence` and `present`. Durable when it says OK."""

    type: ClassVar[int] = 33
    client: Name
    epoch: Number
    server: Name
    boot: Number
    results: Annotated[list[tuple[Number, bool, Code]], Meta(max_length=MOST_ENTRIES)]


class Refresh(Message, frozen=True, array_like=True):
    """From a client to a server, now and then: I am still here, and you hold this much of me."""

    type: ClassVar[int] = 34
    server: Name
    client: Name
    epoch: Number
    back: Filters
    count: Number
    digest: Digest
    """Of the registrations the server should hold."""


class Refreshed(Message, frozen=True, array_like=True):
    """The answer; when the server holds something else, the client says everything again."""

    type: ClassVar[int] = 35
    client: Name
    epoch: Number
    server: Name
    boot: Number
    in_step: bool


class Listener(Part, frozen=True, array_like=True):
    """A subscriber of an item: a node, and which of its subscriptions it is."""

    node: Name
    epoch: Number
    sequence: Number


class Match(Part, frozen=True, array_like=True):
    """Who listens to an item; nobody: stop publishing."""

    sid: Id
    rid: Id
    sequence: Number
    """Of the publisher's registration."""
    version: Number
    listeners: Annotated[tuple[Listener, ...], Meta(max_length=MOST_LISTENERS)]


class Matches(Message, frozen=True, array_like=True):
    """From a server to a publisher: START_PUBLISH and STOP_PUBLISH, repeated until taken."""

    type: ClassVar[int] = 36
    client: Name
    epoch: Number
    server: Name
    boot: Number
    items: Annotated[list[Match], Meta(min_length=1, max_length=MOST_ENTRIES)]


class MatchesTaken(Message, frozen=True, array_like=True):
    """The answer to `Matches`."""

    type: ClassVar[int] = 37
    server: Name
    client: Name
    epoch: Number
    boot: Number
    items: Annotated[list[tuple[Id, Id, Number]], Meta(max_length=MOST_ENTRIES)]


class Subscribed(Message, frozen=True, array_like=True):
    """From a publisher to listeners it has learned of: from `base` on, you get everything."""

    type: ClassVar[int] = 38
    publisher: Name
    epoch: Number
    number: Number
    """Grows with everything the publisher announces in one life; repetitions have the same."""
    sid: Id
    rid: Id
    base: tuple[Annotated[bytes, Meta(min_length=16, max_length=16)], Unsigned, Unsigned] | None
    """Publisher id, epoch and version of the latest; version 0 before the first."""
    listeners: Annotated[tuple[Listener, ...], Meta(min_length=1, max_length=MOST_LISTENERS)]
    ended: bool = False
    """The publisher has withdrawn the item."""


class SubscribedTaken(Message, frozen=True, array_like=True):
    """The answer to `Subscribed`."""

    type: ClassVar[int] = 39
    publisher: Name
    epoch: Number
    number: Number
    sid: Id
    rid: Id
    listener: Listener


class View(Part, frozen=True, array_like=True, order=True):
    """The servers that vote on writer leases; the one with the greater number counts."""

    number: Number
    members: Annotated[tuple[Name, ...], Meta(max_length=MOST_SERVERS)]
    before: Annotated[tuple[Name, ...], Meta(max_length=MOST_SERVERS)] = ()
    """The members of the view before this one; empty once the view is known to be settled."""


class LeaseAsk(Message, frozen=True, array_like=True):
    """From a client to every member: vote for me as the writer of a topic."""

    type: ClassVar[int] = 40
    server: Name
    client: Name
    epoch: Number
    back: Filters
    request: Number
    view: View
    sid: Id
    rid: Id
    fence: Number = 0
    """0 to ask; the fencing epoch to confirm and to renew."""
    release: bool = False
    successor: Annotated[str, Meta(max_length=63)] = ""
    """With a release: for whom the topic is kept for the length of a lease."""


class LeaseVote(Message, frozen=True, array_like=True):
    """The answer to `LeaseAsk`."""

    type: ClassVar[int] = 41
    client: Name
    epoch: Number
    server: Name
    request: Number
    sid: Id
    rid: Id
    code: Code
    fence: Number
    """The highest fencing epoch the server has heard of for the topic."""
    view: View
    """The server's own."""
    holder: Annotated[str, Meta(max_length=63)] = ""
    left_ms: Number = 0
    """How long the holder's lease lasts at most, or until the server votes at all (NOT_READY)."""


class ViewIs(Message, frozen=True, array_like=True):
    """Between servers, now and then and after every change: the view I am in."""

    type: ClassVar[int] = 42
    to: Name
    server: Name
    view: View
    answer: bool = False
    """Asks for the same from the receiver."""


class ViewChange(Message, frozen=True, array_like=True):
    """To a member: take this server into the view, or out of it. Repeated until it is done."""

    type: ClassVar[int] = 43
    to: Name
    server: Name
    present: bool


class SummaryAsk(Message, frozen=True, array_like=True):
    """From a client to a server: what is subscribed to, if it is not what I know."""

    type: ClassVar[int] = 44
    server: Name
    client: Name
    back: Filters
    known: tuple[Number, Number]
    """Boot of the server, and version of the summary."""


class SummaryIs(Message, frozen=True, array_like=True):
    """From a server: a Bloom filter of what is subscribed to (`rendezvous.summary`)."""

    type: ClassVar[int] = 45
    client: Name
    server: Name
    boot: Number
    version: Number
    bits: Annotated[bytes, Meta(max_length=170_000)]
    """Empty: what the client knows is still true; with version 0: too early to say."""


MESSAGES: tuple[type[Message], ...] = (
    Register,
    Registered,
    Refresh,
    Refreshed,
    Matches,
    MatchesTaken,
    Subscribed,
    SubscribedTaken,
    LeaseAsk,
    LeaseVote,
    ViewIs,
    ViewChange,
    SummaryAsk,
    SummaryIs,
)
