"""The simulator as its users see it: nodes, links, faults and a seed that determines all."""

from __future__ import annotations

from random import Random

from blake3 import blake3

from psirp_sim.runtime.environment import CoreFactory
from psirp_sim.runtime.simulator.channels import Channel
from psirp_sim.runtime.simulator.engine import Engine
from psirp_sim.runtime.simulator.eventlog import EventLog
from psirp_sim.runtime.simulator.nodes import Clock, SimulatedNode
from psirp_sim.runtime.simulator.presets import Preset
from psirp_sim.runtime.simulator.profiles import LinkProfile
from traces import NullSink, TraceSink


def stream(seed: int, purpose: str) -> Random:
    """Randomness of its own for each purpose, so that one more draw here moves nothing there."""
    return Random(blake3(f"{seed} {purpose}".encode()).digest())


class Simulator:
    """A network in virtual time.

    >>> world = Simulator(seed=7)
    >>> world.add_node("a", MyCore)
    >>> world.add_node("b", MyCore)
    >>> world.add_link("a", "b", LinkProfile(loss=Independent(0.1)))
    >>> world.run_for(5 * SECOND)
    """

    def __init__(self, seed: int, trace: TraceSink | None = None, keep_events: int = 2_000) -> None:
        self.seed = seed
        self.engine = Engine()
        self.log = EventLog(keep_events)
        self.trace: TraceSink = NullSink() if trace is None else trace
        self.nodes: dict[str, SimulatedNode] = {}
        self.channels: dict[tuple[str, str], Channel] = {}
        """By sending node and the name it gives the link."""

    @property
    def now(self) -> int:
        """True time since the beginning."""
        return self.engine.now

    @property
    def steps(self) -> int:
        """How many events have happened."""
        return self.engine.steps

    def digest(self) -> str:
        """Equal for two runs in which the same things happened."""
        return self.log.digest()

    # Building

    def add_node(
        self, name: str, factory: CoreFactory, clock: Clock | None = None
    ) -> SimulatedNode:
        """A node that boots as soon as time goes on."""
        if name in self.nodes:
            raise ValueError(f"there is a node {name!r} already")
        node = SimulatedNode(
            self,
            len(self.nodes),
            name,
            factory,
            clock or Clock(),
            stream(self.seed, f"node {name}"),
            stream(self.seed, f"storage {name}"),
        )
        self.nodes[name] = node
        self.engine.at(self.now, node.boot)
        return node

    def add_link(
        self,
        one: str,
        other: str,
        profile: LinkProfile | Preset | None = None,
        back: LinkProfile | None = None,
        names: tuple[str, str] | None = None,
    ) -> None:
        """A link in both directions: `profile` from one to the other, `back` the other way.

        With a preset, `one` is the mobile end. Each end calls the link by the other's name
        unless `names` says what it is called at `one` and at `other`.
        """
        if isinstance(profile, Preset):
            back = back or profile.down
            profile = profile.up
        profile = profile or LinkProfile()
        name_at_one, name_at_other = names or (other, one)
        for end in (one, other):
            if end not in self.nodes:
                raise ValueError(f"a link needs two nodes, and there is no node {end!r}")
        if name_at_one in self.nodes[one].channels or name_at_other in self.nodes[other].channels:
            raise ValueError(f"there is a link of that name between {one!r} and {other!r} already")
        self._add_channel(one, name_at_one, other, name_at_other, profile)
        self._add_channel(other, name_at_other, one, name_at_one, back or profile)

    def _add_channel(
        self, sender: str, name: str, receiver: str, reverse_name: str, profile: LinkProfile
    ) -> None:
        channel = Channel(
            self.engine,
            stream(self.seed, f"link {sender} {name}"),
            profile,
            number=len(self.channels),
            sender=sender,
            name=name,
            reverse_name=reverse_name,
            receive=self.nodes[receiver].receive,
        )
        self.channels[sender, name] = channel
        self.nodes[sender].channels[name] = channel

    def channels_to(self, name: str) -> list[Channel]:
        """Every direction that leads to that node."""
        receive = self.nodes[name].receive
        return [channel for channel in self.channels.values() if channel.receive == receive]

    def connected(self, name: str) -> set[str]:
        """What that node can still get a packet to and from: nodes that are up, itself included,
        over links that work both ways and are called by the names of their ends."""
        found, queue = {name}, [name]
        while queue:
            node = queue.pop()
            for peer in self.nodes[node].channels:
                ways = (self.channels[node, peer], self.channels[peer, node])
                works = self.nodes[peer].up and not any(way.blocked for way in ways)
                if works and peer not in found:
                    found.add(peer)
                    queue.append(peer)
        return found

    # Running

    def run_for(self, duration: int) -> None:
        """Let that much time pass."""
        self.engine.run_until(self.now + duration)

    def run_until(self, time: int) -> None:
        """Go on to that time."""
        self.engine.run_until(time)

    # Faults; each is noted in the event log

    def crash(self, name: str) -> None:
        """The process dies; its disk keeps what was durable, or synced where the node's machine
        dies with it."""
        self._fault(name, "crash")
        self.nodes[name].crash()

    def restart(self, name: str) -> None:
        """The process starts again with what its disk holds."""
        self._fault(name, "restart")
        self.nodes[name].boot()

    def shut_down(self, name: str) -> None:
        """The process is told to stop and does so cleanly."""
        self._fault(name, "shut down")
        self.nodes[name].shut_down()

    def pause(self, name: str) -> None:
        """The process stands still."""
        self._fault(name, "pause")
        self.nodes[name].pause()

    def resume(self, name: str) -> None:
        """The process goes on."""
        self._fault(name, "resume")
        self.nodes[name].resume()

    def wipe(self, name: str) -> None:
        """A node that is down loses its disk."""
        if self.nodes[name].up:
            raise ValueError(f"crash {name!r} before its disk is taken away")
        self._fault(name, "wipe")
        self.nodes[name].storage.wipe()

    def cut(self, sender: str, link: str) -> None:
        """Nothing passes in this direction, what is in flight included."""
        self._fault(f"{sender}>{link}", "cut")
        self.channels[sender, link].blocked = True

    def heal(self, sender: str, link: str) -> None:
        """The direction works again."""
        self._fault(f"{sender}>{link}", "heal")
        self.channels[sender, link].blocked = False

    def reshape(self, sender: str, link: str, profile: LinkProfile) -> None:
        """The direction behaves differently from now on."""
        self._fault(f"{sender}>{link}", "reshape", profile=profile)
        self.channels[sender, link].profile = profile

    def _fault(self, where: str, what: str, **fields: object) -> None:
        self.log.note(self.now, where, what, fields)
