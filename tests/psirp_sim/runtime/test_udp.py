"""What only real sockets show: load, strangers, back-pressure, event loops, dying processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from random import Random

import pytest

from psirp_sim.forwarding.table import ForwardingCounters, compile_table, sent_on
from psirp_sim.runtime import asyncio_node, fastpath, loop, udp
from psirp_sim.runtime.sqlite_storage import StorageError
from psirp_sim.runtime.udp import UdpNode
from psirp_sim.wire.data import DataPacket
from psirp_sim.zfilters import Scheme, ZFilter, combine, link_id, link_tags
from tests.ports import free_port


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


async def eventually(condition, seconds=60):
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
        async with asyncio.timeout(60):
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


# Forwarding, by both drivers


class Router(Counter):
    """Installs the table of the links it is told about."""

    def __init__(self, env):
        super().__init__(env)
        self.counters = ForwardingCounters()

    def route(self, *links):
        self.env.install(compile_table("n", links, b"", Scheme()), self.counters)

    @property
    def counts(self):
        return {name: count for name, count in self.counters.as_dict().items() if count}


def towards(*links, packet_id=None):
    """A packet that goes out over links of these names, from a node n. Its id does not end with
    the byte that marks a sampled packet, which the core would see as well."""
    tags = (link_tags(link_id(b"", "n", link), 256, 5, 8)[0] for link in links)
    packet_id = packet_id or os.urandom(7) + b"\0"
    return DataPacket(ZFilter.bloom(256, 0, combine(tags)), packet_id, b"").encode()


def open_end(host="127.0.0.1", port=0):
    """The other end of a link."""
    opened = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    opened.bind((host, port))
    opened.setblocking(False)
    return opened


def arrived(end):
    packets = []
    with contextlib.suppress(BlockingIOError):
        while True:
            packets.append(end.recv(2_000))
    return packets


@contextlib.asynccontextmanager
async def router(accelerate, *links, host="127.0.0.1"):
    """A node with these links, its core, and the other ends by name."""
    async with UdpNode("n", (host, 0), accelerate=accelerate) as node:
        with contextlib.ExitStack() as stack:
            ends = {name: stack.enter_context(open_end(host)) for name in links}
            for name, end in ends.items():
                node.add_link(name, end.getsockname()[:2])
            core = node.run(Router)
            core.route(*links)
            assert node.driver_name == ("c" if accelerate else "python")
            yield node, core, ends


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_data_packets_are_forwarded_and_the_core_sees_the_rest(accelerate, host):
    async def body():
        async with router(accelerate, "a", "b", "c", host=host) as (node, core, ends):
            packet = towards("a", "b", "c")
            for data in (packet, packet, b"control", b""):
                ends["a"].sendto(data, node.address)
            await eventually(lambda: core.packets == [b"control", b""])
            assert arrived(ends["b"]) == arrived(ends["c"]) == [sent_on(packet)]
            assert arrived(ends["a"]) == []
            assert core.counts == {"received": 2, "forwarded": 2, "loop": 1}
            assert node.counters.received == 4
            assert node.counters.sent == 2

    asyncio.run(body())


def test_an_exception_in_a_core_that_forwards_is_counted(accelerate, caplog):
    async def body():
        async with router(accelerate, "a") as (node, core, ends):
            for data in (b"raise", b"next"):
                ends["a"].sendto(data, node.address)
            await eventually(lambda: core.packets == [b"raise", b"next"])
            assert node.counters.core_errors == 1

    asyncio.run(body())


def test_a_new_table_replaces_the_old_one_between_packets(accelerate):
    """Under load every packet goes by one table or by the other, never by both or by none."""

    async def body():
        async with router(accelerate, "in", "a", "b") as (node, core, ends):
            packets = set()
            got = {"a": [], "b": []}
            random = Random(1)
            for _ in range(200):
                core.route("in", random.choice("ab"))
                for _ in range(40):
                    packet = towards("a", "b")
                    packets.add(sent_on(packet))
                    ends["in"].sendto(packet, node.address)
                await asyncio.sleep(0)
                for name in got:
                    got[name] += arrived(ends[name])
            await eventually(lambda: node.counters.received == len(packets))
            for name in got:
                got[name] += arrived(ends[name])
                assert len(got[name]) > 1_000
            assert sorted(got["a"] + got["b"]) == sorted(packets)
            assert core.counts == {"received": len(packets), "forwarded": len(packets)}

    asyncio.run(body())


def test_links_come_and_go_under_a_table_that_has_them(accelerate):
    async def body():
        async with router(accelerate, "in", "a") as (node, core, ends):
            with open_end() as late:
                core.route("in", "a", "late")
                ends["in"].sendto(towards("late"), node.address)
                await eventually(lambda: core.counts.get("refused") == 1)
                node.add_link("late", late.getsockname())
                ends["in"].sendto(towards("late"), node.address)
                await eventually(lambda: core.counts.get("forwarded") == 1)
                assert len(arrived(late)) == 1
                assert node.inject(towards("late", "a")) is False
                assert len(arrived(late)) == len(arrived(ends["a"])) == 1
                node.remove_link("late")
                late.sendto(b"unexpected", node.address)
                ends["in"].sendto(towards("late"), node.address)
                await eventually(lambda: core.counts.get("refused") == 2)
                assert node.counters.strangers == 1
                assert arrived(late) == []

    asyncio.run(body())


def test_copies_too_large_for_a_link_are_refused(accelerate):
    async def body():
        async with router(accelerate, "in") as (node, core, ends):
            with open_end() as narrow:
                node.add_link("narrow", narrow.getsockname(), mtu=60)
                core.route("in", "narrow")
                large = towards("narrow") + bytes(100)
                ends["in"].sendto(large, node.address)
                await eventually(lambda: core.counts.get("refused") == 1)
                node.inject(large[:4] + bytes(8) + large[12:])
                assert core.counts == {"received": 1, "refused": 2}
                assert node.counters.oversized == 2

    asyncio.run(body())


def test_copies_wait_behind_what_waits_already_and_then_are_refused(accelerate, monkeypatch):
    async def body():
        async with router(accelerate, "in", "a") as (node, core, ends):
            packets = [towards("a") for _ in range(5)]
            room = sum(map(len, packets[:4]))
            monkeypatch.setattr(asyncio_node, "SEND_QUEUE", room)
            waiting = packets[0]
            assert node._queue(waiting, ends["a"].getsockname())
            assert node.inject(packets[1]) is False
            for packet in packets[2:]:
                ends["in"].sendto(packet, node.address)
            while core.counts.get("received", 0) < 3:
                node._drain()
            assert arrived(ends["a"]) == []
            assert core.counts == {"received": 3, "forwarded": 3, "refused": 1}
            assert (node.counters.queued, node.counters.refused) == (4, 1)
            await eventually(lambda: node.counters.sent == 4)
            assert arrived(ends["a"]) == [*packets[:2], *map(sent_on, packets[2:4])]

    asyncio.run(body())


def test_who_taps_a_node_sees_every_packet(accelerate):
    async def body():
        async with router(accelerate, "a", "b") as (node, core, ends):
            seen = []

            async def passes(packet):
                count = core.counts.get("forwarded", 0)
                ends["a"].sendto(packet, node.address)
                await eventually(lambda: core.counts.get("forwarded") == count + 1)
                assert arrived(ends["b"]) == [sent_on(packet)]

            await passes(towards("b"))
            node.tap = lambda *packet: seen.append(packet)
            assert node.driver_name == "python"
            packet, mine = towards("b"), towards("a")
            await passes(packet)
            assert seen == [(False, "a", packet), (True, "b", sent_on(packet))]
            seen.clear()
            node.inject(mine)
            node.links["b"].send(b"hello")
            assert seen == [(True, "a", mine), (True, "b", b"hello")]
            assert arrived(ends["b"]) == [b"hello"]
            node.tap = None
            assert node.driver_name == ("c" if accelerate else "python")
            await passes(towards("b"))
            assert len(seen) == 2

    asyncio.run(body())


def test_a_tap_that_raises_is_taken_off(accelerate, caplog):
    async def body():
        async with router(accelerate, "a", "b") as (node, core, ends):
            node.tap = lambda *packet: 1 / 0
            ends["a"].sendto(towards("b"), node.address)
            await eventually(lambda: core.counts.get("forwarded") == 1)
            assert node.tap is None

    asyncio.run(body())
    assert "tap.removed" in caplog.text


def test_a_node_that_has_closed_sends_nothing(accelerate):
    async def body():
        async with router(accelerate, "a") as (node, core, _):
            pass
        assert node.inject(towards("a")) is False
        assert core.counts == {"refused": 1}
        assert node.counters.send_errors == 1

    asyncio.run(body())


def test_to_ask_for_what_was_not_built_is_an_error(monkeypatch):
    monkeypatch.setattr(fastpath, "MISSING", "the link driver in C is not there")
    with pytest.raises(RuntimeError, match="build it"):
        UdpNode("a", ("127.0.0.1", 0), accelerate=True)
    assert UdpNode("a", ("127.0.0.1", 0))._accelerate is False


# Neighbours by name


@pytest.fixture
def names(monkeypatch):
    """What the system knows about hosts: the fixture's value, which the test changes."""
    known = {}
    real = socket.getaddrinfo

    def look_up(host, port, family=0, type=0, proto=0, flags=0):
        if not host.endswith(".test") or flags & socket.AI_NUMERICHOST:
            return real(host, port, family, type, proto, flags)
        if host not in known:
            raise socket.gaierror(socket.EAI_NONAME, "nobody knows it")
        return [(family, type, 17, "", (address, port)) for address in known[host]]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(udp, "LOOK_UP_EVERY", 0.02)
    return known


def test_a_host_that_is_found_late_and_moves(accelerate, names, caplog):
    caplog.set_level("INFO")

    async def body():
        async with router(accelerate, "in") as (node, core, ends):
            port = free_port()
            with open_end("127.0.0.1", port) as here, open_end("127.0.0.2", port) as there:
                node.add_link("b", ("b.test", port))
                core.route("in", "b")
                assert node.links["b"].send(b"too early") is False
                ends["in"].sendto(towards("b"), node.address)
                await eventually(lambda: core.counts.get("refused") == 1)
                await eventually(lambda: node.counters.lookup_errors > 2)

                names["b.test"] = ["127.0.0.1"]
                await eventually(lambda: node.links["b"].address is not None)
                assert node.links["b"].send(b"hello")
                ends["in"].sendto(towards("b"), node.address)
                await eventually(lambda: core.counts.get("forwarded") == 1)
                assert len(arrived(here)) == 2
                here.sendto(b"from b", node.address)
                await eventually(lambda: core.packets == [b"from b"])

                errors = node.counters.lookup_errors
                del names["b.test"]
                await eventually(lambda: node.counters.lookup_errors > errors)
                assert node.links["b"].send(b"the old address is kept")
                names["b.test"] = ["127.0.0.3", "127.0.0.1"]
                await asyncio.sleep(0.1)
                assert node.links["b"].send(b"still one of its addresses")
                assert len(arrived(here)) == 2

                names["b.test"] = ["127.0.0.2"]
                await eventually(lambda: node.links["b"].address[0] == "127.0.0.2")
                ends["in"].sendto(towards("b"), node.address)
                await eventually(lambda: core.counts.get("forwarded") == 2)
                assert len(arrived(there)) == 1
                here.sendto(b"a stranger now", node.address)
                await eventually(lambda: node.counters.strangers == 1)
                node.remove_link("b")
                there.close()

    asyncio.run(body())
    assert "host.not_found" in caplog.text
    assert "127.0.0.2" in caplog.text


def test_two_links_cannot_share_an_address(names):
    async def body():
        async with UdpNode("n", ("127.0.0.1", 0)) as node:
            names["b.test"] = names["c.test"] = ["127.0.0.1"]
            node.add_link("a", ("127.0.0.1", 9))
            node.add_link("b", ("b.test", 9))
            await eventually(lambda: node.counters.lookup_errors > 0)
            assert node.links["b"].address is None
            node.remove_link("a")
            await eventually(lambda: node.links["b"].address == ("127.0.0.1", 9))
            with pytest.raises(ValueError, match="already"):
                node.add_link("c", ("127.0.0.1", 9))

    asyncio.run(body())


def test_addresses_have_one_spelling():
    async def body():
        async with UdpNode("a", ("::1", 0)) as a, UdpNode("b", ("::1", 0)) as b:
            a.add_link("b", ("0:0:0:0:0:0:0:1", b.address[1]))
            b.add_link("a", ("0::1", a.address[1]))
            core = a.run(Counter)
            b.run(Counter)
            b.links["a"].send(b"hello")
            await eventually(lambda: core.packets == [b"hello"])

    asyncio.run(body())


def test_an_address_of_the_other_family_is_refused():
    async def body():
        async with UdpNode("a", ("127.0.0.1", 0)) as node:
            with pytest.raises(ValueError, match="no way to ::1"):
                node.add_link("b", ("::1", 9))

    asyncio.run(body())


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
