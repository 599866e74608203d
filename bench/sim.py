"""Events a second in the simulator: packets that circle in a ring of relays."""

from __future__ import annotations

import time
from functools import partial
from heapq import heappop, heappush

from psirp_sim.runtime.durations import MILLISECOND, SECOND
from psirp_sim.runtime.environment import Environment
from psirp_sim.runtime.simulator import Constant, Independent, LinkProfile, Simulator, Uniform

NODES = 100
PACKETS = 200


class Relay:
    """Passes every packet on to the next node of the ring."""

    def __init__(self, env: Environment, following: str, packets: int) -> None:
        self.env = env
        self.following = following
        self.packets = packets

    def start(self) -> None:
        for number in range(self.packets):
            self.env.links[self.following].send(number.to_bytes(4) + bytes(296))

    def receive(self, link: str, packet: bytes) -> None:
        self.env.links[self.following].send(packet)

    def stop(self) -> None:
        pass


def ring(profile: LinkProfile, nodes: int) -> Simulator:
    world = Simulator(seed=1)
    for number in range(nodes):
        following = f"n{(number + 1) % nodes}"
        packets = PACKETS if number == 0 else 0
        world.add_node(f"n{number}", partial(Relay, following=following, packets=packets))
    for number in range(nodes):
        world.add_link(f"n{number}", f"n{(number + 1) % nodes}", profile)
    return world


def run(events: int = 400_000, rounds: int = 3) -> dict[str, object]:
    """Simulator events a second on one core, for a ring of 100 relays."""
    profiles = {
        "constant_delay": LinkProfile(delay=Constant(MILLISECOND)),
        "all_models": LinkProfile(
            delay=Uniform(MILLISECOND, 2 * MILLISECOND),
            bandwidth=1_000_000_000,
            loss=Independent(1e-9),
            duplicate=1e-9,
            reorder=1e-9,
        ),
    }
    rates = {
        name: max(_rate(profile, events) for _ in range(rounds))
        for name, profile in profiles.items()
    }
    bare = max(_bare_queue(events) for _ in range(rounds))
    return {
        "ratios": {"vs_bare_queue": round(rates["constant_delay"] / bare, 3)},
        "figures": {
            "events_per_s": round(rates["constant_delay"]),
            "events_per_s_all_models": round(rates["all_models"]),
            "bare_queue_events_per_s": round(bare),
            "nodes": NODES,
            "packets": PACKETS,
        },
        "notes": [
            "an event is one packet taken in, logged, passed on and queued again",
            "vs_bare_queue: against heapq alone with the same number of entries, no network",
            f"best of {rounds} rounds; aim: 200,000 events/s",
        ],
    }


def _rate(profile: LinkProfile, events: int) -> float:
    world = ring(profile, NODES)
    begun = time.perf_counter()
    while world.steps < events:
        world.run_for(SECOND // 10)
    return world.steps / (time.perf_counter() - begun)


def _bare_queue(events: int) -> float:
    """The floor: take the next entry off a queue and put another in."""
    queue: list[tuple[int, int, bytes]] = []
    for number in range(PACKETS):
        heappush(queue, (number, number, b""))
    begun = time.perf_counter()
    for number in range(PACKETS, PACKETS + events):
        now, _, packet = heappop(queue)
        heappush(queue, (now + MILLISECOND, number, packet))
    return events / (time.perf_counter() - begun)
