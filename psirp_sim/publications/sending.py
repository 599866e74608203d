"""A stream on its way to its listeners: what is new, and what they missed.

New versions go out as far as the pace allows, one copy for all listeners, and so does what reports
say was lost (`outgoing`). While a listener has not said that it has
everything, it is asked, at growing intervals. A stream whose listeners have everything is silent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from psirp_sim.publications.history import History
from psirp_sim.publications.outgoing import ALL, Outgoing
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
GATHER = 3 * MILLISECOND
"""How long a loss is not mended, where there are others who may report it too."""
SOONEST = 5 * MILLISECOND
"""Before which nobody is asked again."""


class Way(Protocol):
    """How packets of a stream get to its listeners."""

    def room(self, to: str) -> int:
        """Bytes that a packet to that listener, or to all, holds; 0 while there is no way."""

    def send(self, to: str, payload: bytes, named: bool) -> None: ...

    def tell(self, to: str, message: Message) -> None: ...


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
        self._outgoing = Outgoing(history)
        self._asked: dict[int, int | None] = {}
        """When the packets were sent that asked for reports, by sequence; None: not clear when."""
        self._turn: Timer | None = None
        self._gathering: Timer | None = None
        """While reports of losses are waited for."""
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
        return self.ready + 1 - self._outgoing.version

    @property
    def remembered(self) -> int:
        """Versions of which it is known when they were sent, or that are to be sent again."""
        return self._outgoing.remembered

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
        self._outgoing.begin_epoch()
        for each in self.followers.values():
            each.next = 0
        self._behind = dict.fromkeys(self.followers)
        if self.followers:
            self._say(ALL, None)

    def _make_tag(self) -> bytes:
        return tag_of(self.sid, self.rid, self._history.publisher, self._epoch)

    def close(self) -> None:
        """Nothing is sent any more."""
        for timer in (self._turn, self._beacon, self._gathering):
            if timer is not None:
                timer.cancel()
        self.followers.clear()
        self._behind.clear()
        self._outgoing.clear()

    # Who listens

    def listeners_changed(self, listeners: Iterable[Listener]) -> None:
        """These listen now; or there is another way to them."""
        present = {each.node: each for each in listeners}
        for node in [each for each in self.followers if each not in present]:
            del self.followers[node]
            self._behind.pop(node, None)
            self.pace.gone(node)
            self._outgoing.gone(node)
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
        self._outgoing.skip_to(self.ready + 1)

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
        self._outgoing.sort()
        self.pace.reported(message.listener, follower)
        if self._outgoing.has_lost and len(self.followers) > 1 and self._gathering is None:
            # Others may have lost the same: then it is sent to all of them at once.
            self._gathering = self._env.call_later(GATHER, self._mend_now)
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
            for version in range(max(begin, first), min(end, self._outgoing.version) + 1):
                looked_at += 1
                if room <= 0 or looked_at > MOST_VERSIONS:
                    break
                room -= self._lost(follower, version, 0, None)
        for version, begin, end in message.units:
            too_old = too_old or version < first
            if room > 0:
                room -= self._lost(follower, version, begin, end + 1)
        if too_old:
            self._say(message.listener, None)

    def _units_of_a_packet(self) -> int:
        return max(1, self._way.room(ALL) // UNIT)

    def _lost(self, follower: Follower, version: int, begin: int, end: int | None) -> int:
        name, floor = follower.listener.node, follower.floor
        count, had_been_sent = self._outgoing.lost(name, floor, version, begin, end)
        follower.lost += count if had_been_sent else 0
        return count

    # Sending

    def _mend_now(self) -> None:
        self._gathering = None
        self._pump()

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
        oldest = self._outgoing.version <= history.first + len(history) // 4
        return few or (self.backlog > 0 and oldest and history.is_tight)

    def _pump(self) -> None:
        """Send what the pace allows."""
        if not (self._outgoing.has_lost or self.backlog > 0) or self._is_changing:
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
            if not ((self._gathering is None and self._send_repair()) or self._send_new()):
                return
        if self._turn is None:
            self._turn = self._env.call_later(0, self._next_turn)

    def _send_new(self) -> bool:
        room = self._way.room(ALL)
        if not room or self.backlog <= 0:
            return False
        packet = self._begin_packet()
        units = self._outgoing.add_new(packet, room - len(packet), self.ready, self.sequence)
        self._finish_packet(ALL, packet, units)
        return True

    def _send_repair(self) -> bool:
        to = self._outgoing.next_repair()
        if to is None:
            return False
        room = self._way.room(to) or self._way.room(to := ALL)
        if not room:
            return False
        packet = self._begin_packet()
        units = self._outgoing.add_lost(packet, room - len(packet), to, self.sequence)
        self._finish_packet(to, packet, units)
        return True

    def _begin_packet(self) -> bytearray:
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
        return packet

    def _finish_packet(self, to: str, packet: bytearray, units: int) -> None:
        self.pace.sent(units)
        self._way.send(to, bytes(packet), self.sequence % SAMPLE == 0)

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
                min(self.ready, self._outgoing.latest_sent),
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
