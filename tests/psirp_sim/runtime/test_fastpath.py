"""The two link drivers against each other, packet by packet: verdicts, copies, counters.

The table in Python says what is right (tests/psirp_sim/forwarding/test_table.py); the driver in C
has to say the same about every packet there may be, and to do the same with it.
"""

from __future__ import annotations

import asyncio
import os
import select
import shutil
import socket
import subprocess
import sys
from array import array
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import asdict
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psirp_sim.forwarding.table import (
    DROPS,
    HERE,
    REMEMBERED,
    Count,
    ForwardingCounters,
    LoopCache,
    compile_table,
)
from psirp_sim.runtime import fastpath
from psirp_sim.runtime.fastpath import FastDriver
from psirp_sim.runtime.udp import UdpNode
from psirp_sim.wire.data import HEADER, DataPacket, Kind
from psirp_sim.zfilters import Scheme, ZFilter, descriptor_length

pytestmark = pytest.mark.skipif(fastpath.MISSING is not None, reason=str(fastpath.MISSING))

IDS = 60
"""Different packet ids in a test: few, so that packets come again."""


@pytest.fixture(scope="module")
def fd():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        yield opened.fileno()


# Tables and packets


def random_table(random, most_links=40):
    links = [f"link {number}" for number in range(random.randrange(most_links + 1))]
    numbered = [("n", link) for link in links] + ["n"]
    numberings = {
        random.choice([0, 1, 7, 2**32 - 1]): dict(
            zip(
                random.sample(numbered, random.randrange(len(numbered) + 1)),
                random.sample(range(4_100), len(numbered)),
                strict=False,
            )
        )
        for _ in range(random.randrange(4))
    }
    scheme = Scheme(k=random.choice([1, 3, 5, 9]), d=random.randrange(1, 9))
    return compile_table("n", links, random.randbytes(8), scheme, numberings)


def random_filter(random, table):
    """One that may lead anywhere: some tags, some noise."""
    if table.exact and random.random() < 0.3:
        numbering = random.choice(list(table.exact))
        row, length = table.exact[numbering], 8 * random.randrange(1, 64)
        descriptor = 64 | length // 8
    else:
        descriptor = random.choice(list(table.bloom))
        numbering, row, length = 0, table.bloom[descriptor], descriptor_length(descriptor)
    bits = 0
    for tag, _ in random.sample(row.tags, random.randrange(min(len(row.tags), 12) + 1)):
        bits |= tag
    if random.random() < 0.3:
        bits |= row.local
    noise = (random.getrandbits(8 * length) for _ in range(random.choice([1, 2, 3, 4])))
    for more in noise:
        bits |= more & random.getrandbits(8 * length) if random.random() < 0.2 else 0
    return ZFilter(descriptor, bits & (1 << 8 * length) - 1, numbering)


def random_packet(random, table):
    """Valid, changed, cut off, or anything at all."""
    if random.random() < 0.1:
        return random.randbytes(random.randrange(200))
    packet = DataPacket(
        random_filter(random, table),
        random.randrange(IDS).to_bytes(8),
        random.randbytes(random.randrange(40)),
        random.choice([0, 1, 2, 32, 255]),
    ).encode()
    kind = random.random()
    if kind < 0.1:
        return packet[: random.randrange(len(packet) + 1)]
    if kind < 0.3:
        changed = bytearray(packet)
        for _ in range(random.randrange(1, 4)):
            changed[random.randrange(min(len(packet), HEADER + 4))] = random.randrange(256)
        return bytes(changed)
    return packet


# Decisions


@pytest.mark.parametrize("seed", range(20))
def test_decisions_are_equal_whatever_the_table_and_the_packet(fd, seed):
    random = Random(seed)
    verdicts = Counter()
    for _ in range(8):
        table = random_table(random)
        driver = FastDriver(fd, socket.AF_INET, remembered=20)
        driver.install(table, ForwardingCounters())
        cache = LoopCache(20)
        for _ in range(250):
            packet = random_packet(random, table)
            arrived = random.randrange(HERE, len(table.links) + 1)
            decision = table.decide(packet, arrived, cache)
            assert driver.decide(packet, arrived) == decision, packet.hex()
            verdicts["decided" if isinstance(decision, tuple) else decision] += 1
    assert set(verdicts) == {"decided", *DROPS}, "every reason was met"


TABLE = random_table(Random(5), most_links=64)
PACKETS = st.builds(
    lambda version, kind, hops, descriptor, packet_id, numbering, bits: (
        bytes((version, kind, hops, descriptor)) + packet_id + numbering + bits
    ),
    st.sampled_from([1, 1, 1, 0, 2]),
    st.sampled_from(list(Kind)),
    st.integers(0, 255),
    st.integers(0, 255),
    st.binary(min_size=8, max_size=8),
    st.one_of(
        st.sampled_from([key.to_bytes(4) for key in [0, *TABLE.exact]]),
        st.binary(min_size=4, max_size=4),
    ),
    st.binary(max_size=520),
)


@settings(max_examples=300)
@given(packets=st.lists(st.one_of(PACKETS, st.binary(max_size=80)), max_size=20))
def test_decisions_are_equal_for_packets_nobody_thought_of(fd, packets):
    driver = FastDriver(fd, socket.AF_INET)
    driver.install(TABLE, ForwardingCounters())
    cache = LoopCache()
    for packet in packets:
        assert driver.decide(packet, HERE) == TABLE.decide(packet, HERE, cache)


@pytest.mark.parametrize("remembered", [1, 2, 7, REMEMBERED])
def test_both_forget_the_same_packets(fd, remembered):
    """Ids come again at every distance, across several changes of generation."""
    table = compile_table("n", [], b"", Scheme())
    driver = FastDriver(fd, socket.AF_INET, remembered)
    driver.install(table, ForwardingCounters())
    cache = LoopCache(remembered)
    random = Random(1)
    zfilter = ZFilter(0, table.bloom[0].local)
    seen = Counter()
    for number in range(5 * remembered + 100):
        back = random.choice([0, 0, 0, 1, remembered, 2 * remembered, 3 * remembered])
        packet_id = max(0, number - back).to_bytes(8)
        packet = DataPacket(zfilter, packet_id, b"").encode()
        decision = table.decide(packet, HERE, cache)
        assert driver.decide(packet, HERE) == decision
        seen[decision is Count.LOOP] += 1
    assert min(seen.values()) > 10


def test_a_new_table_keeps_what_was_seen(fd):
    driver = FastDriver(fd, socket.AF_INET)
    packet = None
    for _ in range(2):
        table = compile_table("n", ["a"], b"", Scheme())
        driver.install(table, ForwardingCounters())
        packet = DataPacket(ZFilter(0, table.bloom[0].local), b"the same", b"").encode()
        verdict = driver.decide(packet, HERE)
    assert verdict == Count.LOOP


# What C is told


GOOD_ROW = (0, (b"\1",), (0,), None)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((("a",), (), ()), TypeError),
        ((["a"], (), (), array("Q", [0] * 12)), TypeError),
        ((("a",), (GOOD_ROW,), (), array("Q", [0] * 11)), ValueError),
        ((("a",), (GOOD_ROW,), (), array("I", [0] * 24)), ValueError),
        ((("a",), (GOOD_ROW,), (), b"\0" * 96), BufferError),
        ((("a",), (GOOD_ROW,), (), None), TypeError),
        ((([],), (GOOD_ROW,), (), array("Q", [0] * 12)), TypeError),
        ((("a",), ("row",), (), array("Q", [0] * 12)), TypeError),
        ((("a",), ((-1, (b"\1",), (0,), None),), (), array("Q", [0] * 12)), OverflowError),
        ((("a",), ((32, (b"\1",), (0,), None),), (), array("Q", [0] * 12)), ValueError),
        ((("a",), ((0, (b"\1",), (1,), None),), (), array("Q", [0] * 12)), ValueError),
        ((("a",), ((0, (b"\1",), (-1,), None),), (), array("Q", [0] * 12)), ValueError),
        ((("a",), ((0, (b"\1",), ("a",), None),), (), array("Q", [0] * 12)), TypeError),
        ((("a",), ((0, (b"\1",), (), None),), (), array("Q", [0] * 12)), ValueError),
        ((("a",), ((0, (b"\0",), (0,), None),), (), array("Q", [0] * 12)), ValueError),
        ((("a",), ((0, (b"",), (0,), None),), (), array("Q", [0] * 12)), ValueError),
        ((("a",), ((0, (1,), (0,), None),), (), array("Q", [0] * 12)), ValueError),
        ((("a",), ((0, (b"\1",), (0,), 1),), (), array("Q", [0] * 12)), ValueError),
    ],
)
def test_a_bad_table_is_refused_and_the_old_one_stays(fd, arguments, error):
    driver = FastDriver(fd, socket.AF_INET)
    driver.install(TABLE, ForwardingCounters())
    packet = DataPacket(ZFilter(0, TABLE.bloom[0].local), bytes(8), b"").encode()
    with pytest.raises(error):
        driver._driver.install(*arguments)
    assert driver.decide(packet, HERE) == ((), True)


@pytest.mark.parametrize(
    ("links", "error"),
    [
        ([], TypeError),
        (("link",), TypeError),
        ((("a", socket.AF_INET, b"\0" * 5, 1, 0, 1_472),), ValueError),
        ((("a", socket.AF_INET6, b"\0" * 4, 1, 0, 1_472),), ValueError),
        ((("a", socket.AF_UNIX, b"\0" * 4, 1, 0, 1_472),), ValueError),
        ((("a", socket.AF_INET, "0000", 1, 0, 1_472),), TypeError),
        (((b"a", socket.AF_INET, b"\0" * 4, 1, 0, 1_472),), TypeError),
    ],
)
def test_bad_links_are_refused(fd, links, error):
    with pytest.raises(error):
        FastDriver(fd, socket.AF_INET)._driver.set_links(links)


def test_a_driver_without_a_table_forwards_nothing(fd):
    driver = FastDriver(fd, socket.AF_INET)
    assert driver.drain(1, False, 9) == ([], [], [], 0, 0, 0, 0, 0)
    assert driver.inject(b"packet", False) == (False, [], 0, 0, 0)
    with pytest.raises(ValueError, match="no table"):
        driver.decide(b"packet", HERE)
    with pytest.raises(ValueError, match="at least one"):
        FastDriver(fd, socket.AF_INET, remembered=0)


def test_counters_are_released_with_the_driver(fd):
    counters = ForwardingCounters()
    driver = FastDriver(fd, socket.AF_INET)
    driver.install(TABLE, counters)
    with pytest.raises(BufferError):
        counters.values.append(0)
    driver.install(TABLE, ForwardingCounters())
    counters.values.append(0)


# What is done with packets, at sockets


class Collector:
    """A core that installs a table and keeps what it is given."""

    def __init__(self, env, table):
        self.env = env
        self.table = table
        self.counters = ForwardingCounters()
        self.received = []

    def start(self):
        self.env.install(self.table, self.counters)

    def receive(self, link, packet):
        self.received.append((link, packet))

    def stop(self):
        pass


class Bed:
    """A node, and a socket of the test at the other end of each link.

    The event loop never gets its turn: `pass_on` says when the node reads.
    """

    def __init__(self, node, table, mtus, host):
        self.node = node
        self.host = host
        self.passed = 0
        self.ends = {name: self.open() for name in [*mtus, "control"]}
        self.stranger = self.open()
        for name, end in self.ends.items():
            node.add_link(name, end.getsockname()[:2], mtus.get(name, 1_472))
        self.core = node.run(lambda env: Collector(env, table))

    def open(self):
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        opened = socket.socket(family, socket.SOCK_DGRAM)
        opened.bind((self.host, 0))
        return opened

    def close(self):
        for end in [*self.ends.values(), self.stranger]:
            end.close()

    def pass_on(self, packets):
        """Send packets to the node, each over its link; the copies it sent, by link."""
        sent = self.node.counters.sent
        for link, packet in packets:
            self.ends.get(link, self.stranger).sendto(packet, self.node.address)
        self.passed += 1
        last = b"that was all, %d" % self.passed
        self.ends["control"].sendto(last, self.node.address)
        while ("control", last) not in self.core.received[-1:]:
            assert select.select([self.node._socket], [], [], 60)[0], "a packet is lost"
            self.node._drain()
        return self.copies(self.node.counters.sent - sent)

    def inject(self, packet):
        """Whether a packet of the node itself is for it too, and the copies it sent."""
        sent = self.node.counters.sent
        local = self.node.inject(packet)
        return local, self.copies(self.node.counters.sent - sent)

    def copies(self, count):
        copies = {}
        names = {end: name for name, end in self.ends.items()}
        while count:
            readable, _, _ = select.select(names, [], [], 10)
            assert readable, f"{count} copies are lost"
            for end in readable:
                copies.setdefault(names[end], []).append(end.recv(70_000))
            count -= len(readable)
        assert not select.select(names, [], [], 0)[0], "a copy that was not counted"
        return copies

    def state(self):
        """Everything that is counted, and what the core was given."""
        return self.core.counters.as_dict(), asdict(self.node.counters), self.core.received


async def beds(stack, table, mtus, host):
    """One bed for each driver."""
    result = []
    for accelerate in (False, True):
        node = await stack.enter_async_context(UdpNode("n", (host, 0), accelerate=accelerate))
        bed = Bed(node, table, mtus, host)
        stack.callback(bed.close)
        assert node.driver_name == ("c" if accelerate else "python")
        result.append(bed)
    return result


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("seed", range(6))
def test_both_drivers_do_the_same_with_every_packet(seed, host):
    random = Random(seed)
    table = random_table(random)
    # Some links of the table are down, and one link is not in the table.
    up = [link for link in table.links if random.random() < 0.9]
    mtus = {name: random.choice([100, 300, 1_472]) for name in [*up, "new"]}
    arrivals = [
        (random.choice([*mtus, "stranger"]), random_packet(random, table)) for _ in range(300)
    ]

    async def body():
        async with AsyncExitStack() as stack:
            python, c = await beds(stack, table, mtus, host)
            for arrival in arrivals[:150]:
                assert c.pass_on([arrival]) == python.pass_on([arrival]), arrival
                assert c.state() == python.state(), arrival
            # And many at once, in several bursts.
            assert c.pass_on(arrivals[150:]) == python.pass_on(arrivals[150:])
            assert c.state() == python.state()
            for _, packet in arrivals:
                for mine in (packet, packet[:4] + random.randbytes(8) + packet[12:]):
                    assert c.inject(mine) == python.inject(mine)
            assert c.state() == python.state()

    asyncio.run(body())


def test_one_loop_cache_for_what_arrives_and_what_is_sent():
    table = compile_table("n", ["a", "b"], b"", Scheme())
    zfilter = ZFilter(0, table.bloom[0].tags[1][0])
    packets = [DataPacket(zfilter, bytes(7) + bytes((n,)), b"").encode() for n in range(2)]

    async def body():
        async with AsyncExitStack() as stack:
            for bed in await beds(stack, table, {"a": 1_472, "b": 1_472}, "127.0.0.1"):
                assert bed.inject(packets[0]) == (False, {"b": [packets[0]]})
                assert bed.pass_on([("a", packets[0])]) == {}
                assert list(bed.pass_on([("a", packets[1])])) == ["b"]
                assert bed.inject(packets[1]) == (False, {})
                assert bed.core.counters.as_dict()["loop"] == 2

    asyncio.run(body())


# A kernel that takes no more, as no loopback interface ever does


KERNEL = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sys/socket.h>

int sendmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags) {
    static int calls;
    int (*real)(int, struct mmsghdr *, unsigned, int) = dlsym(RTLD_NEXT, "sendmmsg");
    switch (calls++) {
    case 0: return real(fd, messages, 3, flags);
    case 1: errno = EPERM; return -1;
    case 2: errno = EINTR; return -1;
    default: errno = EAGAIN; return -1;
    }
}

int recvmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags, struct timespec *time) {
    static int calls;
    int (*real)(int, struct mmsghdr *, unsigned, int, struct timespec *) =
        dlsym(RTLD_NEXT, "recvmmsg");
    switch (calls++) {
    case 0: errno = EINTR; return -1;
    case 1: errno = ECONNREFUSED; return -1;
    default: return real(fd, messages, count, flags, time);
    }
}
"""

UNDER_THAT_KERNEL = """
import socket
from psirp_sim.forwarding.table import Count, ForwardingCounters, compile_table, sent_on
from psirp_sim.runtime.asyncio_node import SocketLink
from psirp_sim.runtime.fastpath import FastDriver
from psirp_sim.wire.data import DataPacket
from psirp_sim.zfilters import Scheme, ZFilter, combine

ours, theirs = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
for each in (ours, theirs):
    each.bind(("127.0.0.1", 0))
names = [f"l{number}" for number in range(8)]
table = compile_table("n", names, b"", Scheme())
counters = ForwardingCounters()
driver = FastDriver(ours.fileno(), ours.family)
driver.install(table, counters)
driver.set_links([SocketLink(None, name, theirs.getsockname(), 1472) for name in names[1:]]
                 + [SocketLink(None, "in", theirs.getsockname(), 1472)])
everywhere = ZFilter.bloom(256, 0, combine(tag for tag, _ in table.bloom[0].tags))
packets = [DataPacket(everywhere, bytes(7) + bytes((number,)), b"") .encode() for number in (1, 2)]
theirs.sendto(packets[0], ours.getsockname())
theirs.sendto(packets[1], ours.getsockname())

up, unsent, _, received, strangers, oversized, sent, errors = driver.drain(256, False, 0)
assert (up, received, strangers, oversized) == ([], 2, 0, 0)
assert (sent, errors) == (3, 2), "one to receive, one to send"
expected = [(name, sent_on(packets[0])) for name in names[5:]]
expected += [(name, sent_on(packets[1])) for name in names[1:]]
assert unsent == expected, unsent
assert counters.values[Count.FORWARDED] == 3
assert counters.values[Count.REFUSED] == 1 + 2, "not sent; and there is no link l0"
assert [theirs.recv(2000) for _ in range(3)] == [sent_on(packets[0])] * 3
assert driver.inject(b"\1\1" + packets[0][2:4] + b"9" * 8 + packets[0][12:], True)[1:] == (
    [(name, b"\1\1" + packets[0][2:4] + b"9" * 8 + packets[0][12:]) for name in names[1:]], 0, 0, 0)
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_what_the_kernel_does_not_take_is_given_back(tmp_path):
    source, kernel = tmp_path / "kernel.c", tmp_path / "kernel.so"
    source.write_text(KERNEL)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", kernel, source, "-ldl"], check=True)
    done = subprocess.run(
        [sys.executable, "-c", UNDER_THAT_KERNEL],
        env=os.environ | {"LD_PRELOAD": f"{os.environ.get('LD_PRELOAD', '')} {kernel}"},
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr
