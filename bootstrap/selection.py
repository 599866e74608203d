"""In which order to try the endpoints of a service: RFC 2782, and those that failed last.

By chance, for those who want to share the load; or by a key, for those who want to meet.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Final

from blake3 import blake3

Below = Callable[[int], int]
"""A random number from 0 to below the given one; `random.Random(1).randrange` is one."""

MAX_FAILURES: Final = 1_024
_KEYED: Final = "psph 1 endpoint for a key"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a service is: the target of an SRV record, with its addresses."""

    host: str
    port: int
    priority: int = 0
    weight: int = 0
    addresses: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def in_order(endpoints: Iterable[Endpoint], below: Below) -> list[Endpoint]:
    """By priority; within one, by chance and in proportion to the weights."""
    # Sorted whole, so that the chance decides and not the order a name server happened to use.
    ranked = sorted(endpoints, key=lambda each: (each.priority, each.host, each.port))
    result = []
    for _, group in groupby(ranked, key=lambda each: each.priority):
        result += _by_weight(list(group), below)
    return result


def _by_weight(endpoints: list[Endpoint], below: Below) -> list[Endpoint]:
    # RFC 2782: those of weight 0 stand first, and so have a small chance beside others. Where
    # all have weight 0 it leaves the order open; shuffled, they share the load.
    rest = [each for each in endpoints if each.weight > 0]
    idle = [each for each in endpoints if each.weight == 0]
    while idle:
        rest.insert(0, idle.pop(below(len(idle))))
    chosen = []
    while rest:
        # From 0 to the sum, says the RFC. The 0 is the chance of weight 0: where nobody has that
        # it would go to whoever stands first, and of weights 1 and 2 make 1 and 1.
        lowest = 0 if rest[0].weight == 0 else 1
        mark = lowest + below(sum(each.weight for each in rest) + 1 - lowest)
        sums = accumulate(each.weight for each in rest)
        chosen.append(rest.pop(next(index for index, total in enumerate(sums) if total >= mark)))
    return chosen


def in_order_for(endpoints: Iterable[Endpoint], key: str) -> list[Endpoint]:
    """By priority; within one, the same for all who have the same key (a topic).

    Weighted rendezvous hashing: of many keys each endpoint comes first for as large a part as its
    weight is, and the keys of one that is taken away are all that go elsewhere, to the others by
    their weights. Weight 0 comes last.
    """
    return sorted(
        endpoints, key=lambda each: (each.priority, -score(str(each), each.weight, key), str(each))
    )


def score(name: str, weight: int, key: str) -> float:
    """How high the random weight of one of several is for a key."""
    hashed = blake3(f"{name}\0{key}".encode(), derive_key_context=_KEYED).digest(8)
    # From the upper 53 bits, a float above 0 and below 1: every machine gets the same.
    part = ((int.from_bytes(hashed, "big") >> 11) + 0.5) * 2.0**-53
    # Of weight 0 there may be several: below all others, and in an order of their own.
    return -weight / math.log(part) if weight else part - 1.0


@dataclass(slots=True)
class _Failure:
    until: float
    pause: float


class Failures:
    """Endpoints that failed, and for how long each is tried last.

    The first failure counts for `first` seconds, each further one for twice as long as the one
    before, up to `longest`.
    """

    def __init__(
        self, clock: Callable[[], float], *, first: float = 30.0, longest: float = 600.0
    ) -> None:
        self._clock = clock
        self._first = first
        self._longest = longest
        self._failed: dict[tuple[str, int], _Failure] = {}

    def failed(self, endpoint: Endpoint) -> None:
        """It did not answer, or answered nonsense."""
        key, now = (endpoint.host, endpoint.port), self._clock()
        before = self._failed.pop(key, None)
        # Those who tried it at the same time tell of one failure.
        if before is not None and now < before.until:
            self._failed[key] = before
            return
        pause = self._first if before is None else min(2 * before.pause, self._longest)
        self._failed[key] = _Failure(now + pause, pause)
        if len(self._failed) > MAX_FAILURES:
            del self._failed[next(iter(self._failed))]

    def worked(self, endpoint: Endpoint) -> None:
        """It answered: what was before is forgotten."""
        self._failed.pop((endpoint.host, endpoint.port), None)

    def last(self, endpoints: Iterable[Endpoint]) -> list[Endpoint]:
        """In the order given, except that those which failed come last, soonest forgiven first."""
        now = self._clock()
        return sorted(endpoints, key=lambda each: self._until(each, now))

    def _until(self, endpoint: Endpoint, now: float) -> float:
        failure = self._failed.get((endpoint.host, endpoint.port))
        return failure.until if failure is not None and now < failure.until else now
