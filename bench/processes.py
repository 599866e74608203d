"""What the benchmarks of publications share: processes, and the nodes of a fabric in them.

A benchmark runs in one process and its contenders in others, which it asks questions, a line of
JSON each (`Process`); `serve` is their end. Each of them holds any number of fabric nodes and of
clients of the reference, so that both systems have processes of the same kind.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field, replace
from hashlib import sha256
from statistics import median, quantiles
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from psirp_sim.node import FabricNode
from psirp_sim.publications.events import Event, Update
from psirp_sim.publications.offer import Offer
from psirp_sim.runtime.durations import MILLISECOND
from psirp_sim.runtime.udp import UdpNode
from psirp_sim.settings import FabricSettings
from psirp_sim.wire.rendezvous import Code
from psirp_sim.wire.sealing import FabricKeys

HOST = "127.0.0.1"
PATIENCE = 120.0
"""Seconds after which something is not waited for any more."""
SETTINGS = FabricSettings(keys=FabricKeys("bench"), link_seed=b"bench")
"""The default configuration, but for the rendezvous server's name and its first seconds."""
SETTLE = 300 * MILLISECOND
"""A server that knows nothing yet does not say no for so long: nothing that is measured."""
ZONE_KEY = Ed25519PrivateKey.from_private_bytes(sha256(b"bench zone").digest())
ZONE_KEYS = (ZONE_KEY.public_key().public_bytes_raw(),)
BURST = 16
"""Publications between two turns of the event loop."""
NUMBER = 8
"""Bytes at the beginning of every content: a number that counts from 0 in its stream."""

Answer = Callable[[Any], Awaitable[object]]


# The benchmark's side


class Process:
    """A process of a benchmark: a line of JSON for each question, and one for the answer."""

    def __init__(self, stack: ExitStack, module: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        stack.enter_context(self._process)
        stack.callback(self._process.kill)

    def ask(self, question: str, about: object = None) -> Any:
        self.tell(question, about)
        return self.answer()

    def tell(self, question: str, about: object = None) -> None:
        """Ask, and come back for the answer later."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([question, about]) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a process of the benchmark ended with {self._process.wait()}")
        return json.loads(line)


def build(
    places: Mapping[str, Process],
    links: Iterable[tuple[str, str]],
    *,
    server: str,
    relayed: Mapping[tuple[str, str], tuple[int, int]] | None = None,
) -> None:
    """Open nodes, each in its process, link them, and wait until all can be used.

    `server` is topology manager and rendezvous server. A link that is `relayed` leads to these
    ports, one for each of its ends.
    """
    ports: dict[str, int] = {}
    processes = list(dict.fromkeys(places.values()))
    for process in processes:
        ports |= process.ask("open", [name for name, place in places.items() if place is process])
    neighbours: dict[str, dict[str, int]] = {name: {} for name in places}
    for one, other in links:
        ends = (ports[other], ports[one])
        if relayed is not None and (one, other) in relayed:
            ends = relayed[one, other]
        neighbours[one][other], neighbours[other][one] = ends
    for process in processes:
        mine = {name: neighbours[name] for name, place in places.items() if place is process}
        process.ask("run", [server, mine])
    for process in processes:
        process.ask("attached")


def ports_of(process: Process, names: Sequence[str]) -> dict[str, int]:
    """Open nodes whose ports must be known before they are linked."""
    found: dict[str, int] = process.ask("open", list(names))
    return found


def percentiles(found: Sequence[float]) -> tuple[float, float]:
    """The 50th and the 99th."""
    cuts = quantiles(found, n=100, method="inclusive")
    return cuts[49], cuts[98]


def median_ratio(ours: Sequence[float], reference: Sequence[float]) -> float:
    """Of the rounds, which are pairs."""
    return round(median(one / other for one, other in zip(ours, reference, strict=True)), 3)


# The other side


async def serve(answers: Mapping[str, Answer]) -> None:
    """Answer questions until the benchmark has no more."""
    reader = asyncio.StreamReader(limit=1 << 24)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while line := await reader.readline():
        question, about = json.loads(line)
        print(json.dumps(await answers[question](about)), flush=True)


def ids_of(item: str) -> tuple[bytes, bytes]:
    """Scope and rendezvous id; every item has a scope of its own."""
    return sha256(b"scope " + item.encode()).digest(), sha256(b"item " + item.encode()).digest()


@dataclass(slots=True)
class Tally:
    """What one subscriber has got, whichever system brought it: every number once, in order."""

    body: bytes | None = None
    """What is to follow the number and the time; not looked at when None."""
    count: int = 0
    wanted: int = 0
    last: int = 0
    """When the last one came that was wanted."""
    latencies: list[int] | None = None
    """Nanoseconds, where they are measured: then the time of sending follows the number."""
    complete: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, content: bytes) -> None:
        if self.latencies is not None:
            sent = int.from_bytes(content[NUMBER : 2 * NUMBER])
            self.latencies.append(time.monotonic_ns() - sent)
        if int.from_bytes(content[:NUMBER]) != self.count:
            got = int.from_bytes(content[:NUMBER])
            raise SystemExit(f"number {got} came instead of {self.count}")
        if self.body is not None and content[NUMBER:] != self.body:
            raise SystemExit(f"number {self.count} has another content than was sent")
        self.count += 1
        if self.count == self.wanted:
            self.last = time.monotonic_ns()
            self.complete.set()

    def event(self, event: Event) -> None:
        """The same, from the fabric."""
        if not isinstance(event, Update):
            raise SystemExit(f"after number {self.count - 1} came {event}")
        self.take(event.content)

    def expect(self, more: int) -> None:
        """So many will be sent from now on."""
        self.wanted = self.count + more
        self.complete.clear()

    async def all(self) -> int:
        """When the last one came."""
        try:
            await asyncio.wait_for(self.complete.wait(), PATIENCE)
        except TimeoutError:
            raise SystemExit(f"{self.count} of {self.wanted} have come") from None
        return self.last


async def last_of(tallies: Iterable[Tally]) -> int:
    """When the last of them had everything."""
    return max([await each.all() for each in tallies])


async def _until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("the fabric of the benchmark did not come up")
        await asyncio.sleep(0.02)


class Host:
    """The fabric nodes in this process."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self.nodes: dict[str, UdpNode] = {}
        self.cores: dict[str, FabricNode] = {}
        self.tallies: dict[str, Tally] = {}
        """Of the subscribers, by node and item: see `tally`."""
        self._signed: set[bytes] = set()
        """Scopes of a zone that has keys."""
        self._moved = asyncio.Event()

    def answers(self) -> dict[str, Answer]:
        return {
            "open": self._open,
            "run": self._run,
            "attached": self._attached,
            "offer": self._offer,
            "subscribe": self._subscribe,
            "followed": self._followed,
            "status": self._status,
        }

    async def _open(self, names: list[str]) -> dict[str, int]:
        for name in names:
            if name not in self.nodes:
                node = UdpNode(name, (HOST, 0))
                self.nodes[name] = await self._stack.enter_async_context(node)
        return {name: self.nodes[name].address[1] for name in names}

    async def _run(self, about: tuple[str, dict[str, dict[str, int]]]) -> None:
        server, links = about
        rendezvous = replace(SETTINGS.rendezvous, members=(server,), settle=SETTLE)
        settings = replace(SETTINGS, rendezvous=rendezvous)
        for name, neighbours in links.items():
            node = self.nodes[name]
            for neighbour, port in neighbours.items():
                node.add_link(neighbour, (HOST, port))
            roles = ["topology", "rendezvous"] if name == server else []
            core = self.cores[name] = FabricNode(node, settings, roles=roles)
            node.run(lambda env, core=core: core)  # type: ignore[misc]

    async def _attached(self, about: None) -> None:
        def all_there() -> bool:
            # The server needs no route to itself.
            return all(
                core.begun and (core.server is not None or core.attachment.routes)
                for core in self.cores.values()
            )

        await _until(all_there)

    async def _offer(self, about: tuple[str, str, bool]) -> None:
        """Publish an item, signed or not."""
        name, item, signed = about
        codes: asyncio.Queue[Code] = asyncio.Queue()
        client = self.cores[name].client
        client.publisher.moved = lambda offer: self._moved.set()
        client.offer(*ids_of(item), codes.put_nowait, key=ZONE_KEY if signed else None)
        code = await asyncio.wait_for(codes.get(), PATIENCE)
        if code is not Code.OK:
            raise SystemExit(f"the offer ended with {code.name}")

    async def _subscribe(self, about: tuple[list[str], str, bool]) -> None:
        """Let nodes listen to an item, signed or not."""
        names, item, signed = about
        if signed:
            self._signed.add(ids_of(item)[0])
        codes: asyncio.Queue[Code] = asyncio.Queue()
        for name in names:
            client = self.cores[name].client
            client.keys_of = lambda sid: ZONE_KEYS if sid in self._signed else ()
            listener = self.tally(name, item).event
            client.subscribe(*ids_of(item), listener, codes.put_nowait)
        for _ in names:
            code = await asyncio.wait_for(codes.get(), PATIENCE)
            if code is not Code.OK:
                raise SystemExit(f"a subscription ended with {code.name}")

    async def _followed(self, about: tuple[str, str, int]) -> None:
        """Wait until so many listen to an item."""
        name, item, count = about
        await _until(lambda: len(self.offer(name, item).sending.followers) == count)

    async def _status(self, about: None) -> dict[str, object]:
        return {
            "cpu": time.process_time(),
            "drivers": sorted({node.driver_name for node in self.nodes.values()}),
            "core_errors": sum(node.counters.core_errors for node in self.nodes.values()),
            "packets": {name: node.counters.sent for name, node in self.nodes.items()},
        }

    def tally(self, name: str, item: str) -> Tally:
        """What a subscriber has got of an item."""
        return self.tallies.setdefault(f"{name} {item}", Tally())

    def offer(self, name: str, item: str) -> Offer:
        return self.cores[name].client.offers[ids_of(item)]

    async def feed(self, name: str, item: str, contents: Iterable[bytes], ahead: int) -> None:
        """Publish one version after the other, never further ahead of a listener than that."""
        offer = self.offer(name, item)
        followers = offer.sending.followers.values()
        publish = self.cores[name].client.publish
        sid, rid = ids_of(item)
        room = 0
        async with asyncio.timeout(PATIENCE):
            for number, content in enumerate(contents):
                while not room:
                    first = min(each.next for each in followers)
                    room = max(0, ahead - (offer.history.latest + 1 - first))
                    if not room:
                        self._moved.clear()
                        await self._moved.wait()
                publish(sid, rid, content)
                room -= 1
                if number % BURST == BURST - 1:
                    await asyncio.sleep(0)
