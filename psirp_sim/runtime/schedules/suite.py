"""What a suite of fault schedules provides: a world from a seed, and what must hold in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from psirp_sim.runtime.schedules.faults import FaultKind
from psirp_sim.runtime.simulator import Simulator


class InvariantViolated(AssertionError):
    """Something that must always hold does not; the message says what, in the suite's words."""


class Trial(Protocol):
    """One world under test. Its size, links and workload come from the seed alone."""

    world: Simulator
    duration: int
    """How long faults may begin; the workload should last as long."""
    patience: int
    """How long after the last fault ended everything must have come right."""

    def faults(self) -> Sequence[FaultKind]:
        """What may go wrong in it."""

    def check(self) -> None:
        """Called after every step: raise InvariantViolated when safety is broken.

        It runs thousands of times: look only at what is new.
        """

    def settled(self) -> bool:
        """Whether all that was asked for has been done, so that the run may end early."""

    def finish(self) -> None:
        """Called once at the end: raise InvariantViolated when something never came right."""


class Suite(Protocol):
    """Found by its name through the entry points `psph.suites`."""

    name: str
    summary: str
    """One line for people."""
    most_faults: int

    def trial(self, seed: int) -> Trial: ...


@runtime_checkable
class Concluding(Protocol):
    """A suite whose trials mean something together, besides each of them."""

    def conclude(self) -> str:
        """What they came to, in a line; InvariantViolated when that is not enough."""
