"""Cores on real sockets: what every kind of link has in common.

An `AsyncioNode` is the Environment of one core under asyncio: clock, timers, storage, log, links,
and one datagram socket. Subclasses say which socket it is and how a packet finds its link:
`udp` over IP, `ethernet` without.

The socket is read and written directly, in batches, when the event loop says it is ready:
asyncio's own datagram transports lose most packets under load.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import tempfile
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path
from random import Random
from types import MappingProxyType, TracebackType
from typing import Any, Self

from psirp_sim.forwarding.table import ForwardingCounters, ForwardingTable
from psirp_sim.runtime.driver import LinkDriver
from psirp_sim.runtime.durations import SECOND
from psirp_sim.runtime.environment import Core, CoreFactory
from psirp_sim.runtime.sqlite_storage import SqliteStorage
from traces import LogEvent, NullSink, TraceSink

SocketAddress = Any
"""Whatever `socket.sendto` takes for the family of the socket."""
Tap = Callable[[bool, str, bytes], None]
"""Sees every packet that passes: whether it goes out, the name of the link, the packet."""

BATCH = 256
"""Packets taken from the socket before the event loop gets its turn."""
SOCKET_BUFFER = 4 << 20
"""Bytes asked of the kernel for each direction; it may grant less."""
SEND_QUEUE = 1 << 20
"""Bytes that wait when the kernel takes no more; what comes on top is refused."""


@dataclass(slots=True)
class SocketCounters:
    """What happened at the socket."""

    received: int = 0
    sent: int = 0
    strangers: int = 0
    """Packets from an address that is no link's."""
    oversized: int = 0
    queued: int = 0
    """Packets that had to wait for the kernel: back-pressure."""
    refused: int = 0
    """Packets turned away because the queue was full."""
    send_errors: int = 0
    lookup_errors: int = 0
    """Times the name of a neighbour's host led nowhere."""
    core_errors: int = 0
    """Exceptions that left the core: each is a bug."""


class SocketLink:
    """Implements `environment.Link`."""

    __slots__ = ("_node", "address", "mtu", "name")

    def __init__(self, node: AsyncioNode, name: str, address: SocketAddress, mtu: int) -> None:
        self._node = node
        self.name = name
        self.address = address
        self.mtu = mtu

    def send(self, packet: bytes) -> bool:
        node = self._node
        if len(packet) > self.mtu:
            node.counters.oversized += 1
            return False
        taken = node._send(packet, self.address)
        if taken and node.tap is not None:
            node._show(True, self.name, packet)
        return taken


class LoopTimer:
    """Implements `environment.Timer`."""

    __slots__ = ("args", "callback")

    def __init__(self, callback: Callable[..., None], args: tuple[object, ...]) -> None:
        self.callback: Callable[..., None] | None = callback
        self.args = args

    def cancel(self) -> None:
        self.callback = None


class AsyncioNode(ABC):
    """Implements `environment.Environment` for one core."""

    now = staticmethod(time.monotonic_ns)
    wall = staticmethod(time.time_ns)

    def __init__(
        self,
        name: str,
        *,
        storage: Path | None = None,
        trace: TraceSink | None = None,
        seed: int | None = None,
    ) -> None:
        """Without a storage file the node keeps nothing beyond its life."""
        self.node = name
        self.random = Random(seed)
        self.trace: TraceSink = NullSink() if trace is None else trace
        self.counters = SocketCounters()
        self.power_safe = False
        """Set before the node is opened: whether what is durable survives a power failure too."""
        self.tap: Tap | None = None
        """Taken off when it raises."""
        self._links: dict[str, SocketLink] = {}
        self.links: Mapping[str, SocketLink] = MappingProxyType(self._links)
        self.driver = LinkDriver(self._links)
        self._storage_path = storage
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._log = logging.getLogger(f"psph.node.{name}")
        self._core: Core | None = None
        self._waiting: deque[tuple[bytes, SocketAddress]] = deque()
        self._waiting_bytes = 0
        self._timers: list[tuple[int, int, LoopTimer]] = []
        self._timer_count = 0
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_due = 0

    @abstractmethod
    async def _open_socket(self) -> socket.socket:
        """A socket that is bound; the base class makes it non-blocking."""

    @abstractmethod
    def _drain(self) -> None:
        """The socket can be read: take some packets, and do for each what `_arrived` does."""

    # Life

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._socket = await self._open_socket()
        try:
            self._socket.setblocking(False)
            for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                self._socket.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER)
            path = self._storage_path
            if path is None:
                self._scratch = tempfile.TemporaryDirectory()
                path = Path(self._scratch.name, "state")
            self.storage = SqliteStorage(
                path, self._report, self._guard, power_safe=self.power_safe
            )
        except BaseException:
            self._socket.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._core is not None:
            self._guard(self._core.stop)
            self._core = None
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        if self._alarm is not None:
            self._alarm.cancel()
        self._timers.clear()
        self._close_socket()
        # The last writes may take a while: other nodes of this loop go on meanwhile.
        await self._loop.run_in_executor(None, self.storage.stop_writing)
        self.storage.close()
        if self._scratch is not None:
            self._scratch.cleanup()

    def run(self, factory: CoreFactory) -> Core:
        """Make the core and start it."""
        core = self._core = factory(self)
        core.start()
        self._loop.add_reader(self._socket, self._drain)
        return core

    def _close_socket(self) -> None:
        self._socket.close()

    @property
    def driver_name(self) -> str:
        """Which link driver is at work: "python", or "c" where there is such a one."""
        return "python"

    # The Environment

    def install(self, table: ForwardingTable, counters: ForwardingCounters) -> None:
        self.driver.install(table, counters)

    def inject(self, packet: bytes) -> bool:
        return self.driver.inject(packet)

    def log(self, message: str, /, **fields: object) -> None:
        if self._log.isEnabledFor(logging.INFO):
            self._log.info(LogEvent(message, **fields))

    def call_later(self, delay: int, callback: Callable[..., None], *args: object) -> LoopTimer:
        timer = LoopTimer(callback, args)
        due = self.now() + max(0, delay)
        self._timer_count += 1
        heappush(self._timers, (due, self._timer_count, timer))
        if self._alarm is None or due < self._alarm_due:
            self._set_alarm(due)
        return timer

    # Timers: a queue of our own, because the loop's is not in order for equal times

    def _set_alarm(self, due: int) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_due = due
        self._alarm = self._loop.call_later(max(0, due - self.now()) / SECOND, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        timers = self._timers
        last = self._timer_count  # a timer set by one of these waits for the next round
        now = self.now()
        postponed = []
        while timers and timers[0][0] <= now:
            entry = heappop(timers)
            if entry[1] > last:
                postponed.append(entry)
                continue
            timer = entry[2]
            if timer.callback is not None:
                callback, timer.callback = timer.callback, None
                self._guard(callback, *timer.args)
        for entry in postponed:
            heappush(timers, entry)
        while timers and timers[0][2].callback is None:
            heappop(timers)
        # One of these may have set the alarm for a timer of its own, later than the next one.
        if timers and (self._alarm is None or timers[0][0] < self._alarm_due):
            self._set_alarm(timers[0][0])

    # The socket

    def _arrived(self, link: str, packet: bytes) -> None:
        """A packet came over that link."""
        core = self._core
        if core is None:
            return
        self.counters.received += 1
        if self.tap is not None:
            self._show(False, link, packet)
        if self.driver.arrived(link, packet):
            try:
                core.receive(link, packet)
            except Exception:
                self._core_failed()

    def _send(self, packet: bytes, address: SocketAddress) -> bool:
        if self._waiting:
            return self._queue(packet, address)
        try:
            self._socket.sendto(packet, address)
        except BlockingIOError:
            return self._queue(packet, address)
        except OSError:
            self.counters.send_errors += 1
            return False
        self.counters.sent += 1
        return True

    def _queue(self, packet: bytes, address: SocketAddress) -> bool:
        if self._waiting_bytes + len(packet) > SEND_QUEUE:
            self.counters.refused += 1
            return False
        if not self._waiting:
            self._loop.add_writer(self._socket, self._send_waiting)
        self.counters.queued += 1
        self._waiting.append((packet, address))
        self._waiting_bytes += len(packet)
        return True

    def _send_waiting(self) -> None:
        while self._waiting:
            packet, address = self._waiting[0]
            try:
                self._socket.sendto(packet, address)
                self.counters.sent += 1
            except BlockingIOError:
                return
            except OSError:
                self.counters.send_errors += 1
            self._waiting.popleft()
            self._waiting_bytes -= len(packet)
        self._loop.remove_writer(self._socket)

    def _show(self, outgoing: bool, link: str, packet: bytes) -> None:
        assert self.tap is not None
        try:
            self.tap(outgoing, link, packet)
        except Exception:
            self.tap = None
            self._log.exception(LogEvent("tap.removed"))

    # Calls into the core

    def _report(self, completion: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(self._complete, completion)

    def _complete(self, completion: Callable[[], None]) -> None:
        if self._core is not None:
            completion()

    def _guard(self, callback: Callable[..., None], *args: object) -> None:
        try:
            callback(*args)
        except Exception:
            self._core_failed()

    def _core_failed(self) -> None:
        self.counters.core_errors += 1
        self._log.exception(LogEvent("core.failed"))
