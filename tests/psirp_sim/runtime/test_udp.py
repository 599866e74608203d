"""What only real sockets show: load, strangers, back-pressure, event loops, dying processes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys

import pytest

from psirp_sim.runtime import asyncio_node, loop, udp
from psirp_sim.runtime.sqlite_storage import StorageError
from psirp_sim.runtime.udp import UdpNode


class Counter:
    def __init__(self, env):
        self.env = env
        self.packets = []

    def start(self):
        pass

    def receive(self, link, packet):
        self.packets.append(packet)
        if packet == b"raise":
            raise RuntimeError("a bug in the core")

    def stop(self):
        pass


async def eventually(condition, seconds=20):
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


async def two_nodes(stack_body, host="127.0.0.1"):
    async with UdpNode("a", (host, 0)) as a, UdpNode("b", (host, 0)) as b:
        a.add_link("b", b.address)
        b.add_link("a", a.address)
        await stack_body(a, a.run(Counter), b, b.run(Counter))


def test_a_burst_within_the_socket_buffer_arrives_complete():
    """The kernel buffers it while nobody reads; then it is drained in batches."""

    async def body(a, _, b, receiver):
        count = 0
        granted = b._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        while count < min(2_000, granted // 2_400):
            assert a.links["b"].send(count.to_bytes(4) + bytes(296))
            count += 1
        await eventually(lambda: len(receiver.packets) == count)
        assert [int.from_bytes(packet[:4]) for packet in receiver.packets] == list(range(count))

    asyncio.run(two_nodes(body))


def test_packets_of_strangers_are_counted_and_dropped():
    async def body(a, core, *_):
        stranger = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with stranger:
            stranger.sendto(b"hello", a.address)
            await eventually(lambda: a.counters.strangers == 1)
        assert core.packets == []

    asyncio.run(two_nodes(body))


def test_an_oversized_packet_is_counted_and_dropped():
    async def body(a, _, b, receiver):
        a._socket.sendto(bytes(udp.MTU + 1), b.address)
        await eventually(lambda: b.counters.oversized == 1)
        assert receiver.packets == []

    asyncio.run(two_nodes(body))


def test_an_exception_in_the_core_is_counted_and_the_node_goes_on(caplog):
    async def body(a, _, b, receiver):
        a.links["b"].send(b"raise")
        a.links["b"].send(b"next")
        b.call_later(0, lambda: 1 / 0)
        await eventually(lambda: b.counters.core_errors == 2 and b"next" in receiver.packets)

    asyncio.run(two_nodes(body))
    assert "a bug in the core" in caplog.text


def test_when_the_kernel_takes_no_more_packets_wait_and_then_are_refused(monkeypatch):
    """A Unix datagram pair is full after a few packets, which UDP on loopback never is."""

    async def body(a, _, b, receiver):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        ours.setblocking(False)

        class FullSocket:
            """Sends over the pair instead of over UDP; everything else is the node's own."""

            def __init__(self, real):
                self.real = real

            def __getattr__(self, name):
                return getattr(self.real, name)

            def fileno(self):
                return ours.fileno()

            def sendto(self, packet, address):
                ours.send(packet)

        real = a._socket
        a._socket = FullSocket(real)
        monkeypatch.setattr(asyncio_node, "SEND_QUEUE", 10_000)
        answers = [a.links["b"].send(number.to_bytes(4) + bytes(996)) for number in range(2_000)]
        accepted = answers.count(True)
        assert a.counters.queued == 10
        assert a.counters.refused == 2_000 - accepted > 0
        received = []
        theirs.setblocking(False)
        async with asyncio.timeout(20):
            while len(received) < accepted:
                try:
                    received.append(int.from_bytes(theirs.recv(2_000)[:4]))
                except BlockingIOError:
                    await asyncio.sleep(0.001)
        assert received == list(range(accepted))
        a._loop.remove_writer(a._socket)
        a._socket = real
        ours.close()
        theirs.close()

    asyncio.run(two_nodes(body))


def test_ipv6():
    async def body(a, _, b, receiver):
        a.links["b"].send(b"six")
        await eventually(lambda: receiver.packets == [b"six"])

    asyncio.run(two_nodes(body, "::1"))


def test_links_come_and_go():
    async def body(a, core, b, receiver):
        a.remove_link("b")
        b.links["a"].send(b"unexpected")
        await eventually(lambda: a.counters.strangers == 1)
        a.add_link("bee", b.address)
        a.links["bee"].send(b"again")
        await eventually(lambda: receiver.packets == [b"again"])
        with pytest.raises(ValueError, match="already"):
            a.add_link("second", b.address)

    asyncio.run(two_nodes(body))


def test_a_busy_port_is_an_os_error_and_leaves_nothing_open():
    async def main():
        async with UdpNode("a", ("127.0.0.1", 0)) as a:
            with pytest.raises(OSError, match="in use"):
                await UdpNode("b", a.address).__aenter__()

    asyncio.run(main())


def test_a_file_that_is_no_storage_is_said(tmp_path):
    path = tmp_path / "state"
    path.write_text("this is no database, " * 100)

    async def main():
        with pytest.raises(StorageError, match="cannot be used for storage"):
            await UdpNode("a", ("127.0.0.1", 0), storage=path).__aenter__()

    asyncio.run(main())


def test_uvloop_runs_the_same_node():
    uvloop = pytest.importorskip("uvloop")

    async def main():
        async def body(a, _, b, receiver):
            a.links["b"].send(b"fast")
            rung = []
            a.call_later(3_000_000, rung.append, 1)
            await eventually(lambda: receiver.packets == [b"fast"] and rung == [1])

        await two_nodes(body)
        return type(asyncio.get_running_loop())

    assert loop.run(main()) is uvloop.Loop


WRITER = """
import asyncio, sys
from pathlib import Path
from psirp_sim.runtime.udp import UdpNode

class Writer:
    def __init__(self, env): self.env = env
    def start(self):
        found = list(self.env.storage.scan(b""))
        self.number = int.from_bytes(found[-1][0]) if found else 0
        self.write()
    def write(self):
        for _ in range(20):
            self.number += 1
            number = self.number
            pair = {number.to_bytes(8): bytes(500), b"": number.to_bytes(8)}
            self.env.storage.write(pair, lambda number=number: print(number, flush=True))
        self.env.call_later(1_000_000, self.write)
    def receive(self, link, packet): pass
    def stop(self): pass

async def main():
    async with UdpNode("w", ("127.0.0.1", 0), storage=Path(sys.argv[1])) as node:
        node.run(Writer)
        await asyncio.sleep(60)

asyncio.run(main())
"""


def test_what_was_reported_durable_survives_kill_9(tmp_path):
    path = tmp_path / "state"
    reported = 0
    for life in range(5):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(50 + 137 * life):
            reported = int(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)
        rest = process.stdout.read().split("\n")[:-1]  # the last line may be torn
        reported = max([reported, *map(int, rest)])
        process.stdout.close()
        process.wait()
        found = asyncio.run(_stored(path))
        numbers = [int.from_bytes(key) for key in found if key]
        assert numbers == list(range(1, len(numbers) + 1)), "a prefix, without holes"
        assert len(numbers) >= reported
        assert int.from_bytes(found[b""]) == len(numbers), "a batch is applied whole"


async def _stored(path):
    async with UdpNode("reader", ("127.0.0.1", 0), storage=path) as node:
        return dict(node.storage.scan(b""))
