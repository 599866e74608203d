"""A bar that moves while Spark works: steps of the report, and the tasks of what runs now."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

_EVERY_S = 0.5


class Bar:
    """Shows how far the steps are; between two of them Spark's own tasks say how far."""

    def __init__(self, session: SparkSession, progress: Progress, steps: int) -> None:
        self._tracker = session.sparkContext.statusTracker()
        self._progress = progress
        self._task = progress.add_task("starting", total=steps)
        self._done = 0
        self._ended = threading.Event()

    def step(self, what: str) -> None:
        """The step before is done, and this one begins."""
        self._progress.update(self._task, description=what, completed=self._done)
        self._done += 1

    def watch(self) -> None:
        """Until told to end; runs in a thread of its own."""
        while not self._ended.wait(_EVERY_S):
            done = total = 0
            for stage in self._tracker.getActiveStageIds():
                info = self._tracker.getStageInfo(stage)
                if info is not None:
                    done, total = done + info.numCompletedTasks, total + info.numTasks
            if total:
                share = max(self._done - 1, 0) + done / total
                self._progress.update(self._task, completed=share)

    def end(self) -> None:
        """Stop watching."""
        self._ended.set()


@contextmanager
def bar(session: SparkSession, steps: int) -> Iterator[Bar]:
    """On stderr, and silent where that is no terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as shown:
        one = Bar(session, shown, steps)
        watching = threading.Thread(target=one.watch, daemon=True)
        watching.start()
        try:
            yield one
        finally:
            one.end()
            watching.join()
