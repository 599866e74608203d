"""What proxies say to each other on a zone's channel, and what they answer.

Both are publications, in JSON, and each says everything there is to say at that time: who missed
the ones before, or came later, misses nothing.

    {"reply": "<64 hex digits>", "lease": 60.0, "topics": ["http://news.site-b.test/feed.xml"]}
    {"answers": {"http://news.site-b.test/feed.xml":
        {"publisher": "<32 hex digits>", "epoch": 1, "version": 7}}}
    {"answers": {"http://news.site-b.test/secret": {"refused": "this topic stays at home"}}}
"""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

LONGEST_TOPIC = 2_048
MOST_TOPICS = 10_000
LONGEST_REASON = 200
LONGEST_LEASE = 86_400.0
LARGEST = 4 << 20
"""Bytes of either."""

M = TypeVar("M")

TopicText = Annotated[str, Meta(max_length=LONGEST_TOPIC)]


class MalformedMessage(ValueError):
    """Not what a proxy says."""


class Requests(msgspec.Struct, frozen=True):
    """All topics of a zone that a proxy wants, until the lease is over or the next set comes."""

    reply: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
    """The item in the channel's scope where answers are looked for."""
    lease: Annotated[float, Meta(gt=0, le=LONGEST_LEASE)]
    """Seconds."""
    topics: Annotated[list[TopicText], Meta(max_length=MOST_TOPICS)]


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """To one topic: who publishes it, or why nobody will."""

    publisher: Annotated[str, Meta(pattern=r"^([0-9a-f]{32})?\Z")] = ""
    epoch: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] = 0
    version: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] = 0
    """How far the stream was when this was first answered: what comes up to there was published
    before, and is pushed to nobody."""
    refused: Annotated[str, Meta(max_length=LONGEST_REASON)] = ""


class Answers(msgspec.Struct, frozen=True):
    """To all topics that were asked for and that the proxy answers for. One that is missing is not
    decided yet, or somebody else's."""

    answers: dict[TopicText, Answer]


def encode(message: Requests | Answers) -> bytes:
    return msgspec.json.encode(message)


def read_requests(content: bytes) -> Requests:
    """MalformedMessage when it is none."""
    return _decode(content, Requests)


def read_answers(content: bytes) -> Answers:
    """MalformedMessage when it is none."""
    return _decode(content, Answers)


def _decode(content: bytes, kind: type[M]) -> M:
    if len(content) > LARGEST:
        raise MalformedMessage(f"{len(content)} bytes are too many")
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedMessage(str(error)) from error
