"""Registrations a second at one rendezvous server, beside a plain server that only stores them.

The contenders, each a process of its own that stays for the whole run:

    ours    a fabric node that is a rendezvous server and the topology manager, storage on disk
    plain   an asyncio DatagramProtocol that opens the same sealed messages, writes their entries
            into SQLite (WAL, synchronous=NORMAL) in one transaction per turn of the event loop, and
            answers: no fabric, no matching, no rules, no limits

One more process is the load. It has a publisher and a subscriber, which are fabric nodes, for
`ours`, and two of the same `Registrar` on a bare UDP socket for `plain`. So both servers get the
same messages, from the same code, with the same window.

The contenders take turns in rounds. A ratio is the median of the rounds' ratios of registrations
per second of the server's CPU time, all its threads included: on a machine with few CPUs the
elapsed time is mostly the load's.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from statistics import median, quantiles
from typing import Any, cast

import msgspec

from psirp_sim.node import FabricNode
from psirp_sim.rendezvous.publishing import Publication
from psirp_sim.rendezvous.registrar import Registrar
from psirp_sim.rendezvous.settings import RendezvousSettings
from psirp_sim.rendezvous.subscribing import Source
from psirp_sim.runtime import loop
from psirp_sim.runtime.environment import Environment
from psirp_sim.runtime.udp import UdpNode
from psirp_sim.settings import FabricSettings
from psirp_sim.wire.message import Message
from psirp_sim.wire.rendezvous import Code, Refresh, Refreshed, Register, Registered, Side
from psirp_sim.wire.sealing import FabricKeys

KEYS = FabricKeys("bench rendezvous")
RENDEZVOUS = replace(RendezvousSettings(), members=("server",))
SETTINGS = FabricSettings(keys=KEYS, link_seed=b"bench rendezvous", rendezvous=RENDEZVOUS)
HOST = "127.0.0.1"
SCOPE = b"S" * 32
PATIENCE = 60.0
"""Seconds after which an answer is not waited for any more."""


def run(rounds: int = 7, requests: int = 2_000, matches: int = 500) -> dict[str, object]:
    """Registrations and matches a second at one rendezvous server, on disk."""
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        servers = {
            name: Process(stack, "last", name, str(Path(directory, name)))
            for name in ("ours", "plain")
        }
        load = Process(stack, "first", "load")
        ports = load.ask("connect", {name: server.hello for name, server in servers.items()})
        servers["ours"].ask("links", ports)
        load.ask("begin", None)
        took: dict[str, list[float]] = {}
        cpu: dict[str, list[float]] = {}
        for _ in range(rounds):
            for what in ("publish", "subscribe"):
                for name, server in servers.items():
                    before = server.ask("cpu", None)
                    seconds = load.ask(what, [name, requests])
                    spent = server.ask("cpu", None) - before
                    took.setdefault(f"{name} {what}", []).append(seconds)
                    cpu.setdefault(f"{name} {what}", []).append(spent)
        before = servers["ours"].ask("cpu", None)
        latencies = load.ask("match", matches)
        match_cpu = (servers["ours"].ask("cpu", None) - before) / matches
        held = {name: server.ask("registrations", None) for name, server in servers.items()}
    # Each round's, the scope, and for ours the subscriptions that were matched.
    expected = {"plain": 2 * rounds * requests, "ours": 2 * rounds * requests + 1 + matches}
    if held != expected:
        raise RuntimeError(f"the servers hold {held} registrations, and were given {expected}")

    def rate(key: str) -> int:
        return round(requests / median(took[key]))

    def cost(key: str) -> float:
        return round(median(cpu[key]) / requests * 1e6, 1)

    def ratio(what: str) -> float:
        pairs = zip(cpu[f"plain {what}"], cpu[f"ours {what}"], strict=True)
        return round(median(plain / ours for plain, ours in pairs), 3)

    both = zip(
        zip(cpu["plain publish"], cpu["plain subscribe"], strict=True),
        zip(cpu["ours publish"], cpu["ours subscribe"], strict=True),
        strict=True,
    )
    figures: dict[str, float] = {
        f"{name}_{what}s_per_s": rate(f"{name} {what}")
        for name in ("ours", "plain")
        for what in ("publish", "subscribe")
    }
    figures = {key.replace("publishs", "publishes"): value for key, value in figures.items()}
    for name in ("ours", "plain"):
        for what in ("publish", "subscribe"):
            figures[f"{name}_cpu_us_per_{what}"] = cost(f"{name} {what}")
    for what, found in latencies.items():
        cuts = quantiles(found, n=100, method="inclusive")
        figures[f"{what}_ms_p50"] = round(cuts[49] * 1e3, 2)
        figures[f"{what}_ms_p99"] = round(cuts[98] * 1e3, 2)
    figures["ours_cpu_us_per_match"] = round(match_cpu * 1e6, 1)
    figures["registrations_verified"] = held["ours"]
    return {
        "ratios": {
            "vs_plain_sqlite_server": round(
                median(sum(plain) / sum(ours) for plain, ours in both), 3
            ),
            "publish_vs_plain_sqlite_server": ratio("publish"),
            "subscribe_vs_plain_sqlite_server": ratio("subscribe"),
        },
        "figures": figures,
        "notes": [
            "ratios: registrations per second of the server's CPU time (all threads), ours against "
            "a plain asyncio UDP server that opens the same messages, stores their entries in "
            "SQLite in one transaction per loop turn and answers, and does nothing else: it is a "
            "floor, and above 1 we would be cheaper than it",
            "a request is one publication or subscription of an item, up to 9 in a message, "
            "durable (SQLite, WAL, synchronous=NORMAL) before it is answered; both servers get "
            "the same messages from the same client code",
            "..._per_s: by elapsed time with one client process, whose own work is in it; "
            "..._cpu_us_per_...: of the server",
            "start_publish, subscribed: from subscribe() until the publisher, and the subscriber, "
            "are told of the match, one at a time at a server that does nothing else; 2 ms of it "
            "is the time for which the server collects changes",
            f"median of {rounds} rounds of {requests} requests of each kind; the registrations "
            "that the servers hold in the end were counted",
        ],
    }


class Process:
    """A process of the benchmark: a line of JSON for each question, and one for the answer."""

    def __init__(self, stack: ExitStack, cpu: str, name: str, *arguments: str) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.rendezvous", name, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        stack.enter_context(self._process)
        stack.callback(self._process.kill)
        if sys.platform == "linux":
            # The servers on one CPU and the load on the other, where there are two.
            cpus = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(self._process.pid, cpus[-1:] if cpu == "last" else cpus[:1])
        self.hello = self._answer()

    def ask(self, question: str, about: object) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([question, about]) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a process of the benchmark ended with {self._process.wait()}")
        return json.loads(line)


async def _questions() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    return reader


def _say(answer: object) -> None:
    print(json.dumps(answer), flush=True)


# The servers


async def _ours(file: str) -> None:
    async with UdpNode("server", (HOST, 0), storage=Path(file)) as node:
        questions = await _questions()
        _say(node.address[1])
        core: FabricNode | None = None
        while line := await questions.readline():
            match json.loads(line):
                case ["links", ports]:
                    for name, port in ports.items():
                        node.add_link(name, (HOST, port))
                    core = FabricNode(node, SETTINGS, roles=["rendezvous", "topology"])
                    node.run(lambda env, core=core: core)  # type: ignore[misc]
                    _say(None)
                case ["cpu", _]:
                    _say(time.process_time())
                case ["registrations", _]:
                    assert core is not None
                    assert core.server is not None
                    _say(core.server.registrations.count)


class PlainServer(asyncio.DatagramProtocol):
    """Stores what it is told, and says so."""

    def __init__(self, file: str) -> None:
        self.database = sqlite3.connect(file, isolation_level=None)
        self.database.execute("PRAGMA journal_mode = WAL")
        self.database.execute("PRAGMA synchronous = NORMAL")
        self.database.execute(
            "CREATE TABLE state (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"
        )
        self._arrived: list[tuple[bytes, Any]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: Any) -> None:
        if not self._arrived:
            asyncio.get_running_loop().call_soon(self._take)
        self._arrived.append((data, addr))

    def _take(self) -> None:
        arrived, self._arrived = self._arrived, []
        answers: list[tuple[Message, Any]] = []
        execute = self.database.execute
        execute("BEGIN IMMEDIATE")
        for data, address in arrived:
            message = KEYS.open(data)
            if isinstance(message, Refresh):
                answers.append(
                    (Refreshed(message.client, message.epoch, "server", 1, True), address)
                )
            if not isinstance(message, Register):
                continue
            results = []
            for entry in message.entries:
                key = message.client.encode() + b"\0" + bytes((entry.side,)) + entry.sid + entry.rid
                value = msgspec.msgpack.encode((message.client, message.epoch, entry))
                execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (key, value))
                results.append((entry.sequence, entry.present, Code.OK))
            answer = Registered(message.client, message.epoch, "server", 1, results)
            answers.append((answer, address))
        execute("COMMIT")
        for reply, address in answers:
            self._transport.sendto(KEYS.seal(reply), address)


async def _plain(file: str) -> None:
    transport, server = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: PlainServer(file), local_addr=(HOST, 0)
    )
    questions = await _questions()
    _say(transport.get_extra_info("sockname")[1])
    while line := await questions.readline():
        match json.loads(line):
            case ["cpu", _]:
                _say(time.process_time())
            case ["registrations", _]:
                _say(server.database.execute("SELECT count(*) FROM state").fetchone()[0])
    transport.close()


# The load


class PlainClient:
    """A core without a fabric: the registrar, and a link to the plain server."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self.registrar = Registrar(
            env,
            RENDEZVOUS,
            epoch=lambda: 1,
            servers=lambda: {"server": 1},
            reachable=lambda server: True,
            send=self._send,
            restarted=lambda *_: None,
        )

    def start(self) -> None:
        self.registrar.start()

    def receive(self, link: str, packet: bytes) -> None:
        match KEYS.open(packet):
            case Registered() as message:
                self.registrar.answered(message)
            case Refreshed() as message:
                self.registrar.refreshed(message)

    def stop(self) -> None:
        pass

    def _send(self, server: str, message: Message) -> None:
        self._env.links["server"].send(KEYS.seal(message))


class Load:
    """All clients, in one process."""

    def __init__(self, nodes: dict[str, UdpNode]) -> None:
        self._nodes = nodes
        self._fabric: dict[str, FabricNode] = {}
        self._plain: dict[str, PlainClient] = {}
        self._rids: Iterator[bytes] = (number.to_bytes(32) for number in count(1))
        self._published: list[bytes] = []

    def connect(self, servers: dict[str, int]) -> dict[str, int]:
        """Link everybody to the servers; our ports that `ours` has to know."""
        for name, node in self._nodes.items():
            node.add_link(
                "server", (HOST, servers["plain" if name.startswith("plain") else "ours"])
            )
        return {
            name: node.address[1]
            for name, node in self._nodes.items()
            if not name.startswith("plain")
        }

    async def begin(self) -> None:
        """Start, and wait until the server can be used."""
        attached = asyncio.Event()
        for name, node in self._nodes.items():
            if name.startswith("plain"):
                self._plain[name.removeprefix("plain-")] = plain = PlainClient(node)
                node.run(lambda env, core=plain: core)  # type: ignore[misc]
            else:
                self._fabric[name] = core = FabricNode(node, SETTINGS, attached=attached.set)
                node.run(lambda env, core=core: core)  # type: ignore[misc]
        for core in self._fabric.values():
            while not core.begun or "server" not in core.attachment.routes:
                await attached.wait()
                attached.clear()
        requests = Requests(1)
        self._fabric["publisher"].rendezvous.publish_scope(SCOPE, requests.ended)
        await requests.all_ended()

    async def register(self, what: str, server: str, number: int) -> float:
        """Make so many requests at once; the seconds until all have been answered."""
        requests = Requests(number)
        side = Side.PUBLISHER if what == "publish" else Side.SUBSCRIBER
        client = "publisher" if what == "publish" else "subscriber"
        rids = [next(self._rids) for _ in range(number)]
        begun = time.perf_counter()
        if server == "plain":
            for rid in rids:
                self._plain[client].registrar.register(side, SCOPE, rid, done=requests.ended)
        elif what == "publish":
            for rid in rids:
                self._fabric[client].rendezvous.publish(
                    SCOPE, rid, requests.ended, base=lambda: None, changed=_ignore
                )
            self._published += rids
        else:
            for rid in rids:
                self._fabric[client].rendezvous.subscribe(
                    SCOPE, rid, requests.ended, changed=_ignore
                )
        await requests.all_ended()
        return time.perf_counter() - begun

    async def match(self, number: int) -> dict[str, list[float]]:
        """Subscribe to one published item after the other; how long until both ends knew."""
        started, subscribed = [], []
        publications = self._fabric["publisher"].rendezvous.publishing.publications
        for rid in self._published[:number]:
            told: dict[str, float] = {}
            both = asyncio.Event()

            def tell(
                who: str, told: dict[str, float] = told, both: asyncio.Event = both
            ) -> Callable[[Publication | Source], None]:
                def changed(event: Publication | Source) -> None:
                    told.setdefault(who, time.perf_counter())
                    if len(told) == 2:
                        both.set()

                return changed

            publications[SCOPE, rid].changed = tell("publisher")
            requests = Requests(1)
            begun = time.perf_counter()
            self._fabric["subscriber"].rendezvous.subscribe(
                SCOPE, rid, requests.ended, changed=tell("subscriber")
            )
            await asyncio.wait_for(both.wait(), PATIENCE)
            await requests.all_ended()
            started.append(told["publisher"] - begun)
            subscribed.append(told["subscriber"] - begun)
            await asyncio.sleep(0.005)  # until nothing of it is under way any more
        return {"start_publish": started, "subscribed": subscribed}


class Requests:
    """Requests that all have to end well."""

    def __init__(self, number: int) -> None:
        self._left = number
        self._codes: Counter[str] = Counter()
        self._done = asyncio.Event()

    def ended(self, code: Code) -> None:
        self._codes[code.name] += 1
        self._left -= 1
        if not self._left:
            self._done.set()

    async def all_ended(self) -> None:
        await asyncio.wait_for(self._done.wait(), PATIENCE)
        if set(self._codes) != {Code.OK.name}:
            raise RuntimeError(f"requests ended with {dict(self._codes)}")


def _ignore(event: Publication | Source) -> None:
    """Nobody is told in the rounds."""


async def _load() -> None:
    names = ("publisher", "subscriber", "plain-publisher", "plain-subscriber")
    async with (
        UdpNode(names[0], (HOST, 0)) as one,
        UdpNode(names[1], (HOST, 0)) as two,
        UdpNode(names[2], (HOST, 0)) as three,
        UdpNode(names[3], (HOST, 0)) as four,
    ):
        load = Load(dict(zip(names, (one, two, three, four), strict=True)))
        questions = await _questions()
        _say(None)
        while line := await questions.readline():
            match json.loads(line):
                case ["connect", servers]:
                    _say(load.connect(servers))
                case ["begin", _]:
                    await asyncio.wait_for(load.begin(), PATIENCE)
                    _say(None)
                case ["match", number]:
                    _say(await load.match(number))
                case [what, [server, number]]:
                    _say(await load.register(what, server, number))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["ours", path]:
            loop.run(_ours(path))
        case ["plain", path]:
            loop.run(_plain(path))
        case ["load"]:
            loop.run(_load())
