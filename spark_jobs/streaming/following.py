"""The job itself: runs until it is stopped, and goes on where it was when it is started again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_jobs.errors import SparkJobError
from spark_jobs.streaming.closing import Closed, Closing
from spark_jobs.streaming.output import Output, probes_of
from spark_jobs.streaming.windows import stream_windows


@dataclass(frozen=True, slots=True)
class Following:
    """What to follow, and how."""

    traces: str
    out: str
    window_seconds: int = 10
    late_seconds: int = 90
    every_seconds: float = 5.0
    once: bool = False
    """Ends when all files that are there are read."""


SETTINGS = {
    # State is kept in as many pieces as the first run had, for ever.
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.streaming.stateStore.stateSchemaCheck": "true",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.metricsEnabled": "false",
}


def start(
    spark: SparkSession,
    following: Following,
    told: Callable[[Sequence[Closed]], None] = lambda _: None,
) -> StreamingQuery:
    """Begin, or go on; `told` hears of windows that closed, a second time after a crash."""
    output = Output(spark, following.out, following.window_seconds)
    closings: list[Closing] = []

    def close(batch: DataFrame, number: int) -> None:
        if not closings:
            closings.append(Closing(output.remembered(number)))
        # Only aggregates: as many rows as there are pairs of nodes, for each window that closed.
        rows = [row.asDict() for row in batch.collect()]
        if rows:
            closed = closings[0].close(rows)
            output.write(number, closed, probes_of(spark, rows))
            told(closed)

    windows = stream_windows(
        spark, following.traces, following.window_seconds, following.late_seconds
    )
    writer = windows.writeStream.outputMode("append").foreachBatch(close)
    writer = writer.option("checkpointLocation", output.checkpoint)
    if following.once:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{following.every_seconds} seconds")
    return writer.start()


def wait(query: StreamingQuery, log: Path) -> None:
    """Until it ends; `SparkJobError` if not by itself."""
    try:
        query.awaitTermination()
    except PySparkException as error:
        reason = str(error).splitlines()[0][:200]
        raise SparkJobError(f"following the traces failed: {reason}; see {log}") from error
