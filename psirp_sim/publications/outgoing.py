"""What of a stream is to be sent: what is new, and what listeners have lost.

Of every unit it is known in which packet it was last sent. A listener that misses a unit, and has
seen a later packet than that, has lost it; it is sent again, to all when several have.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from itertools import takewhile

from psirp_sim.publications.history import History
from psirp_sim.wire.publications import RECORD, UNIT

ALL = ""
"""As a destination: every listener."""
LONGEST_RECORD = 65_535
MOST_REPAIRED = 1_024
"""Repairs to single listeners that are remembered before the old ones are looked for."""
SLACK = 16
"""Versions that may be remembered after they are gone, besides as many as there are."""


@dataclass(slots=True, eq=False)
class Repair:
    """What listeners miss of one version, and has not been sent again yet."""

    wanted: bytearray
    """For each unit, whether it is."""
    listeners: dict[str, None] = field(default_factory=dict)

    @property
    def to(self) -> str:
        return next(iter(self.listeners)) if len(self.listeners) == 1 else ALL


class Outgoing:
    """The units of one stream."""

    def __init__(self, history: History) -> None:
        self._history = history
        self.version, self.unit = history.latest + 1, 0
        """Where what was never sent begins."""
        self._sent: dict[int, array[int]] = {}
        """For each unit of a version, the sequence of the packet it was last sent in."""
        self._repairs: dict[int, Repair] = {}
        self._repaired: dict[tuple[int, str], int] = {}
        """The sequence of the last packet in which a version was sent again to one listener."""

    @property
    def remembered(self) -> int:
        """Versions of which it is known when they were sent, or that are to be sent again."""
        return max(len(self._sent), len(self._repairs))

    @property
    def latest_sent(self) -> int:
        """The latest version of which anything was sent."""
        return self.version if self.unit else self.version - 1

    @property
    def has_lost(self) -> bool:
        """Whether anything is to be sent again."""
        return bool(self._repairs)

    def begin_epoch(self) -> None:
        """The history is that of another epoch."""
        self._sent.clear()
        self._repairs.clear()
        self._repaired.clear()
        self.version, self.unit = self._history.first, 0

    def skip_to(self, version: int) -> None:
        """Nobody listens: what comes before need not be sent."""
        self.version, self.unit = version, 0
        self._repairs.clear()

    def clear(self) -> None:
        """Nothing is to be sent again."""
        self._repairs.clear()

    def gone(self, listener: str) -> None:
        """Nothing need be sent again for that listener."""
        for repair in self._repairs.values():
            repair.listeners.pop(listener, None)
        for key in [each for each in self._repaired if each[1] == listener]:
            del self._repaired[key]

    # What was lost

    def lost(
        self, listener: str, floor: int, version: int, begin: int, end: int | None
    ) -> tuple[int, bool]:
        """Of these units the listener misses all, and has seen the packets up to `floor`: how many
        are to be sent again because of it, and whether they had been sent before."""
        envelope = self._history.get(version)
        if envelope is None or version > self.latest_sent:
            return 0, False
        end = min(_units(envelope), _units(envelope) if end is None else end)
        if version == self.version:
            end = min(end, self.unit)
        if begin >= end or self._repaired.get((version, listener), 0) > floor:
            return 0, False
        repair = self._repairs.get(version) or Repair(bytearray(_units(envelope)))
        sent = self._sent.get(version)
        count = _mark(repair.wanted, sent, begin, end, floor)
        if count:
            self._repairs[version] = repair
        if version in self._repairs and 1 in repair.wanted[begin:end]:
            repair.listeners[listener] = None
        return count, sent is not None

    def sort(self) -> None:
        """Listeners hand on in order: what is oldest is needed first."""
        self._repairs = dict(sorted(self._repairs.items()))

    def next_repair(self) -> str | None:
        """To whom the next units are to be sent again; None when none are."""
        while self._repairs:
            version, repair = next(iter(self._repairs.items()))
            if self._history.get(version) is not None and repair.listeners:
                return repair.to
            del self._repairs[version]
        return None

    # Packets

    def add_new(self, packet: bytearray, room: int, ready: int, sequence: int) -> int:
        """Add what was never sent, up to the version that may be; how many units."""
        if self.version < self._history.first:
            self.version, self.unit = self._history.first, 0
        added = 0
        while self.version <= ready:
            envelope = self._history.get(self.version)
            assert envelope is not None
            length = _fitting(envelope, self.unit, None, room)
            if not length:
                break
            added += self._add(packet, self.version, envelope, self.unit, length)
            self._note(self.version, envelope, self.unit, length, sequence)
            room -= RECORD.size + length
            self.unit += -(-length // UNIT)
            if self.unit * UNIT < len(envelope):
                break
            self.version, self.unit = self.version + 1, 0
        return added

    def add_lost(self, packet: bytearray, room: int, to: str, sequence: int) -> int:
        """Add what is to be sent again to that destination; how many units."""
        added = 0
        for version, repair in list(self._repairs.items()):
            if repair.to != to and to != ALL:
                break
            before = len(packet)
            added += self._add_repair(packet, version, repair, room, to, sequence)
            room -= len(packet) - before
            if 1 in repair.wanted:
                break
            del self._repairs[version]
        return added

    def _add_repair(
        self, packet: bytearray, version: int, repair: Repair, room: int, to: str, sequence: int
    ) -> int:
        envelope = self._history.get(version)
        if envelope is None:
            repair.wanted[:] = bytes(len(repair.wanted))
            return 0
        added = 0
        begin = repair.wanted.find(1)
        while begin >= 0:
            end = repair.wanted.find(0, begin)
            length = _fitting(envelope, begin, None if end < 0 else end, room)
            if not length:
                break
            count = self._add(packet, version, envelope, begin, length)
            if to == ALL:
                self._note(version, envelope, begin, length, sequence)
            else:
                # For the others it is not under way.
                self._repaired[version, to] = sequence
            room -= RECORD.size + length
            added += count
            repair.wanted[begin : begin + count] = bytes(count)
            begin = repair.wanted.find(1, begin + count)
        return added

    def _add(self, packet: bytearray, version: int, envelope: bytes, unit: int, length: int) -> int:
        begin = unit * UNIT
        packet += RECORD.pack(version, unit, len(envelope), length)
        packet += envelope[begin : begin + length]
        return -(-length // UNIT)

    def _note(self, version: int, envelope: bytes, unit: int, length: int, sequence: int) -> None:
        """These units are under way to everybody."""
        sent = self._sent.get(version)
        if sent is None:
            self._forget_what_is_gone()
            sent = self._sent[version] = array("Q", bytes(8 * _units(envelope)))
        count = -(-length // UNIT)
        if count == 1:
            sent[unit] = sequence
        else:
            sent[unit : unit + count] = array("Q", [sequence]) * count

    def _forget_what_is_gone(self) -> None:
        first = self._history.first
        # Mostly the oldest come first; all are looked at only when that does not keep it short.
        for version in list(takewhile(lambda version: version < first, self._sent)):
            del self._sent[version]
        if self.remembered > 2 * len(self._history) + SLACK:
            self._sent = {v: sent for v, sent in self._sent.items() if v >= first}
            self._repairs = {v: repair for v, repair in self._repairs.items() if v >= first}
        if len(self._repaired) > 4 * len(self._history) + MOST_REPAIRED:
            self._repaired = {k: s for k, s in self._repaired.items() if k[0] >= first}


def _units(envelope: bytes) -> int:
    return -(-len(envelope) // UNIT)


def _fitting(envelope: bytes, unit: int, end: int | None, room: int) -> int:
    """How many bytes from a unit on, up to the end or that of the envelope, fit into a record."""
    room = min(room - RECORD.size, LONGEST_RECORD)
    size = len(envelope) if end is None else min(len(envelope), end * UNIT)
    left = size - unit * UNIT
    return left if left <= room else max(0, room // UNIT * UNIT)


def _mark(wanted: bytearray, sent: array[int] | None, begin: int, end: int, floor: int) -> int:
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
