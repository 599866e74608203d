"""The fault schedules of the data plane: forwarding, hellos, link state, topology managers.

Five to sixty nodes in a random graph, two or three of them topology managers, some of which join
late; a few nodes send a steady stream along trees they asked for, while nodes crash and stand
still and links are cut, one way or both, and storm; some nodes die and some cuts last for good. In
half of the worlds filters are made so small that false copies abound.

What must hold:

* **safety**, after every step: no packet crosses a link twice; what reaches a node that its tree
  does not go to is counted there as a false copy; nothing but bad luck with the network is
  counted as malformed or under a wrong key;
* **liveness**, soon after the last fault: every receiver of every tree is reached again, as far as
  what still works connects it and a topology manager with the source.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from psirp_sim.node import FabricNode
from psirp_sim.runtime.durations import MICROSECOND, MILLISECOND, SECOND
from psirp_sim.runtime.environment import Environment
from psirp_sim.runtime.schedules import (
    FaultKind,
    InvariantViolated,
    Trial,
    network_faults,
    node_faults,
)
from psirp_sim.runtime.simulator import Clock, Independent, LinkProfile, Simulator, Uniform, stream
from psirp_sim.runtime.simulator.channels import Channel
from psirp_sim.settings import FabricSettings
from psirp_sim.wire.data import Protocol
from psirp_sim.wire.sealing import FabricKeys
from psirp_sim.zfilters import Scheme, ZFilter

SENDING = 25 * MILLISECOND
"""Between two packets along a tree."""


@dataclass(slots=True)
class Stream:
    """One tree, and what came through it."""

    number: int
    source: str
    receivers: list[str]
    sent: int = 0
    reached: dict[str, int] = field(default_factory=dict)
    """By receiver, the highest packet that came."""


class _Sender:
    """A core: a fabric node, and on some nodes somebody who sends along a tree."""

    def __init__(self, env: Environment, trial: ForwardingTrial, roles: Sequence[str]) -> None:
        self.env = env
        self.trial = trial
        self.node = trial.node(env, trial.settings, roles=roles)
        self.node.handlers[Protocol.TEST] = self._take
        self.filters: dict[int, list[ZFilter]] = {}
        self.astray = 0
        """Packets that came here although their tree does not."""

    def start(self) -> None:
        self.node.start()
        self.env.call_later(SENDING, self._send)

    def receive(self, link: str, packet: bytes) -> None:
        self.node.receive(link, packet)

    def stop(self) -> None:
        self.node.stop()

    def _send(self) -> None:
        for each in self.trial.streams:
            if each.source != self.env.node or not self.node.begun:
                continue
            if each.number not in self.filters:
                self._ask(each)
            elif self.filters[each.number]:
                each.sent += 1
                payload = each.number.to_bytes(2) + each.sent.to_bytes(4)
                self.node.send(self.filters[each.number], Protocol.TEST, payload)
        self.env.call_later(SENDING, self._send)

    def _ask(self, each: Stream) -> None:
        self.filters[each.number] = []

        def changed(filters: list[ZFilter], unreached: list[str]) -> None:
            self.filters[each.number] = filters

        self.node.attachment.want_tree(self.env.node, each.receivers, changed)

    def _take(self, payload: bytes) -> bool:
        each = self.trial.streams[int.from_bytes(payload[:2])]
        wanted = self.env.node in each.receivers
        if wanted:
            number = int.from_bytes(payload[2:6])
            each.reached[self.env.node] = max(number, each.reached.get(self.env.node, 0))
        else:
            self.astray += 1
            self.trial.astray.append(self)
        return wanted


class ForwardingTrial:
    """One world and its streams."""

    duration = 15 * SECOND
    patience = 20 * SECOND

    def __init__(self, seed: int, node: type[FabricNode]) -> None:
        self.node = node
        self.world = Simulator(seed)
        self._random = stream(seed, "forwarding trial")
        self.streams: list[Stream] = []
        self.astray: list[_Sender] = []
        """Nodes that a packet strayed to in this step."""
        self._crossed: set[tuple[int, bytes]] = set()
        self._crossed_twice: tuple[str, bytes] | None = None
        self._calm_from: list[int] | None = None
        self._build()

    def _build(self) -> None:
        random = self._random
        crowded = random.random() < 0.5
        self.settings = FabricSettings(
            keys=FabricKeys("schedules"),
            link_seed=self.world.seed.to_bytes(8),
            scheme=Scheme(k=1, d=1) if crowded else Scheme(),
            allow_exact=not crowded and random.random() < 0.5,
            largest_filter=256 if crowded else 2048,
        )
        count = random.choice([5, 6, 8, 10, 12, 16, 20, 60])
        names = [f"n{number:02}" for number in range(count)]
        self._managers = managers = set(random.sample(names, random.choice([2, 3])))
        late = set(random.sample(names[1:], count // 5))
        for index, name in enumerate(names):
            there = [other for other in names[:index] if other not in late]
            peers = random.sample(there, min(len(there), random.choice([1, 2, 2, 3])))
            moment = random.randrange(self.duration) if name in late else 0
            self.world.engine.at(moment, self._join, name, peers, name in managers)
        for number in range(random.choice([1, 2, 3])):
            source, *receivers = random.sample(names, random.randint(2, min(count, 24)))
            self.streams.append(Stream(number, source, receivers))
        self.world.run_for(0)

    def _join(self, name: str, peers: Sequence[str], manager: bool) -> None:
        random = self._random
        clock = Clock(random.randint(-SECOND, SECOND), random.randint(-50_000, 50_000))
        roles = ["topology"] if manager else []
        self.world.add_node(name, lambda env: _Sender(env, self, roles), clock)
        for peer in peers:
            self.world.add_link(
                name,
                peer,
                LinkProfile(
                    delay=Uniform(200 * MICROSECOND, random.randint(1, 10) * MILLISECOND),
                    loss=Independent(random.choice([0.0, 0.0, 0.02])),
                ),
            )
            for pair in ((name, peer), (peer, name)):
                self.world.channels[pair].observer = self._observe

    def _observe(self, channel: Channel, packet: bytes) -> None:
        if packet[1] == 1:
            crossing = (channel.number, packet[4:12])
            if crossing in self._crossed:
                self._crossed_twice = (channel.title, packet[4:12])
            self._crossed.add(crossing)

    def faults(self) -> Sequence[FaultKind]:
        sources = {each.source for each in self.streams}
        crash, *other_ills = node_faults(self.world, self.world.nodes)
        cut, *other_cuts = network_faults(self.world, self.world.channels)
        mortal = [name for name in self.world.nodes if name not in sources]
        return [
            crash,
            *other_ills,
            replace(crash, name="death", targets=mortal, end=lambda target: None),
            replace(crash, name="loss-of-disk", begin=partial(self._lose_disk, crash.begin)),
            # Worth a kind of its own: it shows only when something else fails after it.
            replace(
                crash,
                name="death-of-a-manager",
                targets=[name for name in mortal if name in self._managers],
                end=lambda target: None,
            ),
            cut,
            *other_cuts,
            replace(cut, name="lasting-cut", end=lambda target: None),
        ]

    def _lose_disk(self, crash: Callable[[str], None], name: str) -> None:
        crash(name)
        self.world.wipe(name)

    def check(self) -> None:
        if self._crossed_twice is not None:
            link, packet = self._crossed_twice
            raise InvariantViolated(f"packet {packet.hex()} crossed {link} twice")
        for core in self.astray:
            if core.node.counters["false_deliveries"] < core.astray:
                raise InvariantViolated(f"{core.env.node} did not count a false copy it was given")
        self.astray.clear()

    def settled(self) -> bool:
        if self._calm_from is None:
            self._calm_from = [each.sent for each in self.streams]
        return self._unreached() is None

    def _unreached(self) -> str | None:
        for each, before in zip(self.streams, self._calm_from or [], strict=True):
            connected = self.world.connected(each.source)
            if not connected & self._managers:
                continue
            for receiver in each.receivers:
                if receiver in connected and each.reached.get(receiver, 0) <= before:
                    return f"{receiver} hears nothing from {each.source}"
        for name, node in self.world.nodes.items():
            counters = node.core.node.counters if isinstance(node.core, _Sender) else {}
            if counters.get("malformed") or counters.get("wrong_key"):
                return f"{name} counted packets of ours as malformed"
        return None

    def finish(self) -> None:
        if self._calm_from is None:
            raise InvariantViolated("nothing happens any more")
        unreached = self._unreached()
        if unreached is not None:
            raise InvariantViolated(f"{unreached}, and the faults are long over")


class ForwardingSuite:
    """The suite `forwarding`; a test gives it nodes with planted bugs."""

    name = "forwarding"
    summary = "data reaches the whole tree and nothing else, whatever fails and joins"
    most_faults = 12

    def __init__(self, node: type[FabricNode] = FabricNode) -> None:
        self._node = node

    def trial(self, seed: int) -> Trial:
        return ForwardingTrial(seed, self._node)
