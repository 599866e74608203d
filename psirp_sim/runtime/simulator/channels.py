"""One direction of a simulated link, with what it remembers from packet to packet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from psirp_sim.runtime.durations import SECOND
from psirp_sim.runtime.simulator.engine import Engine
from psirp_sim.runtime.simulator.profiles import GilbertElliott, Independent, LinkProfile

Receive = Callable[["Channel", bytes], None]


@dataclass(slots=True)
class ChannelCounters:
    """What became of the packets handed to a channel; copies count as packets."""

    sent: int = 0
    delivered: int = 0
    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    overflowed: int = 0
    oversized: int = 0
    cut: int = 0
    """Sent into a partition, or in flight when it began."""
    unheard: int = 0
    """Arrived at a node that was down, or whose receive buffer was full."""
    bytes: int = 0


class Channel:
    """A link as its sender sees it: the `Link` of one node."""

    __slots__ = (
        "_burst", "_clear_at", "_engine", "_last_arrival", "_profile", "_random", "blocked",
        "counters", "in_flight", "mtu", "name", "number", "observer", "receive", "reverse_name",
        "title",
    )  # fmt: skip

    def __init__(
        self,
        engine: Engine,
        random: Random,
        profile: LinkProfile,
        *,
        number: int,
        sender: str,
        name: str,
        reverse_name: str,
        receive: Receive,
    ) -> None:
        self._engine = engine
        self._random = random
        self.receive = receive
        self._burst = False
        self._clear_at = 0
        self._last_arrival = 0
        self.number = number
        self.name = name
        """What the sender calls the link."""
        self.reverse_name = reverse_name
        """What the receiver calls it."""
        self.title = f"{sender}>{name}"
        self.blocked = False
        self.in_flight = 0
        self.counters = ChannelCounters()
        self.observer: Receive | None = None
        """Called with every packet that is sent, whatever becomes of it: for tests."""
        self.profile = profile

    @property
    def profile(self) -> LinkProfile:
        """May be replaced at any time; packets already under way keep their fate."""
        return self._profile

    @profile.setter
    def profile(self, profile: LinkProfile) -> None:
        self._profile = profile
        self.mtu = profile.mtu

    def send(self, packet: bytes) -> bool:
        """Accept a packet into the queue, and decide its fate."""
        profile = self._profile
        counters = self.counters
        size = len(packet)
        if size > profile.mtu:
            counters.oversized += 1
            return False
        now = self._engine.now
        if profile.bandwidth is not None:
            begins = self._clear_at if self._clear_at > now else now
            if (begins - now) * profile.bandwidth // (8 * SECOND) + size > profile.queue:
                counters.overflowed += 1
                return False
            self._clear_at = now = begins + size * 8 * SECOND // profile.bandwidth
        counters.sent += 1
        counters.bytes += size
        if self.observer is not None:
            self.observer(self, packet)
        if self.blocked:
            counters.cut += 1
        elif profile.loss is not None and self._loses(profile.loss):
            counters.lost += 1
        else:
            self._dispatch(now, packet)
            if profile.duplicate and self._random.random() < profile.duplicate:
                counters.duplicated += 1
                self._dispatch(now, packet)
        return True

    def _dispatch(self, departs: int, packet: bytes) -> None:
        profile = self._profile
        random = self._random
        arrives = departs + profile.delay.sample(random, self.counters.sent - 1)
        repeat = profile.retransmission
        if repeat is not None:
            while random.random() < repeat.error:
                arrives += random.randint(repeat.low, repeat.high)
        if profile.reorder and random.random() < profile.reorder:
            self.counters.reordered += 1
            arrives += random.randint(0, profile.reorder_by)
        else:
            # Varying delays alone do not reorder: a packet waits for the one before it.
            if arrives < self._last_arrival:
                arrives = self._last_arrival
            self._last_arrival = arrives
        self.in_flight += 1
        self._engine.at(arrives, self._arrive, packet)

    def _arrive(self, packet: bytes) -> None:
        self.in_flight -= 1
        if self.blocked:
            self.counters.cut += 1
        else:
            self.receive(self, packet)

    def _loses(self, loss: Independent | GilbertElliott) -> bool:
        random = self._random
        if isinstance(loss, Independent):
            return random.random() < loss.probability
        turns = loss.to_good if self._burst else loss.to_bad
        if random.random() < turns:
            self._burst = not self._burst
        return random.random() < (loss.loss_in_bad if self._burst else loss.loss_in_good)
