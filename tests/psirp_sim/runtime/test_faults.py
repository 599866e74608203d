"""Links that can be cut: what is lost, what is counted, and that the neighbours find out."""

from __future__ import annotations

import asyncio

import pytest

from psirp_sim.forwarding.table import ForwardingCounters, compile_table
from psirp_sim.node import FabricNode
from psirp_sim.runtime.durations import MILLISECOND
from psirp_sim.runtime.faults import FaultyNode
from psirp_sim.runtime.udp import UdpNode
from psirp_sim.settings import FabricSettings
from psirp_sim.wire.data import DataPacket, Protocol
from psirp_sim.wire.sealing import FabricKeys
from psirp_sim.zfilters import Scheme, ZFilter, combine, link_id, link_tags

SEED, SCHEME = b"seed", Scheme()
PUBLICATION, TEST = bytes((Protocol.PUBLICATION,)), bytes((Protocol.TEST,))


class Keeper:
    def __init__(self, env):
        self.packets = []

    def start(self):
        pass

    def receive(self, link, packet):
        self.packets.append((link, packet))

    def stop(self):
        pass


async def eventually(condition):
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


def run(body, kind=Keeper):
    """Two nodes with a link between them, one of which can cut it."""

    async def main():
        async with FaultyNode("a", ("127.0.0.1", 0)) as a, UdpNode("b", ("127.0.0.1", 0)) as b:
            a.add_link("b", b.address)
            b.add_link("a", a.address)
            await body(a, a.run(kind), b, b.run(kind))

    asyncio.run(main())


def test_what_passes_a_cut_link_is_lost_both_ways():
    async def body(a, core_a, b, core_b):
        a.cut("b", True)
        assert a.links["b"].send(b"lost"), "the sender does not learn it"
        b.links["a"].send(b"lost, too")
        await eventually(lambda: a.traffic("b").lost == 2)
        a.cut("b", False)
        a.links["b"].send(b"there")
        b.links["a"].send(b"here")
        await eventually(lambda: core_a.packets and core_b.packets)
        assert core_a.packets == [("b", b"here")]
        assert core_b.packets == [("a", b"there")]

    run(body)


def test_only_links_can_be_cut():
    async def body(a, core_a, b, core_b):
        with pytest.raises(KeyError):
            a.cut("c", True)

    run(body)


def _packet(number, payload, tags):
    return DataPacket(ZFilter.bloom(256, 0, combine(tags)), number.to_bytes(8), payload).encode()


def test_data_packets_are_counted_and_the_filter_is_looked_at():
    async def body(a, core_a, b, core_b):
        tag = link_tags(link_id(SEED, "a", "b"), 256, SCHEME.k, SCHEME.d)[0]
        a.install(compile_table("a", ["b"], SEED, SCHEME), ForwardingCounters())
        a.inject(_packet(1, TEST + b"x", [tag]))
        await eventually(lambda: a.traffic("b").sent == 1)
        assert (a.traffic("b").publications, a.traffic("b").fill) == (0, None)
        a.inject(_packet(2, PUBLICATION + b"x", [tag]))
        b.links["a"].send(_packet(3, PUBLICATION + b"y", [tag, 1 << 200]))
        await eventually(lambda: a.traffic("b").received == 1)
        traffic = a.traffic("b")
        assert (traffic.sent, traffic.publications, traffic.lost) == (2, 2, 0)
        assert traffic.fill == pytest.approx((5 + 1) / 256, abs=1e-4)
        assert a.driver_name == "python", "where packets are seen"

    run(body)


@pytest.mark.parametrize(
    "packet", [b"", b"\1", b"\1\1", b"\1\1\x20\0", b"\1\1\x20\xff" + bytes(30)]
)
def test_nonsense_is_passed_on_as_ever(packet):
    async def body(a, core_a, b, core_b):
        b.links["a"].send(packet)
        b.links["a"].send(b"last")
        await eventually(lambda: ("b", b"last") in core_a.packets)
        assert core_a.packets[0] == ("b", packet)

    run(body)


def test_neighbours_find_out_and_come_back():
    settings = FabricSettings(
        keys=FabricKeys("a key of the fabric"), link_seed=SEED, hello_interval=50 * MILLISECOND
    )

    async def body(a, core_a, b, core_b):
        def up():
            return [list(core.neighbours.up()) for core in (core_a, core_b) if core.begun]

        await eventually(lambda: up() == [["b"], ["a"]])
        a.cut("b", True)
        await eventually(lambda: up() == [[], []])
        a.cut("b", False)
        await eventually(lambda: up() == [["b"], ["a"]])

    run(body, lambda env: FabricNode(env, settings))
