"""A whole fabric in one process, on real sockets of the loopback interface: for tests.

A topology manager and two rendezvous servers, each linked with the others. Clients join at the
servers in turn, as they would from anywhere, so what they say to each other crosses nodes.
"""

# A time limit is part of what these promise.

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from psirp_sim.admission import Admission
from psirp_sim.node import FabricNode
from psirp_sim.publications.settings import PublicationSettings
from psirp_sim.rendezvous.settings import RendezvousSettings
from psirp_sim.runtime.client import FabricClient
from psirp_sim.runtime.durations import MILLISECOND
from psirp_sim.runtime.udp import Address, UdpNode
from psirp_sim.settings import FabricSettings
from psirp_sim.wire.sealing import FabricKeys

T = TypeVar("T")

HOST = "127.0.0.1"
MOST_CLIENTS = 100
SERVERS = ("r1", "r2")
ROLES = {"t1": ["topology"]} | {server: ["rendezvous"] for server in SERVERS}


class LoopbackFabric:
    """`async with LoopbackFabric() as fabric:`, or the fixture `psirp_fabric`."""

    def __init__(
        self,
        *,
        publications: PublicationSettings | None = None,
        accelerate: bool | None = None,
        timeout: float = 20.0,
    ) -> None:
        """Everybody has these limits for publications."""
        self.settings = FabricSettings(
            keys=FabricKeys("loopback"),
            link_seed=b"loopback",
            # Not as patient as a fabric that spans the world.
            hello_interval=100 * MILLISECOND,
            request_interval=100 * MILLISECOND,
            rendezvous=RendezvousSettings(
                members=SERVERS,
                retry_interval=50 * MILLISECOND,
                settle=100 * MILLISECOND,
                gossip_interval=200 * MILLISECOND,
            ),
            publications=publications or PublicationSettings(),
        )
        self._accelerate = accelerate
        self._timeout = timeout
        self._stack = AsyncExitStack()
        self._clients = AsyncExitStack()
        self._count = 0
        self._runner: asyncio.Runner | None = None
        self.nodes: dict[str, FabricNode] = {}
        """By name: t1, r1, r2."""
        self.servers: list[Address] = []
        """Where clients may join: `FabricClient.connect(servers=...)`."""

    # Inside an event loop

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            environments = {name: await self._environment(name, stack) for name in ROLES}
            for name, env in environments.items():
                for other, there in environments.items():
                    if other != name:
                        env.add_link(other, there.address)
                self.nodes[name] = self._start(name, env)
            self.servers = [environments[name].address for name in SERVERS]
            for node in self.nodes.values():
                client = FabricClient(node)
                await client.attached(self._timeout)
            await stack.enter_async_context(self._clients)
            self._stack = stack.pop_all()
        return self

    async def _environment(self, name: str, stack: AsyncExitStack) -> UdpNode:
        return await stack.enter_async_context(
            UdpNode(name, (HOST, 0), accelerate=self._accelerate)
        )

    def _start(self, name: str, env: UdpNode) -> FabricNode:
        node = env.run(lambda env: FabricNode(env, self.settings, roles=ROLES[name]))
        assert isinstance(node, FabricNode)
        if name in SERVERS:
            env.accept_links(Admission(node, MOST_CLIENTS))
        return node

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    async def client(self, name: str, *, storage: Path | None = None) -> FabricClient:
        """A client on a node of that name; closed with the fabric, and its node too.

        For one whose node ends earlier, as in a test of restarts, use `connect`.
        """
        return await self._clients.enter_async_context(self.connect(name, storage=storage))

    def connect(
        self, name: str, *, storage: Path | None = None, **options: Any
    ) -> AbstractAsyncContextManager[FabricClient]:
        """The same as a context manager; options are those of `FabricClient.connect`."""
        self._count += 1
        options = {"settings": self.settings, "accelerate": self._accelerate} | options
        return FabricClient.connect(
            name,
            servers=[self.servers[self._count % len(self.servers)]],
            listen=(HOST, 0),
            storage=storage,
            timeout=options.pop("timeout", self._timeout),
            **options,
        )

    # Without one

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the fabric's event loop, which stands still between such calls."""
        if self._runner is None:
            raise RuntimeError("use `with`, or await inside the loop that runs the fabric")
        return self._runner.run(main)

    def __enter__(self) -> Self:
        self._runner = asyncio.Runner()
        try:
            self._runner.run(self.__aenter__())
        except BaseException:
            self._runner.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._runner is not None
        with self._runner:
            self._runner.run(self.__aexit__(kind, error, trace))
        self._runner = None
