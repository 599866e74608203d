"""Many cores on one node: each has its own part of the storage."""

from __future__ import annotations

import asyncio

from psirp_sim.runtime.linkless import LinklessNode
from psirp_sim.runtime.seats import Seat, Seats


class Sitter:
    def __init__(self, env):
        self.env = env
        self.log = []

    def start(self):
        self.log.append("start")

    def receive(self, link, packet):
        raise AssertionError("there are no links")

    def stop(self):
        self.log.append("stop")


def test_each_has_a_part_of_the_storage_of_its_own(tmp_path):
    async def main():
        path = tmp_path / "state"
        async with LinklessNode("host", storage=path) as node:
            seats = Seats()
            node.run(lambda env: seats)
            one, two, whole = (Sitter(Seat(node, name)) for name in ("1", "2", ""))
            for each in (one, two):
                seats.add(each)
            done = asyncio.Event()
            one.env.storage.write({b"key": b"one", b"gone": b"x"})
            one.env.storage.write({b"gone": None})
            two.env.storage.write({b"key": b"two"}, done.set)
            assert one.env.storage.get(b"key") == b"one", "it reads its own writes"
            await asyncio.wait_for(done.wait(), 30)
            assert two.env.storage.scan(b"") == [(b"key", b"two")]
            assert whole.env.storage.scan(b"") == [(b"1/key", b"one"), (b"2/key", b"two")]
            seats.remove(one)
            seats.remove(one)
            assert one.log == ["start", "stop"]
            assert two.log == ["start"]
        assert two.log == ["start", "stop"]
        async with LinklessNode("host", storage=path) as node:
            node.run(lambda env: Seats())
            assert Seat(node, "1").storage.scan(b"") == [(b"key", b"one")]

    asyncio.run(main())
