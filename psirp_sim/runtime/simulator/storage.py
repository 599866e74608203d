"""The disk of a simulated node: completed writes survive a crash, synced ones a power cut, others
perhaps."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from itertools import islice, takewhile
from random import Random

from psirp_sim.runtime.durations import MICROSECOND
from psirp_sim.runtime.environment import Changes
from psirp_sim.runtime.simulator.engine import Engine

WRITE_TIME = (20 * MICROSECOND, 400 * MICROSECOND)
"""Bounds of how long a write takes to become durable; ours, a commit to an SSD."""

WRITE_BACK = 64
"""Completed batches that the operating system may hold back from the disk."""

_Batch = dict[bytes, bytes | None]
_Done = Callable[[], None] | None


class SimulatedStorage:
    """Implements `environment.Storage`; outlives the lives of its node."""

    def __init__(
        self, engine: Engine, random: Random, report: Callable[[Callable[[], None]], None]
    ) -> None:
        """`report` runs a completion on the node, or keeps it while the node is paused."""
        self._engine = engine
        self._random = random
        self._report = report
        self.epoch = 1
        self.power_safe = False
        """Whether every write is synced."""
        self._disk: dict[bytes, bytes] = {}
        """What a power cut leaves for certain."""
        self._unsynced: deque[_Batch] = deque()
        """Completed since."""
        self._durable: dict[bytes, bytes] = {}
        """The disk with these: what a crash of the process leaves for certain."""
        self._visible: dict[bytes, bytes] = {}
        self._sorted: list[bytes] | None = None
        self._pending: deque[tuple[_Batch, _Done, bool]] = deque()
        self._last_completion = 0
        self._crashes = 0

    @property
    def pending(self) -> int:
        """Writes that have not been reported durable yet."""
        return len(self._pending)

    def durable(self, key: bytes) -> bytes | None:
        """What a crash now would leave for certain."""
        return self._durable.get(key)

    def get(self, key: bytes) -> bytes | None:
        return self._visible.get(key)

    def scan(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        if self._sorted is None:
            self._sorted = sorted(self._visible)
        first = bisect_left(self._sorted, prefix)
        found = takewhile(lambda key: key.startswith(prefix), islice(self._sorted, first, None))
        return [(key, self._visible[key]) for key in found]

    def write(self, changes: Changes, done: _Done = None, *, sync: bool = False) -> None:
        batch = dict(changes)
        self._apply(batch, self._visible)
        self._sorted = None
        self._pending.append((batch, done, sync))
        completes = self._engine.now + self._random.randint(*WRITE_TIME)
        self._last_completion = completes = max(completes, self._last_completion)
        self._engine.at(completes, self._complete, self._crashes)

    def crash(self) -> None:
        """The node died: keep some prefix of what was not yet reported."""
        for _ in range(self._random.randint(0, len(self._pending))):
            batch, _, sync = self._pending.popleft()
            self._keep(batch, sync)
        self._forget_unwritten()

    def cut_power(self) -> None:
        """The machine died: keep some prefix of what was not synced, too."""
        self.crash()
        if self.power_safe:
            return
        for _ in range(self._random.randint(0, len(self._unsynced))):
            self._apply(self._unsynced.popleft(), self._disk)
        self._unsynced.clear()
        self._durable = dict(self._disk)
        self._visible = dict(self._disk)
        self.epoch += 1

    def flush(self) -> None:
        """A clean shutdown: everything asked for becomes durable; nobody is left to be told."""
        for batch, _, _ in self._pending:
            self._keep(batch, sync=True)
        self._forget_unwritten()

    def wipe(self) -> None:
        """The disk is lost."""
        self._durable.clear()
        self._disk.clear()
        self._unsynced.clear()
        self.epoch = 1
        self._forget_unwritten()

    def _forget_unwritten(self) -> None:
        self._pending.clear()
        self._crashes += 1
        self._visible = dict(self._durable)
        self._sorted = None

    def _complete(self, crashes: int) -> None:
        if crashes != self._crashes:
            return
        batch, done, sync = self._pending.popleft()
        self._keep(batch, sync)
        if done is not None:
            self._report(done)

    def _keep(self, batch: _Batch, sync: bool) -> None:
        self._apply(batch, self._durable)
        self._unsynced.append(batch)
        most = 0 if sync or self.power_safe else WRITE_BACK
        while len(self._unsynced) > most:
            self._apply(self._unsynced.popleft(), self._disk)

    @staticmethod
    def _apply(batch: _Batch, state: dict[bytes, bytes]) -> None:
        for key, value in batch.items():
            if value is None:
                state.pop(key, None)
            else:
                state[key] = value
