"""Where a proxy keeps its topics: a list, a Bloom filter, or our registry (figure 41).

`list` is searched from its beginning, like the source's vector; `bloom` is a filter for 10,000,000
topics and one false answer in 10,000,000, as the source has it; `registry` is the one a PSPH has,
a database on disk. Each is measured in a process of its own, in time of the processor:

    load_ms    importing what it is made of
    init_ms    from there until it has answered a first question
    add_us     adding one topic, if it is not there yet
    hit_us     looking up a topic that is there
    miss_us    looking up one that is not
    work_ms    so many topics added, each looked up once, and as many that are not there
    total_ms   the same with load_ms and init_ms

Of many topics a sample is timed. `registry` finds ids for whatever it is asked (the topic is taken
apart and hashed), and what it has added survives the process; the others do neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import exp, log
from statistics import median

import msgspec

from experiments.experiment import Claim, Context, Experiment, Plot, Row
from experiments.topic_stores import ERROR_RATE, Job, Measured, Name, measure_apart

STORES: tuple[Name, ...] = ("list", "bloom", "registry")
PAIRS: tuple[tuple[Name, Name], ...] = (("list", "bloom"), ("list", "registry"))
FEW = 50
"""Topics up to which, by the source, the vector is better."""
REPEATED = 10_000
"""Topics beyond which a store is measured once: that takes long, and varies little."""


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topics: tuple[int, ...] = (
        10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 100_000, 1_000_000,
    )  # fmt: skip
    sample: int = 1_000
    """At most so many additions, and look-ups of each kind, are timed."""
    rounds: int = 5
    """The median of them counts."""

    def __post_init__(self) -> None:
        if not self.topics or not all(1 <= count <= 1_000_000 for count in self.topics):
            raise ValueError("topics lists numbers between 1 and 1000000")
        if not 1 <= self.sample <= 100_000 or not 1 <= self.rounds <= 100:
            raise ValueError("sample lies between 1 and 100000, rounds between 1 and 100")


def run(parameters: Parameters, seed: int, context: Context) -> list[Row]:
    rows: list[Row] = []
    cases = [(store, topics) for topics in sorted(parameters.topics) for store in STORES]
    for number, (store, topics) in enumerate(cases, 1):
        rounds = parameters.rounds if topics <= REPEATED else 1
        job = Job(store, topics, parameters.sample, seed)
        rows.append(_row(job, [measure_apart(job) for _ in range(rounds)]))
        context.progress(number / len(cases))
    return rows + _crossings(rows)


def _row(job: Job, rounds: Sequence[Measured]) -> Row:
    def middle(column: str) -> float | None:
        found = [value for each in rounds if (value := getattr(each, column)) is not None]
        return round(median(found), 3) if found else None

    times = {
        column: middle(column) for column in ("load_ms", "init_ms", "add_us", "hit_us", "miss_us")
    }
    load, init, add, hit, miss = (value or 0.0 for value in times.values())
    work = job.topics * (add + hit + miss) / 1_000
    return {
        "store": job.store,
        "topics": job.topics,
        **times,
        "work_ms": round(work, 3),
        "total_ms": round(load + init + work, 3),
        "memory_kib": middle("memory_kib"),
        "disk_kib": middle("disk_kib"),
        "missed": sum(each.missed for each in rounds),
        "false": sum(each.false for each in rounds),
        "absent_asked": sum(min(job.topics, job.sample) for _ in rounds),
    }


# Where curves cross


def _crossings(rows: Sequence[Row]) -> list[Row]:
    return [
        {
            "store": f"{one} and {other} cross at",
            "topics": None,
            "with_init": crossing(rows, one, other, "total_ms"),
            "without_init": crossing(rows, one, other, "work_ms"),
        }
        for one, other in PAIRS
    ]


def crossing(rows: Sequence[Row], one: str, other: str, column: str) -> float | None:
    """The number of topics from which on `other` takes less than `one`, to three digits.

    Between two numbers that were measured both are taken for powers of it. None if `one` takes less
    with the most topics still; the least number if it never does.
    """
    first, second = (_curve(rows, store, column) for store in (one, other))
    ratios = [(topics, log(first[topics] / second[topics])) for topics in sorted(first)]
    if ratios[-1][1] <= 0:
        return None
    # The last time they cross: before, noise may have them touch.
    for (low, behind), (high, ahead) in reversed(list(pairwise(ratios))):
        if behind <= 0:
            share = -behind / (ahead - behind)
            return float(f"{exp(log(low) + share * log(high / low)):.3g}")
    return float(ratios[0][0])


def _curve(rows: Sequence[Row], store: str, column: str) -> dict[int, float]:
    # What took no time that can be measured took less than the least that can.
    return {row["topics"]: max(row[column], 1e-3) for row in rows if row["store"] == store}


# Claims


def claims(rows: Sequence[Row]) -> list[Claim]:
    measured = [row for row in rows if row["topics"] is not None]
    total = {store: _curve(measured, store, "total_ms") for store in STORES}
    work = {store: _curve(measured, store, "work_ms") for store in STORES}
    sizes = sorted(total["list"])
    few, many = [n for n in sizes if n <= FEW], [n for n in sizes if n > FEW]
    with_init = _words(crossing(measured, "list", "bloom", "total_ms"))
    without = _words(crossing(measured, "list", "bloom", "work_ms"))
    slower = [n for n in many if total["bloom"][n] >= total["list"][n]]
    return [
        Claim(
            "list-better-with-few",
            "paper",
            f"up to {FEW} topics the list takes less time than the Bloom filter, initialisation "
            "included",
            holds=all(total["list"][n] < total["bloom"][n] for n in few),
            because=_pairs(total, few),
        ),
        Claim(
            "bloom-better-with-many",
            "paper",
            f"with more than {FEW} topics the Bloom filter takes less, initialisation included",
            holds=not slower,
            because=f"they cross at {with_init}, and without initialisation at {without}: the "
            "filter's hashing is interpreted here, the search of the list is compiled"
            if slower
            else f"they cross at {with_init}",
        ),
        Claim(
            "because-of-initialisation",
            "paper",
            f"it is the initialisation that makes the list better up to {FEW} topics: without it "
            "the Bloom filter is no slower",
            holds=all(work["bloom"][n] <= work["list"][n] for n in few),
            because=f"without initialisation: {_pairs(work, few)}",
        ),
        *_our_claims(measured, total),
    ]


def _our_claims(rows: Sequence[Row], total: dict[Name, dict[int, float]]) -> list[Claim]:
    least, most = min(total["list"]), max(total["list"])
    missed = sum(row["missed"] for row in rows)
    wrong = sum(row["false"] for row in rows if row["store"] != "bloom")
    asked = sum(row["absent_asked"] for row in rows if row["store"] == "bloom")
    false = sum(row["false"] for row in rows if row["store"] == "bloom")
    took = {
        row["topics"]: row["hit_us"] + row["miss_us"] for row in rows if row["store"] == "registry"
    }
    grown = took[most] / took[least]
    return [
        Claim(
            "right-answers",
            "ours",
            "what was added is found everywhere, and what was not is found by neither the list nor "
            "the registry",
            holds=missed == wrong == 0,
            because=f"{missed:g} not found, {wrong:g} found wrongly; the Bloom filter found "
            f"{false:g} of {asked:g} wrongly ({ERROR_RATE:g} are expected when it is full)",
        ),
        Claim(
            "registry-does-not-grow-slow",
            "ours",
            f"a look-up in the registry takes at most 3 times as long among {most:,} topics as "
            f"among {least:,}",
            holds=grown <= 3,
            because=f"{grown:.2f} times",
        ),
        Claim(
            "registry-better-with-many",
            "ours",
            f"with {most:,} topics the registry takes less than the list, initialisation included",
            holds=total["registry"][most] < total["list"][most],
            because="they cross at " + _words(crossing(rows, "list", "registry", "total_ms")),
        ),
    ]


def _words(crossed: float | None) -> str:
    return "no number of topics that was tried" if crossed is None else f"{crossed:,.0f} topics"


def _pairs(times: dict[Name, dict[int, float]], sizes: Sequence[int]) -> str:
    each = (f"{n}: {times['list'][n]:.3g} and {times['bloom'][n]:.3g} ms" for n in sizes)
    return "list and filter with " + ", ".join(each)


EXPERIMENT = Experiment(
    name="psph-topics",
    summary="a list, a Bloom filter and the registry as a store of topics",
    parameters=Parameters(),
    quick=Parameters(topics=(10, 50, 200, 1_000, 10_000), sample=500, rounds=3),
    run=run,
    keys=("store", "topics"),
    claims=claims,
    plots=tuple(
        Plot(
            name,
            x="topics",
            y=y,
            series="store",
            log_x=True,
            log_y=True,
            labels={"topics": "topics (number)"},
        )
        for name, y in (
            ("with-initialisation", "total_ms"),
            ("without-initialisation", "work_ms"),
            ("memory", "memory_kib"),
        )
    ),
    paper=[{"store": "list and bloom cross at", "topics": None, "with_init": 50}],
)
