"""One node that forwards, publishes or listens, as a process: JSON lines on stdin and stdout.

Arguments: name, port, roles separated by commas, file of the storage or nothing. Commands on stdin:

    {"link": name, "port": n}       a neighbour
    {"start": true}                 run
    {"listen": [numbers]}           subscribe to these items, and check what comes
    {"publish": [numbers], ...}     publish these items; see `Publisher`
    {"limit": n}                    publish up to this version

It says {"ready": port} and, every 100 ms, a report.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from functools import cache
from hashlib import sha256
from pathlib import Path
from random import Random

from psirp_sim.node import FabricNode
from psirp_sim.publications.events import Event, Update
from psirp_sim.rendezvous.settings import RendezvousSettings
from psirp_sim.runtime import loop
from psirp_sim.runtime.durations import MILLISECOND, SECOND
from psirp_sim.runtime.udp import UdpNode
from psirp_sim.settings import FabricSettings
from psirp_sim.wire.sealing import FabricKeys
from tests.e2e.conversation import converse

SETTINGS = FabricSettings(
    keys=FabricKeys("end to end"),
    link_seed=b"end to end",
    hello_interval=200 * MILLISECOND,
    rendezvous=RendezvousSettings(
        members=("r1", "r2"),
        lease=15 * SECOND,
        gossip_interval=300 * MILLISECOND,
        settle=5 * SECOND,
        time_out=4 * SECOND,
    ),
)
SCOPES = 2
MOST_AHEAD = 600
"""Versions that a publisher is ahead of any of its listeners: well within its history."""
POOL = Random(5).randbytes(400_000)
"""What contents are cut from."""
LARGE = 200_000
"""Bytes that a large publication has at least."""


def sid_of(item: int) -> bytes:
    return sha256(b"scope %d" % (item % SCOPES)).digest()


@cache
def rid_of(item: int) -> bytes:
    return sha256(b"item %d" % item).digest()


def content_of(seed: int, item: int, version: int) -> bytes:
    """Most are short, some need a few packets, few are large; the first is never the same."""
    random = Random(f"{seed} {item} {version}")
    kind = random.random()
    if version % 250 == 100:
        size = random.randint(LARGE, 300_000)
    elif kind < 0.8:
        size = random.randint(0, 500)
    elif kind < 0.96:
        size = random.randint(500, 8_000)
    else:
        size = random.randint(8_000, 60_000)
    begin = random.randrange(len(POOL) - size)
    return b"%d %d " % (item, version) + POOL[begin : begin + size]


class Publisher:
    """Publishes items, version after version, once all who are expected listen to them."""

    def __init__(
        self, node: UdpNode, core: FabricNode, items: list[int], *,
        seed: int, versions: int, hold: int, every_ms: int, listeners: list[str],
    ) -> None:  # fmt: skip
        """It waits to be told before it publishes the last `hold` of the versions."""
        self.node = node
        self.client = core.client
        self.seed = seed
        self.limit = versions - hold
        self.every = every_ms * MILLISECOND
        self.offers = {item: self.client.offer(sid_of(item), rid_of(item)) for item in items}
        self.reached = {item: dict.fromkeys(listeners, 1) for item in items}
        """The next version that each of them wants, as far as was ever known."""
        self.published = dict.fromkeys(items, 0)
        self.waited = 0
        """Turns in which a listener was too far behind."""
        self._begin()

    def _begin(self) -> None:
        expected = all(
            offer.sending.followers.keys() == self.reached[item].keys()
            for item, offer in self.offers.items()
        )
        self.node.call_later(self.every, self._publish if expected else self._begin)

    def _publish(self) -> None:
        for item, offer in self.offers.items():
            version = self.published[item] + 1
            reached = self.reached[item]
            for name, follower in offer.sending.followers.items():
                reached[name] = max(reached.get(name, 1), follower.next)
            if version > self.limit:
                continue
            if version > min(reached.values()) + MOST_AHEAD:
                self.waited += 1
                continue
            content = content_of(self.seed, item, version)
            self.client.publish(sid_of(item), rid_of(item), content)
            self.published[item] = version
        self.node.call_later(self.every, self._publish)

    def report(self) -> dict:
        return {
            "published": self.published,
            "waited": self.waited,
            "sending": {
                item: {
                    "sequence": offer.sending.sequence,
                    "window": offer.sending.pace.window,
                    "backlog": offer.sending.backlog,
                    "followers": {
                        name: {"next": each.next, "seen": each.seen, "trip_ms": each.trip / 1e6}
                        for name, each in offer.sending.followers.items()
                    },
                }
                for item, offer in self.offers.items()
            },
        }


class Listener:
    """Checks that every version comes once, in order and as it was published."""

    def __init__(self, core: FabricNode, seed: int, items: list[int]) -> None:
        self.client = core.client
        self.seed = seed
        self.items = {rid_of(item): item for item in items}
        self.heard = dict.fromkeys(items, 0)
        self.bytes = 0
        self.large = 0
        self.wrong: list[str] = []
        for item in items:
            self.client.subscribe(sid_of(item), rid_of(item), self._hear)

    def _hear(self, event: Event) -> None:
        item = self.items[event.rid]
        if not isinstance(event, Update):
            self.wrong.append(f"item {item} after {self.heard[item]}: {event}")
            return
        expected = self.heard[item] + 1
        version = event.position.version
        if version != expected:
            self.wrong.append(f"item {item}: {version} instead of {expected}")
        if event.content != content_of(self.seed, item, version):
            self.wrong.append(f"item {item}, version {version}: another content")
        self.heard[item] = max(version, self.heard[item])
        self.bytes += len(event.content)
        self.large += len(event.content) >= LARGE

    def report(self) -> dict:
        return {
            "heard": self.heard,
            "heard_bytes": self.bytes,
            "large": self.large,
            "wrong": self.wrong[:10],
            "receptions": {
                self.items[each.rid]: {
                    "needed": each.needed, "latest": each.latest, "held": len(each.held),
                    "seen": {name: origin.seen for name, origin in each.origins.items()},
                }
                for streams in self.client.subscriber.receptions.values()
                for each in streams.values()
            },
        }  # fmt: skip


class Process:
    def __init__(self, node: UdpNode, roles: list[str]) -> None:
        self.node = node
        self.roles = roles
        self.core: FabricNode | None = None
        self.publisher: Publisher | None = None
        self.listener: Listener | None = None

    def command(self, line: bytes) -> None:
        command = json.loads(line)
        if "link" in command:
            self.node.add_link(command["link"], ("127.0.0.1", command["port"]))
        elif "start" in command:
            self.core = self.node.run(lambda env: FabricNode(env, SETTINGS, roles=self.roles))
        elif "limit" in command:
            self.publisher.limit = command["limit"]
        else:
            self.work(command)

    def work(self, command: dict) -> None:
        if not self.core.begun:
            self.node.call_later(50 * MILLISECOND, self.work, command)
        elif "listen" in command:
            self.listener = Listener(self.core, command["seed"], command["listen"])
        else:
            items = command.pop("publish")
            self.publisher = Publisher(self.node, self.core, items, **command)

    def report(self) -> None:
        report = {"socket": asdict(self.node.counters), "driver": self.node.driver_name}
        if self.core is not None and self.core.begun:
            report["forwarding"] = self.core.forwarding.as_dict()
            report["control"] = self.core.counters
            report["client"] = self.core.client.counters
            report["manager"] = self.core.attachment.manager[0]
            if self.core.server is not None:
                report["rendezvous"] = self.core.server.status()
        for part in (self.publisher, self.listener):
            report |= {} if part is None else part.report()
        print(json.dumps(report), flush=True)


async def main(name: str, port: str, roles: str, storage: str) -> None:
    file = Path(storage) if storage else None
    async with UdpNode(name, ("127.0.0.1", int(port)), storage=file) as node:
        process = Process(node, [role for role in roles.split(",") if role])
        await converse(node.address[1], process.command, process.report)


if __name__ == "__main__":
    loop.run(main(*sys.argv[1:]))
