"""One node with a rendezvous server or a busy client, as a process: JSON lines on stdin and stdout.

Arguments: name, port, roles separated by commas, file of the storage or nothing. Commands on stdin:

    {"link": name, "port": n}       a neighbour
    {"start": true}                 run
    {"work": {...}}                 be a client; see `Customer`
    {"pause": true}                 make no more requests
    {"keep": true}                  do not give the writer lease back any more
    {"show": n}                     say, under that number, who is matched with whom

It says {"ready": port}, every 100 ms a report, and {"shown": n, ...} when asked.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from functools import partial
from hashlib import sha256
from pathlib import Path
from random import Random

from psirp_sim.node import FabricNode
from psirp_sim.rendezvous.settings import RendezvousSettings
from psirp_sim.runtime import loop
from psirp_sim.runtime.durations import MILLISECOND, SECOND
from psirp_sim.runtime.udp import UdpNode
from psirp_sim.settings import FabricSettings
from psirp_sim.wire.rendezvous import Code
from psirp_sim.wire.sealing import FabricKeys
from tests.e2e.conversation import converse

SETTINGS = FabricSettings(
    keys=FabricKeys("end to end"),
    link_seed=b"end to end",
    hello_interval=600 * MILLISECOND,
    rendezvous=RendezvousSettings(
        members=("r1", "r2", "r3"),
        lease=30 * SECOND,
        writer_lease=3 * SECOND,
        gossip_interval=300 * MILLISECOND,
        settle=10 * SECOND,
        time_out=4 * SECOND,
    ),
)
SCOPES = 12
TOPIC = b"T" * 32
TRANSIENT = {Code.TIMED_OUT, Code.NO_PATH, Code.NOT_READY, Code.OVERLOADED}
"""Answers after which the same request is made again."""
SCOPE, PUBLICATION, SUBSCRIPTION, WHOLE_SCOPE = "scope", "publication", "subscription", "whole"

Wish = tuple[str, int]
"""What it is, and the number of the item or scope."""


def sid_of(wish: Wish) -> bytes:
    _, number = wish
    return sha256(b"scope %d" % (number % SCOPES)).digest()


def rid_of(wish: Wish) -> bytes:
    kind, number = wish
    return b"" if kind in (SCOPE, WHOLE_SCOPE) else sha256(b"item %d" % number).digest()


ITEMS = {(sid_of(wish), rid_of(wish)): wish[1] for wish in ((PUBLICATION, n) for n in range(2_000))}
"""Their numbers."""


class Customer:
    """Publishes and subscribes: some things for good, others (`churn`) on and off all the time."""

    def __init__(
        self, node: UdpNode, core: FabricNode, *,
        publish: list[int], subscribe: list[int], whole: list[int], churn: list[int],
        every_ms: int, compete: bool,
    ) -> None:  # fmt: skip
        self.node = node
        self.core = core
        self.client = core.rendezvous
        self.random = Random(node.node)
        self.steady = [(PUBLICATION, each) for each in publish]
        self.steady += [(SUBSCRIPTION, each) for each in subscribe]
        self.steady += [(WHOLE_SCOPE, each) for each in whole]
        self.churn = [(kind, each) for each in churn for kind in (PUBLICATION, SUBSCRIPTION)]
        self.every = every_ms * MILLISECOND
        self.there: dict[Wish, bool | None] = {}
        """Whether it has been registered; None while a request is under way."""
        self.codes: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.seen: dict[int, set[str]] = {each: set() for each in publish}
        """Who has ever listened to what is published for good."""
        self.losses: list[tuple[int, int, str]] = []
        """When which item lost which listener."""
        self.asked = self.ended = 0
        self.paused = False
        self.keep = False
        self.held: list[list[int]] = []
        """Since when, until when, and with which fence we held the writer lease."""
        self.lease = None
        self._after([(SCOPE, each) for each in range(SCOPES)], self._begin)
        if compete:
            self._compete()

    # Requests

    def _after(self, wishes: list[Wish], then) -> None:
        """Wish for all of that; call `then` when it is there."""
        for wish in wishes:
            if wish not in self.there:
                self._ask(wish, True)
        if all(self.there.values()):
            then()
        else:
            self.node.call_later(50 * MILLISECOND, self._after, wishes, then)

    def _begin(self) -> None:
        self._after(self.steady, self._change_something)

    def _change_something(self) -> None:
        if self.churn and not self.paused:
            wish = self.random.choice(self.churn)
            there = self.there.get(wish, False)
            if there is not None:
                self._ask(wish, not there)
            self.node.call_later(self.every, self._change_something)

    def _ask(self, wish: Wish, wanted: bool, again: bool = False) -> None:
        self.there[wish] = None
        self.asked += 1
        ended = partial(self._ended, wish, wanted, again, self.asked)
        kind, sid, rid = wish[0], sid_of(wish), rid_of(wish)
        client = self.client
        refused = partial(self._refused, wish)
        if kind == SCOPE:
            client.publish_scope(sid, ended, refused=refused)
        elif kind == PUBLICATION and wanted:
            changed = partial(self._listeners, wish[1])
            client.publish(sid, rid, ended, base=lambda: None, changed=changed, refused=refused)
        elif kind == PUBLICATION:
            client.unpublish(sid, rid, ended)
        elif wanted:
            client.subscribe(sid, rid, ended, changed=lambda source: None, refused=refused)
        else:
            client.unsubscribe(sid, rid, ended)

    def _ended(self, wish: Wish, wanted: bool, again: bool, number: int, code: Code) -> None:
        self.ended += 1
        self.codes[code.name] += 1
        if self.there[wish] is not None:
            self.wrong.append(f"request {number}, {wish}, ended twice")
        elif code is Code.OK or (code is Code.NOT_REGISTERED and again and not wanted):
            self.there[wish] = wanted
        elif code in TRANSIENT:
            self.node.call_later(200 * MILLISECOND, self._ask, wish, wanted, True)
        else:
            self.wrong.append(f"{wish}, wanted: {wanted}, ended with {code.name}")

    def _refused(self, wish: Wish, code: Code) -> None:
        self.wrong.append(f"{wish} was refused later: {code.name}")

    # Matches

    def _listeners(self, item: int, publication) -> None:
        """A publication's listeners have changed, or may have."""
        seen = self.seen.get(item)
        if seen is not None:
            for name in seen - publication.listeners.keys():
                self.losses.append((self.node.now(), item, name))
            seen.clear()
            seen.update(publication.listeners)

    def _publication(self, item: int):
        wish = PUBLICATION, item
        return self.client.publishing.publications.get((sid_of(wish), rid_of(wish)))

    def secure(self) -> int:
        """Listeners for good that two homes have told us of, which are there."""
        count = 0
        for item in self.seen:
            publication = self._publication(item)
            if publication is not None:
                told = Counter(
                    listener.node
                    for said in publication.said.values()
                    if said.until is None
                    for listener in said.match.listeners
                )
                count += sum(times > 1 for times in told.values())
        return count

    def show(self) -> dict:
        """What is registered, and who is matched with whom."""
        listeners, sources = {}, {}
        for (kind, number), there in self.there.items():
            if kind == PUBLICATION and there:
                publication = self._publication(number)
                known = publication.listeners.keys() - publication.announcements.keys()
                listeners[number] = sorted(known)
        for (sid, rid, publisher), source in self.client.subscribing.sources.items():
            if source.known:
                sources.setdefault(ITEMS[sid, rid], []).append(publisher)
        there = {kind: [] for kind in (SCOPE, PUBLICATION, SUBSCRIPTION, WHOLE_SCOPE)}
        for (kind, number), is_there in self.there.items():
            if is_there:
                there[kind].append(number)
        return {"there": there, "listeners": listeners, "sources": sources}

    # The writer lease

    def _compete(self) -> None:
        self.lease = self.client.writers.acquire(TOPIC, TOPIC, self._lease_changed)

    def _lease_changed(self, lease) -> None:
        if lease.held:
            self.held.append([self.node.now(), lease.until, lease.fence])
            self.node.call_later(1_500 * MILLISECOND, self._give_back, len(self.held))
        else:
            self.held[-1][1] = lease.until

    def _give_back(self, holding: int) -> None:
        if len(self.held) == holding and self.lease.held and not self.keep:
            self.held[-1][1] = self.node.now()
            self.lease.release()
            self.lease = None
            self.node.call_later(500 * MILLISECOND, self._compete)

    def report(self) -> dict:
        for item in self.seen:
            publication = self._publication(item)
            if publication is not None:
                self._listeners(item, publication)
        holds = self.lease is not None and self.lease.held
        if holds:
            self.held[-1][1] = self.lease.until
        return {
            "asked": self.asked,
            "ended": self.ended,
            "codes": self.codes,
            "wrong": self.wrong,
            "losses": self.losses,
            "secure": self.secure(),
            "servers": sorted(self.core._rendezvous_servers()),
            "busy": sum(there is None for there in self.there.values()),
            "holds": holds,
            "keep": self.keep,
            "held": self.held,
        }


class Process:
    def __init__(self, node: UdpNode, roles: list[str]) -> None:
        self.node = node
        self.roles = roles
        self.core: FabricNode | None = None
        self.customer: Customer | None = None

    def command(self, line: bytes) -> None:
        command = json.loads(line)
        if "link" in command:
            self.node.add_link(command["link"], ("127.0.0.1", command["port"]))
        elif "start" in command:
            self.core = self.node.run(lambda env: FabricNode(env, SETTINGS, roles=self.roles))
        elif "work" in command:
            self.work(command["work"])
        elif "show" in command:
            print(json.dumps({"shown": command["show"]} | self.customer.show()), flush=True)
        else:
            for name in command:
                setattr(self.customer, {"pause": "paused"}.get(name, name), True)

    def work(self, orders: dict) -> None:
        if self.core.begun:
            self.customer = Customer(self.node, self.core, **orders)
        else:
            self.node.call_later(50 * MILLISECOND, self.work, orders)

    def report(self) -> None:
        report = {"core_errors": self.node.counters.core_errors}
        if self.customer is not None:
            report |= self.customer.report()
        if self.core is not None and self.core.server is not None and self.core.begun:
            report |= self.core.server.status()
            report["knew_nothing"] = self.core.server.registrations.knew_nothing
        print(json.dumps(report), flush=True)


async def main(name: str, port: str, roles: str, storage: str) -> None:
    file = Path(storage) if storage else None
    async with UdpNode(name, ("127.0.0.1", int(port)), storage=file) as node:
        process = Process(node, [role for role in roles.split(",") if role])
        await converse(node.address[1], process.command, process.report)


if __name__ == "__main__":
    loop.run(main(*sys.argv[1:]))
