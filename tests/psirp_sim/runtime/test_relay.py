"""The relay between real sockets: what it does to packets, and Courier in spite of it."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from psirp_sim.courier.traffic import CourierTraffic, Settings
from psirp_sim.runtime.durations import MILLISECOND
from psirp_sim.runtime.relay import Relay
from psirp_sim.runtime.simulator import Constant, Independent, LinkProfile, Uniform
from psirp_sim.runtime.udp import UdpNode

QUICK = LinkProfile(delay=Constant(0))


class Recorder:
    """A core that keeps the number in each packet and when it came."""

    def __init__(self, env):
        self.env = env
        self.numbers = []
        self.times = []

    def start(self):
        pass

    def receive(self, link, packet):
        self.numbers.append(int.from_bytes(packet[:4]))
        self.times.append(self.env.now())

    def stop(self):
        pass


@asynccontextmanager
async def through_a_relay(core=Recorder, host="127.0.0.1", **behaviour):
    """Two nodes that reach each other only by the relay: the relay, and node and core of each."""
    async with AsyncExitStack() as stack:
        relay = await stack.enter_async_context(Relay(host=host, **behaviour))
        a, b = [await stack.enter_async_context(UdpNode(name, (host, 0))) for name in "ab"]
        a.add_link("b", relay.a_side)
        b.add_link("a", relay.b_side)
        relay.connect(a.address, b.address)
        yield relay, (a, a.run(core)), (b, b.run(core))


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.002)


async def send(node, link, count, every=50):
    """Numbered packets, not so fast that a socket buffer overflows."""
    for number in range(count):
        node.links[link].send(number.to_bytes(4) + bytes(96))
        if number % every == every - 1:
            await asyncio.sleep(0.001)


def accounted_for(channel):
    """Whether everything has happened to the packets of a direction that will."""
    counted = channel.counters
    came = counted.delivered + counted.lost + counted.cut + counted.unheard
    return channel.in_flight == 0 and came == counted.sent + counted.duplicated


def test_courier_brings_everything_once_and_in_order_over_a_bad_link():
    settings = Settings(messages=40, every="2 ms")
    complete = [number.to_bytes(8).ljust(settings.size, b".") for number in range(1, 41)]
    bad = LinkProfile(
        delay=Uniform(MILLISECOND, 5 * MILLISECOND),
        loss=Independent(0.1),
        duplicate=0.2,
        reorder=0.2,
        bandwidth=4_000_000,
    )

    async def main():
        behaviour = {"a_to_b": bad, "b_to_a": bad, "seed": 1}
        traffic = through_a_relay(lambda env: CourierTraffic(env, settings), **behaviour)
        async with traffic as (relay, (_, a), (_, b)):
            await until(lambda: a.received("b") == complete and b.received("a") == complete)
            for channel in (relay.a_to_b, relay.b_to_a):
                counted = channel.counters
                assert min(counted.lost, counted.duplicated, counted.reordered) > 0

    asyncio.run(main())


def test_every_packet_takes_the_delay_of_its_direction():
    slow = LinkProfile(delay=Constant(60 * MILLISECOND))

    async def main():
        async with through_a_relay(a_to_b=slow, b_to_a=QUICK) as (_, (a, left), (b, right)):
            begun = a.now()
            await send(a, "b", 20)
            await send(b, "a", 20)
            await until(lambda: len(left.numbers) == len(right.numbers) == 20)
            assert right.numbers == left.numbers == list(range(20))
            assert right.times[0] - begun >= 60 * MILLISECOND

    asyncio.run(main())


def lossy_run(seed):
    lossy = LinkProfile(delay=Constant(0), loss=Independent(0.2))

    async def main():
        async with through_a_relay(a_to_b=lossy, seed=seed) as (relay, (a, _), (_, right)):
            await send(a, "b", 1_000)
            await until(lambda: relay.a_to_b.counters.sent == 1_000)
            await until(lambda: len(right.numbers) == relay.a_to_b.counters.delivered)
            assert accounted_for(relay.a_to_b)
            return right.numbers

    return asyncio.run(main())


def test_loss_is_as_configured_and_follows_from_the_seed():
    numbers = lossy_run(7)
    assert len(numbers) == pytest.approx(800, abs=80)
    assert numbers == sorted(set(numbers))
    assert lossy_run(7) == numbers != lossy_run(8)


def test_copies_and_overtaking():
    wild = LinkProfile(delay=Constant(0), duplicate=0.3, reorder=0.3, reorder_by=5 * MILLISECOND)

    async def main():
        async with through_a_relay(a_to_b=wild, seed=3) as (relay, (a, _), (_, right)):
            await send(a, "b", 1_000, every=10)
            counters = relay.a_to_b.counters
            await until(lambda: counters.sent == 1_000 and accounted_for(relay.a_to_b))
            await until(lambda: len(right.numbers) == counters.delivered)
            assert set(right.numbers) == set(range(1_000))
            assert len(right.numbers) == 1_000 + counters.duplicated
            assert counters.duplicated == pytest.approx(300, abs=90)
            assert right.numbers != sorted(right.numbers)

    asyncio.run(main())


def test_a_narrow_link_takes_its_time_and_refuses_what_its_queue_does_not_hold():
    narrow = LinkProfile(delay=Constant(0), bandwidth=800_000, queue=4_000)  # 1 ms for a packet

    async def main():
        async with through_a_relay(a_to_b=narrow) as (relay, (a, _), (_, right)):
            begun = a.now()
            await send(a, "b", 200, every=200)
            counters = relay.a_to_b.counters
            await until(lambda: counters.sent + counters.overflowed == 200)
            await until(lambda: len(right.numbers) == counters.sent)
            assert 40 <= counters.sent < 200, "the queue holds 40"
            assert right.times[-1] - begun >= counters.sent * MILLISECOND

    asyncio.run(main())


def test_each_direction_is_cut_and_healed_by_itself():
    async def main():
        relayed = through_a_relay(a_to_b=QUICK, b_to_a=QUICK)
        async with relayed as (relay, (a, left), (b, right)):
            relay.cut("a")
            await send(a, "b", 5)
            await send(b, "a", 5)
            await until(lambda: relay.a_to_b.counters.cut == 5 and len(left.numbers) == 5)
            assert right.numbers == []
            relay.heal("a")
            relay.cut("b")
            await send(a, "b", 3)
            await send(b, "a", 3)
            await until(lambda: relay.b_to_a.counters.cut == 3 and len(right.numbers) == 3)
            assert len(left.numbers) == 5

    asyncio.run(main())


def test_behaviour_may_change_while_packets_flow():
    async def main():
        async with through_a_relay(a_to_b=QUICK) as (relay, (a, _), (_, right)):
            await send(a, "b", 5)
            await until(lambda: len(right.numbers) == 5)
            relay.a_to_b.profile = LinkProfile(loss=Independent(1.0))
            await send(a, "b", 5)
            await until(lambda: relay.a_to_b.counters.lost == 5)

    asyncio.run(main())


def test_only_the_two_nodes_are_relayed():
    async def main():
        async with through_a_relay() as (relay, *_):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
                stranger.sendto(b"hello", relay.a_side)
                stranger.sendto(b"hello", relay.b_side)
                await until(lambda: relay.strangers == 2)
            assert relay.a_to_b.counters.sent == relay.b_to_a.counters.sent == 0

    asyncio.run(main())


def test_a_node_may_come_back_elsewhere():
    async def main():
        async with through_a_relay(a_to_b=QUICK) as (relay, (a, _), (_, right)):
            async with UdpNode("b", ("127.0.0.1", 0)) as successor:
                successor.add_link("a", relay.b_side)
                core = successor.run(Recorder)
                relay.connect(a.address, successor.address)
                await send(a, "b", 3)
                await until(lambda: len(core.numbers) == 3)
            assert right.numbers == []

    asyncio.run(main())


def test_ipv6():
    async def main():
        async with through_a_relay(host="::1") as (_, (a, left), (b, right)):
            await send(a, "b", 3)
            await send(b, "a", 3)
            await until(lambda: left.numbers == right.numbers == [0, 1, 2])

    asyncio.run(main())


def test_an_address_that_is_not_ours_is_an_os_error_and_leaves_nothing_open():
    async def main():
        with pytest.raises(OSError, match="assign"):
            await Relay(host="192.0.2.1").__aenter__()

    asyncio.run(main())
