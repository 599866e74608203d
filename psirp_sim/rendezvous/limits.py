"""How much one client may ask for: so much on the average, and so much at once."""

from __future__ import annotations

from psirp_sim.runtime.durations import SECOND


class TokenBucket:
    """Full at first; fills by `rate` tokens a second up to `burst`.

    Counts in tokens times nanoseconds, so that nothing is lost to rounding however often it is
    asked.
    """

    __slots__ = ("_asked", "_full", "_level", "_rate")

    def __init__(self, rate: int, burst: int) -> None:
        if rate < 1 or burst < 1:
            raise ValueError(f"rate and burst are at least 1, not {rate} and {burst}")
        self._rate = rate
        self._full = self._level = burst * SECOND
        self._asked: int | None = None

    def take(self, now_ns: int, tokens: int = 1) -> bool:
        """Take all these tokens, or none when there are not enough."""
        if tokens < 0:
            raise ValueError(f"tokens are taken, not given back: {tokens}")
        self._fill(now_ns)
        if tokens * SECOND > self._level:
            return False
        self._level -= tokens * SECOND
        return True

    def _fill(self, now_ns: int) -> None:
        if self._asked is not None:
            gained = max(0, now_ns - self._asked) * self._rate
            self._level = min(self._full, self._level + gained)
            now_ns = max(now_ns, self._asked)  # the same time is never counted twice
        self._asked = now_ns
