"""A node that nobody was told about joins a fabric over real sockets; links that come and go."""

from __future__ import annotations

import asyncio
import contextlib
import socket

from psirp_sim.admission import Admission
from psirp_sim.node import FabricNode
from psirp_sim.runtime import accepting
from psirp_sim.runtime.accepting import link_name
from psirp_sim.runtime.durations import MILLISECOND, SECOND
from psirp_sim.runtime.simulator import Simulator
from psirp_sim.runtime.udp import UdpCounters, UdpNode
from psirp_sim.settings import FabricSettings
from psirp_sim.wire.control import NEIGHBOUR, Hello, Summary, Wanted
from psirp_sim.wire.data import Protocol
from psirp_sim.wire.sealing import FabricKeys

KEYS = FabricKeys("joining")
HELLO = 100 * MILLISECOND
SETTINGS = FabricSettings(keys=KEYS, link_seed=b"joining", hello_interval=HELLO)


async def eventually(condition, seconds=60):
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def running(name, accelerate, *servers, links=None, roles=(), settings=SETTINGS, **options):
    """A node with a link to each of the servers, and its core once it has begun."""
    listen = options.pop("listen", "127.0.0.1")
    async with UdpNode(name, (listen, 0), accelerate=accelerate, **options) as node:
        for server in servers:
            node.add_link(link_name("rv", *server), server)
        for link, address in (links or {}).items():
            node.add_link(link, address)
        core = node.run(lambda env: FabricNode(env, settings, roles=roles, domain="x.test"))
        await eventually(lambda: core.begun)
        yield node, core


@contextlib.asynccontextmanager
async def fabric(accelerate, most=2, patience=None):
    """Two nodes that know each other: r accepts links, t is the topology manager."""
    async with contextlib.AsyncExitStack() as stack:
        r, core = await stack.enter_async_context(running("r", accelerate))
        t, manager = await stack.enter_async_context(
            running("t", accelerate, roles=["topology"], links={"r": r.address})
        )
        r.add_link("t", t.address)
        await eventually(lambda: "t" in core.neighbours.up() and "r" in manager.neighbours.up())
        r.counters = UdpCounters()
        admission = Admission(core, most)
        admission.patience = patience or admission.patience
        r.accept_links(admission)
        yield r, core, manager


def up(core):
    return list(core.neighbours.up())


def attached(core):
    return "t" in core.attachment.routes


@contextlib.contextmanager
def stranger():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        opened.bind(("127.0.0.1", 0))
        opened.setblocking(False)
        yield opened


def heard(opened):
    packets = []
    with contextlib.suppress(BlockingIOError):
        while True:
            packets.append(opened.recv(2_000))
    return packets


def test_a_node_that_knows_only_an_address_joins(accelerate):
    async def body():
        async with (
            fabric(accelerate) as (r, core, manager),
            running("client", accelerate, r.address) as (client, joined),
        ):
            await eventually(lambda: attached(joined))
            ours, theirs = link_name("rv", *r.address), link_name("in", *client.address)
            assert up(joined) == [ours]
            assert set(up(core)) == {"t", theirs}
            assert core.neighbours.links[theirs].node == "client"
            assert manager.database.graph.reachable("t") == {"r", "t", "client"}
            assert r.driver_name == ("c" if accelerate else "python")

            got = []
            joined.handlers[Protocol.TEST] = lambda payload: got.append(payload) or True
            filters = []
            manager.attachment.want_tree("t", ["client"], lambda new, _: filters.extend(new))
            await eventually(lambda: filters)
            manager.send(filters, Protocol.TEST, b"welcome")
            await eventually(lambda: got == [b"welcome"])
            assert (r.counters.accepted_links, r.counters.strangers) == (1, 0)

    asyncio.run(body())


def test_a_client_with_a_socket_of_ipv6_joins_over_ipv4(accelerate):
    async def body():
        async with (
            fabric(accelerate) as (r, _, _),
            running("client", accelerate, r.address, listen="::") as (_, joined),
        ):
            await eventually(lambda: attached(joined))

    asyncio.run(body())


def test_without_the_key_nothing_happens_and_nothing_is_sent(accelerate):
    other = FabricSettings(
        keys=FabricKeys("another"), link_seed=b"joining", hello_interval=HELLO // 4
    )

    async def body():
        async with (
            fabric(accelerate) as (r, core, _),
            running("client", accelerate, r.address, settings=other) as (client, refused),
        ):
            await eventually(lambda: r.counters.wrong_hellos >= 5)
            assert r.counters.strangers == r.counters.wrong_hellos
            assert list(r.links) == ["t"]
            assert client.counters.received == client.counters.strangers == 0
            assert refused.counters["wrong_key"] == 0
            assert core.counters["wrong_key"] == 0, "the core was not bothered"

    asyncio.run(body())


def test_only_a_hello_opens_the_door(accelerate):
    async def body():
        async with fabric(accelerate) as (r, _, _):
            with stranger() as opened:
                opened.sendto(NEIGHBOUR + KEYS.seal(Wanted(["r", "t"])), r.address)
                opened.sendto(NEIGHBOUR + KEYS.seal(Summary("", "", [])), r.address)
                opened.sendto(NEIGHBOUR + KEYS.seal(hello("r")), r.address)  # from itself
                opened.sendto(NEIGHBOUR + b"\1" * 40, r.address)
                opened.sendto(NEIGHBOUR, r.address)
                await eventually(lambda: r.counters.wrong_hellos == 5)
                assert list(r.links) == ["t"]
                assert heard(opened) == []

    asyncio.run(body())


def hello(node):
    return Hello(node, "link", 1, None, 1, None, bytes(8), "")


def test_when_every_place_is_taken_others_are_refused(accelerate):
    async def body():
        async with (
            fabric(accelerate, most=1) as (r, _, _),
            running("first", accelerate, r.address) as (first, joined),
        ):
            await eventually(lambda: attached(joined))
            async with running("second", accelerate, r.address) as (second, refused):
                await eventually(lambda: r.counters.refused_links >= 3)
                assert second.counters.received == second.counters.strangers == 0
                assert up(refused) == []
            assert set(r.links) == {"t", link_name("in", *first.address)}
            await eventually(lambda: attached(joined))

    asyncio.run(body())


def test_who_starts_again_comes_from_another_port(accelerate, monkeypatch, tmp_path):
    monkeypatch.setattr("psirp_sim.runtime.udp.SWEEP", 20 * MILLISECOND)
    monkeypatch.setattr(accepting, "IDLE", SECOND)
    storage = tmp_path / "client"

    async def body():
        async with fabric(accelerate) as (r, core, manager):
            names = []
            for _ in range(3):
                client = running("client", accelerate, r.address, storage=storage)
                async with client as (node, joined):
                    await eventually(lambda joined=joined: attached(joined))
                    names.append(link_name("in", *node.address))
                    await eventually(lambda: {"t", names[-1]} == set(up(core)))
            assert len(set(names)) == 3
            await eventually(lambda: list(r.links) == ["t"])
            assert r.counters.accepted_links == r.counters.removed_links == 3
            await eventually(lambda: "client" not in manager.database.graph.out)
            await eventually(lambda: core.neighbours._answered.keys() <= {"t"})

    asyncio.run(body())


def test_what_is_played_back_elsewhere_opens_nothing_that_works(accelerate):
    """An attacker heard everything the client said, has no key, and says it from elsewhere."""
    said = []

    def messages():
        return {type(KEYS.open(packet[2:])) for packet in said if packet[1] == 2}

    async def body():
        async with fabric(accelerate, most=8, patience=60 * SECOND) as (r, core, _):
            async with running("client", accelerate, r.address) as (client, joined):
                client.tap = lambda out, _, packet: out and said.append(packet)

                def said_enough():
                    # It says what it knows, unless it did so just before.
                    joined.database.compare_digest(link_name("rv", *r.address), bytes(8))
                    return attached(joined) and len(said) > 20 and {Hello, Summary} <= messages()

                await eventually(said_enough)
            said.append(NEIGHBOUR + KEYS.seal(Wanted(["r", "t", "client"])))
            with stranger() as opened:
                answers = []
                for packet in said * 2:
                    opened.sendto(packet, r.address)
                    await asyncio.sleep(0.005)
                    answers += heard(opened)
                spoofed = link_name("in", *opened.getsockname())
                assert spoofed in r.links
                assert spoofed not in up(core)
                assert {type(KEYS.open(packet[2:])) for packet in answers} == {Hello}
                assert sum(map(len, answers)) < sum(map(len, said * 2)), "no amplification"
            assert len([link for link in r.links if link.startswith("in-")]) == 2

    asyncio.run(body())


def test_a_link_to_oneself_never_comes_up(accelerate):
    async def body():
        async with running("n", accelerate) as (node, core):
            node.add_link("mirror", node.address)
            await eventually(lambda: node.counters.received >= 3)
            assert up(core) == []
            assert core.counters["malformed"] == 0

    asyncio.run(body())


# A core whose links come and go


def test_a_link_that_is_removed_at_run_time_goes_down_and_may_come_back(accelerate):
    async def body():
        async with fabric(accelerate, most=0) as (r, core, manager):
            with_t = r.links["t"].address
            r.remove_link("t")
            await eventually(lambda: up(core) == up(manager) == [])
            r.add_link("t", with_t)
            await eventually(lambda: up(core) == ["t"] and up(manager) == ["r"])

    asyncio.run(body())


def test_links_come_and_go_in_virtual_time():
    world = Simulator(1)
    for name in "abc":
        roles = ["topology"] if name == "a" else []
        world.add_node(name, lambda env, roles=roles: FabricNode(env, SETTINGS, roles=roles))
    world.add_link("a", "b")
    world.run_for(SECOND)
    a, b, c = (world.nodes[name].core for name in "abc")
    assert "a" not in c.attachment.routes
    world.add_link("b", "c", names=("in-c", "rv-b"))
    world.run_for(SECOND)
    assert up(b) == ["a", "in-c"]
    assert up(c) == ["rv-b"]
    assert "a" in c.attachment.routes
    got, filters = [], []
    c.handlers[Protocol.TEST] = lambda payload: got.append(payload) or True
    a.attachment.want_tree("a", ["c"], lambda new, _: filters.extend(new))
    world.run_for(SECOND)
    a.send(filters, Protocol.TEST, b"data")
    world.run_for(SECOND // 10)
    assert got == [b"data"]

    del world.nodes["b"].channels["in-c"]
    world.run_for(HELLO // 4)
    assert up(b) == ["a"]
    assert "in-c" not in b.neighbours._answered
    world.run_for(3 * HELLO)
    assert up(c) == []
    assert a.database.graph.reachable("a") == {"a", "b"}
