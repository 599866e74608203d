"""What a registration costs the rendezvous as it grows: memory, processor time, virtual time.

Two hundred clients behind ten forwarding nodes publish items in many scopes, and subscribe to
scopes of others; four servers share them. All registrations are made at once, as after the start
of a whole fabric; then single publications and subscriptions are timed while the servers hold all
that.

Processor time and memory are those of a server by itself, fed with as many registrations by the
same clients: a simulation shares its processor among all nodes.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median

import msgspec

from experiments.experiment import Claim, Context, Experiment, Plot, Row
from psirp_sim.node import FabricNode
from psirp_sim.rendezvous.homes import homes
from psirp_sim.rendezvous.registrations import Registrations
from psirp_sim.rendezvous.settings import RendezvousSettings
from psirp_sim.runtime.durations import MILLISECOND, SECOND
from psirp_sim.runtime.environment import Environment
from psirp_sim.runtime.simulator import Constant, LinkProfile, Simulator
from psirp_sim.settings import FabricSettings
from psirp_sim.wire.rendezvous import Code, Register, Registration, Side
from psirp_sim.wire.sealing import FabricKeys

FORWARDERS = 10
PROBES = 50
"""Single requests that are timed."""
PATIENCE = 600
"""Virtual seconds in which all registrations must be made."""


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    items: tuple[int, ...] = (1_000, 10_000, 100_000)
    scopes: int = 1_000
    servers: int = 4
    clients: int = 200

    def __post_init__(self) -> None:
        if not self.items or not all(1 <= count <= 1_000_000 for count in self.items):
            raise ValueError("items lists numbers between 1 and 1000000")
        if not (1 <= self.scopes <= 100_000 and 1 <= self.servers <= 16):
            raise ValueError("scopes lies between 1 and 100000, servers between 1 and 16")
        if not 2 <= self.clients <= 500:
            raise ValueError("clients lies between 2 and 500")


def run(parameters: Parameters, seed: int, context: Context) -> list[Row]:
    rows: list[Row] = []
    for index, items in enumerate(parameters.items):
        alone = _one_server(parameters, items, seed)
        world = _World(parameters, items, seed)
        rows.append({"items": items, **world.register_all(), **world.probe(), **alone})
        context.progress((index + 1) / len(parameters.items))
    return rows


def _id(number: int, kind: bytes) -> bytes:
    return kind * 24 + number.to_bytes(8)


class _World:
    """The fabric, in virtual time."""

    def __init__(self, parameters: Parameters, items: int, seed: int) -> None:
        self.parameters = parameters
        self.items = items
        self.world = Simulator(seed, keep_events=0)
        self.servers = [f"r{number}" for number in range(parameters.servers)]
        self.settings = FabricSettings(
            keys=FabricKeys("experiment"),
            link_seed=seed.to_bytes(8),
            rendezvous=replace(
                RendezvousSettings(), members=tuple(self.servers), time_out=PATIENCE * SECOND
            ),
        )
        self._add("m", "topology")
        for number in range(FORWARDERS):
            self._add(f"f{number}")
            self._link(f"f{number}", "m")
            if number:
                self._link(f"f{number}", f"f{number - 1}")
        for number, server in enumerate(self.servers):
            self._add(server, "rendezvous")
            self._link(server, f"f{number % FORWARDERS}")
        self.clients = [f"c{number}" for number in range(parameters.clients)]
        for number, client in enumerate(self.clients):
            self._add(client)
            self._link(client, f"f{number % FORWARDERS}")
        self.world.run_for(20 * SECOND)

    def _add(self, name: str, *roles: str) -> None:
        self.world.add_node(name, lambda env: FabricNode(env, self.settings, roles=roles))

    def _link(self, one: str, other: str) -> None:
        self.world.add_link(one, other, LinkProfile(delay=Constant(MILLISECOND)))

    def _node(self, name: str) -> FabricNode:
        core = self.world.nodes[name].core
        assert isinstance(core, FabricNode)
        return core

    def _until(self, true: Callable[[], bool]) -> float:
        begin = self.world.now
        while not true():
            if self.world.now - begin > PATIENCE * SECOND:
                raise RuntimeError(f"not done after {PATIENCE} virtual seconds")
            self.world.run_for(MILLISECOND)
        return (self.world.now - begin) / MILLISECOND

    def register_all(self) -> Row:
        """Every item has a publisher, every scope three that make it and one that listens."""
        codes: list[Code] = []
        clients = self.clients
        asked = 0
        for number in range(self.parameters.scopes):
            maker = self._node(clients[number % len(clients)]).rendezvous
            maker.publish_scope(_id(number, b"s"), codes.append)
            asked += 1
        self._until(lambda: len(codes) == asked)
        for number in range(self.items):
            scope = number % self.parameters.scopes
            publisher = self._node(clients[scope % len(clients)]).rendezvous
            publisher.publish(
                _id(scope, b"s"),
                _id(number, b"i"),
                codes.append,
                base=lambda: None,
                changed=lambda publication: None,
            )
        for scope in range(self.parameters.scopes):
            listener = self._node(clients[(scope + 1) % len(clients)]).rendezvous
            listener.subscribe(_id(scope, b"s"), b"", codes.append, changed=lambda source: None)
        asked += self.items + self.parameters.scopes
        taken = self._until(lambda: len(codes) == asked)
        refused = sum(code is not Code.OK for code in codes)
        heard = self._until(lambda: self._matched() == self.items)
        held = [self._node(server).server for server in self.servers]
        counts = [server.registrations.count for server in held if server is not None]
        return {
            "refused": refused,
            "registered_after_s": taken / 1_000,
            "matched_after_s": (taken + heard) / 1_000,
            "most_at_a_server": max(counts),
            "least_at_a_server": min(counts),
        }

    def _matched(self) -> int:
        return sum(
            source.known
            for client in self.clients
            for source in self._node(client).rendezvous.subscribing.sources.values()
        )

    def probe(self) -> Row:
        """Single requests: how long until the answer, and until both ends know each other."""
        times = [self._probe(number) for number in range(PROBES)]
        published, subscribed, matched = zip(*times, strict=True)
        return {
            "publish_ms": median(published),
            "subscribe_ms": median(subscribed),
            "match_ms": median(matched),
            "worst_match_ms": max(matched),
        }

    def _probe(self, number: int) -> tuple[float, float, float]:
        scope, item = _id(number % self.parameters.scopes, b"s"), _id(number, b"p")
        publisher, listener = (
            self.clients[index % len(self.clients)] for index in (number, number + 7)
        )
        codes: list[Code] = []
        self._node(publisher).rendezvous.publish(
            scope, item, codes.append, base=lambda: None, changed=lambda publication: None
        )
        published = self._until(lambda: len(codes) == 1)
        subscribing = self._node(listener).rendezvous
        subscribing.subscribe(scope, item, codes.append, changed=lambda source: None)
        subscribed = self._until(lambda: len(codes) == 2)
        sources = subscribing.subscribing.sources
        key = (scope, item, publisher)
        matched = self._until(lambda: key in sources and sources[key].known)
        return published, subscribed, subscribed + matched


class _Watcher:
    """Nobody is told of anything."""

    def changed(self, sid: bytes, rid: bytes) -> None: ...
    def withdrawn(self, client: str, entry: Registration) -> None: ...
    def refused(self, client: object, entry: Registration, code: Code) -> None: ...
    def subscribed(self, sid: bytes, rid: bytes, present: bool) -> None: ...


def _one_server(parameters: Parameters, items: int, seed: int) -> Row:
    """A server by itself, with the share of the registrations that the busiest server has."""
    servers = [f"r{number}" for number in range(parameters.servers)]
    scopes = [
        number
        for number in range(parameters.scopes)
        if servers[0] in homes(_id(number, b"s"), servers)
    ]
    mine = set(scopes)
    numbers = [number for number in range(items) if number % parameters.scopes in mine]
    tracemalloc.start()
    store = _store(parameters, seed)
    _feed(store, parameters, scopes, b"", Side.PUBLISHER)
    before = tracemalloc.get_traced_memory()[0]
    _feed(store, parameters, numbers, b"i", Side.PUBLISHER)
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    del store
    store = _store(parameters, seed)
    _feed(store, parameters, scopes, b"", Side.PUBLISHER)
    spent = _feed(store, parameters, numbers, b"i", Side.PUBLISHER)
    listened = _feed(store, parameters, numbers, b"i", Side.SUBSCRIBER)
    return {
        "bytes_per_item": held / len(numbers),
        "publish_us": spent / len(numbers) / 1_000,
        "subscribe_us": listened / len(numbers) / 1_000,
    }


def _store(parameters: Parameters, seed: int) -> Registrations:
    made: list[Registrations] = []

    class Alone:
        def __init__(self, env: Environment) -> None:
            made.append(Registrations(env, replace(RendezvousSettings(), burst=10**9), _Watcher()))

        def start(self) -> None: ...
        def receive(self, link: str, packet: bytes) -> None: ...
        def stop(self) -> None: ...

    world = Simulator(seed)
    world.add_node("r0", Alone)
    world.run_for(0)
    return made[0]


def _feed(
    store: Registrations, parameters: Parameters, numbers: Sequence[int], kind: bytes, side: Side
) -> int:
    """Register them as if they came off the wire; nanoseconds of the processor."""
    decode = msgspec.msgpack.Decoder(Register).decode
    messages = []
    for sequence, number in enumerate(numbers, 1 + (side is Side.SUBSCRIBER) * 10**9):
        scope = number % parameters.scopes
        rid = _id(number, kind) if kind else b""
        client = f"c{scope % parameters.clients}"
        entry = Registration(sequence, side, _id(scope, b"s"), rid)
        messages.append(msgspec.msgpack.encode(Register("r0", client, 1, [], [entry])))
    gc.collect()
    gc.disable()  # its turns would be counted for whoever is measured then
    begin = time.process_time_ns()
    for message in messages:
        read = decode(message)
        client_state = store.heard(read.client, read.epoch, [])
        assert not isinstance(client_state, Code)
        assert store.take(client_state, read.entries[0], {}) is Code.OK
    spent = time.process_time_ns() - begin
    gc.enable()
    return spent


def claims(rows: Sequence[Row]) -> list[Claim]:
    smallest, largest = rows[0], rows[-1]
    slower = largest["match_ms"] / smallest["match_ms"]
    dearer = largest["publish_us"] / smallest["publish_us"]
    share = max(row["most_at_a_server"] / row["least_at_a_server"] for row in rows)
    return [
        Claim(
            "all-registered",
            "ours",
            "every registration is taken, however many come at once",
            holds=all(row["refused"] == 0 for row in rows),
            because=f"{sum(row['refused'] for row in rows):g} refused",
        ),
        Claim(
            "match-time-does-not-grow",
            "ours",
            "a match takes at most 1.5 times as long among the most items as among the fewest",
            holds=slower <= 1.5,
            because=f"{slower:.2f} times",
        ),
        Claim(
            "cost-does-not-grow",
            "ours",
            "a registration costs the server at most 3 times the processor time",
            holds=dearer <= 3,
            because=f"{dearer:.2f} times",
        ),
        Claim(
            "shared-evenly",
            "ours",
            "the busiest server holds at most 1.3 times what the least busy one does",
            holds=share <= 1.3,
            because=f"{share:.2f} times",
        ),
    ]


_LABELS = {
    "items": "registrations (number)",
    "bytes_per_item": "memory (bytes per registration)",
}
EXPERIMENT = Experiment(
    name="rendezvous-scale",
    summary="what a registration costs the rendezvous as it grows",
    parameters=Parameters(),
    quick=Parameters(items=(1_000, 5_000), clients=50, scopes=200),
    run=run,
    keys=("items",),
    claims=claims,
    plots=(
        Plot("memory", x="items", y="bytes_per_item", labels=_LABELS),
        Plot("time", x="items", y="match_ms", labels=_LABELS),
    ),
)
