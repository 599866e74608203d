"""What can go wrong in a simulated world, and for how long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random

from psirp_sim.runtime.durations import MILLISECOND, format_duration
from psirp_sim.runtime.simulator import GilbertElliott, Simulator, Uniform

SHORTEST = 5 * MILLISECOND
"""Of a fault; lengths are spread evenly over orders of magnitude from here up."""


@dataclass(frozen=True, slots=True)
class FaultKind:
    """A way to fail, with everything it may happen to."""

    name: str
    targets: Sequence[str]
    begin: Callable[[str], None]
    end: Callable[[str], None]
    at_stake: Callable[[str], int]
    """Packets in flight and writes under way that the fault hits if it begins now."""
    harm: Callable[[str], int]
    """A count that grows when the fault has hurt a packet sent while it lasts."""
    aimed: bool = False
    """Lies in wait from its time on and strikes when something is at stake.

    For moments too short to be met by chance, such as a write under way.
    """


@dataclass(frozen=True, slots=True)
class Fault:
    """One entry of a schedule."""

    begin: int
    end: int
    kind: str
    target: str

    @property
    def length(self) -> int:
        """How long it lasts."""
        return self.end - self.begin

    def __str__(self) -> str:
        span = f"{format_duration(self.begin)} for {format_duration(self.length)}"
        return f"{self.kind} {self.target} at {span}"


def generate(kinds: Sequence[FaultKind], duration: int, most: int, random: Random) -> list[Fault]:
    """A schedule of one to `most` faults, all of which begin within the duration."""
    kinds = [kind for kind in kinds if kind.targets]
    faults = []
    for _ in range(random.randint(1, most)):
        kind = random.choice(kinds)
        begin = random.randrange(duration)
        length = SHORTEST * (duration / 2 / SHORTEST) ** random.random()
        faults.append(Fault(begin, begin + int(length), kind.name, random.choice(kind.targets)))
    return sorted(faults, key=lambda fault: fault.begin)


class Held:
    """Something that stays wrong for as long as any fault holds it so.

    Faults overlap: a link that was cut twice heals when the second cut ends.
    """

    def __init__(self, begin: Callable[..., None], end: Callable[..., None]) -> None:
        self._begin = begin
        self._end = end
        self._holders: Counter[tuple[str, ...]] = Counter()

    def begin(self, *key: str) -> None:
        self._holders[key] += 1
        if self._holders[key] == 1:
            self._begin(*key)

    def end(self, *key: str) -> None:
        self._holders[key] -= 1
        if self._holders[key] == 0:
            self._end(*key)


def node_faults(world: Simulator, names: Iterable[str]) -> list[FaultKind]:
    """Crashes (with a restart at the end), at any time or in a write, and pauses."""
    targets = list(names)

    def at_stake(name: str) -> int:
        return writing(name) + sum(channel.in_flight for channel in world.channels_to(name))

    def writing(name: str) -> int:
        return world.nodes[name].storage.pending

    def harm(name: str) -> int:
        return sum(channel.counters.unheard for channel in world.channels_to(name))

    down = Held(world.crash, world.restart)
    still = Held(world.pause, world.resume)
    return [
        FaultKind("crash", targets, down.begin, down.end, at_stake, harm),
        FaultKind("crash-in-write", targets, down.begin, down.end, writing, harm, aimed=True),
        FaultKind("pause", targets, still.begin, still.end, at_stake, harm),
    ]


def network_faults(world: Simulator, links: Iterable[tuple[str, str]]) -> list[FaultKind]:
    """Partitions, one way or both, and storms (loss in bursts, copies, disorder) on links.

    A link is named by a sending node and what it calls the link; where the two ends call it by
    each other's names, `both ways` finds the way back.
    """
    one_way = {f"{sender}>{link}": (sender, link) for sender, link in links}
    both_ways = {
        f"{sender}={link}": [(sender, link), (link, sender)]
        for sender, link in one_way.values()
        if (link, sender) in world.channels and sender < link
    }
    calm = {key: channel.profile for key, channel in world.channels.items()}

    def storm(sender: str, link: str) -> None:
        world.reshape(
            sender,
            link,
            replace(
                calm[sender, link],
                delay=Uniform(1 * MILLISECOND, 60 * MILLISECOND),
                loss=GilbertElliott(0.2, 0.3, loss_in_bad=0.8, loss_in_good=0.05),
                duplicate=0.2,
                reorder=0.3,
                reorder_by=150 * MILLISECOND,
            ),
        )

    def calm_down(sender: str, link: str) -> None:
        world.reshape(sender, link, calm[sender, link])

    def keys(target: str) -> list[tuple[str, str]]:
        return both_ways.get(target) or [one_way[target]]

    def at_stake(target: str) -> int:
        return sum(world.channels[key].in_flight for key in keys(target))

    def harm(target: str) -> int:
        counters = [world.channels[key].counters for key in keys(target)]
        return sum(c.cut + c.lost + c.duplicated + c.reordered for c in counters)

    def each(action: Callable[..., None]) -> Callable[[str], None]:
        def on_all(target: str) -> None:
            for key in keys(target):
                action(*key)

        return on_all

    blocked = Held(world.cut, world.heal)
    stormy = Held(storm, calm_down)
    block, unblock = each(blocked.begin), each(blocked.end)
    return [
        FaultKind("cut", list(one_way), block, unblock, at_stake, harm),
        FaultKind("partition", list(both_ways), block, unblock, at_stake, harm),
        # A storm changes the fate of packets sent from now on, not of those in flight.
        FaultKind(
            "storm",
            list(one_way),
            each(stormy.begin),
            each(stormy.end),
            lambda target: 0,
            harm,
        ),
    ]
