"""What a stream says, for those who follow it: versions, gaps and resets, and what was had."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from identifiers import InvalidPosition, Position, PublisherId
from push_hub.event_stream import BadEvent, ReadEvent


@dataclass(frozen=True, slots=True)
class StreamUpdate:
    """A version of a topic."""

    topic: str
    position: Position
    content_type: str
    content: bytes
    """As the publisher served it."""
    trace_id: str = ""


@dataclass(frozen=True, slots=True)
class StreamGap:
    """Versions between two Positions cannot be had any more; `resumes` comes next."""

    topic: str
    after: Position
    resumes: Position


@dataclass(frozen=True, slots=True)
class StreamReset:
    """The numbering is another one from now on; `resumes` comes next."""

    topic: str
    after: Position
    resumes: Position


@dataclass(frozen=True, slots=True)
class StreamBase:
    """A subscription stands: every version after these Positions comes for certain. Empty where
    the hub has nothing of the topic."""

    topic: str
    base: tuple[Position, ...]


StreamEvent = StreamUpdate | StreamGap | StreamReset | StreamBase


class _Update(msgspec.Struct):
    topic: str
    position: str
    content_type: str
    body_b64: bytes  # msgspec decodes it
    trace_id: str = ""


class _Notice(msgspec.Struct):
    topic: str
    after: str
    resumes: str


class _Base(msgspec.Struct):
    topic: str
    base: list[str]


def read_stream_event(event: ReadEvent) -> StreamEvent | None:
    """What an event says; None for kinds that are not known. BadEvent when it makes no sense, as do
    notices without Positions, which only those get who resume with the id of an event."""
    try:
        if event.kind == "message":
            update = msgspec.json.decode(event.data, type=_Update)
            return StreamUpdate(
                update.topic, Position.parse(update.position), update.content_type,
                update.body_b64, update.trace_id,
            )  # fmt: skip
        if event.kind in ("gap", "reset"):
            notice = msgspec.json.decode(event.data, type=_Notice)
            made = StreamGap if event.kind == "gap" else StreamReset
            return made(notice.topic, Position.parse(notice.after), Position.parse(notice.resumes))
        if event.kind == "base":
            told = msgspec.json.decode(event.data, type=_Base)
            return StreamBase(told.topic, tuple(map(Position.parse, told.base)))
    except (msgspec.MsgspecError, InvalidPosition, ValueError, RecursionError) as error:
        raise BadEvent(f"an event that makes no sense: {str(error)[:100]}") from None
    return None


class Progress:
    """How far a reader is: for each topic, a Position of each publisher."""

    def __init__(self, topics: Iterable[str], after: Mapping[str, Iterable[Position]]) -> None:
        self._at: dict[str, dict[PublisherId, Position]] = {topic: {} for topic in topics}
        self.count = 0
        """Versions that were noted."""
        for topic, positions in after.items():
            for position in positions:
                self.had(topic, position)

    def had(self, topic: str, position: Position) -> bool:
        """Note a version; False when the topic is none of ours, or this or a newer one was had."""
        at = self._at.get(topic)
        before = at.get(position.publisher) if at is not None else None
        if at is None or (before is not None and position <= before):
            return False
        # The publisher heard of last stands last: those of long ago may be left out.
        at.pop(position.publisher, None)
        at[position.publisher] = position
        self.count += 1
        return True

    def positions(self) -> dict[str, tuple[Position, ...]]:
        """All of them, by topic."""
        return {topic: tuple(at.values()) for topic, at in self._at.items()}

    def query(self, most: int) -> list[tuple[str, str]]:
        """The topics and where they are, as /stream wants it: at most so many of each."""
        topics = [("topic", topic) for topic in self._at]
        if not any(self._at.values()):
            return topics
        return topics + [
            ("after", ",".join(map(str, list(at.values())[-most:]))) for at in self._at.values()
        ]
