"""Strangers at the socket: who is let in, who is not, and for how long; by both drivers."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from dataclasses import asdict
from ipaddress import ip_address

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from psirp_sim.forwarding.table import ForwardingCounters, compile_table
from psirp_sim.runtime import accepting, fastpath, udp
from psirp_sim.runtime.accepting import AcceptedLinks, link_name
from psirp_sim.runtime.durations import MILLISECOND, SECOND
from psirp_sim.runtime.udp import MTU, UdpNode
from psirp_sim.wire.control import NEIGHBOUR
from psirp_sim.zfilters import Scheme


class Guests:
    """Lets everybody in who says "hello" behind the two bytes, and the name of the neighbour."""

    def __init__(self, most, patience=SECOND):
        self.most = most
        self.patience = patience
        self.working = set()
        self.looked_at = 0

    def neighbour(self, packet):
        self.looked_at += 1
        return packet[7:].decode() if packet[2:7] == b"hello" else None

    def works(self, link):
        return link in self.working


class Core:
    """Keeps what it is given."""

    def __init__(self, env):
        self.env = env
        self.received = []

    def start(self):
        self.env.install(compile_table("n", [], b"", Scheme()), ForwardingCounters())

    def receive(self, link, packet):
        self.received.append((link, packet))

    def stop(self):
        pass


def end(host="127.0.0.1"):
    opened = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    opened.bind((host, 0))
    opened.setblocking(False)
    return opened


@contextlib.asynccontextmanager
async def host(accelerate, most=2, address="127.0.0.1", ends=3, **options):
    """A node that accepts links, its policy, its core, and sockets of strangers."""
    async with UdpNode("n", (address, 0), accelerate=accelerate) as node:
        core = node.run(Core)
        guests = Guests(most, **options)
        node.accept_links(guests)
        assert node.driver_name == ("c" if accelerate else "python")
        with contextlib.ExitStack() as stack:
            yield node, guests, core, [stack.enter_context(end(address)) for _ in range(ends)]


def standing_still(node):
    """The time by which accepted links are judged; the test lets it pass."""
    clock = [node.now()]
    node._accepted._now = lambda: clock[0]
    return clock


def hello(name):
    return NEIGHBOUR + b"hello" + name.encode()


def called(stranger):
    return link_name("in", *stranger.getsockname()[:2])


async def eventually(condition, seconds=60):
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


def heard(stranger):
    with contextlib.suppress(BlockingIOError):
        return stranger.recv(2_000)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_who_says_hello_gets_a_link_and_others_are_strangers(accelerate, address):
    async def body():
        async with host(accelerate, address=address) as (node, guests, core, (a, b, c)):
            others = [b"", b"\1", NEIGHBOUR, NEIGHBOUR + b"hullo", b"\1\1hello", b"\2\2helloc"]
            for packet in [*others, hello("x" * MTU)]:
                c.sendto(packet, node.address)
            await eventually(lambda: node.counters.strangers == 7)
            assert guests.looked_at == node.counters.wrong_hellos == 2, "the rest costs nothing"
            assert core.received == []
            assert not node.links

            a.sendto(hello("a"), node.address)
            b.sendto(hello("b"), node.address)
            await eventually(lambda: len(core.received) == 2)
            a.sendto(b"more", node.address)
            await eventually(lambda: len(core.received) == 3)
            assert core.received == [
                (called(a), hello("a")),
                (called(b), hello("b")),
                (called(a), b"more"),
            ]
            assert list(node.links) == [called(a), called(b)]
            assert heard(a) is heard(c) is None, "the core has said nothing so far"
            assert node.links[called(b)].send(b"welcome")
            await eventually(lambda: heard(b) == b"welcome")
            assert node.counters.strangers == 7
            assert node.counters.received == 3

    asyncio.run(body())


def test_both_drivers_count_the_same():
    if fastpath.MISSING is not None:
        pytest.skip(fastpath.MISSING)
    packets = [
        (0, hello("a")), (1, b"\1\1data"), (1, NEIGHBOUR), (0, b"data"), (2, hello("c")),
        (2, hello("c")), (1, hello("a")), (1, hello("b")), (0, NEIGHBOUR + b"hullo"), (1, b"x"),
    ]  # fmt: skip

    def seen(counters):
        return counters.received + counters.strangers

    async def outcome(accelerate):
        async with host(accelerate, most=2) as (node, guests, core, ends):
            for count, (stranger, packet) in enumerate(packets, 1):
                ends[stranger].sendto(packet, node.address)
                await eventually(lambda count=count: seen(node.counters) == count)
            number = {called(stranger): index for index, stranger in enumerate(ends)}
            received = [(number[link], packet) for link, packet in core.received]
            return asdict(node.counters), received, guests.looked_at

    python, c = asyncio.run(outcome(False)), asyncio.run(outcome(True))
    assert python == c
    assert python[0]["accepted_links"] == 2
    assert python[0]["refused_links"] == 1
    assert python[0]["wrong_hellos"] == 2, "one is a copy of what made another link"


def test_nobody_is_let_in_unless_that_was_asked_for(accelerate):
    async def body():
        async with UdpNode("n", ("127.0.0.1", 0), accelerate=accelerate) as node:
            core = node.run(Core)
            with end() as stranger:
                stranger.sendto(hello("a"), node.address)
                await eventually(lambda: node.counters.strangers == 1)
            assert not node.links
            assert core.received == []

    asyncio.run(body())


def test_the_same_hello_makes_a_link_once(accelerate):
    async def body():
        async with host(accelerate, most=9) as (node, _, _, (a, b, c)):
            for stranger in (a, b, c):
                stranger.sendto(hello("a"), node.address)
            await eventually(lambda: node.counters.wrong_hellos == 2)
            assert len(node.links) == 1

    asyncio.run(body())


def test_a_full_house_lets_in_only_for_a_link_that_does_not_work(accelerate):
    async def body():
        async with host(accelerate, most=2) as (node, guests, _, (a, b, c)):
            clock = standing_still(node)
            a.sendto(hello("a"), node.address)
            await eventually(lambda: len(node.links) == 1)
            guests.working.add(called(a))
            b.sendto(hello("b"), node.address)
            await eventually(lambda: len(node.links) == 2)
            clock[0] += guests.patience - 1
            c.sendto(hello("c, too early"), node.address)
            await eventually(lambda: node.counters.refused_links == 1)
            assert list(node.links) == [called(a), called(b)]
            clock[0] += 1
            c.sendto(hello("c"), node.address)
            await eventually(lambda: called(c) in node.links)
            assert list(node.links) == [called(a), called(c)]
            b.sendto(b"a stranger again", node.address)
            await eventually(lambda: node.counters.strangers == 2)
            guests.working.add(called(c))
            clock[0] += 3600 * SECOND
            b.sendto(hello("b, too late"), node.address)
            await eventually(lambda: node.counters.refused_links == 2)
            assert node.counters.removed_links == 1

    asyncio.run(body())


def test_links_that_do_not_work_are_removed(accelerate, monkeypatch):
    monkeypatch.setattr(udp, "SWEEP", 5 * MILLISECOND)

    async def body():
        async with host(accelerate) as (node, guests, _, (a, b, _)):
            clock = standing_still(node)
            a.sendto(hello("a"), node.address)
            b.sendto(hello("b"), node.address)
            await eventually(lambda: len(node.links) == 2)
            guests.working.add(called(a))
            clock[0] += guests.patience
            await eventually(lambda: list(node.links) == [called(a)])
            clock[0] += 3600 * SECOND
            await eventually(lambda: node._accepted._links[called(a)].since == clock[0])
            guests.working.clear()
            clock[0] += accepting.IDLE - 1
            await asyncio.sleep(0.1)
            assert list(node.links) == [called(a)], "it did work: it may come back"
            clock[0] += 1
            await eventually(lambda: not node.links)
            b.sendto(hello("b again"), node.address)
            await eventually(lambda: list(node.links) == [called(b)])
            assert node.counters.removed_links == 2

    asyncio.run(body())


def test_a_link_of_our_own_takes_the_place_of_an_accepted_one(accelerate):
    async def body():
        async with host(accelerate) as (node, _, core, (a, b, _)):
            a.sendto(hello("a"), node.address)
            b.sendto(hello("b"), node.address)
            await eventually(lambda: len(node.links) == 2)
            node.add_link("ours", a.getsockname())
            assert set(node.links) == {"ours", called(b)}
            node.add_link("named", ("localhost", b.getsockname()[1]))
            await eventually(lambda: node.links["named"].address is not None)
            assert list(node.links) == ["ours", "named"]
            a.sendto(b"over ours", node.address)
            b.sendto(b"over the named one", node.address)
            await eventually(lambda: ("named", b"over the named one") in core.received)
            assert ("ours", b"over ours") in core.received

    asyncio.run(body())


def test_a_name_that_is_taken_is_not_taken_twice(accelerate):
    async def body():
        async with host(accelerate) as (node, _, _, (a, b, _)):
            node.add_link(called(a), b.getsockname())
            a.sendto(hello("a"), node.address)
            await eventually(lambda: node.counters.refused_links == 1)
            assert node.links[called(a)].address == b.getsockname()

    asyncio.run(body())


def test_a_flood_of_strangers_is_not_looked_at(accelerate):
    async def body():
        async with host(accelerate) as (node, guests, core, (a, b, _)):
            standing_still(node)  # no more checks than at once
            for number in range(2 * accepting.CHECKS_AT_ONCE):
                a.sendto(NEIGHBOUR + number.to_bytes(2), node.address)
            await eventually(lambda: node.counters.strangers == 2 * accepting.CHECKS_AT_ONCE)
            assert guests.looked_at == accepting.CHECKS_AT_ONCE
            node._accepted._now = node.now
            b.sendto(hello("b"), node.address)
            await eventually(lambda: len(core.received) == 1)

    asyncio.run(body())


def test_a_capture_shows_how_a_link_was_made(accelerate):
    async def body():
        async with host(accelerate) as (node, _, core, (a, *_)):
            seen = []
            node.tap = lambda *packet: seen.append(packet)
            a.sendto(hello("a"), node.address)
            await eventually(lambda: core.received)
            assert seen == [(False, called(a), hello("a"))]

    asyncio.run(body())


def test_checks_come_back_with_time():
    clock = [0]
    accepted = AcceptedLinks(Guests(1), lambda: clock[0])
    assert accepted.checks() == accepting.CHECKS_AT_ONCE
    for _ in range(accepting.CHECKS_AT_ONCE):
        accepted.check(b"")
    assert accepted.checks() == 0
    for _ in range(10):
        clock[0] += SECOND // 100
        assert accepted.checks() == accepting.CHECKS // 100
        for _ in range(accepting.CHECKS // 100):
            accepted.check(b"")
    clock[0] += 3600 * SECOND
    assert accepted.checks() == accepting.CHECKS_AT_ONCE


def test_nobody_fits_into_no_places():
    accepted = AcceptedLinks(Guests(0), lambda: 0)
    assert accepted.room() == (False, None)


# Names of links


@pytest.mark.parametrize(
    ("address", "name"),
    [
        (("192.0.2.7", 4000), "rv-192.0.2.7-4000"),
        (("2001:DB8:0::1", 4000), "rv-2001-db8--1-4000"),
        (("::ffff:192.0.2.7", 4000), "rv-192.0.2.7-4000"),
        (("fe80::1", 4000, 3), "rv-fe80--1.3-4000"),
        (("R1.site.test", 4000), "rv-r1.site.test-4000"),
    ],
)
def test_links_are_called_by_their_addresses(address, name):
    assert link_name("rv", *address) == name


IPV4 = st.ip_addresses(v=4).map(str)
IPV6 = st.ip_addresses(v=6).map(str)
HOSTS = st.one_of(IPV4, IPV6, st.text(min_size=1, max_size=253), st.from_regex(r"[a-z.-]{40,90}"))


def same_host(host):
    """One value for all spellings of a host; an IPv4 address may be written as one of IPv6."""
    try:
        address = ip_address(host)
    except ValueError:
        return host.lower()
    return getattr(address, "ipv4_mapped", None) or address


@given(st.lists(st.tuples(HOSTS, st.integers(1, 65_535)), min_size=2, max_size=4))
@example([("0.0.0.0", 1), ("::FFFF:0:0", 1)])
def test_names_of_links_are_allowed_and_different(addresses):
    names = {link_name("in", host, port) for host, port in addresses}
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,61}[a-z0-9]", name) for name in names)
    assert len(names) >= len({(same_host(host), port) for host, port in addresses})
