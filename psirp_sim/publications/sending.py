"""A stream on its way to its listeners: what is new, and what they missed.

New versions go out as far as the pace allows, one copy for all listeners. A listener's report
names what it misses; of that, what was sent after the last packet it has seen is still under way,
and the rest is sent again, to all when several miss it. While a listener has not said that it has
everything, it is asked, at growing intervals. A stream whose listeners have everything is silent.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from psirp_sim.publications.history import History
from psirp_sim.publications.pacing import Follower, Pace
from psirp_sim.publications.settings import PublicationSettings
from psirp_sim.rendezvous.publishing import Base
from psirp_sim.runtime.durations import MILLISECOND
from psirp_sim.runtime.environment import Environment, Timer
from psirp_sim.wire.message import Message
from psirp_sim.wire.publications import (
    ANSWER,
    HEAD,
    NAMED,
    RECORD,
    UNIT,
    Latest,
    Report,
    tag_of,
)
from psirp_sim.wire.rendezvous import Listener

BURST = 64
"""Packets sent in one go; then others have their turn."""
SAMPLE = 256
"""One packet in so many is named, so that forwarding nodes write traces of it."""

MOST_VERSIONS = 2_048
"""Of one report that are looked at."""
SOONEST = 5 * MILLISECOND
"""Before which nobody is asked again."""

ALL = ""
"""As a destination: every listener."""


class Way(Protocol):
    """How packets of a stream get to its listeners."""

    def room(self, to: str) -> int:
        """Bytes that a packet to that listener, or to all, holds; 0 while there is no way."""

    def send(self, to: str, payload: bytes, named: bool) -> None: ...

    def tell(self, to: str, message: Message) -> None: ...


@dataclass(slots=True, eq=False)
class Repair:
    """What listeners miss of one version, and has not been sent again yet."""

    wanted: bytearray
    """For each unit, whether it is."""
    listeners: dict[str, None] = field(default_factory=dict)

    @property
    def to(self) -> str:
        return next(iter(self.listeners)) if len(self.listeners) == 1 else ALL


class Sending:
    """The publisher's end of one stream."""

    def __init__(
        self,
        env: Environment,
        settings: PublicationSettings,
        history: History,
        sid: bytes,
        rid: bytes,
        way: Way,
        *,
        life: Callable[[], int],
        moved: Callable[[], None] = lambda: None,
    ) -> None:
        """`life` is the number of this node's; `moved` is called when something was sent that
        had waited, or a listener has more than before."""
        self._env = env
        self._settings = settings
        self._history = history
        self._way = way
        self._life = life
        self._moved = moved
        self.sid, self.rid = sid, rid
        self.followers: dict[str, Follower] = {}
        self._behind: dict[str, None] = {}
        """Those that do not have everything, as far as is known."""
        self._slowest: tuple[int, int] | None = None
        """How far the slowest listener is that is there, and until when that holds."""
        self.ready = history.latest
        """The latest version that may be told to the world."""
        self._epoch = history.epoch
        self.sequence = 0
        self.pace = Pace()
        self._version, self._unit = self.ready + 1, 0
        """Where what was never sent begins."""
        self._sent: dict[int, array[int]] = {}
        """For each unit of a version, the sequence of the packet it was last sent in."""
        self._repairs: dict[int, Repair] = {}
        self._asked: dict[int, int | None] = {}
        """When the packets were sent that asked for reports, by sequence; None: not clear when."""
        self._turn: Timer | None = None
        self._beacon: Timer | None = None
        self._beacon_due = 0
        self._pause = self._shortest_pause
        self.tag = self._make_tag()

    @property
    def base(self) -> Base:
        """From where on a new listener gets everything."""
        return Base(self._history.publisher, self._epoch, self.ready)

    @property
    def backlog(self) -> int:
        """Versions that have not been sent yet."""
        return self.ready + 1 - self._version

    @property
    def remembered(self) -> int:
        """Versions of which it is known when they were sent, or that are to be sent again."""
        return max(len(self._sent), len(self._repairs))

    @property
    def complete(self) -> bool:
        """Whether every listener has everything."""
        return not self._behind

    @property
    def _is_changing(self) -> bool:
        """Whether a new epoch has begun that may not be told to the world yet."""
        return self._history.epoch != self._epoch

    # What the publisher does

    def release(self, epoch: int, version: int) -> None:
        """A version may be told to the world."""
        if epoch != self._history.epoch:
            return  # a new epoch has begun meanwhile
        if epoch != self._epoch:
            self._begin_epoch()
        now = self._env.now()
        for node, each in self.followers.items():
            if node not in self._behind:
                each.heard = now  # it had no reason to say anything
                self._behind[node] = None
        self.ready = version
        self._slowest = None
        if not self.followers:
            self._skip()
            return
        # The first of several in one turn goes out at once, the others together after it.
        if self._turn is None:
            self._pump()
            if self._turn is None:
                self._turn = self._env.call_later(0, self._next_turn)
        self._pause = self._shortest_pause
        self._expect_reports()

    def _begin_epoch(self) -> None:
        self._epoch = self._history.epoch
        self.tag = self._make_tag()
        self._sent.clear()
        self._repairs.clear()
        self._version, self._unit = self._history.first, 0
        for each in self.followers.values():
            each.next = 0
        self._behind = dict.fromkeys(self.followers)
        if self.followers:
            self._say(ALL, None)

    def _make_tag(self) -> bytes:
        return tag_of(self.sid, self.rid, self._history.publisher, self._epoch)

    def close(self) -> None:
        """Nothing is sent any more."""
        for timer in (self._turn, self._beacon):
            if timer is not None:
                timer.cancel()
        self.followers.clear()
        self._behind.clear()
        self._repairs.clear()

    # Who listens

    def listeners_changed(self, listeners: Iterable[Listener]) -> None:
        """These listen now; or there is another way to them."""
        present = {each.node: each for each in listeners}
        for node in [each for each in self.followers if each not in present]:
            del self.followers[node]
            self._behind.pop(node, None)
            self.pace.gone(node)
            for repair in self._repairs.values():
                repair.listeners.pop(node, None)
        for node, listener in present.items():
            known = self.followers.get(node)
            if known is None or known.listener != listener:
                self.followers[node] = Follower(listener, self.sequence, self._env.now())
                self._behind[node] = None
        self._slowest = None
        if not self.followers:
            self._skip()
        else:
            self._pump()
            self._expect_reports()
        self._moved()

    def _skip(self) -> None:
        """Nobody listens: who comes asks for what it wants."""
        self._version, self._unit = self.ready + 1, 0
        self._repairs.clear()

    def reported(self, message: Report) -> bool:
        """A listener says what it has; whether it is one of ours."""
        follower = self.followers.get(message.listener)
        if follower is None or follower.listener.epoch != message.life:
            return False
        if self._is_changing:
            return True
        if message.tag != self.tag:
            self._say(message.listener, None)  # it does not know of the new epoch yet
            return True
        now = self._env.now()
        asked = self._asked.get(message.answers)
        if asked is not None and message.answers:
            follower.answered(now - asked)
        progress = message.next > follower.next or message.seen > follower.seen
        follower.heard = now
        if self._slowest is not None and follower.floor <= self._slowest[0]:
            self._slowest = None
        if message.seen >= follower.seen:
            # It may want older versions than before, for somebody who has just subscribed there.
            follower.next = message.next
            follower.seen = min(message.seen, self.sequence)
            if follower.next > self.ready:
                self._behind.pop(message.listener, None)
            else:
                self._behind[message.listener] = None
        if progress:
            self._pause = self._shortest_pause
        self._mend(follower, message)
        # Listeners hand on in order: what is oldest is needed first.
        self._repairs = dict(sorted(self._repairs.items()))
        self.pace.reported(message.listener, follower)
        self._pump()
        self._expect_reports()
        self._moved()
        return True

    # What was lost

    def _mend(self, follower: Follower, message: Report) -> None:
        room = 4 * self.pace.window * self._units_of_a_packet()
        first = self._history.first
        too_old = False
        looked_at = 0
        for begin, end in message.versions:
            too_old = too_old or begin < first
            for version in range(max(begin, first), min(end, self._version) + 1):
                looked_at += 1
                if room <= 0 or looked_at > MOST_VERSIONS:
                    break
                room -= self._want(follower, version, 0, None)
        for version, begin, end in message.units:
            too_old = too_old or version < first
            if room > 0:
                room -= self._want(follower, version, begin, end + 1)
        if too_old:
            self._say(message.listener, None)

    def _units_of_a_packet(self) -> int:
        return max(1, self._way.room(ALL) // UNIT)

    def _want(self, follower: Follower, version: int, begin: int, end: int | None) -> int:
        """Send again what of this has been lost on the way to the listener; how many units."""
        envelope = self._history.get(version)
        if envelope is None or version > self.ready:
            return 0
        end = min(_units(envelope), _units(envelope) if end is None else end)
        if version == self._version:
            end = min(end, self._unit)
        elif version > self._version:
            return 0
        if begin >= end:
            return 0
        repair = self._repairs.get(version)
        if repair is None:
            repair = Repair(bytearray(_units(envelope)))
        sent = self._sent.get(version)
        lost = _mark_lost(repair.wanted, sent, begin, end, follower.floor)
        if lost:
            follower.lost += lost if sent is not None else 0
            self._repairs[version] = repair
        if version in self._repairs and 1 in repair.wanted[begin:end]:
            repair.listeners[follower.listener.node] = None
        return lost

    # Sending

    def _next_turn(self) -> None:
        self._turn = None
        self._pump()
        self._expect_reports()
        self._moved()

    def _slowest_floor(self) -> int | None:
        """How far the slowest listener is that is there; None when none is."""
        now = self._env.now()
        if self._slowest is not None and now < self._slowest[1]:
            return self._slowest[0]
        there = [each.floor for each in self.followers.values() if each.is_there(now)]
        if not there:
            return None
        # Who is slow is waited for, but not until the others lose something to the history.
        slowest = max(there) if self._is_late else min(there)
        self._slowest = (slowest, now + SOONEST)
        return slowest

    @property
    def _is_late(self) -> bool:
        """Whether what was never sent is about to be forgotten."""
        history = self._history
        few = self.backlog > self._settings.history_versions // 4
        oldest = self._version <= history.first + len(history) // 4
        return few or (self.backlog > 0 and oldest and history.is_tight)

    def _pump(self) -> None:
        """Send what the pace allows."""
        if not (self._repairs or self._version <= self.ready) or self._is_changing:
            return
        seen = self._slowest_floor()
        if seen is None:
            return
        for _ in range(BURST):
            if self.sequence - seen >= self.pace.window:
                self.pace.limiting = True
                # If what asked for reports was lost, everything waits for the next that asks.
                trip = max(each.trip for each in self.followers.values())
                self._pause = min(self._pause, max(SOONEST, 3 * trip))
                return
            if not (self._send_repair() or self._send_new()):
                return
        if self._turn is None:
            self._turn = self._env.call_later(0, self._next_turn)

    def _send_new(self) -> bool:
        room = self._way.room(ALL)
        if not room or self._version > self.ready:
            return False
        if self._version < self._history.first:
            self._version, self._unit = self._history.first, 0
        packet, room = self._begin_packet(room)
        while self._version <= self.ready:
            envelope = self._history.get(self._version)
            assert envelope is not None
            length = _fitting(envelope, self._unit, None, room)
            if not length:
                break
            self._add(packet, self._version, envelope, self._unit, length)
            room -= RECORD.size + length
            self._unit += -(-length // UNIT)
            if self._unit * UNIT < len(envelope):
                break
            self._version, self._unit = self._version + 1, 0
        self._finish_packet(ALL, packet)
        return True

    def _send_repair(self) -> bool:
        while self._repairs:
            version, repair = next(iter(self._repairs.items()))
            to = repair.to
            room = self._way.room(to) or self._way.room(to := ALL)
            if not room:
                return False
            if self._history.get(version) is None or not repair.listeners:
                del self._repairs[version]
                continue
            packet, room = self._begin_packet(room)
            empty = len(packet)
            for version, repair in list(self._repairs.items()):
                if repair.to != to and to != ALL:
                    break
                room = self._add_repair(packet, version, repair, room)
                if 1 in repair.wanted:
                    break
                del self._repairs[version]
            if len(packet) > empty:
                self._finish_packet(to, packet)
                return True
        return False

    def _add_repair(self, packet: bytearray, version: int, repair: Repair, room: int) -> int:
        """Add what is wanted of a version while there is room; the room that is left."""
        envelope = self._history.get(version)
        if envelope is None:
            repair.wanted[:] = bytes(len(repair.wanted))
            return room
        begin = repair.wanted.find(1)
        while begin >= 0:
            end = repair.wanted.find(0, begin)
            length = _fitting(envelope, begin, None if end < 0 else end, room)
            if not length:
                break
            self._add(packet, version, envelope, begin, length)
            room -= RECORD.size + length
            count = -(-length // UNIT)
            repair.wanted[begin : begin + count] = bytes(count)
            begin = repair.wanted.find(1, begin + count)
        return room

    def _begin_packet(self, room: int) -> tuple[bytearray, int]:
        self.sequence += 1
        named = self.sequence % SAMPLE == 0
        asks = self.pace.asks(self.sequence)
        if asks:
            self._asks()
        packet = bytearray(
            HEAD.pack(self.tag, self.sequence, (ANSWER if asks else 0) | (NAMED if named else 0))
        )
        if named:
            packet += self.sid + self.rid
        return packet, room - len(packet)

    def _add(
        self, packet: bytearray, version: int, envelope: bytes, unit: int, length: int
    ) -> None:
        begin = unit * UNIT
        packet += RECORD.pack(version, unit, len(envelope), length)
        packet += envelope[begin : begin + length]
        sent = self._sent.get(version)
        if sent is None:
            self._forget_what_is_gone()
            sent = self._sent[version] = array("Q", bytes(8 * _units(envelope)))
        count = -(-length // UNIT)
        if count == 1:
            sent[unit] = self.sequence
        else:
            sent[unit : unit + count] = array("Q", [self.sequence]) * count
        self.pace.sent(count)

    def _finish_packet(self, to: str, packet: bytearray) -> None:
        self._way.send(to, bytes(packet), self.sequence % SAMPLE == 0)

    def _forget_what_is_gone(self) -> None:
        if self.remembered >= len(self._history):
            first = self._history.first
            self._sent = {v: sent for v, sent in self._sent.items() if v >= first}
            self._repairs = {v: repair for v, repair in self._repairs.items() if v >= first}

    # Asking

    def _asks(self) -> None:
        # Where it is asked twice, nobody knows which of the two is answered.
        first = self.sequence not in self._asked
        self._asked[self.sequence] = self._env.now() if first else None
        if len(self._asked) > 64:
            del self._asked[next(iter(self._asked))]
        self.pace.asked(self.sequence, self.followers, self._env.now())

    def _say(self, to: str, answer_ms: int | None) -> None:
        history = self._history
        self._way.tell(
            to,
            Latest(
                self._env.node,
                self._life(),
                self.sid,
                self.rid,
                history.publisher,
                self._epoch,
                history.first,
                # What was never sent is not lost.
                min(self.ready, self._version if self._unit else self._version - 1),
                self.sequence,
                answer_ms,
            ),
        )

    @property
    def _shortest_pause(self) -> int:
        """Many listeners are asked less often, because each of them answers."""
        return self._settings.beacon_interval * (16 + len(self.followers)) // 16

    def _expect_reports(self) -> None:
        """Ask, in a while, who has not said that it has everything."""
        due = self._env.now() + self._pause
        if self._beacon is not None and self._beacon_due > due:
            self._beacon.cancel()
            self._beacon = None
        if self._beacon is None and not self.complete:
            self._beacon_due = due
            self._beacon = self._env.call_later(self._pause, self._ask)

    def _ask(self) -> None:
        self._beacon = None
        if self.complete:
            return
        if self._is_changing:
            self._expect_reports()
            return
        self._asks()
        # Many listeners do not answer all at once.
        self._say(ALL, min(200, len(self.followers) // 8))
        longest = max(self._settings.longest_pause, self._shortest_pause)
        self._pause = min(longest, 2 * self._pause)
        self._expect_reports()


def _units(envelope: bytes) -> int:
    return -(-len(envelope) // UNIT)


def _fitting(envelope: bytes, unit: int, end: int | None, room: int) -> int:
    """How many bytes from a unit on, up to the end or that of the envelope, fit into a record."""
    room -= RECORD.size
    size = len(envelope) if end is None else min(len(envelope), end * UNIT)
    left = size - unit * UNIT
    # The length of a record has two bytes.
    return left if left <= min(room, 65_535) else max(0, min(room, 65_535) // UNIT * UNIT)


def _mark_lost(wanted: bytearray, sent: array[int] | None, begin: int, end: int, floor: int) -> int:
    """Mark units that were sent no later than `floor`; how many were not marked before."""
    before = wanted.count(1, begin, end)
    if sent is None:
        wanted[begin:end] = b"\1" * (end - begin)
    else:
        unit = wanted.find(0, begin, end)
        while unit >= 0:
            if sent[unit] <= floor:
                wanted[unit] = 1
            unit = wanted.find(0, unit + 1, end)
    return wanted.count(1, begin, end) - before
