"""Many cores on one node: each has an Environment of its own, with a part of the node's storage.

A thousand clients would otherwise be a thousand databases, and as many threads, in one process.
Their writes share commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from random import Random

from psirp_sim.forwarding.table import ForwardingCounters, ForwardingTable
from psirp_sim.runtime.environment import Changes, Core, Link, Log, Storage, Timer
from psirp_sim.runtime.linkless import LinklessNode
from traces import TraceSink


class _Part:
    """Implements `environment.Storage` under a prefix."""

    def __init__(self, storage: Storage, prefix: bytes) -> None:
        self._storage = storage
        self._prefix = prefix
        self.epoch = storage.epoch

    def get(self, key: bytes) -> bytes | None:
        return self._storage.get(self._prefix + key)

    def scan(self, prefix: bytes) -> Iterable[tuple[bytes, bytes]]:
        size = len(self._prefix)
        return [(key[size:], value) for key, value in self._storage.scan(self._prefix + prefix)]

    def write(
        self, changes: Changes, done: Callable[[], None] | None = None, *, sync: bool = False
    ) -> None:
        prefixed = {self._prefix + key: value for key, value in changes.items()}
        self._storage.write(prefixed, done, sync=sync)


class Seat:
    """Implements `environment.Environment` for one of them; without a name it has all that is
    stored."""

    links: Mapping[str, Link]
    storage: Storage
    random: Random
    trace: TraceSink
    log: Log

    def __init__(self, node: LinklessNode, name: str) -> None:
        self.node = name
        self.links = {}
        self.storage = _Part(node.storage, f"{name}/".encode() if name else b"")
        self.random, self.trace, self.log = node.random, node.trace, node.log
        self.now, self.wall = node.now, node.wall
        self._node = node

    def call_later(self, delay: int, callback: Callable[..., None], *args: object) -> Timer:
        return self._node.call_later(delay, callback, *args)

    def install(self, table: ForwardingTable, counters: ForwardingCounters) -> None:
        """There is nothing to forward."""

    def inject(self, packet: bytes) -> bool:
        return False


class Seats:
    """The core of the node: all who sit there."""

    def __init__(self) -> None:
        self._cores: list[Core] = []

    def start(self) -> None:
        """Each is started when it comes."""

    def add(self, core: Core) -> None:
        self._cores.append(core)
        core.start()

    def remove(self, core: Core) -> None:
        """It goes before the others."""
        if core in self._cores:
            self._cores.remove(core)
            core.stop()

    def receive(self, link: str, packet: bytes) -> None:
        """Nothing comes: there are no links."""

    def stop(self) -> None:
        for core in self._cores:
            core.stop()
