"""The processor and disk of a broker: one job after the other, each as long as its operations take.

An operation is to store one copy of a message for one subscriber, to send one, or to store what
another broker says about a subscriber. What one takes is a parameter, and what saturates a broker.
Beside it, the processor time that the broker's own code takes is measured on the machine that the
experiment runs on: that is a figure of this code and this machine, and independent of other load as
far as the machine's processors are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from operator import add, sub
from time import thread_time_ns
from typing import Any, NamedTuple, TypeVar

from psirp_sim.runtime.environment import Environment

_Result = TypeVar("_Result")
Job = Callable[[], int]
"""Returns how many operations it took."""


class Tally(NamedTuple):
    """What a broker has done so far."""

    operations: int
    cpu: int
    """Nanoseconds."""
    context_messages: int = 0
    """About subscribers that might come, or came, to another broker."""
    context_bytes: int = 0
    vain: int = 0
    """Bytes that were buffered ahead of somebody who did not come."""
    prepared: int = 0
    """Hand-offs to this broker for which something had been buffered, or could have been."""
    unprepared: int = 0

    def __add__(self, other: tuple[Any, ...]) -> Tally:
        return Tally(*map(add, self, other))

    def since(self, before: Tally) -> Tally:
        return Tally(*map(sub, self, before))


class Worker:
    """Of one broker."""

    def __init__(self, env: Environment, operation: int) -> None:
        """`operation`: nanoseconds that one takes."""
        self._env = env
        self._operation = operation
        self._jobs: deque[Job] = deque()
        self._busy = False
        self.operations = 0
        self.cpu = 0
        """Nanoseconds of processor time in jobs."""

    def do(self, job: Job) -> None:
        """When everything before it is done."""
        self._jobs.append(job)
        if not self._busy:
            self._busy = True
            self._env.call_later(0, self._next)

    def _next(self) -> None:
        while self._jobs:
            job = self._jobs.popleft()
            operations = self.measured(job)
            self.operations += operations
            if operations:
                self._env.call_later(operations * self._operation, self._next)
                return
        self._busy = False

    def measured(self, job: Callable[[], _Result]) -> _Result:
        """Something that takes no turn, and processor time all the same."""
        begun = thread_time_ns()
        try:
            return job()
        finally:
            self.cpu += thread_time_ns() - begun
