"""What goes wrong in a trial of moving clients, besides what may go wrong in any world."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from mobility.suite.nodes import ClientNode, ProxyNode
from psirp_sim.runtime.schedules import FaultKind, network_faults, node_faults
from psirp_sim.runtime.schedules.faults import Held

if TYPE_CHECKING:
    from mobility.suite.trial import MobilityTrial

Way = tuple[str, str]


def faults_of(trial: MobilityTrial) -> list[FaultKind]:
    """All of them. The trial observes its nodes whenever one begins or ends."""
    world = trial.world
    kinds = [
        *node_faults(world, world.nodes),
        *network_faults(world, world.channels),
        _loses(trial, "reception", lambda name, proxy: [(name, proxy), (proxy, name)]),
        _loses(trial, "hearing", lambda name, proxy: [(proxy, name)]),
        _loses(trial, "voice", lambda name, proxy: [(name, proxy)]),
        _crash_with_something_kept(trial),
    ]
    return [_observed(trial, kind) for kind in kinds]


def _observed(trial: MobilityTrial, kind: FaultKind) -> FaultKind:
    def begin(target: str) -> None:
        kind.begin(target)
        trial.observe()

    def end(target: str) -> None:
        kind.end(target)
        trial.observe()

    return replace(kind, begin=begin, end=end)


def _crash_with_something_kept(trial: MobilityTrial) -> FaultKind:
    """A proxy dies with buffers, or a client with what it has yet to publish."""
    nodes = trial.world.nodes
    down = Held(trial.world.crash, trial.world.restart)
    names = {"proxies": trial.proxies, "clients": trial.clients}
    crashed: dict[str, list[str]] = {}

    def kept(name: str) -> int:
        core = nodes[name].core
        if isinstance(core, ProxyNode):
            away = [each for each in core.proxy.handlers.values() if each.state == "away"]
            return sum(len(each.buffer) > 2 for each in away)
        return len(core.client.outgoing) if isinstance(core, ClientNode) else 0

    def at_stake(who: str) -> int:
        return max(map(kept, names[who]))

    def begin(who: str) -> None:
        name = max(names[who], key=kept)
        crashed.setdefault(who, []).append(name)
        down.begin(name)

    def end(who: str) -> None:
        down.end(crashed[who].pop(0))

    return FaultKind("crash-with-buffer", list(names), begin, end, at_stake, at_stake, aimed=True)


def _loses(trial: MobilityTrial, what: str, which: Callable[[str, str], list[Way]]) -> FaultKind:
    """A client loses the proxy it is at, in the middle of something."""
    world = trial.world
    cut = Held(world.cut, world.heal)
    lost: dict[str, list[Way]] = {}

    def ways(name: str) -> list[Way]:
        core = world.nodes[name].core
        proxy = core.client.proxy if isinstance(core, ClientNode) else ""
        return which(name, proxy) if proxy else []

    def begin(name: str) -> None:
        for way in ways(name):
            lost.setdefault(name, []).append(way)
            cut.begin(*way)

    def end(name: str) -> None:
        for way in lost.pop(name, []):
            cut.end(*way)

    def at_stake(name: str) -> int:
        return sum(world.channels[way].in_flight for way in ways(name))

    def harm(name: str) -> int:
        return sum(world.channels[way].counters.cut for way in lost.get(name, []))

    return FaultKind(what, trial.clients, begin, end, at_stake, harm, aimed=True)
