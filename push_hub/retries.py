"""When to try again: growing, jittered delays, and what Retry-After says about them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime


@dataclass(frozen=True, slots=True)
class RetrySchedule:
    """Delays in seconds. With the defaults the last of 10 attempts comes after some 12 hours."""

    first: float = 5.0
    factor: float = 3.0
    longest: float = 3 * 3600.0
    attempts: int = 10

    def delay(self, failures: int, random: float, retry_after: float | None = None) -> float:
        """Seconds to wait after so many failures in a row (1 or more).

        `random`, from 0 to 1, spreads callbacks that failed together over half the delay. What
        the server asks for with Retry-After is honoured, but never for longer than `longest`.
        """
        # The exponent is bounded before the power is taken: floats overflow.
        base = min(self.longest, self.first * self.factor ** min(failures - 1, 60))
        spread = base * (0.5 + 0.5 * random)
        if retry_after is None:
            return spread
        # Jitter on top: they were all told the same moment.
        return min(self.longest, max(spread, retry_after + min(retry_after, 10.0) * 0.1 * random))

    def exhausted(self, attempts: int) -> bool:
        """Whether so many attempts were enough, and the notification is to be dropped."""
        return attempts >= self.attempts


def retry_after(header: str | None, now: float) -> float | None:
    """Seconds from a Retry-After header, a number or an HTTP date; None when it says nothing."""
    if header is None:
        return None
    text = header.strip()
    if re.fullmatch(r"[0-9]{1,9}", text):
        return float(text)
    try:
        date = parsedate_to_datetime(text)
        if date.tzinfo is None:
            date = date.replace(tzinfo=UTC)
        return max(0.0, date.timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return None
