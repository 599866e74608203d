"""How a link behaves: delay, bandwidth, loss, duplication, reordering.

Profiles are values; what a link remembers between packets (its queue, the state of a burst)
lives in `channels`. Every draw comes from the randomness passed in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from psirp_sim.runtime.durations import MILLISECOND


class Delay(Protocol):
    """How long a packet travels."""

    def sample(self, random: Random, count: int) -> int:
        """Nanoseconds for a packet that `count` others of its channel went before."""


@dataclass(frozen=True, slots=True)
class Constant:
    """Every packet travels equally long."""

    value: int

    def sample(self, random: Random, count: int) -> int:
        return self.value


@dataclass(frozen=True, slots=True)
class Uniform:
    """Anything between two bounds, equally likely."""

    low: int
    high: int

    def sample(self, random: Random, count: int) -> int:
        return random.randint(self.low, self.high)


@dataclass(frozen=True, slots=True)
class Exponential:
    """A least delay and an exponentially distributed rest of the given mean."""

    least: int
    mean: int

    def sample(self, random: Random, count: int) -> int:
        # Not random.expovariate: math.log is the same everywhere, its caller has changed.
        return self.least - int(self.mean * math.log(1.0 - random.random()))


@dataclass(frozen=True, slots=True)
class Traced:
    """Delays measured somewhere, one packet after the other, over and over."""

    values: Sequence[int]

    def sample(self, random: Random, count: int) -> int:
        return self.values[count % len(self.values)]


@dataclass(frozen=True, slots=True)
class Independent:
    """Each packet is lost with the same probability, whatever became of the one before."""

    probability: float


@dataclass(frozen=True, slots=True)
class GilbertElliott:
    """Bursts: a good and a bad state, each with its own probability of loss."""

    to_bad: float
    to_good: float
    loss_in_bad: float = 1.0
    loss_in_good: float = 0.0


@dataclass(frozen=True, slots=True)
class LinkRetransmission:
    """A link layer that repeats a broken packet until it gets through, and costs time.

    (`DELAY_ITERATE` of the Seawind GPRS emulator.)
    """

    error: float
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class LinkProfile:
    """One direction of a link."""

    delay: Delay = Constant(MILLISECOND)
    bandwidth: int | None = None
    """Bits per second; None is no limit."""
    queue: int = 256 * 1024
    """Bytes that may wait for the bandwidth; what comes on top is refused."""
    loss: Independent | GilbertElliott | None = None
    duplicate: float = 0.0
    """Probability that a second copy arrives, with a delay of its own."""
    reorder: float = 0.0
    """Probability that a packet is held back and others may overtake it."""
    reorder_by: int = 20 * MILLISECOND
    """How long such a packet is held back at most."""
    retransmission: LinkRetransmission | None = None
    mtu: int = 1_500
