"""What a subscriber is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from identifiers import Position, PublisherId


@dataclass(frozen=True, slots=True)
class Update:
    """A version of an item."""

    sid: bytes
    rid: bytes
    position: Position
    content: bytes
    metadata: Mapping[str, str]
    signed: bool
    """By a key of the scope's zone; False where the zone has none."""

    @property
    def publisher(self) -> PublisherId:
        return self.position.publisher


@dataclass(frozen=True, slots=True)
class Gap:
    """Versions that cannot be had any more: the publisher's history was exceeded."""

    sid: bytes
    rid: bytes
    publisher: PublisherId
    epoch: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Reset:
    """The publisher came back without its state, or another took over: versions begin anew."""

    sid: bytes
    rid: bytes
    publisher: PublisherId
    epoch: int
    """The new one."""
    previous: Position | None
    """The last that was delivered of an earlier epoch; versions after it may be lost."""


Event = Update | Gap | Reset
