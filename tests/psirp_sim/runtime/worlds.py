"""One way to build a network for the tests, whichever environment runs it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Protocol

from psirp_sim.runtime.durations import MILLISECOND, SECOND
from psirp_sim.runtime.environment import Core, CoreFactory
from psirp_sim.runtime.simulator import Constant, LinkProfile, Simulator
from psirp_sim.runtime.udp import UdpNode

PATIENCE = 60 * SECOND


class World(Protocol):
    """Two nodes "a" and "b" and a link between them."""

    def run(self, a: CoreFactory, b: CoreFactory, until: Callable[[Core, Core], bool]) -> None:
        """Start both and go on until the condition holds; fail when it never does."""


class SimulatedWorld:
    """Each `run` is a life of both nodes; their disks stay."""

    def __init__(self, directory: Path) -> None:
        self._simulator: Simulator | None = None

    def run(self, a: CoreFactory, b: CoreFactory, until: Callable[[Core, Core], bool]) -> None:
        if self._simulator is None:
            self._simulator = Simulator(seed=1)
            self._simulator.add_node("a", a)
            self._simulator.add_node("b", b)
            self._simulator.add_link("a", "b", LinkProfile(delay=Constant(MILLISECOND)))
            self._simulator.run_for(0)
        else:
            for name, factory in (("a", a), ("b", b)):
                self._simulator.nodes[name].factory = factory
                self._simulator.restart(name)
        nodes = self._simulator.nodes
        deadline = self._simulator.now + PATIENCE
        while not until(nodes["a"].core, nodes["b"].core):
            self._simulator.run_for(MILLISECOND)
            assert self._simulator.now < deadline, "it never came true"
        for name in nodes:
            self._simulator.shut_down(name)


class UdpWorld:
    """The same over sockets on the loopback interface."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.nodes: list[UdpNode] = []

    def run(self, a: CoreFactory, b: CoreFactory, until: Callable[[Core, Core], bool]) -> None:
        asyncio.run(self._run({"a": a, "b": b}, until))

    async def _run(
        self, factories: dict[str, CoreFactory], until: Callable[[Core, Core], bool]
    ) -> None:
        async with AsyncExitStack() as stack:
            self.nodes = [
                await stack.enter_async_context(
                    UdpNode(name, ("127.0.0.1", 0), storage=self._directory / name, seed=1)
                )
                for name in factories
            ]
            a, b = self.nodes
            a.add_link("b", b.address)
            b.add_link("a", a.address)
            cores = [node.run(factories[node.node]) for node in self.nodes]
            async with asyncio.timeout(PATIENCE / SECOND):
                while not until(*cores):
                    await asyncio.sleep(0.002)
        assert all(node.counters.core_errors == 0 for node in self.nodes)
