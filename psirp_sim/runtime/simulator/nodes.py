"""A simulated node: a clock of its own, a disk that outlives it, and a core that may crash.

down --boot--> up <--pause/resume--> paused
  ^____________|______crash____________|
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from types import MappingProxyType
from typing import Protocol

from psirp_sim.runtime.driver import LinkDriver
from psirp_sim.runtime.durations import SECOND
from psirp_sim.runtime.environment import Core, CoreFactory
from psirp_sim.runtime.simulator.channels import Channel
from psirp_sim.runtime.simulator.engine import Engine
from psirp_sim.runtime.simulator.eventlog import EventLog
from psirp_sim.runtime.simulator.storage import SimulatedStorage
from traces import TraceSink

BEGINNING = 1_767_225_600 * SECOND
"""The wall clock at virtual time zero: 2026-01-01T00:00:00Z."""

RECEIVE_BUFFER = 212_992
"""Bytes that wait for a paused node, as in a Linux socket's default receive buffer."""

_BILLION = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Clock:
    """How far a node's clock is off, and how fast it goes astray."""

    skew: int = 0
    """Nanoseconds the wall clock is ahead of true time at the beginning."""
    drift: int = 0
    """Parts per billion the clock runs too fast (50 ppm are 50_000)."""

    def __post_init__(self) -> None:
        if not -_BILLION < self.drift < _BILLION:
            raise ValueError("a drift of 100 % or more is no clock")

    def elapsed(self, true: int) -> int:
        """What the clock makes of that much true time."""
        return true if not self.drift else true * (_BILLION + self.drift) // _BILLION

    def true_time_of(self, elapsed: int) -> int:
        """The first true time at which the clock shows at least that."""
        return elapsed if not self.drift else -(-elapsed * _BILLION // (_BILLION + self.drift))


class Runnable(Protocol):
    """The simulator's half that nodes need: time, the log, the sink."""

    engine: Engine
    log: EventLog
    trace: TraceSink


class SimulatedTimer:
    """A timer of one life of a node."""

    __slots__ = ("args", "callback", "life")

    def __init__(self, life: Life, callback: Callable[..., None], args: tuple[object, ...]) -> None:
        self.life = life
        self.callback: Callable[..., None] | None = callback
        self.args = args

    def cancel(self) -> None:
        self.callback = None
        self.args = ()

    def fire(self) -> None:
        life = self.life
        if self.callback is None or not life.alive:
            return
        node = life.host
        if node.paused:
            node.backlog.append((self.fire, ()))
            return
        callback, self.callback = self.callback, None
        node.world.log.firing(node.world.engine.now, node.number, node.name, callback)
        callback(*self.args)


class Life:
    """The Environment of one life, from a boot to the next crash.

    A core that died may still be referred to by packets, timers and completions under way;
    it is its life, not the node, that says whether they still count.
    """

    def __init__(self, host: SimulatedNode) -> None:
        self.host = host
        self.alive = True
        self.node = host.name
        self.links: Mapping[str, Channel] = MappingProxyType(host.channels)
        self.storage = host.storage
        self.random = host.random
        self.trace = host.world.trace
        self.driver = LinkDriver(host.channels)
        self.install = self.driver.install
        self.inject = self.driver.inject
        self._engine = host.world.engine
        self._clock = host.clock
        # A monotonic clock starts somewhere at each boot; nobody may compare across boots.
        self._started = host.random.randrange(3600 * SECOND) - self._clock.elapsed(self._engine.now)

    def now(self) -> int:
        return self._clock.elapsed(self._engine.now) + self._started

    def wall(self) -> int:
        return BEGINNING + self._clock.skew + self._clock.elapsed(self._engine.now)

    def call_later(
        self, delay: int, callback: Callable[..., None], *args: object
    ) -> SimulatedTimer:
        timer = SimulatedTimer(self, callback, args)
        engine = self._engine
        due = engine.now + max(0, delay)
        if self._clock.drift:
            due = self._clock.true_time_of(self._clock.elapsed(engine.now) + max(0, delay))
        engine.at(due, timer.fire)
        return timer

    def log(self, message: str, /, **fields: object) -> None:
        if self.alive:
            self.host.world.log.note(self._engine.now, self.node, message, fields)


class SimulatedNode:
    """What stays when the core dies: name, disk, clock, links and the way to start again."""

    def __init__(
        self,
        world: Runnable,
        number: int,
        name: str,
        factory: CoreFactory,
        clock: Clock,
        random: Random,
        storage_random: Random,
    ) -> None:
        self.world = world
        self.number = number
        self.name = name
        self.factory = factory
        self.clock = clock
        self.random = random
        self.storage = SimulatedStorage(world.engine, storage_random, self._run)
        self.channels: dict[str, Channel] = {}
        self.backlog: deque[tuple[Callable[..., None], tuple[object, ...]]] = deque()
        self.paused = False
        self.crash_cuts_power = False
        """Whether the machine dies whenever the process does, and its disk loses what was not
        synced."""
        self.core: Core | None = None
        self._life: Life | None = None
        self._waiting_bytes = 0

    @property
    def up(self) -> bool:
        """Booted and not crashed; a paused node is up."""
        return self._life is not None

    def boot(self) -> None:
        """Start a new life with what the disk holds."""
        if self._life is not None:
            return
        self._life = Life(self)
        self.core = self.factory(self._life)
        self.core.start()

    def crash(self) -> None:
        """Die at once: timers, memory and writes not yet durable are gone."""
        if self._life is None:
            return
        self._life.alive = False
        self._life = self.core = None
        self.paused = False
        self._forget_backlog()
        if self.crash_cuts_power:
            self.storage.cut_power()
        else:
            self.storage.crash()

    def shut_down(self) -> None:
        """Stop cleanly."""
        if self.core is not None:
            self.core.stop()
            self.storage.flush()
            self.crash()

    def pause(self) -> None:
        """Stand still as a stopped process does; what arrives waits in a bounded buffer."""
        self.paused = self.up

    def resume(self) -> None:
        """Catch up on what waited, one event after the other."""
        if not self.paused:
            return
        self.paused = False
        for callback, args in self.backlog:
            self.world.engine.at(self.world.engine.now, callback, *args)
        self._forget_backlog()

    def receive(self, channel: Channel, packet: bytes) -> None:
        """A packet reached this node; `Channel` calls it."""
        core = self.core
        if core is None or self._life is None:
            channel.counters.unheard += 1
        elif self.paused:
            if self._waiting_bytes + len(packet) > RECEIVE_BUFFER:
                channel.counters.unheard += 1
                return
            self._waiting_bytes += len(packet)
            self.backlog.append((self.receive, (channel, packet)))
        else:
            channel.counters.delivered += 1
            world = self.world
            world.log.arrival(world.engine.now, channel.number, channel.title, packet)
            if self._life.driver.arrived(channel.reverse_name, packet):
                core.receive(channel.reverse_name, packet)

    def _run(self, done: Callable[[], None]) -> None:
        assert self._life is not None  # a crash takes the completions under way with it
        self._complete(self._life, done)

    def _complete(self, life: Life, done: Callable[[], None]) -> None:
        if not life.alive:
            return
        if self.paused:
            self.backlog.append((self._complete, (life, done)))
        else:
            done()

    def _forget_backlog(self) -> None:
        self.backlog.clear()
        self._waiting_bytes = 0
