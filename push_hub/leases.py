"""How long a subscription may last: what a subscriber asks for, bounded both ways."""

from __future__ import annotations

from dataclasses import dataclass

DAY = 86_400


@dataclass(frozen=True, slots=True)
class LeaseBounds:
    """Seconds. A subscriber is told what was granted, so both bounds are safe to apply."""

    default: int = 10 * DAY
    shortest: int = 300
    longest: int = 30 * DAY

    def __post_init__(self) -> None:
        if not 0 < self.shortest <= self.default <= self.longest:
            raise ValueError(
                f"lease bounds must satisfy 0 < shortest <= default <= longest, not"
                f" {self.shortest}, {self.default}, {self.longest}: change one of them"
            )

    def grant(self, asked: int | None) -> int:
        """The lease for a request that asked for so many seconds, or for none in particular."""
        if asked is None:
            return self.default
        return min(max(asked, self.shortest), self.longest)
