"""What a listener knows of a node that publishes a stream, and what it asks it for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice

from psirp_sim.publications.assembly import Assembly
from psirp_sim.wire.publications import MOST_RANGES

Versions = list[tuple[int, int]]
"""First and last of runs that are missing altogether."""
Units = list[tuple[int, int, int]]
"""Version, first and last unit of runs that are missing."""


@dataclass(slots=True, eq=False)
class Origin:
    """A node that publishes the stream."""

    life: int
    seen: int = 0
    """The highest sequence that has come from it."""
    first: int = 0
    """The oldest version it still has."""
    sure: int = 0
    """Up to this sequence nothing can come any more that others have overtaken."""
    hole_since: int = 0
    """When the first packet after it was missed."""

    def saw(self, sequence: int, now: int, reorder: int) -> bool:
        """A packet has come; whether others seem to be missing before it."""
        hole = sequence > self.seen + 1
        if hole and (self.sure == self.seen or now - self.hole_since >= reorder):
            self.sure, self.hole_since = self.seen, now
        elif self.sure == self.seen and not hole:
            self.sure = max(self.sure, sequence)
        self.seen = max(self.seen, sequence)
        return hole

    def seen_for_sure(self, now: int, reorder: int) -> int:
        """The highest sequence before which what is missing is lost."""
        if now - self.hole_since >= reorder:
            self.sure = self.seen
        return self.sure

    reported: int = 0
    """When it was last told what is missing."""
    owed: int | None = None
    """The sequence of a packet that asks for a report which is being held back."""


def missing(
    held: Mapping[int, Assembly], begin: int, end: int, takes: Callable[[int], bool]
) -> tuple[Versions, Units]:
    """What is missing from one version to another, as much as a report holds.

    What there would be no room for (`takes`) is not asked for, nor anything after it: it would
    come in vain.
    """
    versions: Versions = []
    units: Units = []
    for version in range(begin, end + 1):
        if len(versions) >= MOST_RANGES or len(units) >= MOST_RANGES:
            break
        assembly = held.get(version)
        if assembly is None:
            if not takes(version):
                break
            if versions and versions[-1][1] == version - 1:
                versions[-1] = (versions[-1][0], version)
            else:
                versions.append((version, version))
        elif assembly.header is None:
            runs = islice(assembly.missing(), MOST_RANGES - len(units))
            units += [(version, *each) for each in runs]
    return versions, units
