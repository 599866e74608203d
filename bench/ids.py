"""Ids a second, and look-ups a second in the topic registry as it grows to a million topics."""

import random
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from blake3 import blake3

from identifiers import identify
from psph.registry import TopicRegistry

SIZES = (10, 1_000, 100_000, 1_000_000)
LOOKUPS = 20_000
# The best of so many rounds counts, each with other topics, so that what else the machine does
# weighs little and nothing is found because it was just looked for.
ROUNDS = 8
SEED = 1
SUFFIXES = ("com", "co.uk", "org", "github.io")

NOTES = [
    "new: every URL is seen for the first time; 10 of them share a host, and 50 a zone",
    "cached: URLs that identify() still remembers",
    "bare_blake3: one hash of the same URLs and nothing else, the least that an id can cost",
    "lookups: from ids to topic in the registry, at random over all topics, each result checked",
    "flat: the slowest rate of look-ups over the fastest, whatever the number of topics",
]


def run(sizes: Sequence[int] = SIZES, lookups: int = LOOKUPS) -> dict[str, object]:
    """Ids a second for new and cached URLs; registry look-ups a second by number of topics."""
    bare, new, cached = _id_rates(lookups)
    with TemporaryDirectory(prefix="psph-bench-ids-") as directory, ExitStack() as stack:
        registries: dict[int, TopicRegistry] = {}
        start = time.perf_counter()
        for size in sizes:
            registry = stack.enter_context(TopicRegistry(_path(directory, size)))
            registry.add_many(map(_url, range(size)))
            registries[size] = registry
        adding = time.perf_counter() - start
        rates = _lookup_rates(registries, lookups)
        stack.close()  # so that nothing is left in the write-ahead log
        file_bytes = _path(directory, sizes[-1]).stat().st_size
    flat = f"flat_{_short(sizes[0])}_to_{_short(sizes[-1])}"
    return {
        "ratios": {
            flat: round(min(rates.values()) / max(rates.values()), 2),
            "new_to_bare_blake3": round(new / bare, 3),
            "cached_to_bare_blake3": round(cached / bare, 2),
        },
        "figures": {
            "ids_per_s_new": round(new),
            "ids_per_s_cached": round(cached),
            "bare_blake3_per_s": round(bare),
            **{f"lookups_per_s_{_short(size)}": round(rate) for size, rate in rates.items()},
            "adds_per_s": round(sum(sizes) / adding),
            "bytes_per_topic": round(file_bytes / sizes[-1], 1),
        },
        "notes": NOTES,
    }


def _id_rates(count: int) -> tuple[float, float, float]:
    """Hashes, new ids and cached ids a second."""
    bare = new = cached = 0.0
    identify(_url(0))  # loads the suffix list
    for turn in range(ROUNDS):
        # Beyond what the registry will hold, and so new in every round.
        urls = [_url(10**9 + turn * count + number) for number in range(count)]
        start = time.perf_counter()
        for url in urls:
            blake3(url.encode()).digest()
        bare = max(bare, count / (time.perf_counter() - start))

        start = time.perf_counter()
        for url in urls:
            identify(url)
        new = max(new, count / (time.perf_counter() - start))

        remembered = urls[-(identify.cache_info().maxsize or 0) :]
        start = time.perf_counter()
        for url in remembered:
            identify(url)
        cached = max(cached, len(remembered) / (time.perf_counter() - start))
    return bare, new, cached


def _lookup_rates(registries: Mapping[int, TopicRegistry], count: int) -> dict[int, float]:
    """Look-ups a second in each registry, by its size."""
    best = dict.fromkeys(registries, 0.0)
    for turn in range(ROUNDS):
        # In turns, so that what else the machine does hits all sizes alike.
        for size, registry in registries.items():
            topics = [identify(url) for url in _sample(size, count, turn)]
            start = time.perf_counter()
            found = [registry.topic_of(topic.sid, topic.rid) for topic in topics]
            best[size] = max(best[size], count / (time.perf_counter() - start))
            assert found == [topic.canonical for topic in topics]
    return best


def _path(directory: str, size: int) -> Path:
    return Path(directory) / f"{size}.db"


def _sample(size: int, count: int, turn: int) -> list[str]:
    """`count` of the first `size` topics, other ones in every turn."""
    chance = random.Random(SEED + turn)
    return [_url(chance.randrange(size)) for _ in range(count)]


def _url(number: int) -> str:
    host, zone = number // 10, number // 50
    return f"https://feeds{host}.site{zone}.{SUFFIXES[zone % 4]}/topics/{number}/updates.atom"


def _short(number: int) -> str:
    """1m for 1,000,000, 1k for 1,000."""
    for unit, letter in ((1_000_000, "m"), (1_000, "k")):
        if number % unit == 0:
            return f"{number // unit}{letter}"
    return str(number)
