"""Packets a second through one forwarding node, beside forwarders in plain C.

The contenders, each a process of its own that stays for the whole run:

    python, accel   a `UdpNode` with the link driver in Python, or in C
    c, c_mmsg       reference forwarders without any guard: recv/send, or recvmmsg/sendmmsg
    echo            recvmmsg and sendmmsg, without a look at the packets

One more process, in C too (forward_reference.c), sends the packets, takes in the copies and checks
each of them: right bytes, right link, none twice. It keeps a window of packets on their way, so
that a contender is never idle and nothing is lost; for **overload** it sends as fast as it can.

The contenders take turns in many short rounds. Other processes disturb a round when they have the
CPU that a contender or the load is waiting for; only the quietest third of the rounds counts,
whatever came of them. A ratio is the median of their ratios. A second is one of the contender's CPU
time, which in a quiet round is all of the time. Where there are two CPUs, the contenders run on one
of them and the load on the other.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random
from socket import AF_INET, htons, inet_aton
from statistics import median
from struct import pack
from typing import TypeVar

from psirp_sim.forwarding.table import (
    HERE,
    ForwardingCounters,
    ForwardingTable,
    LoopCache,
    compile_table,
)
from psirp_sim.runtime import fastpath, loop
from psirp_sim.runtime.environment import Environment
from psirp_sim.runtime.udp import Address, UdpNode
from psirp_sim.wire.data import DataPacket
from psirp_sim.zfilters import SIZES, Scheme, ZFilter, combine, link_id, link_tags

T = TypeVar("T")

REFERENCE = Path(__file__).with_name("forward_reference.c")
REFERENCES = {"c": "recv", "c_mmsg": "mmsg", "echo": "echo"}
"""What the program calls them."""
LINKS = (8, 64, 256)
FANOUTS = (1, 4)
SINKS = 7
"""Links that lead to a socket; one more is the sender's, and nobody is behind the others."""
PACKET = 300
TEMPLATES = 64
"""Packets, with as many filters, that are sent over and over with new packet ids."""
WINDOW = 512
"""Packets on their way: more than a forwarder takes in one go, less than the buffers hold."""
DOWNSTREAM = 15
"""Links of the tree behind this node, whose tags fill a third of the filter as well."""
NODE = "node"
SEED = b"bench forward"
SCHEME = Scheme()
SIZE = SIZES[0]


class Forwarder:
    """The least core there is: it installs the table of its links."""

    def __init__(self, env: Environment) -> None:
        self.env = env

    def start(self) -> None:
        self.env.install(_table(self.env.links), ForwardingCounters())

    def receive(self, link: str, packet: bytes) -> None:
        pass

    def stop(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Turn:
    """A contender and what it has to do."""

    name: str
    links: int
    fanout: int = 1
    window: int = WINDOW

    def __str__(self) -> str:
        fan = f"_fan{self.fanout}" if self.fanout > 1 else ""
        return f"{self.name}_{self.links}{fan}{'' if self.window else '_overload'}"


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of one round."""

    packets_per_s: float
    """By the CPU time of the contender."""
    lost: float
    """Share of the copies that were due and never came."""
    busy: float
    """Share of the time it ran: 1 when it is the bottleneck, and not the load."""
    disturbed: float
    """Share of the time it or the load waited for a CPU that others had."""


def run(rounds: int = 150, seconds: float = 0.05) -> dict[str, object]:
    """Packets a second through a forwarding node, in Python and in C."""
    notes = [
        f"{PACKET}-byte packets over loopback, {TEMPLATES} filters of {SIZE} bits; every copy is "
        f"checked where it arrives; median of the quietest third of {rounds} rounds of {seconds} s",
        "python, accel: a UdpNode with all guards on; c (recv/send), c_mmsg (recvmmsg/sendmmsg): "
        "no guards, only the match; fan4: four copies of each packet",
    ]
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None or sys.platform != "linux":
        notes.append("no C compiler, or not Linux: no reference and no load, nothing was measured")
        return {"ratios": {}, "figures": {}, "notes": notes}
    names = ["c", "python", "c_mmsg", "accel"]
    if fastpath.MISSING is not None:
        names.remove("accel")
        notes.append(f"accel left out: {fastpath.MISSING}")

    # In this order those that are compared come right after each other.
    few, many = LINKS[0], LINKS[-1]
    in_ratios = [Turn("c", few), Turn("python", few), Turn("echo", few)]
    in_ratios += [Turn(name, links) for links in (few, many) for name in names[2:]]
    others = [Turn(*each) for each in product(names, LINKS, FANOUTS)]
    others = [turn for turn in others if turn not in in_ratios]
    overload = [Turn(name, few, window=0) for name in names]
    with ExitStack() as stack:
        field = Field(stack, compiler)
        for contender in dict.fromkeys((turn.name, turn.links) for turn in in_ratios + others):
            field.enter(*contender)
        measured = field.take_turns(in_ratios, rounds, seconds)
        measured |= field.take_turns(others + overload, max(1, rounds // 12), seconds)

    def ratio(ours: Turn, reference: Turn) -> float:
        pairs = zip(measured[ours], measured[reference], strict=True)
        quiet = _quietest(pairs, lambda pair: pair[0].disturbed + pair[1].disturbed)
        return round(median(one.packets_per_s / two.packets_per_s for one, two in quiet), 3)

    ratios = {"python_8_vs_c": ratio(Turn("python", few), Turn("c", few))}
    if "accel" in names:
        ratios |= {
            "accel_8_vs_c_mmsg": ratio(Turn("accel", few), Turn("c_mmsg", few)),
            "accel_256_vs_c_mmsg": ratio(Turn("accel", many), Turn("c_mmsg", many)),
            "accel_8_vs_python_8": ratio(Turn("accel", few), Turn("python", few)),
        }
    quiet = {
        turn: _quietest(found, lambda each: each.disturbed) for turn, found in measured.items()
    }
    figures: dict[str, float] = {
        f"{turn}_packets_per_s": round(median(each.packets_per_s for each in found))
        for turn, found in quiet.items()
    }
    for turn in overload:
        lost = median(each.lost for each in quiet[turn])
        figures[f"{turn}_lost_percent"] = round(100 * lost, 1)
    figures["c_mmsg_8_vs_echo"] = ratio(Turn("c_mmsg", few), Turn("echo", few))
    figures["least_busy_percent"] = round(
        100 * min(median(each.busy for each in quiet[turn]) for turn in in_ratios)
    )
    figures["most_disturbed_percent"] = round(
        100 * max(median(each.disturbed for each in quiet[turn]) for turn in in_ratios)
    )
    notes += [
        "aims: python_8_vs_c 0.45, accel_*_vs_c_mmsg 0.9; c_mmsg_8_vs_echo 0.9, or the reference "
        "would be no measure",
        "overload: offered as fast as the sender can; lost_percent: what never arrived of that",
        "least_busy_percent near 100: the contenders in the ratios were measured, not the load; "
        "most_disturbed_percent near 0: and not the rest of the machine",
    ]
    return {"ratios": ratios, "figures": figures, "notes": notes}


class Field:
    """The processes, and the files they read."""

    def __init__(self, stack: ExitStack, compiler: str) -> None:
        self._stack = stack
        self._directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self._program = str(self._directory / "reference")
        subprocess.run([compiler, "-O2", "-o", self._program, str(REFERENCE)], check=True)
        cpus = sorted(os.sched_getaffinity(0))
        self._contenders_cpu = cpus[-1:]
        self._load = self._start([self._program, "load", str(SINKS), str(len(cpus))], cpus[:1])
        self._sender, *self._sinks = map(int, _line(self._load))
        self._contenders: dict[tuple[str, int], tuple[int, int]] = {}

    def enter(self, name: str, links: int) -> None:
        """Start a contender."""
        path = self._links_file(links)
        if name in REFERENCES:
            command = [self._program, REFERENCES[name], str(path)]
        else:
            command = [sys.executable, "-m", "bench.forward", name, str(path.with_suffix(".json"))]
        process = self._start(command, self._contenders_cpu)
        (port,) = map(int, _line(process))
        self._contenders[name, links] = process.pid, port

    def take_turns(
        self, turns: Sequence[Turn], rounds: int, seconds: float
    ) -> dict[Turn, list[Measured]]:
        """Measure each of them in each round."""
        found: dict[Turn, list[Measured]] = {turn: [] for turn in turns}
        for _ in range(rounds):
            for turn in turns:
                found[turn].append(self._measure(turn, seconds))
        return found

    def _measure(self, turn: Turn, seconds: float) -> Measured:
        pid, port = self._contenders[turn.name, turn.links]
        templates = self._templates_file(turn)
        before = *_schedule(pid), *_schedule(self._load.pid)
        assert self._load.stdin is not None
        self._load.stdin.write(f"{port} {templates} {seconds} {turn.window}\n")
        self._load.stdin.flush()
        sent, due, arrived, wrong, ns = map(int, _line(self._load))
        if wrong or not arrived:
            raise RuntimeError(f"{turn}: {wrong} copies are wrong, {arrived} of {due} are right")
        after = *_schedule(pid), *_schedule(self._load.pid)
        ran, waited, _, load_waited = (
            late - early for late, early in zip(after, before, strict=True)
        )
        return Measured(
            packets_per_s=sent * arrived / due / ran * 1e9,
            lost=1 - arrived / due,
            busy=ran / ns,
            disturbed=(waited + load_waited) / ns,
        )

    def _start(self, command: list[str], cpus: Iterable[int]) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._stack.enter_context(process)
        self._stack.callback(process.kill)
        os.sched_setaffinity(process.pid, cpus)
        return process

    def _links_file(self, count: int) -> Path:
        """Addresses and tags for the references; beside it the addresses for our nodes."""
        path = self._directory / f"{count}.links"
        if path.exists():
            return path
        links: dict[str, Address] = {
            f"l{number}": (f"127.9.{number >> 8}.{number & 255}", 9) for number in range(count)
        }
        for number, port in enumerate([self._sender, *self._sinks]):
            links[_link(number, count)] = ("127.0.0.1", port)
        table = _table(links)
        content = [pack("=II", count, table.index(_link(1, count)))]
        for host, port in links.values():
            content.append(pack("=HH4s8x", AF_INET, htons(port), inet_aton(host)))
        for descriptor in range(SCHEME.d):
            for tag, _ in table.bloom[descriptor].tags:
                content.append(tag.to_bytes(SIZE // 8, sys.byteorder))
        path.write_bytes(b"".join(content))
        path.with_suffix(".json").write_text(json.dumps(links))
        return path

    def _templates_file(self, turn: Turn) -> Path:
        """The packets, and for each the sinks that get a copy: always the first from an echo."""
        path = self._directory / f"{turn.links}.{turn.fanout}.{turn.name == 'echo'}"
        if path.exists():
            return path
        random = Random(turn.links)
        table = _table(f"l{number}" for number in range(turn.links))
        with path.open("wb") as file:
            for number in range(TEMPLATES):
                sinks = [(number + each) % SINKS for each in range(turn.fanout)]
                packet = _packet(table, [_link(sink + 1, turn.links) for sink in sinks], random)
                mask = 1 if turn.name == "echo" else sum(1 << sink for sink in sinks)
                file.write(pack(f"=I{PACKET}s", mask, packet))
        return path


def _table(links: Iterable[str]) -> ForwardingTable:
    return compile_table(NODE, list(links), SEED, SCHEME)


def _link(number: int, count: int) -> str:
    """The link of the sender (0) and of each sink, spread evenly over the table."""
    return f"l{number * count // (SINKS + 1)}"


def _packet(table: ForwardingTable, out: list[str], random: Random) -> bytes:
    """A packet that goes out over these links, and over no other by chance."""
    wanted = tuple(sorted(map(table.index, out))), False
    while True:
        tree = [link_id(SEED, NODE, link) for link in out]
        tree += [random.randbytes(32) for _ in range(DOWNSTREAM)]
        for number in range(SCHEME.d):
            bits = combine(link_tags(link, SIZE, SCHEME.k, SCHEME.d)[number] for link in tree)
            packet = DataPacket(ZFilter.bloom(SIZE, number, bits), bytes(8), b"").encode()
            if table.decide(packet, HERE, LoopCache()) == wanted:
                return packet.ljust(PACKET, b"x")


def _quietest(rounds: Iterable[T], disturbed: Callable[[T], float]) -> list[T]:
    in_order = sorted(rounds, key=disturbed)
    return in_order[: max(1, len(in_order) // 3)]


def _line(process: subprocess.Popen[str]) -> list[str]:
    """What the process says next."""
    assert process.stdout is not None
    words = process.stdout.readline().split()
    if not words:
        raise RuntimeError(f"a process of the benchmark ended with {process.wait()}")
    return words


def _schedule(pid: int) -> tuple[int, int]:
    """Nanoseconds the process ran, and those it waited because others had the CPU."""
    ran, waited, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
    return int(ran), int(waited)


async def _serve(driver: str, links: dict[str, list[str | int]]) -> None:
    """A contender of ours: print the port, and forward until killed."""
    async with UdpNode(NODE, ("127.0.0.1", 0), accelerate=driver == "accel") as node:
        for name, (host, port) in links.items():
            node.add_link(name, (str(host), int(port)))
        node.run(Forwarder)
        print(node.address[1], flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    loop.run(_serve(sys.argv[1], json.loads(Path(sys.argv[2]).read_text())))
