"""Whether a PSPH has so much to do for its own clients that it prepares nothing for others'."""

from __future__ import annotations

from collections.abc import Callable, Mapping

HIGH = 0.9
"""Of a bound: from there on nothing is prepared."""
LOW = 0.8
"""Of every bound: below that it is again."""

Uses = Callable[[], Mapping[str, tuple[int, int]]]
"""What is counted, and its bound, by name."""


class Pressure:
    """Looked at from time to time."""

    def __init__(self, uses: Uses) -> None:
        self._uses = uses
        self.high = False

    def shares(self) -> dict[str, float]:
        """How much of each bound is used."""
        return {name: round(used / most, 4) for name, (used, most) in self._uses().items()}

    def look(self) -> bool:
        """Whether it has changed."""
        before = self.high
        self.high = max(self.shares().values()) >= (LOW if before else HIGH)
        return self.high is not before
