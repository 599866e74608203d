"""How long to wait after failures in a row: longer each time, and never all at once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds."""

    first: float = 1.0
    factor: float = 2.0
    longest: float = 300.0

    def __post_init__(self) -> None:
        if not (0 < self.first <= self.longest and self.factor >= 1):
            raise ValueError(
                f"a backoff needs 0 < first <= longest and factor >= 1, not {self.first:g},"
                f" {self.longest:g} and {self.factor:g}"
            )

    def delay(self, failures: int, random: float) -> float:
        """Seconds to wait after so many failures in a row (1 or more).

        `random`, from 0 to 1, spreads PSPHs that failed together over half the delay.
        """
        # The exponent is bounded before the power is taken: floats overflow.
        whole = min(self.longest, self.first * self.factor ** min(failures - 1, 60))
        return whole * (0.5 + 0.5 * random)
