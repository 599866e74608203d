"""A stream at a listener: what has come, what is missing, and asking for it.

One stream has one reception, however many subscribe to it here. It knows the stream by what the
rendezvous and the publisher say of it (`hear`, `latest`) and by its packets. A hole in the
sequence of the packets, or a version that the publisher says exists and that has not come, is
asked for: soon when it is noticed, then at growing intervals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from psirp_sim.publications.assembly import Assembly, WaitingRoom
from psirp_sim.publications.envelope import Keys, Spoiled, Verdict, judge, open_envelope
from psirp_sim.publications.reports import Origin, missing
from psirp_sim.publications.settings import PublicationSettings
from psirp_sim.runtime.durations import MILLISECOND, SECOND
from psirp_sim.runtime.environment import Environment, Timer
from psirp_sim.wire.publications import (
    Header,
    Latest,
    Packet,
    Record,
    Report,
    records_of,
    tag_of,
)
from psirp_sim.wire.sealing import FabricKeys

AHEAD = 2_048
"""Versions beyond the first that is missing which are taken in, or asked for."""
BETWEEN_REPORTS = MILLISECOND
OVERTAKEN = 65_536
"""Packets that may overtake a message; a sequence further ahead was made up by somebody."""
TRIES = 3
"""Of a version that nobody with authority seems to have made."""
SHARE = 4
"""One stream may use a part of the waiting room for what cannot be handed on yet."""


class Reception:
    """The listener's end of a stream, through all its epochs."""

    def __init__(
        self,
        env: Environment,
        settings: PublicationSettings,
        keys: FabricKeys,
        room: WaitingRoom,
        sid: bytes,
        rid: bytes,
        publisher: bytes,
        *,
        life: Callable[[], int],
        zone: Callable[[bytes], Keys | None],
        tell: Callable[[str, Report], None],
        changed: Callable[[Reception], None],
        dropped: Callable[[Reception, int, str, Header | None, int], None],
        counters: Counter[str],
    ) -> None:
        """`life` is the number of this node's; `zone` knows the keys of a scope's zone; `tell`
        sends to a publishing node; `changed` is called when a version is complete, or more is
        known of the stream; `dropped` with a version that is thrown away, why, its header where
        that is known, and its size."""
        self._env = env
        self._settings = settings
        self._keys = keys
        self._room = room
        self._life = life
        self._zone = zone
        self._tell = tell
        self._changed = changed
        self._dropped = dropped
        self._counters = counters
        self.sid, self.rid, self.publisher = sid, rid, publisher
        self.epoch = -1
        """Before anything was heard of it."""
        self.tag = b""
        self.origins: dict[str, Origin] = {}
        """Those that publish the present epoch."""
        self.first = 0
        """The oldest version that can still be had."""
        self.latest = 0
        self.needed: int | None = None
        """The oldest version that somebody here wants; None when nobody wants any."""
        self.is_ending = False
        """Whether its publishers have withdrawn it, and it may still be offered anew."""
        self.held: dict[int, Assembly] = {}
        self._held_bytes = 0
        self._timer: Timer | None = None
        self._due = 0
        self._tries = 0
        self._undecided: Timer | None = None
        """While the keys of the zone are not known."""
        self._front = 0
        """Everything from `needed` up to this has come."""
        self._too_early: set[int] = set()
        """Versions that there was no room for as long as an earlier one is needed."""
        self._full_until = 0
        """There was no room for something new, and nothing new is asked for."""
        self._refusals: Counter[int] = Counter()
        """How often a version was refused."""

    # What is said of the stream

    def hear(self, node: str, life: int, epoch: int, latest: int) -> None:
        """A node publishes the stream, and is that far."""
        if epoch < self.epoch:
            self._counters["outdated_epoch"] += 1
            return
        if epoch > self.epoch:
            self._begin_epoch(epoch)
        origin = self.origins.get(node)
        if origin is None or life > origin.life:
            self.origins[node] = Origin(life)
        self.is_ending = False
        self.latest = max(self.latest, latest)

    def said(self, message: Latest) -> None:
        """The publisher says how far it is."""
        self.hear(message.node, message.life, message.epoch, message.latest)
        origin = self.origins.get(message.node)
        if message.epoch < self.epoch or origin is None or message.life < origin.life:
            return
        if not message.sequence <= origin.seen < message.sequence + OVERTAKEN:
            origin.seen = message.sequence
        origin.sure = origin.seen
        # What nobody has published does not come: somebody made it up.
        for version in [v for v in self.held if v > max(self.latest, message.latest)]:
            self._let_go(version)
        origin.first = max(origin.first, message.first)
        self.first = max(self.first, min(each.first for each in self.origins.values()))
        self._changed(self)
        if message.answer_ms is None:
            self.ask_soon(0)
        elif message.answer_ms == 0:
            self._report(message.node, message.sequence)
        else:
            delay = self._env.random.randrange(message.answer_ms * MILLISECOND)
            self._env.call_later(delay, self._answer, message.node, message.sequence, self.tag)

    def left(self, node: str, for_good: bool) -> None:
        """The node does not publish it any more; or it cannot be reached, and may come back."""
        self.origins.pop(node, None)
        if self.origins:
            return
        for version in [v for v, each in self.held.items() if each.header is None]:
            self._let_go(version)
        self.is_ending = for_good

    def end(self) -> None:
        """Nobody publishes it any more: what has not come cannot be had."""
        if self.is_ending and not self.origins:
            self.first = self.latest + 1
            self.is_ending = False

    def _begin_epoch(self, epoch: int) -> None:
        self.release_before(None)
        self.epoch = epoch
        self.tag = tag_of(self.sid, self.rid, self.publisher, epoch)
        self.origins.clear()
        self.first = self.latest = self._front = 0
        self._tries = 0

    # What has come

    def came(self, packet: Packet) -> None:
        """A packet of the stream."""
        node, origin = self._origin_of(packet.sequence)
        reorder = self._settings.reorder
        if origin is not None and origin.saw(packet.sequence, self._env.now(), reorder):
            self.ask_soon(reorder)
        completed = False
        for record in list(records_of(packet.records)):  # all of them make sense, or none counts
            completed = self._take(record) or completed
        if completed:
            self._changed(self)
        if packet.answer and origin is not None:
            self._answer_soon(node, origin, packet.sequence)

    def _answer_soon(self, node: str, origin: Origin, sequence: int) -> None:
        """Anyone on the way can ask for reports: they do not come faster than they are of use."""
        wait = origin.reported + BETWEEN_REPORTS - self._env.now()
        if wait <= 0:
            self._report(node, sequence)
        elif origin.owed is None:
            origin.owed = sequence
            self._env.call_later(wait, self._pay, node, self.tag)
        else:
            origin.owed = sequence

    def _pay(self, node: str, tag: bytes) -> None:
        origin = self.origins.get(node)
        if origin is not None and origin.owed is not None and tag == self.tag:
            self._report(node, origin.owed)

    def _origin_of(self, sequence: int) -> tuple[str, Origin | None]:
        """Packets do not say who sent them; where several might have, the likeliest."""
        if not self.origins:
            return "", None
        if len(self.origins) == 1:
            return next(iter(self.origins.items()))
        return min(self.origins.items(), key=lambda each: abs(each[1].seen - sequence))

    def _take(self, record: Record) -> bool:
        """Whether it completes a version."""
        version = record.version
        if self.needed is None or version < self.needed:
            return False
        assembly = self.held.get(version)
        if assembly is not None and assembly.header is not None:
            return False
        if assembly is not None and assembly.size != record.size:
            self._counters["conflicts"] += 1
            self._let_go(version)
            assembly = None
        if assembly is None:
            assembly = self._admit(version, record.size)
        if assembly is None:
            self._counters["no_room"] += 1
            return False
        if not assembly.add(record.unit, record.piece):
            self._counters["repeated_records"] += 1
            return False
        self._tries = 0
        self._room.touch(assembly, self._env.now())
        return assembly.left == 0 and self._complete(version, assembly)

    def _has_room(self, version: int, size: int) -> bool:
        if version == self.needed:
            return True
        assert self.needed is not None
        share = self._room.limit // SHARE
        return version < self.needed + AHEAD and self._held_bytes + size <= share

    def _admit(self, version: int, size: int) -> Assembly | None:
        if not self._has_room(version, size):
            self._too_early.add(version)
            return None
        now = self._env.now()
        assembly = Assembly(size, lambda: self._evicted(version), lambda: version == self.needed)
        if not self._room.admit(assembly, now):
            self._full_until = now + self._settings.ask_interval
            return None
        self.held[version] = assembly
        self._held_bytes += size
        return assembly

    def _evicted(self, version: int) -> None:
        self._counters["evicted"] += 1
        self._held_bytes -= self.held.pop(version).size
        self._front = min(self._front, version)

    def _let_go(self, version: int) -> None:
        assembly = self.held.pop(version)
        self._held_bytes -= assembly.size
        self._front = min(self._front, version)
        self._room.release(assembly)

    def _complete(self, version: int, assembly: Assembly) -> bool:
        header: Header | None = None
        try:
            header, content = open_envelope(self._keys, bytes(assembly.data))
            if self._is_other(header, version):
                raise Spoiled("the envelope is of another publication")
        except Spoiled:
            self._counters["spoiled"] += 1
            self._dropped(self, version, "spoiled", header, assembly.size)
            self._let_go(version)
            self.ask_soon(self._settings.ask_interval)
            return False
        assembly.complete(header, content)
        self.latest = max(self.latest, version)
        return True

    def _is_other(self, header: Header, version: int) -> bool:
        mine = (self.sid, self.rid, self.publisher, self.epoch, version)
        named = (header.sid, header.rid, header.publisher, header.epoch, header.version)
        return mine != named

    # What is handed on

    def ripe(self, version: int) -> Assembly | None:
        """The version, if it is complete and it is known whether it may be handed on."""
        assembly = self.held.get(version)
        if assembly is None or assembly.header is None:
            return None
        if assembly.judged:
            return assembly
        verdict = judge(assembly.header, self._zone(self.sid), self._settings.accept_unsigned)
        if verdict is Verdict.UNDECIDED:
            if self._undecided is None:
                self._undecided = self._env.call_later(SECOND, self._decide)
            return None
        if not verdict.good:
            return self._refuse(version, assembly, verdict)
        assembly.judged = True
        assembly.signed = verdict is Verdict.SIGNED
        return assembly

    def _refuse(self, version: int, assembly: Assembly, verdict: Verdict) -> Assembly | None:
        """Another node may have slipped it in before the true one came: ask again, then pass."""
        self._counters[verdict.value] += 1
        self._dropped(self, version, verdict.value, assembly.header, len(assembly.content))
        self._refusals[version] += 1
        if self._refusals[version] < TRIES:
            self._let_go(version)
            self.ask_soon(self._settings.ask_interval)
            return None
        assembly.judged = assembly.refused = True
        return assembly

    def _decide(self) -> None:
        self._undecided = None
        self._changed(self)

    @property
    def is_crowded(self) -> bool:
        """Whether what waits for the slowest leaves little room for the others."""
        return self._held_bytes > self._room.limit // SHARE // 2 or len(self.held) > AHEAD // 2

    def lost_from(self, version: int) -> int:
        """The last of the versions from this on that cannot be had; the one before it if it can."""
        last = self.first - 1
        for held, assembly in self.held.items():
            if version <= held <= last and assembly.header is not None:
                last = held - 1
        return max(last, version - 1)

    def need(self, version: int | None) -> None:
        """Nothing before this version is wanted here; None: nothing at all."""
        if version != self.needed:
            if version is None or self.needed is None or version < self.needed:
                self._front = 0
            self.needed = version
            self.release_before(version)
            self._too_early.clear()
        if version is not None and self._misses():
            self.ask_soon(0 if self._timer is None else self._settings.ask_interval)

    def release_before(self, version: int | None) -> None:
        """Let go of what nobody wants any more; None: of everything."""
        for each in [v for v in self.held if version is None or v < version]:
            self._let_go(each)
        for each in [v for v in self._refusals if version is None or v < version]:
            del self._refusals[each]

    def close(self) -> None:
        """Nobody listens any more."""
        self.release_before(None)
        self.needed = None
        for timer in (self._timer, self._undecided):
            if timer is not None:
                timer.cancel()
        self._timer = self._undecided = None

    # Asking

    def ask_soon(self, delay: int) -> None:
        """Ask for what is missing by then, unless that was going to happen earlier."""
        due = self._env.now() + delay
        if self._timer is not None:
            if self._due <= due:
                return
            self._timer.cancel()
        self._due = due
        self._timer = self._env.call_later(delay, self._ask)

    def _ask(self) -> None:
        self._timer = None
        if not self._misses():
            return
        nodes = list(self.origins)
        node = nodes[self._tries % len(nodes)] if nodes else ""
        pause = self._settings.ask_interval << min(self._tries, 10)
        self._tries += 1
        self.ask_soon(min(pause, self._settings.longest_pause))
        if node:
            self._report(node, 0)

    def _answer(self, node: str, sequence: int, tag: bytes) -> None:
        if tag == self.tag and node in self.origins:
            self._report(node, sequence)

    def _misses(self) -> bool:
        return self.needed is not None and self._next() <= self._known()

    def _known(self) -> int:
        """The last version that has been heard of and may be asked for."""
        assert self.needed is not None
        return min(max(self.latest, max(self.held, default=0)), self.needed + AHEAD)

    def _next(self) -> int:
        """Everything before this version has come, or cannot be had."""
        assert self.needed is not None
        version = max(self.needed, self.first, self._front)
        while version in self.held and self.held[version].header is not None:
            version += 1
        self._front = version
        return version

    def _report(self, node: str, answers: int) -> None:
        if self.needed is None:
            return
        origin = self.origins[node]
        origin.reported, origin.owed = self._env.now(), None
        begin = self._next()
        versions, units = missing(self.held, begin, self._known(), self._takes)
        report = Report(
            node,
            self._env.node,
            self._life(),
            self.sid,
            self.rid,
            self.tag,
            origin.seen_for_sure(origin.reported, self._settings.reorder),
            answers,
            begin,
            versions,
            units,
        )
        self._tell(node, report)
        if (versions or units) and self._timer is None:
            self.ask_soon(self._settings.ask_interval)

    def _takes(self, version: int) -> bool:
        """Whether there would be room for a version whose size is not known."""
        if version in self._too_early or self._env.now() < self._full_until:
            return False
        return self._has_room(version, self._room.limit // SHARE // 2)
