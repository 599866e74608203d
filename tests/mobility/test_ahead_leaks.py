"""After thousands of moves no context, buffer, timer or subscription is left behind anywhere."""

from __future__ import annotations

from mobility import Quota, Service
from mobility.ahead import AheadSettings
from mobility.suite.system import SimulatedTopic
from psirp_sim.runtime.durations import MILLISECOND, SECOND
from psirp_sim.runtime.simulator import stream
from psirp_sim.runtime.simulator.nodes import SimulatedTimer
from tests.mobility.world import World
from tests.sizes import size

MOVES = size(2_000, 10_000)
CLIENTS = [f"client{n}" for n in range(8)]
PLACES = "abcde"
ROOM = b"mobility/ahead/"
AHEAD = AheadSettings(
    on=True, neighbours=2, age=60 * SECOND, lapse=20 * SECOND, retry_first=100 * MILLISECOND
)


CLIENT = {"alive": 5 * SECOND, "linger": 30 * MILLISECOND, "poll": 15 * MILLISECOND}


def timers(world):
    """Those of proxies that will fire."""
    found = []
    for _, _, callback, _ in world.sim.engine._queue:
        timer = getattr(callback, "__self__", None)
        runs = isinstance(timer, SimulatedTimer) and timer.callback is not None
        if runs and timer.life.alive and timer.life.node in PLACES:
            found.append((timer.life.node, timer.callback.__qualname__))
    return found


def keys(world, place, prefix=b""):
    return [key for key, _ in world.sim.nodes[place].storage.scan(prefix)]


def test_nothing_is_left_behind_after_thousands_of_moves():
    world = World(history=0, proxies=PLACES, ahead=AHEAD, remember=30 * SECOND)
    world.system.topics["old"] = SimulatedTopic("old", 1_000_000)
    service = Service(keep=20.0, topic=Quota(1_000))
    for name in CLIENTS:
        topics = ("old",) if name < "client2" else ("news",)
        world.add(name, name.ljust(32).encode(), topics, service, **CLIENT)
    random = stream(1, "leaks")
    for turn in range(MOVES // len(CLIENTS)):
        world.publish(1, random.choice(["news", "old"]))
        for name in CLIENTS:
            client, way = world.client(name), random.random()
            if way < 0.5:
                client.move_out()
            elif way < 0.7:
                client.connection_lost()
                world.proxy(client.proxy or "a").connection_lost(client.id, name)
        world.run(60)
        for name in CLIENTS:
            world.client(name).move_in(random.choice(PLACES))
        world.run(60)
        if turn % 125 == 60:
            world.sim.crash("c")
            world.sim.restart("c")
            world.run(1_000)
    world.run(5_000)

    proxies = {place: world.proxy(place) for place in PLACES}
    handed = sum(each.ahead.counters["prepared"] for each in proxies.values())
    assert handed > MOVES / 10, "that is what it is about"
    for name in CLIENTS:
        assert world.client(name).stage == "live"
    at = {world.client(name).id: world.client(name).proxy for name in CLIENTS}
    for place, proxy in proxies.items():
        assert {client for client, _ in proxy.handlers} == {c for c in at if at[c] == place}
        for client, context in proxy.ahead.contexts.kept.items():
            assert context.waiting is None
            assert context.owner == at[client]
            assert place in proxies[at[client]].ahead.neighbours.known
        ahead = keys(world, place, ROOM)
        assert len(ahead) == len(proxy.ahead.contexts) + len(proxy.ahead.neighbours.known)
        assert not proxy.ahead._origins.keys() - proxy.handlers.keys()
        assert not proxy.ahead._warm
        assert not proxy.ahead._elsewhere
    live = [each for topic in world.system.topics.values() for each in topic.subscriptions]
    assert sum(each.lives for each in live) == 8 + 6, (
        "each client's own, and where there is no history a proxy's for it"
    )

    for name in CLIENTS:  # for good
        world.client(name).connection_lost()
    world.run(150_000)
    for place, proxy in proxies.items():
        proxy = world.proxy(place)
        assert not proxy.handlers
        assert not proxy.ahead.contexts.kept
        assert proxy.ahead.contexts.bytes == 0
        assert not proxy.ahead.preparing.clients
        assert not proxy.ahead.conversation.lines
        assert not proxy.ahead.neighbours.known
        assert (
            len(keys(world, place)) == len(keys(world, place, b"mobility/claim/")) <= len(CLIENTS)
        )
    assert not [
        each for t in world.system.topics.values() for each in t.subscriptions if each.lives
    ]
    assert not timers(world)
