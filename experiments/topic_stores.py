"""One topic store in a process of its own: what it costs to begin, to add, to look up, to keep.

    python -m experiments.topic_stores '{"store": "bloom", "topics": 1000}'

A process of its own, because a store is begun only once in it, with nothing loaded before, and
because all the memory that it takes is the store's. Times are of the processor.
"""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Literal, Protocol

import msgspec

# A store and its libraries are imported when it is begun: that is part of what is measured.

CAPACITY = 10_000_000
ERROR_RATE = 1e-7
"""Of the Bloom filter, as the source has it."""

SERIES = 20
"""In which the additions that are timed are made; what is added in between is not. One by itself
would pay for what was left to do of that."""

Name = Literal["list", "bloom", "registry"]


class Job(msgspec.Struct, frozen=True):
    """What to measure."""

    store: Name
    topics: int
    sample: int = 1_000
    """At most so many additions, and look-ups of each kind, are timed."""
    seed: int = 0


class Measured(msgspec.Struct, frozen=True):
    """What it came to; `add_us` and the others are for one topic."""

    load_ms: float
    """Importing what it is made of."""
    init_ms: float
    """From there until it has answered a first question."""
    add_us: float
    hit_us: float
    miss_us: float
    memory_kib: float | None
    """Beyond its code; None where the system does not tell."""
    disk_kib: float
    missed: int
    """Topics that are there and were not found."""
    false: int
    """Topics that are not there and were found."""


class Store(Protocol):
    """To add a topic again changes nothing."""

    def add(self, topic: str) -> None: ...
    def add_new(self, topics: Iterable[str]) -> None:
        """Topics that are not there yet, as quickly as it goes."""

    def __contains__(self, topic: str) -> bool: ...


class ListStore:
    """Searched from its beginning, like the source's vector."""

    def __init__(self) -> None:
        self._topics: list[str] = []

    def add(self, topic: str) -> None:
        if topic not in self._topics:
            self._topics.append(topic)

    def add_new(self, topics: Iterable[str]) -> None:
        self._topics.extend(topics)

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics


def _load_list(directory: Path) -> Callable[[], Store]:
    return ListStore


def _load_bloom(directory: Path) -> Callable[[], Store]:
    from pybloom_live import BloomFilter

    class BloomStore:
        def __init__(self) -> None:
            self._filter = BloomFilter(capacity=CAPACITY, error_rate=ERROR_RATE)

        def add(self, topic: str) -> None:
            self._filter.add(topic)

        def add_new(self, topics: Iterable[str]) -> None:
            for topic in topics:
                self._filter.add(topic, skip_check=True)

        def __contains__(self, topic: str) -> bool:
            return topic in self._filter

    return BloomStore


def _load_registry(directory: Path) -> Callable[[], Store]:
    from psph.registry import TopicRegistry

    class RegistryStore:
        def __init__(self) -> None:
            self._registry = TopicRegistry(directory / "topics.db")

        def add(self, topic: str) -> None:
            self._registry.add(topic)

        def add_new(self, topics: Iterable[str]) -> None:
            self._registry.add_many(topics)

        def __contains__(self, topic: str) -> bool:
            return topic in self._registry

    return RegistryStore


_LOADERS: dict[Name, Callable[[Path], Callable[[], Store]]] = {
    "list": _load_list,
    "bloom": _load_bloom,
    "registry": _load_registry,
}


def name(number: int) -> str:
    """A topic; a hundred to a site."""
    return f"http://news.site{number // 100}.test/feeds/{number}.xml"


def measure(job: Job, directory: Path) -> Measured:
    """In this process, which should have done nothing else."""
    random = Random(job.seed)
    sample = min(job.topics, job.sample)
    present = [name(each) for each in random.sample(range(job.topics), sample)]
    absent = [name(job.topics + each) for each in range(1, sample + 1)]
    gc.collect()
    gc.disable()  # its turns would be counted for whatever is measured then
    begin = time.process_time_ns()
    make = _LOADERS[job.store](directory)
    loaded = time.process_time_ns()
    before = _memory()
    began = time.process_time_ns()
    store = make()
    assert name(job.topics) not in store
    ready = time.process_time_ns()
    added = _add_all(store, job.topics, sample)
    hits, found = _look_up(store, present)
    misses, false = _look_up(store, absent)
    after = _memory()
    return Measured(
        load_ms=(loaded - begin) / 1e6,
        init_ms=(ready - began) / 1e6,
        add_us=added / 1e3,
        hit_us=hits / 1e3,
        miss_us=misses / 1e3,
        memory_kib=None if before is None or after is None else after - before,
        disk_kib=sum(file.stat().st_size for file in directory.iterdir()) / 1_024,
        missed=sample - found,
        false=false,
    )


def _add_all(store: Store, topics: int, sample: int) -> float:
    """Nanoseconds for one; where there are many, some in a row are timed at even distances."""
    series = 1 if topics == sample else min(SERIES, sample)
    timed = sample // series
    spent = 0
    for each in range(series):
        begun, end = topics * each // series, topics * (each + 1) // series
        store.add_new(name(number) for number in range(begun, end - timed))
        names = [name(number) for number in range(end - timed, end)]
        begin = time.process_time_ns()
        for topic in names:
            store.add(topic)
        spent += time.process_time_ns() - begin
    return spent / (series * timed)


def _look_up(store: Store, topics: list[str]) -> tuple[float, int]:
    """Nanoseconds for one, and how many are there."""
    found = 0
    begin = time.process_time_ns()
    for topic in topics:
        found += topic in store
    return (time.process_time_ns() - begin) / len(topics), found


def _memory() -> float | None:
    """KiB of this process that belong to no file: pages of a database are the system's."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return float(line.split()[1])
    return None


def measure_apart(job: Job) -> Measured:
    """In a process of its own."""
    command = [sys.executable, "-m", "experiments.topic_stores", msgspec.json.encode(job).decode()]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{job.store}, {job.topics} topics: {done.stderr.decode()[-2_000:]}")
    return msgspec.json.decode(done.stdout, type=Measured)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="psph-topics-") as _directory:
        _job = msgspec.json.decode(sys.argv[1], type=Job)
        print(msgspec.json.encode(measure(_job, Path(_directory))).decode())
