"""Small worlds whose traces are known: written as a node writes them, and kept as plain events."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import date

from psph.trace_writer.encoding import ParquetBuffer, by_day, to_columns
from psph.trace_writer.files import NodeFiles
from traces import Stage, TraceEvent, check

S = 1_000_000_000
MS = 1_000_000
START = 1_800_000_000 * S
"""2027-01-15 08:00 UTC, in true time."""


def trace_id(number):
    return f"{number:032x}"


@dataclass
class World:
    """Nodes with wrong clocks, and all that they write."""

    domains: dict[str, str]
    skew_ns: dict[str, float] = field(default_factory=dict)
    drift: dict[str, float] = field(default_factory=dict)
    events: list[TraceEvent] = field(default_factory=list)

    def wall(self, node, true_ns):
        elapsed = true_ns - START
        off = self.skew_ns.get(node, 0) + self.drift.get(node, 0) * elapsed
        return true_ns + round(off)

    def emit(self, stage, node, true_ns, **columns):
        event = TraceEvent(
            stage=stage, node=node, domain=self.domains[node],
            wall_ns=self.wall(node, true_ns), mono_ns=true_ns - START + 10**12, **columns,
        )  # fmt: skip
        check(event)
        self.events.append(event)

    def probe(self, node, peer, true_ns, there_ns, back_ns):
        turn = 100_000
        walls = (
            self.wall(node, true_ns),
            self.wall(peer, true_ns + there_ns),
            self.wall(peer, true_ns + there_ns + turn),
            self.wall(node, true_ns + there_ns + turn + back_ns),
        )
        t1, t2, t3, t4 = walls
        self.emit(
            Stage.CLOCK_PROBE, node, true_ns + there_ns + turn + back_ns,
            peer=peer, t1=t1, t2=t2, t3=t3, t4=t4,
        )  # fmt: skip

    def write(self, root, *, per_file=1_000):
        by_node = defaultdict(list)
        for event in self.events:
            by_node[event.node].append(event)
        for node, events in by_node.items():
            files = NodeFiles(root, self.domains[node], node)
            for at in range(0, len(events), per_file):
                write_file(files, events[at : at + per_file], node, self.domains[node])
        return root


def write_file(files, events, node, domain):
    for day, batch in by_day(to_columns(events, node, domain)):
        buffer = ParquetBuffer(day, 1 << 20)
        buffer.add(batch)
        files.publish(day, buffer.finish(node=node, domain=domain, dropped="0"))


def position(topic, version):
    return {"publisher": bytes([topic]) * 16, "epoch": 1, "version": version}


def names(topic):
    return {"topic": f"http://t{topic}.test/", "sid": bytes([topic]) * 32,
            "rid": bytes([topic + 100]) * 32}  # fmt: skip


def crossings(seed=1, updates=200, loss=0.1, doubled=0.05, domains=3):
    """Updates from the first domain to all: fetched, published, delivered, pushed or shown."""
    rng = random.Random(seed)
    nodes = [f"psph-{chr(97 + n)}" for n in range(domains)]
    world = World(
        domains={node: f"site-{node[-1]}.test" for node in nodes},
        skew_ns={node: rng.uniform(-500, 500) * MS for node in nodes},
        drift={node: rng.uniform(-50e-6, 50e-6) for node in nodes},
    )
    for second in range(0, updates + 30, 2):
        for node, peer in zip(nodes, nodes[1:] + nodes[:1], strict=True):
            there, back = (round((2 + rng.expovariate(1)) * MS) for _ in range(2))
            world.probe(node, peer, START + second * S, there, back)
    for number in range(updates):
        topic = min(4, int(rng.expovariate(1)))
        at = START + number * S + rng.randrange(S)
        shared = {"trace_id": trace_id(number), **position(topic, number + 1), "bytes": 500}
        web, fabric = {"topic": names(topic)["topic"]}, names(topic)
        origin, *others = nodes
        world.emit(Stage.PING_RECEIVED, origin, at, trace_id=trace_id(number), **web)
        at += rng.randrange(1, 20) * MS
        world.emit(Stage.FETCHED, origin, at, **shared, **web)
        at += rng.randrange(1, 5) * 100_000
        world.emit(Stage.PUBLISHED, origin, at, **shared, **fabric)
        for node in others:
            if rng.random() < loss:
                continue
            there = at + round((2 + rng.expovariate(1)) * MS)
            for _ in range(2 if rng.random() < doubled else 1):
                world.emit(Stage.DELIVERED, node, there, **shared, **fabric)
            for reader in range(rng.randrange(3)):
                left = there + rng.randrange(1, 30) * 100_000
                stage = Stage.PUSHED if reader else Stage.BROWSER_SENT
                world.emit(stage, node, left, **shared, **web, subscriber=f"{node}/{reader}")
                if rng.random() < doubled:
                    world.emit(
                        stage, node, left + MS, **shared, **web, subscriber=f"{node}/{reader}"
                    )
    return world


DAY = date(2027, 1, 15)
