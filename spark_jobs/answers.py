"""All tables of a report, in the order in which a person wants them.

What several of them start from (journeys, numbered updates) is computed once and kept on disk, not
in memory: there may be more of it than fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.clocks import Clocks
from spark_jobs.correcting import correct
from spark_jobs.fan_out import fan_out
from spark_jobs.handoffs import handoffs
from spark_jobs.journeys import journeys
from spark_jobs.latency import PAIR, latency_series, latency_table
from spark_jobs.losses import losses, never_delivered, numbered_updates
from spark_jobs.slowest import slowest_topics

MOST_WINDOWS = 60
TABLES = ("latency", "series", "losses", "topics", "fan_out", "handoffs", "slowest")
_WINDOWS_S = (1, 5, 10, 30, 60, 300, 600, 1_800, 3_600, 21_600, 86_400, 604_800)


@dataclass(frozen=True)
class Span:
    """From the first event to the last, by the clocks of references."""

    first_ns: int
    last_ns: int

    @property
    def window_ns(self) -> int:
        """The length of windows of which there are not too many."""
        needed = (self.last_ns - self.first_ns) / 1e9 / MOST_WINDOWS
        return next((s for s in _WINDOWS_S if s >= needed), _WINDOWS_S[-1]) * 10**9


@dataclass(frozen=True)
class Table:
    """A table to be computed; the order says which rows matter most."""

    name: str
    rows: DataFrame


class Answers:
    """What the events say once their clocks are known."""

    def __init__(self, events: DataFrame, clocks: Clocks) -> None:
        self.corrected = correct(events, clocks)
        self.journeys = journeys(events, clocks).persist(StorageLevel.DISK_ONLY)
        self.numbered = numbered_updates(self.corrected).persist(StorageLevel.DISK_ONLY)

    def overview(self) -> DataFrame:
        """What there is, by node and stage."""
        by = ("domain", "node", "stage")
        return (
            self.corrected.groupBy(*by)
            .agg(
                F.count("*").alias("events"),
                F.min("at_ns").alias("first_ns"),
                F.max("at_ns").alias("last_ns"),
            )
            .orderBy(*by)
        )

    def tables(self, span: Span) -> Iterator[Table]:
        """One after the other; each is computed when it is asked for."""
        made: dict[str, Callable[[], DataFrame]] = {
            "latency": lambda: latency_table(self.journeys).orderBy(*PAIR, "stage"),
            "series": lambda: latency_series(self.journeys, span.window_ns).orderBy(
                "window_ns", *PAIR
            ),
            "losses": lambda: losses(self.journeys, self.numbered, span.last_ns).orderBy(
                F.desc("lost"), F.desc("doubled"), F.desc("late"), "topic", "subscriber"
            ),
            "topics": lambda: never_delivered(self.journeys, self.numbered, span.last_ns).orderBy(
                F.desc("to_nobody"), F.desc("updates"), "topic"
            ),
            "fan_out": lambda: fan_out(self.journeys).orderBy(F.desc("mean_subscribers"), "topic"),
            "handoffs": lambda: handoffs(self.corrected, self.journeys, self.numbered).orderBy(
                F.desc("lost"), F.desc("duration_ms"), "trace_id"
            ),
            "slowest": lambda: slowest_topics(self.journeys),
        }
        for name in TABLES:
            yield Table(name, made[name]())

    def forget(self) -> None:
        """Free the disk."""
        for kept in (self.numbered, self.journeys):
            kept.unpersist()
