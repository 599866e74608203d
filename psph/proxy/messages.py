"""What proxies say to each other: requests on a zone's channel, answers, and, among the proxies of
one zone, who is there.

All are publications, in JSON, and each says everything there is to say at that time: who missed
the ones before, or came later, misses nothing.

    {"reply": "<64 hex digits>", "lease": 60.0, "topics": {"http://news.site-b.test/feed.xml": 3}}
    {"answers": {"http://news.site-b.test/feed.xml":
        {"asked": 3, "publisher": "<32 hex digits>", "epoch": 1, "version": 7}}}
    {"answers": {"http://news.site-b.test/secret":
        {"asked": 4, "refused": "this topic stays at home"}}}
    {"node": "psph-b2", "publisher": "<32 hex digits>", "hosts": ["site-b.test"], "lease": 10.0,
        "priority": 0, "weight": 1, "news": [], "pings": ["http://news.site-b.test/feed.xml"],
        "met": ["psph-b1"]}
"""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

LONGEST_TOPIC = 2_048
MOST_TOPICS = 10_000
MOST_HOSTS = 1_000
MOST_MEMBERS = 64
"""Other proxies of one zone that are taken notice of."""
LONGEST_NODE = 255
LONGEST_REASON = 200
LONGEST_LEASE = 86_400.0
LARGEST = 4 << 20
"""Bytes of either."""

M = TypeVar("M")

TopicText = Annotated[str, Meta(max_length=LONGEST_TOPIC)]
RequestNumber = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class MalformedMessage(ValueError):
    """Not what a proxy says."""


class Requests(msgspec.Struct, frozen=True):
    """All topics of a zone that a proxy wants, until the lease is over or the next set comes."""

    reply: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
    """The item in the channel's scope where answers are looked for."""
    lease: Annotated[float, Meta(gt=0, le=LONGEST_LEASE)]
    """Seconds."""
    topics: Annotated[dict[TopicText, RequestNumber], Meta(max_length=MOST_TOPICS)]
    """Each with the number of its request: a topic that was released and is wanted again has
    another one, and an answer to the request before does not count."""


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """To one topic: who publishes it, or why nobody will."""

    asked: RequestNumber = 0
    """The number of the request that is answered."""
    publisher: Annotated[str, Meta(pattern=r"^([0-9a-f]{32})?\Z")] = ""
    epoch: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] = 0
    version: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] = 0
    """How far the stream was when this was first answered: what comes up to there was published
    before, and is pushed to nobody."""
    turn: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] = 0
    """The turn from which on the versions of every other publisher count, too: the fencing epoch of
    the writer lease, or before the present when the proxy writes without one."""
    refused: Annotated[str, Meta(max_length=LONGEST_REASON)] = ""


class Answers(msgspec.Struct, frozen=True):
    """To all topics that were asked for and that the proxy answers for. One that is missing is not
    decided yet, or somebody else's."""

    answers: dict[TopicText, Answer]


class Membership(msgspec.Struct, frozen=True):
    """A proxy of a zone, to the others of it."""

    node: Annotated[str, Meta(min_length=1, max_length=LONGEST_NODE)]
    """Its name in the fabric, by which a writer lease is handed over to it."""
    publisher: Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
    """Who numbers updates at its hub."""
    hosts: Annotated[list[Annotated[str, Meta(max_length=255)]], Meta(max_length=MOST_HOSTS)]
    lease: Annotated[float, Meta(gt=0, le=LONGEST_LEASE)]
    """Seconds for which it counts as there."""
    priority: Annotated[int, Meta(ge=0, le=65_535)] = 0
    weight: Annotated[int, Meta(ge=0, le=65_535)] = 1
    news: Annotated[list[TopicText], Meta(max_length=MOST_TOPICS)] = []
    """Topics of which it has versions that only it can publish: it asks for their writer leases."""
    pings: Annotated[list[TopicText], Meta(max_length=MOST_TOPICS)] = []
    """Topics that were pinged at its hub since the last message, and that another one writes."""
    met: Annotated[
        list[Annotated[str, Meta(max_length=LONGEST_NODE)]], Meta(max_length=MOST_MEMBERS)
    ] = []
    """The nodes of the others that it knows: it writes no topic of theirs without a lease."""


def encode(message: Requests | Answers | Membership) -> bytes:
    return msgspec.json.encode(message)


def read_requests(content: bytes) -> Requests:
    """MalformedMessage when it is none."""
    return _decode(content, Requests)


def read_answers(content: bytes) -> Answers:
    """MalformedMessage when it is none."""
    return _decode(content, Answers)


def read_membership(content: bytes) -> Membership:
    """MalformedMessage when it is none."""
    return _decode(content, Membership)


def _decode(content: bytes, kind: type[M]) -> M:
    if len(content) > LARGEST:
        raise MalformedMessage(f"{len(content)} bytes are too many")
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedMessage(str(error)) from error
