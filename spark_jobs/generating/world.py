"""Who there is in the made-up world: domains, nodes with wrong clocks, links, topics, readers.

Proxies stand in their domain and have two ways into a ring of forwarding nodes. An update takes
the shorter way around; how long that is follows from the links, which the clock probes run over,
too.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from string import ascii_lowercase

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from spark_jobs.generating.rows import Numbers
from spark_jobs.generating.settings import Settings

FABRIC = "fabric.test"
EPOCH = 1
_BETWEEN_FORWARDERS_MS = (1.0, 12.0)
_TO_A_PROXY_MS = (0.1, 1.0)


@dataclass(frozen=True, slots=True)
class Lists:
    """Many short lists of numbers in one: list `i` is `items[first[i]:first[i + 1]]`."""

    first: Numbers
    items: Numbers

    def of(self, keys: Numbers) -> tuple[Numbers, Numbers]:
        """All items of the lists that the keys name, and for each the place of its key."""
        counts = self.first[keys + 1] - self.first[keys]
        place = np.repeat(np.arange(len(keys)), counts)
        within = np.arange(len(place)) - np.repeat(np.cumsum(counts) - counts, counts)
        return place, self.items[self.first[keys][place] + within]


def lists(keys: Numbers, items: Numbers, count: int) -> Lists:
    """The items by their key, of which there are `count`."""
    order = np.argsort(keys, kind="stable")
    return Lists(np.searchsorted(keys[order], np.arange(count + 1)), items[order])


@dataclass(frozen=True, slots=True)
class World:
    """Numbers of nodes: first the proxy of each domain, then the forwarding nodes."""

    domains: list[str]
    nodes: list[str]
    domain_of: list[str]
    """By node."""
    offset_ns: Numbers
    """By node, when the world begins."""
    drift: NDArray[np.float64]
    """By node: how much faster than true its clock runs, as a share."""
    mono_ns: Numbers
    """By node: its monotonic clock when the world begins."""
    links: list[tuple[int, int]]
    delay_ns: dict[tuple[int, int], int]
    """By both ends in either order: the least time that a packet takes that way."""
    routes: dict[tuple[int, int], list[int]]
    """By two domains: the nodes between and including their proxies."""
    way_ns: Numbers
    """By two domains: the least time from one proxy to the other."""
    topics: list[str]
    home: Numbers
    """By topic: the domain of its website."""
    share: NDArray[np.float64]
    """By topic: its share of all updates."""
    sids: list[bytes]
    rids: list[bytes]
    publishers: list[bytes]
    """By domain: who numbers the versions of its topics."""
    receivers: Lists
    """By topic: domains with readers of it."""
    subscribers: list[str]
    reads: Numbers
    """By subscriber: its topic."""
    reads_in: Numbers
    """By subscriber: the domain whose hub it subscribed at."""
    streams: NDArray[np.bool_]
    """By subscriber: whether it is a browser's stream, not a callback."""
    readers: Lists
    """By topic and domain, as `topic * domains + domain`."""

    def wall(self, node: Numbers, at: Numbers, start: int) -> Numbers:
        """What the wall clocks of these nodes say at these true times."""
        ran = np.rint(self.drift[node] * (at - start)).astype(np.int64)
        return at + self.offset_ns[node] + ran


def make_world(settings: Settings, draw: Generator) -> World:
    """Everybody, from the seed."""
    count = settings.domains
    letters = ascii_lowercase[:count]
    domains = [f"site-{letter}.test" for letter in letters]
    forwarders = max(3, count)
    nodes = [f"psph-{letter}" for letter in letters] + [f"n{i + 1}" for i in range(forwarders)]
    links, delay_ns = _links(count, forwarders, settings, draw)
    routes = {(a, b): _route(a, b, count, forwarders) for a in range(count) for b in range(count)}
    way_ns = np.array(
        [
            [sum(delay_ns[hop] for hop in pairwise(way)) for way in row]
            for row in ([routes[a, b] for b in range(count)] for a in range(count))
        ],
        dtype=np.int64,
    )
    topics, home, share = _topics(settings, domains, draw)
    receivers, reads, reads_in = _subscriptions(settings, home, draw)
    streams = draw.random(len(reads)) < 0.25
    return World(
        domains=domains,
        nodes=nodes,
        domain_of=[*domains, *([FABRIC] * forwarders)],
        offset_ns=np.rint(draw.uniform(-1, 1, len(nodes)) * settings.skew_ms * 1e6).astype(int),
        drift=draw.uniform(-1, 1, len(nodes)) * settings.drift_ppm * 1e-6,
        mono_ns=draw.integers(10**9, 10**15, len(nodes)),
        links=links,
        delay_ns=delay_ns,
        routes=routes,
        way_ns=way_ns,
        topics=topics,
        home=home,
        share=share,
        sids=[_made_up(domains[h], 32) for h in home],
        rids=[_made_up(topic, 32) for topic in topics],
        publishers=[_made_up(f"publisher of {domain}", 16) for domain in domains],
        receivers=receivers,
        subscribers=[
            f"stream 10.{i >> 16 & 255}.{i >> 8 & 255}.{i & 255}"
            if stream
            else f"http://reader-{i}.{domains[where]}/websub/{_made_up(str(i), 12).hex()}"
            for i, (where, stream) in enumerate(zip(reads_in, streams, strict=True))
        ],
        reads=reads,
        reads_in=reads_in,
        streams=streams,
        readers=lists(reads * count + reads_in, np.arange(len(reads)), len(topics) * count),
    )


def _links(
    proxies: int, forwarders: int, settings: Settings, draw: Generator
) -> tuple[list[tuple[int, int]], dict[tuple[int, int], int]]:
    ring = [(proxies + i, proxies + (i + 1) % forwarders) for i in range(forwarders)]
    into = [(i, proxies + (i + way) % forwarders) for i in range(proxies) for way in (0, 1)]
    delay_ns = {}
    for a, b in (*ring, *into):
        least, most = _TO_A_PROXY_MS if a < proxies else _BETWEEN_FORWARDERS_MS
        base = draw.uniform(least, most)
        # Less than nothing no way can take.
        tilt = min(abs(settings.asymmetry_ms) / 2, base * 0.9) * draw.uniform(-1, 1)
        delay_ns[a, b], delay_ns[b, a] = int((base + tilt) * 1e6), int((base - tilt) * 1e6)
    return [*ring, *into], delay_ns


def _route(a: int, b: int, proxies: int, forwarders: int) -> list[int]:
    if a == b:
        return [a]
    ways = []
    for enter in (a, a + 1):
        for leave in (b, b + 1):
            for step in (1, -1):
                length = (leave - enter) * step % forwarders
                ring = [proxies + (enter + step * k) % forwarders for k in range(length + 1)]
                ways.append([a, *ring, b])
    return min(ways, key=len)


def _topics(
    settings: Settings, domains: list[str], draw: Generator
) -> tuple[list[str], Numbers, NDArray[np.float64]]:
    count = settings.topic_count
    home = draw.integers(0, len(domains), count)
    weights = np.arange(1, count + 1, dtype=np.float64) ** -settings.zipf
    names = [f"http://news.{domains[h]}/feed-{i}.xml" for i, h in enumerate(home)]
    return names, home, weights / weights.sum()


def _subscriptions(
    settings: Settings, home: Numbers, draw: Generator
) -> tuple[Lists, Numbers, Numbers]:
    """Domains that receive each topic, one other at least; topic and domain of each subscriber."""
    topics, domains = len(home), settings.domains
    wanted = draw.random((topics, domains)) < 0.5
    wanted[np.arange(topics), (home + draw.integers(1, domains, topics)) % domains] = True
    wanted[:2] = True  # those that everybody reads
    topic, domain = np.nonzero(wanted)
    readers = 1 + draw.poisson(1.0, len(topic))
    readers += (topic < 2) * 2
    return (
        lists(topic, domain, topics),
        np.repeat(topic, readers),
        np.repeat(domain, readers),
    )


def _made_up(text: str, length: int) -> bytes:
    """An id that looks like one; the real ones follow from rules that are not this room's."""
    return blake2b(text.encode(), digest_size=length).digest()
