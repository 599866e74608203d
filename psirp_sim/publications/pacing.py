"""How fast a stream is sent: as many packets under way as its listeners keep up with.

A publisher numbers the packets of a stream, and a listener's reports say up to which number they
have come. What lies between is under way, and `window` packets may be. A round is the time from a
packet that asks for reports to the slowest listener's report on it. After a round the window
grows, if it was the limit; it shrinks when more than a tenth of a round's packets was lost, or
when they took so much longer than they could that they must be waiting in a queue. So a slow link
is not flooded, and one that merely loses a few packets is not taken for slow.

A listener that says nothing is not waited for: it asks for what it missed when it is back. When
nobody says anything, nothing is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from psirp_sim.runtime.durations import MILLISECOND
from psirp_sim.wire.rendezvous import Listener

FIRST_WINDOW = 64
SMALLEST_WINDOW = 16
LARGEST_WINDOW = 4_096
MOST_UNASKED = 256
"""Packets between two that ask for reports; fewer where the window is small."""
LOSS = 0.1
"""The part of a round's packets that may be lost before the window shrinks."""
QUEUE = 20 * MILLISECOND
"""How much longer than it could a packet may take before it must have waited in a queue."""
SILENCE = 300 * MILLISECOND
"""How long a listener may say nothing and still be waited for, and at least four round trips."""


@dataclass(slots=True, eq=False)
class Follower:
    """What a publisher knows of one listener."""

    listener: Listener
    joined: int
    """The sequence when it came: it has nothing that was sent before."""
    heard: int
    """When it last said something."""
    seen: int = 0
    next: int = 0
    """It has every version before this one that it wants."""
    lost: int = 0
    """Units that its last report said were lost."""
    trip: int = 0
    """Nanoseconds from a packet that asked to the answer, smoothed; 0 before the first."""
    least_trip: int = 0

    def answered(self, took: int) -> None:
        self.least_trip = min(self.least_trip, took) if self.least_trip else took
        self.trip += (took - self.trip) // 4 if self.trip else took

    def is_there(self, now: int) -> bool:
        """Whether it is waited for."""
        return now - self.heard < max(SILENCE, 4 * self.trip)

    @property
    def floor(self) -> int:
        """What was sent up to this and has not come is lost."""
        return max(self.seen, self.joined)


class Pace:
    """The window of one stream."""

    def __init__(self) -> None:
        self.window = FIRST_WINDOW
        self.limiting = False
        """Whether more would have been sent in this round, had the window been wider."""
        self._searching = True
        self._last_asked = 0
        self._round_ends: int | None = None
        self._awaited: dict[str, Follower] = {}
        """Those whose report ends the round."""
        self._lost = 0
        self._waited = False
        self._units = 0
        """Sent in this round."""

    def sent(self, units: int) -> None:
        self._units += units

    def asks(self, sequence: int) -> bool:
        """Whether the packet of that sequence is to ask for reports."""
        return sequence - self._last_asked >= min(MOST_UNASKED, self.window // 4)

    def asked(self, sequence: int, followers: Mapping[str, Follower], now: int) -> None:
        """A packet, or a message behind it, asks for reports."""
        self._last_asked = sequence
        if self._round_ends is None:
            self._round_ends = sequence
            self._awaited = {name: each for name, each in followers.items() if each.is_there(now)}
            self._lost, self._waited = 0, False
        else:
            for name in [n for n, each in self._awaited.items() if not each.is_there(now)]:
                self.gone(name)

    def reported(self, name: str, follower: Follower) -> None:
        """A listener has said how far it is."""
        lost, follower.lost = follower.lost, 0
        if self._round_ends is None:
            return
        self._lost = max(self._lost, lost)
        self._waited |= follower.trip > 2 * follower.least_trip + QUEUE
        if follower.floor >= self._round_ends:
            self.gone(name)

    def gone(self, name: str) -> None:
        """Nobody waits for that listener any more in this round."""
        self._awaited.pop(name, None)
        if self._round_ends is not None and not self._awaited:
            self._end_round()

    def _end_round(self) -> None:
        if (self._lost > LOSS * max(self._units, 1) and self._lost > 1) or self._waited:
            self.window = max(SMALLEST_WINDOW, self.window * 7 // 10)
            self._searching = False
        elif self.limiting:
            more = self.window if self._searching else max(1, self.window // 8)
            self.window = min(LARGEST_WINDOW, self.window + more)
        self.limiting = False
        self._units = 0
        self._round_ends = None
