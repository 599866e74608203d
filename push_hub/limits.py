"""Limits: token buckets per key, and slots per host that shrink where a host fails.

Time comes in as an argument. Memory is bounded: the key not used for longest is forgotten, which
can only make the hub more generous.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from push_hub.settings import Rate

MAX_KEYS: Final = 100_000


class RateLimit:
    """A token bucket for each key."""

    def __init__(self, rate: Rate, max_keys: int = MAX_KEYS) -> None:
        self._rate = rate
        self._max_keys = max_keys
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str, now: float) -> float:
        """0 when the key may go ahead, otherwise the seconds after which it may."""
        return self._take(key, now, 0.0)

    def reserve(self, key: str, now: float, patience: float) -> float | None:
        """The seconds after which the key will go ahead, which counts at once; None when these
        would be more than `patience`."""
        wait = self._take(key, now, patience)
        return wait if wait <= patience else None

    def _take(self, key: str, now: float, patience: float) -> float:
        """Seconds until there is a token; it is taken if they are not more than `patience`."""
        tokens, since = self._buckets.pop(key, (float(self._rate.burst), now))
        tokens = min(self._rate.burst, tokens + max(0.0, now - since) * self._rate.per_second)
        wait = max(0.0, (1 - tokens) / self._rate.per_second)
        self._buckets[key] = (tokens - 1 if wait <= patience else tokens, now)
        if len(self._buckets) > self._max_keys:
            self._buckets.popitem(last=False)
        return wait

    def give_back(self, key: str) -> None:
        """What was taken does not count after all."""
        if (bucket := self._buckets.get(key)) is not None:
            tokens, since = bucket
            self._buckets[key] = (min(float(self._rate.burst), tokens + 1), since)


@dataclass(slots=True)
class _Host:
    limit: float
    used: int = 0
    seconds: float = 0.0
    """What an answer takes, roughly: recent ones weigh more. 0 before the first."""


class HostSlots:
    """How many requests may be under way to each host.

    A host starts with a share, earns more by answering promptly and loses half of it by failing or
    by taking its time, so that dead and slow hosts hold few of the slots they all share.
    """

    SMALLEST: Final = 2
    PROMPT: Final = 1.0
    """Seconds within which an answer earns a slot; one that takes twice as long costs half."""
    AHEAD: Final = 0.2
    """Seconds for which work may be claimed before there are slots for it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._hosts: OrderedDict[str, _Host] = OrderedDict()

    def free(self, host: str) -> int:
        """Slots left for the host."""
        known = self._hosts.get(host)
        return self._start() if known is None else max(0, int(known.limit) - known.used)

    @property
    def initial(self) -> int:
        """The slots of a host nothing is known about."""
        return self._start()

    def shares(self) -> dict[str, int]:
        """Slots left for each host something is known about."""
        return {name: max(0, int(host.limit) - host.used) for name, host in self._hosts.items()}

    def limit(self, host: str) -> int:
        """Slots of the host, taken or not."""
        known = self._hosts.get(host)
        return self._start() if known is None else int(known.limit)

    def ahead(self, host: str) -> int:
        """How much may be claimed for the host beyond its slots: what it will soon have done."""
        known = self._hosts.get(host)
        if known is None:
            return self._start()
        if known.limit < self._start():
            return 0  # it has failed lately
        rounds = self.AHEAD / known.seconds if known.seconds else 1.0
        return int(known.limit * min(4.0, rounds))

    def take(self, host: str) -> None:
        """A request to the host begins."""
        self._hosts.setdefault(host, _Host(self._start())).used += 1
        self._hosts.move_to_end(host)

    def give_back(self, host: str, answered: bool, seconds: float = 0.0) -> None:
        """It ended after so many seconds; `answered` says whether there was any answer in time."""
        known = self._hosts[host]
        known.used -= 1
        known.seconds += (seconds - known.seconds) * (0.2 if known.seconds else 1.0)
        if answered and seconds <= self.PROMPT:
            known.limit = min(self._most, known.limit + 1)
        elif not answered or seconds > 2 * self.PROMPT:
            known.limit = max(min(self.SMALLEST, self._most), known.limit / 2)
        # A healthy host with nothing under way is as good as one never heard of.
        if known.used == 0 and known.limit >= self._start():
            del self._hosts[host]
        elif len(self._hosts) > MAX_KEYS:
            oldest = next(iter(self._hosts))
            if self._hosts[oldest].used == 0:
                del self._hosts[oldest]

    def _start(self) -> int:
        return max(1, self._most // 4)


class Probes:
    """When hosts whose subscriptions rest after failures may be tried before their time.

    An update for a resting subscription asks for one probe of its host. It is made at once, or as
    soon as the last failure at the host is `every` seconds ago; what the host asked for with
    Retry-After is waited for. A subscription that recovers shows that the host answers again: two
    more of the host are probed, each of which may bring two more.
    """

    def __init__(self, every: float, max_hosts: int = MAX_KEYS) -> None:
        self._every = every
        self._max_hosts = max_hosts
        self._wanted: dict[str, int] = {}
        """Lanes to probe, by host."""
        self._failed: OrderedDict[str, float] = OrderedDict()
        """When the host last failed, or was probed."""
        self._asked: OrderedDict[str, float] = OrderedDict()
        """Until when the host asked to be left alone."""

    def want(self, host: str) -> None:
        """There is an update for a resting subscription of the host."""
        if len(self._wanted) < self._max_hosts:
            self._wanted.setdefault(host, 1)

    def failed(self, host: str, at: float, asked: float | None = None) -> None:
        """An attempt failed; `asked`: the seconds of the host's Retry-After."""
        self._note(self._failed, host, at)
        if asked is not None:
            self._note(self._asked, host, at + asked)

    def recovered(self, host: str) -> None:
        """An attempt at a subscription succeeded that had failed before."""
        self._failed.pop(host, None)
        if len(self._wanted) < self._max_hosts or host in self._wanted:
            self._wanted[host] = self._wanted.get(host, 0) + 2

    def take(self, now: float) -> dict[str, int]:
        """How many lanes of which hosts are to be probed now."""
        due = {host: n for host, n in self._wanted.items() if self._due(host) <= now}
        for host in due:
            del self._wanted[host]
            self._note(self._failed, host, now)
        return due

    @property
    def next(self) -> float | None:
        """When the earliest is to be made."""
        return min(map(self._due, self._wanted), default=None)

    def _due(self, host: str) -> float:
        since = self._failed.get(host)
        earliest = 0.0 if since is None else since + self._every
        return max(earliest, self._asked.get(host, 0.0))

    def _note(self, times: OrderedDict[str, float], host: str, at: float) -> None:
        times[host] = max(at, times.pop(host, at))
        if len(times) > self._max_hosts:
            times.popitem(last=False)
