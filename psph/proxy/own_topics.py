"""What a proxy knows of a topic of its own hosts, and what of that outlives a crash.

Every version goes out with the number of a turn (`turn_of`). A reader that was told of a topic, by
whichever proxy, with a number takes up from every other stream what has that number or a higher
one. With a writer lease that is its fencing epoch: one writes at a time, and majorities see to it
that the numbers grow. A proxy that is alone takes its numbers from the clock, as fencing epochs do
where no server remembers a higher one, and two that do not know of each other may write at the same
time. So that a reader of either misses nothing of the other, all numbers that versions have follow
the clock, and the margins are wider than clocks may differ (`WriterLeases.clock_bound_ms`, here d):

| what                                       | number                             |
|--------------------------------------------|------------------------------------|
| a version recorded at t, in a leased turn  | the fencing epoch, or t - d        |
| a version recorded at t, written alone     | the beginning of the turn + d, or t + d |
| what readers are told, leased              | the fencing epoch                  |
| what readers are told, alone               | the beginning of the turn - 2d     |

(whichever is higher). A version that is recorded after a reader was told has a number as high as
the reader was told, whichever proxies told it and recorded it. A version of an earlier leased turn
has a lower one than the fencing epoch of the next.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from identifiers import Position, Topic
from psirp_sim.publications.delivery import Place
from psirp_sim.runtime.environment import Storage, Timer
from psph.proxy.ports import WebUpdate
from psph.proxy.writing import Turn

PREFIX = b"covered "
MOST_TURNS = 64
"""That are remembered, of a topic."""


class PastTurn(msgspec.Struct, frozen=True, array_like=True):
    """One in which we published, or the present one."""

    covered: Place
    """What was covered when it began."""
    number: int
    alone: bool = False
    """Without a lease."""


class Written(msgspec.Struct, array_like=True):
    """What is written down of a topic of ours."""

    covered: Place
    kept: Place
    """Up to where we have published it, when it was our turn."""
    wrote: bool
    """Whether it is our turn: after a crash nobody knows how far we got, and what we have beyond
    `covered` may have reached nobody."""
    turns: list[PastTurn]


@dataclass(slots=True, eq=False)
class OwnTopic:
    """One that is open, or about to be."""

    topic: Topic
    turn: Turn
    covered: Place | None = None
    """None while it is not known yet."""
    kept: Place = (0, 0)
    turns: list[PastTurn] = field(default_factory=list)
    newest: Place = (0, 0)
    """The last place of our stream that the hub has told us of."""
    owes: bool = False
    """Whether the hub has versions beyond that which only we can publish."""
    wrote: bool = False
    settled: bool = False
    """Whether its publisher has sent content here since it is our turn."""
    told: bool = False
    """Whether the proxy that writes it was pinged for all that was fetched here meanwhile."""
    looked: bool = False
    """Whether the hub has had a look at it, so that there is something to begin with."""
    last: Position | None = None
    """Of what was published last."""
    passed_over: Position | None = None
    """Of what the fabric can never take; the stream began again after it."""
    asking: bool = False
    """Whether the hub was asked for what comes after that."""
    again: bool = False
    """Whether it has to be asked once more."""
    open: bool = False
    """Whether it is our turn and everything the hub had was published, so that it can be had."""
    closing: Timer | None = None
    retry: Timer | None = None

    @property
    def held(self) -> bool:
        return self.turn.held

    def load(self, storage: Storage) -> bool:
        """Take up what was written down; whether anything was."""
        stored = storage.get(PREFIX + self.topic.canonical.encode())
        if stored is None:
            return False
        written = msgspec.msgpack.decode(stored, type=Written)
        self.covered, self.kept = written.covered, written.kept
        self.wrote, self.turns = written.wrote, written.turns
        return True

    def begin_turn(self, storage: Storage, covered: Place) -> None:
        """It is our turn."""
        self.turns = [each for each in self.turns if each.covered < covered][1 - MOST_TURNS :]
        self.turns.append(PastTurn(covered, self.turn.number, self.turn.is_alone))
        self.write_down(storage, covered, wrote=True)

    def write_down(self, storage: Storage, covered: Place, *, wrote: bool) -> None:
        self.covered, self.wrote = covered, wrote
        written = Written(covered, self.kept, wrote, self.turns)
        key = PREFIX + self.topic.canonical.encode()
        storage.write({key: msgspec.msgpack.encode(written)})


def turn_of(own: OwnTopic, update: WebUpdate) -> tuple[Place, int]:
    """What was covered when the turn began in which we first published a version, and the number
    that the version goes out with."""
    place, bound = place_of(update.position), own.turn.clock_bound_ms
    found = [each for each in own.turns if each.covered < place]
    if not found:
        return (place[0], 0), 0
    turn = found[-1]
    by_clock = update.recorded_ms + (bound if turn.alone else -bound)
    return turn.covered, max(turn.number, by_clock)


def place_of(position: Position) -> Place:
    return position.epoch, position.version


def follows(last: Position | None, position: Position) -> bool:
    return last is None or position.directly_follows(last)


def is_beyond(last: Position, position: Position) -> bool:
    """Whether there was something in between."""
    if position.epoch == last.epoch:
        return position.version > last.version + 1
    return position.version > 1
