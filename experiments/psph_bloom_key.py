"""What a Bloom filter is asked when a publication is matched: its topic, or who wants it (fig. 42).

    topic       the keys of the filter are topics. It is asked once for a publication; when it says
                yes, a table has the subscribers of the topic
    subscriber  the keys are subscribers with their topics. It is asked once for each subscriber
    ours        the Mapping and the Control Function of a PSPH: a filter of the ids of its topics,
                as large as it has to be, and the subscribers of a topic in a table

The first two filters are for 10,000,000 keys and one false answer in 10,000,000, as the source has
them. Half of the publications are of a topic that somebody wants. Times are of the processor, for
one publication; `keys` is what the filter was given, `asked` how often it is asked for one.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from statistics import median
from typing import Protocol

import msgspec
from pybloom_live import BloomFilter

from experiments.experiment import Claim, Context, Experiment, Plot, Row
from experiments.topic_stores import CAPACITY, ERROR_RATE, name
from identifiers import Topic, identify
from psirp_sim.runtime.environment import Environment
from psirp_sim.runtime.simulator import Simulator
from psph.proxy.control import Control, Side
from psph.proxy.mapping import Mapping
from psph.registry import TopicRegistry

TOPIC, SUBSCRIBER, OURS = "topic", "subscriber", "ours"


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    subscribers: tuple[int, ...] = (1, 2, 5, 10, 100, 1_000, 10_000)
    topics: int = 10_000
    """That somebody may want; as many others are published, too."""
    wishes: int = 10
    """Topics of one subscriber."""
    publications: int = 100
    rounds: int = 5
    """The median of them counts."""

    def __post_init__(self) -> None:
        if not self.subscribers or not all(1 <= each <= 100_000 for each in self.subscribers):
            raise ValueError("subscribers lists numbers between 1 and 100000")
        if not 1 <= self.wishes <= self.topics <= 100_000:
            raise ValueError("wishes lies between 1 and topics, topics is at most 100000")
        if not 2 <= self.publications <= 10_000 or not 1 <= self.rounds <= 100:
            raise ValueError("publications lies between 2 and 10000, rounds between 1 and 100")


Wishes = dict[str, list[str]]
"""Topics by subscriber."""


class Matcher(Protocol):
    keys: int
    asked: int
    bits: int

    def match(self, topic: Topic) -> Iterable[str]:
        """Its subscribers."""


class ByTopic:
    """One question."""

    asked = 1

    def __init__(self, wishes: Wishes) -> None:
        self._filter = BloomFilter(capacity=CAPACITY, error_rate=ERROR_RATE)
        self._subscribers: dict[str, list[str]] = {}
        for subscriber, topics in wishes.items():
            for topic in topics:
                self._subscribers.setdefault(topic, []).append(subscriber)
                self._filter.add(topic)
        self.keys, self.bits = len(self._subscribers), self._filter.num_bits

    def match(self, topic: Topic) -> Iterable[str]:
        if topic.canonical not in self._filter:
            return ()
        return self._subscribers.get(topic.canonical, ())


class BySubscriber:
    """One question for each subscriber."""

    def __init__(self, wishes: Wishes) -> None:
        self._filter = BloomFilter(capacity=CAPACITY, error_rate=ERROR_RATE)
        self._subscribers = list(wishes)
        for subscriber, topics in wishes.items():
            for topic in topics:
                self._filter.add(f"{subscriber} {topic}")
        self.keys, self.bits = sum(map(len, wishes.values())), self._filter.num_bits
        self.asked = len(wishes)

    def match(self, topic: Topic) -> Iterable[str]:
        wanted, canonical = self._filter, topic.canonical
        return [each for each in self._subscribers if f"{each} {canonical}" in wanted]


class Ours:
    """As a PSPH has it."""

    asked = 1

    def __init__(self, wishes: Wishes, registry: TopicRegistry) -> None:
        self._mapping = Mapping(registry, Counter(), accept_unsigned=True)
        self._control = _control()
        for subscriber, topics in wishes.items():
            for topic in topics:
                if not self._control.wanted(Side.WEB, topic):
                    self._mapping.activate(topic)
                self._control.want(Side.WEB, topic, subscriber, None)
        self.keys, self.bits = len(self._mapping.active), self._mapping.summary.num_bits

    def match(self, topic: Topic) -> Iterable[str]:
        if not self._mapping.may_be_active(topic.sid.raw, topic.rid.raw):
            return ()
        return self._control.subscribers(Side.WEB, topic.canonical)


def _control() -> Control:
    made: list[Control] = []

    class Alone:
        def __init__(self, env: Environment) -> None:
            made.append(Control(env, lambda side, topic, wanted: None))

        def start(self) -> None: ...
        def receive(self, link: str, packet: bytes) -> None: ...
        def stop(self) -> None: ...

    world = Simulator(0)
    world.add_node("psph", Alone)
    world.run_for(0)
    return made[0]


def run(parameters: Parameters, seed: int, context: Context) -> list[Row]:
    rows: list[Row] = []
    sizes = sorted(parameters.subscribers)
    for number, subscribers in enumerate(sizes, 1):
        random = Random(f"{seed} {subscribers}")
        wishes = {
            f"http://reader{each}.test/callback": [
                name(topic) for topic in random.sample(range(parameters.topics), parameters.wishes)
            ]
            for each in range(subscribers)
        }
        with ExitStack() as stack:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="psph-bloom-key-"))
            registry = stack.enter_context(TopicRegistry(Path(directory) / "topics.db"))
            methods: dict[str, Callable[[], Matcher]] = {
                TOPIC: lambda wishes=wishes: ByTopic(wishes),  # type: ignore[misc]
                SUBSCRIBER: lambda wishes=wishes: BySubscriber(wishes),  # type: ignore[misc]
                OURS: lambda wishes=wishes, registry=registry: Ours(wishes, registry),  # type: ignore[misc]
            }
            for method, make in methods.items():
                row = _measure(make(), wishes, parameters, random)
                rows.append({"method": method, "subscribers": subscribers, **row})
        context.progress(number / len(sizes))
    return rows


def _measure(matcher: Matcher, wishes: Wishes, parameters: Parameters, random: Random) -> Row:
    right: dict[str, set[str]] = {}
    for subscriber, topics in wishes.items():
        for topic in topics:
            right.setdefault(topic, set()).add(subscriber)
    each = parameters.publications // 2
    wanted = [identify(topic) for topic in random.choices(sorted(right), k=each)]
    unwanted = [
        identify(name(parameters.topics + number))
        for number in random.choices(range(parameters.topics), k=each)
    ]
    missed = false = 0
    for published in wanted + unwanted:
        found, meant = set(matcher.match(published)), right.get(published.canonical, set())
        missed += len(meant - found)
        false += len(found - meant)
    spent = {
        "wanted_us": [_time(matcher, wanted) for _ in range(parameters.rounds)],
        "unwanted_us": [_time(matcher, unwanted) for _ in range(parameters.rounds)],
    }
    times = {column: round(median(values), 3) for column, values in spent.items()}
    return {
        "keys": matcher.keys,
        "asked": matcher.asked,
        **times,
        "match_us": round(sum(times.values()) / 2, 3),
        "filter_kib": round(matcher.bits / 8_192, 1),
        "missed": missed,
        "false": false,
    }


def _time(matcher: Matcher, publications: Sequence[Topic]) -> float:
    """Microseconds for one."""
    match = matcher.match
    gc.collect()
    gc.disable()  # its turns would be counted for whoever is measured then
    begin = time.process_time_ns()
    for topic in publications:
        match(topic)
    spent = time.process_time_ns() - begin
    gc.enable()
    return spent / len(publications) / 1_000


def claims(rows: Sequence[Row]) -> list[Claim]:
    by = {(row["method"], row["subscribers"]): row for row in rows}
    sizes = sorted({row["subscribers"] for row in rows})
    times = {n: by[SUBSCRIBER, n]["match_us"] / by[TOPIC, n]["match_us"] for n in sizes}
    slower = [n for n in sizes if times[n] <= 1]
    missed = sum(row["missed"] for row in rows)
    false = {each: sum(by[each, n]["false"] for n in sizes) for each in (TOPIC, SUBSCRIBER, OURS)}
    grown = by[TOPIC, sizes[-1]]["match_us"] / by[TOPIC, sizes[0]]["match_us"]
    shown = ", ".join(f"{n:,}: {times[n]:,.3g}" for n in sizes)
    return [
        Claim(
            "topic-key-faster",
            "paper",
            "matching by topic takes less time than matching by subscriber",
            holds=not slower,
            because=f"by subscriber it takes so many times as long, with subscribers: {shown}"
            + "; with one, both filters are asked once" * (1 in slower),
        ),
        Claim(
            "topic-key-faster-with-several",
            "ours",
            "with more than one subscriber it does",
            holds=not any(n > 1 for n in slower),
            because=f"the least: {min((times[n] for n in sizes if n > 1), default=1):.3g} times",
        ),
        Claim(
            "topic-key-does-not-grow",
            "ours",
            f"by topic it takes at most twice as long with {sizes[-1]:,} subscribers as with "
            f"{sizes[0]:,}",
            holds=grown <= 2,
            because=f"{grown:.2f} times",
        ),
        Claim(
            "nobody-missed",
            "ours",
            "every subscriber of a topic is found by each method",
            holds=missed == 0,
            because=f"{missed:g} missed",
        ),
        Claim(
            "nobody-matched-wrongly",
            "ours",
            "where the filter has the topic as its key, its mistakes reach no subscriber: the "
            "table has the last word",
            holds=false[TOPIC] == false[OURS] == 0,
            because=f"{false[TOPIC]:g} by topic, {false[OURS]:g} with ours; by subscriber "
            f"{false[SUBSCRIBER]:g}",
        ),
    ]


EXPERIMENT = Experiment(
    name="psph-bloom-key",
    summary="matching by a Bloom filter of topics, or of subscribers",
    parameters=Parameters(),
    quick=Parameters(subscribers=(1, 10, 100, 1_000), topics=1_000, rounds=3),
    run=run,
    keys=("method", "subscribers"),
    claims=claims,
    plots=(
        Plot(
            "matching",
            x="subscribers",
            y="match_us",
            series="method",
            log_x=True,
            log_y=True,
            labels={"subscribers": "subscribers (number)"},
        ),
    ),
)
