"""Large publications to one subscriber and to ten: megabytes a second, beside plain TCP.

Three processes: the publisher, a forwarding node, and all subscribers. The fabric carries one copy
over each link. The reference has the same two outer processes, and asyncio streams from one to
the other, one for each subscriber, over which the same publications go with their length in
front. Subscribers of both check every number and every byte.

A rate counts the bytes of content that one subscriber gets, until the last one has everything. The
systems take turns in rounds. With **loss**, a relay between the forwarding node and each subscriber
(`runtime.relay`, a process in Python of its own) drops packets in both directions.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack
from random import Random
from statistics import median

from bench.processes import (
    HOST,
    NUMBER,
    Answer,
    Host,
    Process,
    Tally,
    build,
    last_of,
    median_ratio,
    ports_of,
    serve,
)
from psirp_sim.runtime import loop
from psirp_sim.runtime.relay import Relay
from psirp_sim.runtime.simulator.profiles import Constant, Independent, LinkProfile

RECEIVERS = (1, 10)
LOSS = 0.02
SIZE = 256 * 1024
"""Bytes of a publication."""
AHEAD = 32
"""Publications that a publisher is ahead of its slowest listener: 8 MB, well within its history."""
BODY = Random(1).randbytes(SIZE - NUMBER)
SEGMENT = 1_448
"""Bytes of a TCP segment on an Ethernet link; on loopback TCP has 64 KiB."""
FULL_PACKET = 1_152
"""Bytes of an envelope in a packet: nine units."""
OURS, TCP, TCP_SEGMENTS, LOSSY = "ours", "tcp", "tcp_1448", "lossy"


def run(rounds: int = 5, megabytes: int = 16, lossy_rounds: int = 2) -> dict[str, object]:
    """Megabytes a second of large publications, to one subscriber and to ten."""
    rates: dict[str, list[float]] = {}
    cpu: dict[str, list[float]] = {}
    packets: dict[str, float] = {}
    counted: dict[str, int] = {}
    with ExitStack() as stack:
        pub, node, sub, relay = (
            Process(stack, __name__, name) for name in ("pub", "f", "sub", "relay")
        )
        places = {"publisher": pub, "node": node, "subscribers": sub}

        def measure(system: str, receivers: int, number: int) -> None:
            """One round."""
            key = f"{system}_{receivers}"
            before = {name: each.ask("status") for name, each in places.items()}
            sub.ask("expect", [system, receivers, number])
            begun = pub.ask("send", [system, receivers, number])
            took = sub.ask("complete", [system, receivers]) - begun
            after = {name: each.ask("status") for name, each in places.items()}
            rates.setdefault(key, []).append(number * SIZE / took * 1e3)
            counted[key] = counted.get(key, 0) + number
            for name in places:
                spent = after[name]["cpu"] - before[name]["cpu"]
                cpu.setdefault(f"{key}_{name}", []).append(spent * 1e9 / (number * SIZE))
            name = _publisher(system, receivers)
            if name in after["publisher"]["packets"]:
                sent = after["publisher"]["packets"][name] - before["publisher"]["packets"][name]
                packets[key] = packets.get(key, 0.0) + sent

        for receivers in RECEIVERS:
            _connect(pub, node, sub, receivers)
            for system in (TCP, TCP_SEGMENTS):
                ports = sub.ask("listen", [system, receivers])
                pub.ask("connect", [system, receivers, ports])
            for _ in range(rounds):
                for system in (OURS, TCP, TCP_SEGMENTS):
                    measure(system, receivers, _publications(megabytes, receivers))
        for receivers in RECEIVERS:
            _connect(pub, node, sub, receivers, relay)
            for _ in range(lossy_rounds):
                measure(LOSSY, receivers, _publications(megabytes, receivers))
        counts = sub.ask("counts")
        status = [each.ask("status") for each in places.values()]
    wrong = {
        key: (counts[key], expected)
        for key, expected in counted.items()
        if set(counts[key]) != {expected}
    }
    if wrong:
        raise RuntimeError(f"subscribers have other numbers of publications than sent: {wrong}")
    if any(each["core_errors"] for each in status):
        raise RuntimeError("exceptions left cores")
    figures: dict[str, object] = {
        f"{system}_mb_s_{receivers}": round(median(rates[f"{system}_{receivers}"]), 1)
        for receivers in RECEIVERS
        for system in (OURS, TCP, TCP_SEGMENTS)
    }
    for receivers in RECEIVERS:
        lossy = median(rates[f"{LOSSY}_{receivers}"])
        figures[f"loss_2_percent_mb_s_{receivers}"] = round(lossy, 1)
    for system, label in ((OURS, OURS), (LOSSY, "loss_2_percent")):
        for receivers in RECEIVERS:
            key = f"{system}_{receivers}"
            least = counted[key] * SIZE / FULL_PACKET
            figures[f"{label}_packets_vs_least_{receivers}"] = round(packets[key] / least, 3)
    for receivers in RECEIVERS:
        for name in places:
            spent = median(cpu[f"{OURS}_{receivers}_{name}"])
            figures[f"{name}_cpu_ms_per_mb_{receivers}"] = round(spent, 2)
    figures["link_driver"] = "/".join(sorted({d for each in status for d in each["drivers"]}))
    figures["publications_verified"] = sum(sum(counts[key]) for key in counted)
    return {
        "ratios": {
            f"mb_s_vs_tcp_{receivers}": median_ratio(
                rates[f"{OURS}_{receivers}"], rates[f"{TCP}_{receivers}"]
            )
            for receivers in RECEIVERS
        },
        "figures": figures,
        "notes": [
            f"publications of {SIZE // 1024} KiB, unsigned, through one forwarding node; MB of "
            "content that each subscriber gets a second; every byte is compared",
            "tcp: asyncio streams between the same two processes, a connection for each "
            "subscriber and nothing in between, with the segments of 64 KiB that TCP has on "
            f"loopback; tcp_1448: the same with segments of {SEGMENT} bytes, as on Ethernet",
            "loss: 2 % in each direction of every subscriber's link, by a relay in Python that all "
            "packets pass; no TCP beside it. packets_vs_least: sent by the publisher, against full "
            "packets without any repair",
            f"medians of {rounds} rounds ({lossy_rounds} with loss), the systems in turn",
        ],
    }


def _publications(megabytes: int, receivers: int) -> int:
    """Of one round: fewer where there are more copies."""
    return max(2, megabytes * 1_000_000 // SIZE // (1 if receivers == 1 else 4))


def _publisher(system: str, receivers: int) -> str:
    return f"p-{system}-{receivers}"


def _subscribers(system: str, receivers: int) -> list[str]:
    return [f"s{number}-{system}-{receivers}" for number in range(receivers)]


def _connect(
    pub: Process, node: Process, sub: Process, receivers: int, relay: Process | None = None
) -> None:
    """A fabric of its own for each number of receivers, with and without loss."""
    system = OURS if relay is None else LOSSY
    item = f"{system}_{receivers}"
    publisher, subscribers = _publisher(system, receivers), _subscribers(system, receivers)
    middle = f"f-{system}-{receivers}"
    relayed: dict[tuple[str, str], tuple[int, int]] = {}
    if relay is not None:
        here = ports_of(node, [middle])[middle]
        there = ports_of(sub, subscribers)
        for name, sides in relay.ask("relay", [here, there]).items():
            relayed[middle, name] = (sides[0], sides[1])
    places = {middle: node, publisher: pub} | dict.fromkeys(subscribers, sub)
    links = [(publisher, middle), *((middle, name) for name in subscribers)]
    build(places, links, server=middle, relayed=relayed)
    pub.ask("offer", [publisher, item, False])
    sub.ask("subscribe", [subscribers, item, False])
    pub.ask("followed", [publisher, item, receivers])


class Publisher(Host):
    """Sends by either system."""

    def __init__(self, stack: AsyncExitStack) -> None:
        super().__init__(stack)
        self._sent: dict[str, int] = {}
        self._streams: dict[str, list[asyncio.StreamWriter]] = {}

    async def connect(self, about: tuple[str, int, list[int]]) -> None:
        system, receivers, ports = about
        for port in ports:
            opened = socket.socket()
            if system == TCP_SEGMENTS:
                opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT)
            opened.setblocking(False)
            await asyncio.get_running_loop().sock_connect(opened, (HOST, port))
            _, writer = await asyncio.open_connection(sock=opened)
            self._streams.setdefault(f"{system}_{receivers}", []).append(writer)

    def _publications(self, key: str, number: int) -> Iterator[bytes]:
        for _ in range(number):
            yield self._sent.setdefault(key, 0).to_bytes(NUMBER) + BODY
            self._sent[key] += 1

    async def send(self, about: tuple[str, int, int]) -> int:
        """As fast as it goes; when that began."""
        system, receivers, number = about
        key = f"{system}_{receivers}"
        begun = time.monotonic_ns()
        publications = self._publications(key, number)
        if system in (OURS, LOSSY):
            await self.feed(_publisher(system, receivers), key, publications, AHEAD)
        else:
            for publication in publications:
                for writer in self._streams[key]:
                    writer.write(len(publication).to_bytes(4))
                    writer.write(publication)
                await asyncio.gather(*(writer.drain() for writer in self._streams[key]))
        return begun


class Subscribers(Host):
    """Take what comes by either system."""

    def __init__(self, stack: AsyncExitStack) -> None:
        super().__init__(stack)
        self._streams: dict[str, list[Tally]] = {}

    def _of(self, system: str, receivers: int) -> list[Tally]:
        key = f"{system}_{receivers}"
        if system in (OURS, LOSSY):
            return [self.tally(name, key) for name in _subscribers(system, receivers)]
        return self._streams[key]

    async def listen(self, about: tuple[str, int]) -> list[int]:
        """A port for each receiver."""
        system, receivers = about
        ports = []
        tallies = self._streams[f"{system}_{receivers}"] = [Tally() for _ in range(receivers)]
        for tally in tallies:
            opened = socket.socket()
            if system == TCP_SEGMENTS:
                opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT)
            opened.bind((HOST, 0))

            async def take(
                reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tally: Tally = tally
            ) -> None:
                try:
                    while True:
                        length = int.from_bytes(await reader.readexactly(4))
                        tally.take(await reader.readexactly(length))
                except asyncio.IncompleteReadError:
                    writer.close()

            server = await asyncio.start_server(take, sock=opened, limit=1 << 20)
            self._stack.callback(server.close)
            ports.append(opened.getsockname()[1])
        return ports

    async def expect(self, about: tuple[str, int, int]) -> None:
        system, receivers, more = about
        for tally in self._of(system, receivers):
            tally.body = BODY
            tally.expect(more)

    async def complete(self, about: tuple[str, int]) -> int:
        return await last_of(self._of(*about))

    async def counts(self, about: None) -> dict[str, list[int]]:
        return {
            f"{system}_{receivers}": [tally.count for tally in self._of(system, receivers)]
            for system in (OURS, TCP, TCP_SEGMENTS, LOSSY)
            for receivers in RECEIVERS
        }


async def _relay(stack: AsyncExitStack, about: tuple[int, dict[str, int]]) -> dict[str, list[int]]:
    """A bad link to each of these ports: where its two ends find each other."""
    here, there = about
    profile = LinkProfile(delay=Constant(0), loss=Independent(LOSS))
    sides = {}
    for number, (name, port) in enumerate(there.items()):
        relay = await stack.enter_async_context(Relay(a_to_b=profile, b_to_a=profile, seed=number))
        relay.connect((HOST, here), (HOST, port))
        sides[name] = [relay.a_side[1], relay.b_side[1]]
    return sides


async def _main(name: str) -> None:
    async with AsyncExitStack() as stack:
        answers: dict[str, Answer] = {}
        if name == "pub":
            publisher = Publisher(stack)
            answers = publisher.answers()
            answers |= {"connect": publisher.connect, "send": publisher.send}
        elif name == "sub":
            subscribers = Subscribers(stack)
            answers = subscribers.answers()
            answers |= {
                "listen": subscribers.listen,
                "expect": subscribers.expect,
                "complete": subscribers.complete,
                "counts": subscribers.counts,
            }
        elif name == "relay":
            answers = {"relay": lambda about: _relay(stack, about)}
        else:
            answers = Host(stack).answers()
        await serve(answers)


if __name__ == "__main__":
    loop.run(_main(*sys.argv[1:]))
