"""How many answers a network gets over UDP, where the sender's address may be a lie.

Beyond the rate every second question gets an empty answer that says "ask over TCP", so that a real
client gets through; the rest get none, so that a victim is not flooded.
"""

from __future__ import annotations

from enum import Enum
from ipaddress import IPv4Address, IPv6Address, ip_address

from bootstrap.server.settings import Network

MOST_NETWORKS = 10_000
"""That are remembered."""


class Verdict(Enum):
    ANSWER = "answer"
    TRUNCATE = "truncate"
    DROP = "drop"


class AnswerRate:
    """A bucket of tokens for each /24 of IPv4 and /56 of IPv6."""

    def __init__(self, per_second: int, unlimited: tuple[Network, ...]) -> None:
        self._per_second = per_second
        self._unlimited = unlimited
        self._buckets: dict[int, tuple[float, float, bool]] = {}
        """Tokens, when they were counted, and whether the last one beyond the rate was dropped."""

    def ask(self, host: str, now: float) -> Verdict:
        """What to do with a question from an address."""
        address = ip_address(host.partition("%")[0])
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        if any(address in network for network in self._unlimited):
            return Verdict.ANSWER
        network = _network(address)
        tokens, counted, dropped = self._buckets.pop(network, (self._per_second, now, False))
        tokens = min(self._per_second, tokens + max(0.0, now - counted) * self._per_second)
        if tokens >= 1:
            verdict, tokens = Verdict.ANSWER, tokens - 1
        else:
            verdict = Verdict.TRUNCATE if dropped else Verdict.DROP
            dropped = not dropped
        if len(self._buckets) >= MOST_NETWORKS:
            # The one that was quiet the longest: it has its tokens back the soonest.
            del self._buckets[next(iter(self._buckets))]
        self._buckets[network] = (tokens, now, dropped)
        return verdict


def _network(address: IPv4Address | IPv6Address) -> int:
    shift = 8 if address.version == 4 else 72
    return (int(address) >> shift) << 1 | (address.version == 6)
