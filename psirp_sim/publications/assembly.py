"""Envelopes that are being put together, and those that wait to be handed on.

All streams of a node share the room for them. When it is short, what has been untouched for long
goes, since it can be asked for again; while everything is being worked on, nothing new comes in,
unless a subscriber waits for just that and others can wait.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator

from psirp_sim.runtime.durations import SECOND
from psirp_sim.wire.publications import UNIT, Header

LEFT_ALONE = 5 * SECOND
"""After which an assembly that nothing is added to, or that nobody takes, has to make room."""


class Assembly:
    """One version at a listener: its pieces, and once it is complete what was in it."""

    __slots__ = (
        "_evicted", "_have", "content", "data", "header", "is_next", "judged", "left", "refused",
        "signed", "size", "touched",
    )  # fmt: skip

    def __init__(
        self, size: int, evicted: Callable[[], None], is_next: Callable[[], bool] = lambda: True
    ) -> None:
        """`is_next` says whether a subscriber waits for this version before all others."""
        self.size = size
        self.is_next = is_next
        self.data = bytearray(size)
        self._have = bytearray(-(-size // UNIT))
        self._evicted = evicted
        self.touched = 0
        """When something was last added to it."""
        self.left = len(self._have)
        """Units that have not come."""
        self.header: Header | None = None
        """Set when it is complete and what it says it is."""
        self.content = b""
        self.judged = self.signed = False
        """Whether it is known who made it, and whether a key of the zone did."""
        self.refused = False
        """Whoever made it had no authority to: it is passed over."""

    def add(self, unit: int, piece: bytes) -> bool:
        """Take a run of units; whether any of them is new."""
        count = -(-len(piece) // UNIT)
        new = self._have.count(0, unit, unit + count)
        if new:
            begin = unit * UNIT
            self.data[begin : begin + len(piece)] = piece
            self._have[unit : unit + count] = b"\1" * count
            self.left -= new
        return new > 0

    def missing(self) -> Iterator[tuple[int, int]]:
        """First and last unit of every run that has not come."""
        begin = self._have.find(0)
        while begin >= 0:
            end = self._have.find(1, begin)
            yield begin, (len(self._have) if end < 0 else end) - 1
            begin = -1 if end < 0 else self._have.find(0, end)

    def complete(self, header: Header, content: bytes) -> None:
        """It is what it should be; the pieces are not needed any more."""
        self.header, self.content = header, content
        self.data = self._have = bytearray()

    def let_go(self) -> None:
        """The room was needed."""
        self._evicted()


class WaitingRoom:
    """The room that the assemblies of a node share."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.bytes = 0
        self._assemblies: OrderedDict[Assembly, None] = OrderedDict()

    def admit(self, assembly: Assembly, now: int) -> bool:
        """Take it in, if what has been left alone can make room for it; for one that somebody
        waits for, those that nobody waits for yet make room too."""
        while self._assemblies and self.bytes + assembly.size > self.limit:
            leaving = next(iter(self._assemblies))
            if now - leaving.touched < LEFT_ALONE:
                early = (each for each in self._assemblies if not each.is_next())
                found = next(early, None) if assembly.is_next() else None
                if found is None:
                    return False
                leaving = found
            self.release(leaving)
            leaving.let_go()
        self._assemblies[assembly] = None
        assembly.touched = now
        self.bytes += assembly.size
        return True

    def touch(self, assembly: Assembly, now: int) -> None:
        """It is being worked on."""
        assembly.touched = now
        self._assemblies.move_to_end(assembly)

    def release(self, assembly: Assembly) -> None:
        """It is not needed any more."""
        del self._assemblies[assembly]
        self.bytes -= assembly.size
