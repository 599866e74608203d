"""The departure/arrival trace of one move, and the figures that are read off it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

from psirp_sim.runtime.durations import MILLISECOND, SECOND

LIVE = 2 * SECOND
"""A message that the application has so soon after its publication is live."""


@dataclass(slots=True)
class Trace:
    """Times are nanoseconds of the world's clock."""

    published: list[int] = field(default_factory=list)
    """When each message was, by its number."""
    received: list[tuple[int, int]] = field(default_factory=list)
    """When the application was given which."""
    move_out: int = 0
    """When it was called."""
    moved_out: int = 0
    """When the client was detached."""
    move_in: int = 0
    """When it was called."""
    moved_in: int | None = None
    """When the library said that it was over."""

    @property
    def delay_ms(self) -> float | None:
        """From the move-in call to the first live message that was published after it: the trace
        touches the diagonal, and may leave it again."""
        return self._first_live(since=0)

    @property
    def silence_ms(self) -> float | None:
        """The longest time after the move-in call in which the application got nothing."""
        times = [self.move_in, *(at for at, _ in self.received if at >= self.move_in)]
        silences = [later - at for at, later in pairwise(times)]
        return max(silences) / MILLISECOND if silences else None

    @property
    def diagonal_ms(self) -> float | None:
        """From the move-in call to the first live message after the last late one: from there on
        the trace stays on the diagonal. What comes again does not count."""
        firsts: dict[int, int] = {}
        for at, number in self.received:
            firsts.setdefault(number, at)
        late = [at for number, at in firsts.items() if at - self.published[number] > LIVE]
        return self._first_live(since=max(late, default=0))

    @property
    def moved_in_ms(self) -> float | None:
        """From the move-in call to its end."""
        return None if self.moved_in is None else (self.moved_in - self.move_in) / MILLISECOND

    @property
    def move_out_ms(self) -> float:
        """From the move-out call to its end."""
        return (self.moved_out - self.move_out) / MILLISECOND

    @property
    def published_away(self) -> int:
        """While the client was detached and had not moved in."""
        return sum(self.moved_out <= at < self.move_in for at in self.published)

    @property
    def lost(self) -> int:
        """Published from the move-out call on, and never given to the application."""
        got = {number for _, number in self.received}
        return sum(
            at >= self.move_out and number not in got for number, at in enumerate(self.published)
        )

    @property
    def lost_before_move_in(self) -> int:
        """Those of them that were published before the move-in call."""
        got = {number for _, number in self.received}
        return sum(
            self.move_out <= at < self.move_in and number not in got
            for number, at in enumerate(self.published)
        )

    @property
    def duplicated(self) -> int:
        """Published after the move-in call and given more than once, the second time counted."""
        return self._copies(self.move_in, None)

    @property
    def duplicated_by_move_out(self) -> int:
        """Published before it."""
        return self._copies(0, self.move_in)

    @property
    def out_of_order(self) -> int:
        """Given for the first time after a later one."""
        seen: set[int] = set()
        highest, found = -1, 0
        for _, number in self.received:
            if number not in seen:
                found += number < highest
                highest = max(highest, number)
                seen.add(number)
        return found

    def _first_live(self, since: int) -> float | None:
        for at, number in self.received:
            live = at - self.published[number] <= LIVE
            if at >= since and live and self.published[number] >= self.move_in:
                return (at - self.move_in) / MILLISECOND
        return None

    def _copies(self, since: int, until: int | None) -> int:
        times = Counter(number for _, number in self.received)
        return sum(
            count - 1
            for number, count in times.items()
            if since <= self.published[number] and (until is None or self.published[number] < until)
        )
