"""Cores on real sockets: one UDP socket a node, one remote address a link, asyncio around it.

The socket is read and written directly, in batches, when the event loop says it is ready:
asyncio's own datagram transports lose most packets under load.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path
from random import Random
from types import MappingProxyType, TracebackType
from typing import Self

from psirp_sim.runtime.durations import SECOND
from psirp_sim.runtime.environment import Core, CoreFactory
from psirp_sim.runtime.sqlite_storage import SqliteStorage
from traces import NullSink, TraceSink

Address = tuple[str, int]

BATCH = 256
"""Packets taken from the socket before the event loop gets its turn."""
SOCKET_BUFFER = 4 << 20
"""Bytes asked of the kernel for each direction; it may grant less."""
SEND_QUEUE = 1 << 20
"""Bytes that wait when the kernel takes no more; what comes on top is refused."""
MTU = 1_472
"""What fits into one Ethernet frame behind the IPv4 and UDP headers."""


@dataclass(slots=True)
class UdpCounters:
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
    core_errors: int = 0
    """Exceptions that left the core: each is a bug."""


class UdpLink:
    """Implements `environment.Link`."""

    __slots__ = ("_node", "address", "mtu", "name")

    def __init__(self, node: UdpNode, name: str, address: Address, mtu: int) -> None:
        self._node = node
        self.name = name
        self.address = address
        self.mtu = mtu

    def send(self, packet: bytes) -> bool:
        if len(packet) > self.mtu:
            self._node.counters.oversized += 1
            return False
        return self._node._send(packet, self.address)


class UdpTimer:
    """Implements `environment.Timer`."""

    __slots__ = ("args", "callback")

    def __init__(self, callback: Callable[..., None], args: tuple[object, ...]) -> None:
        self.callback: Callable[..., None] | None = callback
        self.args = args

    def cancel(self) -> None:
        self.callback = None


class UdpNode:
    """Implements `environment.Environment` for one core.

    >>> async with UdpNode("a", ("127.0.0.1", 4001)) as node:
    ...     node.add_link("b", ("127.0.0.1", 4002))
    ...     core = node.run(MyCore)
    ...     await asyncio.sleep(60)
    """

    now = staticmethod(time.monotonic_ns)
    wall = staticmethod(time.time_ns)

    def __init__(
        self,
        name: str,
        listen: Address,
        *,
        storage: Path | None = None,
        trace: TraceSink | None = None,
        seed: int | None = None,
    ) -> None:
        """Without a storage file the node keeps nothing beyond its life."""
        self.node = name
        self.random = Random(seed)
        self.trace: TraceSink = NullSink() if trace is None else trace
        self.counters = UdpCounters()
        self._links: dict[str, UdpLink] = {}
        self.links: Mapping[str, UdpLink] = MappingProxyType(self._links)
        self._by_address: dict[Address, str] = {}
        self._listen = listen
        self._largest = MTU
        self._storage_path = storage
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._log = logging.getLogger(f"psph.node.{name}")
        self._core: Core | None = None
        self._waiting: deque[tuple[bytes, Address]] = deque()
        self._waiting_bytes = 0
        self._timers: list[tuple[int, int, UdpTimer]] = []
        self._timer_count = 0
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_due = 0

    # Life

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        # Looked up here, once, so that no send ever waits for a name server.
        found = await self._loop.getaddrinfo(*self._listen, type=socket.SOCK_DGRAM)
        family, _, _, _, address = found[0]
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        try:
            self._socket.setblocking(False)
            for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                self._socket.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER)
            self._socket.bind(address)
            path = self._storage_path
            if path is None:
                self._scratch = tempfile.TemporaryDirectory()
                path = Path(self._scratch.name, "state")
            self.storage = SqliteStorage(path, self._report, self._guard)
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
        self._socket.close()
        # The last writes may take a while: other nodes of this loop go on meanwhile.
        await self._loop.run_in_executor(None, self.storage.stop_writing)
        self.storage.close()
        if self._scratch is not None:
            self._scratch.cleanup()

    @property
    def address(self) -> Address:
        """Where the node listens, with the port the system chose when none was asked for."""
        host, port = self._socket.getsockname()[:2]
        return host, port

    def add_link(self, name: str, address: Address, mtu: int = MTU) -> None:
        """Packets from that address (a literal one) arrive over a link of that name."""
        if name in self._links or address in self._by_address:
            raise ValueError(f"{self.node} has a link {name!r} or one to {address} already")
        self._links[name] = UdpLink(self, name, address, mtu)
        self._by_address[address] = name
        self._largest = max(link.mtu for link in self._links.values())

    def remove_link(self, name: str) -> None:
        """The neighbour is none any more."""
        del self._by_address[self._links.pop(name).address]

    def run(self, factory: CoreFactory) -> Core:
        """Make the core and start it."""
        core = self._core = factory(self)
        core.start()
        self._loop.add_reader(self._socket, self._drain)
        return core

    # The Environment

    def log(self, message: str, /, **fields: object) -> None:
        if self._log.isEnabledFor(logging.INFO):
            text = "".join(f" {key}={value}" for key, value in fields.items())
            self._log.info("%s%s", message, text)

    def call_later(self, delay: int, callback: Callable[..., None], *args: object) -> UdpTimer:
        timer = UdpTimer(callback, args)
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
        if timers and self._alarm is None:
            self._set_alarm(timers[0][0])

    # The socket

    def _drain(self) -> None:
        receive = self._socket.recvfrom
        names = self._by_address
        counters = self.counters
        limit = self._largest + 1
        for _ in range(BATCH):
            try:
                packet, source = receive(limit)
            except BlockingIOError:
                return
            except OSError:
                # An earlier packet was answered by an ICMP error; the socket itself is well.
                counters.send_errors += 1
                continue
            core = self._core
            if core is None:
                return
            name = names.get(source[:2])
            if name is None:
                counters.strangers += 1
            elif len(packet) > self._links[name].mtu:
                counters.oversized += 1
            else:
                counters.received += 1
                try:
                    core.receive(name, packet)
                except Exception:
                    self._core_failed()

    def _send(self, packet: bytes, address: Address) -> bool:
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

    def _queue(self, packet: bytes, address: Address) -> bool:
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
        self._log.exception("an exception left the core; the node goes on")
