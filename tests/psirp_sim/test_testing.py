"""The fixture that gives other people's tests a fabric."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from psirp_sim import testing
from psirp_sim.runtime.client_errors import ClientClosed
from psirp_sim.runtime.loopback import LoopbackFabric

SID, RID = b"s" * 32, b"r" * 32

psirp_fabric = testing.psirp_fabric
"""Wherever psph is installed, pytest knows it by itself."""


def test_three_lines_are_enough(psirp_fabric):
    alice, bob = (psirp_fabric.run(psirp_fabric.client(name)) for name in ("alice", "bob"))
    psirp_fabric.run(alice.publish(SID, RID, b"hello"))
    assert psirp_fabric.run(bob.subscribe_sync(SID, RID)).content == b"hello"


def test_the_loop_may_stand_still_for_a_while(psirp_fabric):
    alice = psirp_fabric.run(psirp_fabric.client("alice"))
    bob = psirp_fabric.run(psirp_fabric.client("bob"))
    got = []
    psirp_fabric.run(_subscribe(bob, got))
    threading.Event().wait(0.5)  # longer than a link is waited for
    psirp_fabric.run(alice.publish(SID, RID, b"1"))
    psirp_fabric.run(_until(lambda: got == [b"1"]))


async def _subscribe(client, got):
    client.subscribe(SID, RID, lambda event: got.append(event.content))


async def _until(condition):
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


def test_everything_is_closed_at_the_end():
    threads = threading.active_count()
    with LoopbackFabric() as fabric:
        alice = fabric.run(fabric.client("alice"))
        servers = [node.env for node in fabric.nodes.values()]
        assert sorted(fabric.nodes) == ["r1", "r2", "t1"]
        assert len(fabric.servers) == 2
    assert alice.node.env._socket.fileno() == -1
    assert all(env._socket.fileno() == -1 for env in servers)
    with pytest.raises(ClientClosed):
        asyncio.run(alice.publish(SID, RID, b""))
    never = _until(lambda: True)
    with pytest.raises(RuntimeError, match="use `with`"):
        fabric.run(never)
    never.close()
    gc.collect()  # a socket that was left open would warn, and warnings are errors
    assert threading.active_count() <= threads


def test_inside_a_loop_of_its_own(accelerate):
    async def main():
        async with LoopbackFabric(accelerate=accelerate) as fabric:
            alice = await fabric.client("alice")
            assert alice.node.env.driver_name == ("c" if accelerate else "python")
            async with fabric.connect("bob", closing=0.1) as bob:
                await alice.publish(SID, RID, b"hello")
                assert (await bob.subscribe_sync(SID, RID)).content == b"hello"
            async with fabric.connect("bob") as bob:
                assert (await bob.subscribe_sync(SID, RID)).content == b"hello"

    asyncio.run(main())


def test_a_fabric_that_cannot_start_leaves_nothing_behind(monkeypatch):
    monkeypatch.setattr("psirp_sim.runtime.loopback.SERVERS", ())
    monkeypatch.setattr("psirp_sim.runtime.loopback.ROLES", {"t1": ["topology"], "f1": []})
    fabric = LoopbackFabric(timeout=0.1)
    with pytest.raises(TimeoutError, match="no rendezvous server"), fabric:
        pass
    assert all(node.env._socket.fileno() == -1 for node in fabric.nodes.values())
    gc.collect()
