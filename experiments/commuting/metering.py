"""An Environment whose callbacks are measured: what a core does on a timer, or when a write is
durable, is its work as well."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from random import Random

from experiments.commuting.worker import Worker
from psirp_sim.forwarding.table import ForwardingCounters, ForwardingTable
from psirp_sim.runtime.environment import Changes, Environment, Link, Log, Storage, Timer
from traces import TraceSink


class Metered:
    """Passes everything on."""

    def __init__(self, env: Environment, worker: Worker) -> None:
        self._env = env
        self._worker = worker
        self._storage = _MeteredStorage(env.storage, worker)

    @property
    def node(self) -> str:
        return self._env.node

    @property
    def links(self) -> Mapping[str, Link]:
        return self._env.links

    @property
    def storage(self) -> Storage:
        return self._storage

    @property
    def random(self) -> Random:
        return self._env.random

    @property
    def trace(self) -> TraceSink:
        return self._env.trace

    @property
    def log(self) -> Log:
        return self._env.log

    def now(self) -> int:
        return self._env.now()

    def wall(self) -> int:
        return self._env.wall()

    def call_later(self, delay: int, callback: Callable[..., None], *args: object) -> Timer:
        return self._env.call_later(delay, self._run, callback, args)

    def install(self, table: ForwardingTable, counters: ForwardingCounters) -> None:
        self._env.install(table, counters)

    def inject(self, packet: bytes) -> bool:
        return self._env.inject(packet)

    def _run(self, callback: Callable[..., None], args: tuple[object, ...]) -> None:
        self._worker.measured(lambda: callback(*args))


class _MeteredStorage:
    def __init__(self, storage: Storage, worker: Worker) -> None:
        self._storage = storage
        self._worker = worker
        self.epoch = storage.epoch

    def get(self, key: bytes) -> bytes | None:
        return self._storage.get(key)

    def scan(self, prefix: bytes) -> Iterable[tuple[bytes, bytes]]:
        return self._storage.scan(prefix)

    def write(
        self, changes: Changes, done: Callable[[], None] | None = None, *, sync: bool = False
    ) -> None:
        if done is None:
            self._storage.write(changes, sync=sync)
        else:
            report = done
            self._storage.write(changes, lambda: self._worker.measured(report), sync=sync)
