"""Position: which update of a topic, as (publisher, epoch, version).

The version counts from 1 within a stream; the epoch rises when a publisher comes back without
its state or a topic changes hands. Who assigns them, and when, is not decided here.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Self

from identifiers.errors import InvalidPosition, shown
from identifiers.ids import FixedBytes

_U64_MAX: Final = 2**64 - 1
_TEXT: Final = re.compile(r"([0-9a-f]{32})\.(0|[1-9][0-9]{0,19})\.([1-9][0-9]{0,19})")


class PublisherId(FixedBytes):
    """Who numbered an update."""

    __slots__ = ()
    SIZE = 16


@dataclass(frozen=True, slots=True)
class Position:
    """Place of an update in its stream. Text form: "<publisher>.<epoch>.<version>".

    Positions of one publisher are ordered by epoch, then version. Those of different publishers
    have no order (comparing them is a TypeError); `sort_key` gives listings a stable one.
    """

    publisher: PublisherId
    epoch: int
    version: int

    def __post_init__(self) -> None:
        if not 0 <= self.epoch <= _U64_MAX:
            raise InvalidPosition(f"the epoch {self.epoch} is out of range: use 0 to 2^64-1")
        if not 1 <= self.version <= _U64_MAX:
            raise InvalidPosition(f"the version {self.version} is out of range: use 1 to 2^64-1")

    @classmethod
    def parse(cls, text: str) -> Self:
        """The inverse of str(); no other spelling is accepted."""
        found = _TEXT.fullmatch(text)
        if found is None:
            raise InvalidPosition(
                f"{shown(text)} is not a position: "
                "write <32 lower-case hexadecimal digits>.<epoch>.<version>"
            )
        return cls(_publisher(found[1]), int(found[2]), int(found[3]))

    def __str__(self) -> str:
        return f"{self.publisher}.{self.epoch}.{self.version}"

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, Position) or self.publisher != other.publisher:
            return NotImplemented
        return (self.epoch, self.version) < (other.epoch, other.version)

    # The other three are written out: those that `total_ordering` would make take three times as
    # long, and every message is compared with several Positions.

    def __gt__(self, other: object) -> bool:
        if not isinstance(other, Position) or self.publisher != other.publisher:
            return NotImplemented
        return (self.epoch, self.version) > (other.epoch, other.version)

    def __le__(self, other: object) -> bool:
        if not isinstance(other, Position) or self.publisher != other.publisher:
            return NotImplemented
        return (self.epoch, self.version) <= (other.epoch, other.version)

    def __ge__(self, other: object) -> bool:
        if not isinstance(other, Position) or self.publisher != other.publisher:
            return NotImplemented
        return (self.epoch, self.version) >= (other.epoch, other.version)

    @property
    def sort_key(self) -> tuple[bytes, int, int]:
        """Orders the Positions of any publishers; between publishers it means nothing."""
        return self.publisher.raw, self.epoch, self.version

    def next(self) -> Self:
        """The Position of the update after this one, in the same epoch."""
        return type(self)(self.publisher, self.epoch, self.version + 1)

    def directly_follows(self, other: "Position") -> bool:
        """Whether nothing can lie between `other` and this: same epoch, the next version."""
        return (
            self.publisher == other.publisher
            and self.epoch == other.epoch
            and self.version == other.version + 1
        )


@lru_cache(maxsize=1_024)
def _publisher(text: str) -> PublisherId:
    """Few publishers number many updates."""
    return PublisherId.parse(text)
