"""Runs one schedule, or a suite of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from psirp_sim.runtime.durations import SECOND
from psirp_sim.runtime.schedules.faults import Fault, FaultKind, generate
from psirp_sim.runtime.schedules.suite import Concluding, InvariantViolated, Suite, Trial
from psirp_sim.runtime.simulator import stream

MOST_STEPS = 3_000_000
"""A trial that takes more is caught in a loop of its own making."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one schedule came to."""

    seed: int
    faults: Sequence[Fault]
    hits: int
    """Faults that hit traffic: packets in flight, writes under way, packets sent meanwhile."""
    steps: int
    virtual_seconds: float
    digest: str
    failure: str | None
    """Which invariant broke and when; None when all held."""
    events: Sequence[str]
    """The last events before a failure."""


@dataclass(slots=True)
class Summary:
    """What the schedules of a suite came to."""

    suite: str
    seeds: int = 0
    faults: int = 0
    hits: int = 0
    steps: int = 0
    virtual_seconds: float = 0.0
    failure: Outcome | None = field(default=None)
    remark: str = ""
    """What the suite says of all of them together."""
    shortfall: str = ""
    """Why all of them together are not enough, though each of them is right."""

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.faults += len(outcome.faults)
        self.hits += outcome.hits
        self.steps += outcome.steps
        self.virtual_seconds += outcome.virtual_seconds
        if outcome.failure is not None:
            self.failure = outcome

    def __str__(self) -> str:
        verdict = "all invariants held" if self.failure is None else "an invariant broke"
        remark = self.shortfall or self.remark
        return (
            f"{self.suite}: {self.seeds} seeds, {self.faults} faults of which {self.hits} hit "
            f"traffic in flight, {self.steps} steps in {self.virtual_seconds:.0f} virtual "
            f"seconds, {verdict}{remark and '; '}{remark}"
        )


class _Watch:
    """Applies the faults of a schedule and counts those that hit something."""

    def __init__(self, trial: Trial, faults: Iterable[Fault]) -> None:
        self._engine = trial.world.engine
        self._kinds: dict[str, FaultKind] = {kind.name: kind for kind in trial.faults()}
        self._lying_in_wait: list[Fault] = []
        self.hits = 0
        self.calm = trial.duration
        """When the last fault is over."""
        for fault in faults:
            aimed = self._kinds[fault.kind].aimed
            self._engine.at(fault.begin, self._lie_in_wait if aimed else self._begin, fault)
            self.calm = max(self.calm, fault.end + (fault.length if aimed else 0))

    def strike(self) -> None:
        """Called after every step: begin the aimed faults whose moment has come."""
        for fault in self._lying_in_wait[:]:
            if self._engine.now > fault.end:
                self._lying_in_wait.remove(fault)
            elif self._kinds[fault.kind].at_stake(fault.target):
                self._lying_in_wait.remove(fault)
                self._begin(fault)

    def _lie_in_wait(self, fault: Fault) -> None:
        self._lying_in_wait.append(fault)

    def _begin(self, fault: Fault) -> None:
        kind = self._kinds[fault.kind]
        hit = kind.at_stake(fault.target) > 0
        self.hits += hit
        # What was not hit at once may still be hurt while the fault lasts.
        harm = None if hit else kind.harm(fault.target)
        self._engine.at(self._engine.now + fault.length, self._end, fault, harm)
        kind.begin(fault.target)

    def _end(self, fault: Fault, harm: int | None) -> None:
        kind = self._kinds[fault.kind]
        kind.end(fault.target)
        if harm is not None:
            self.hits += kind.harm(fault.target) > harm


def run_schedule(suite: Suite, seed: int, faults: Sequence[Fault] | None = None) -> Outcome:
    """Run the schedule of that seed, or the given faults in the world of that seed."""
    trial = suite.trial(seed)
    world, engine = trial.world, trial.world.engine
    if faults is None:
        faults = generate(
            trial.faults(), trial.duration, suite.most_faults, stream(seed, "schedule")
        )
    watch = _Watch(trial, faults)
    deadline = watch.calm + trial.patience
    failure = None
    try:
        while (due := engine.next_time) is not None and due <= deadline:
            engine.step()
            if engine.steps > MOST_STEPS:
                raise InvariantViolated(
                    f"{MOST_STEPS} steps, and no end: something goes in circles"
                )
            trial.check()
            watch.strike()
            if due > watch.calm and trial.settled():
                break
        trial.finish()
    except InvariantViolated as violation:
        failure = str(violation)
    except Exception as error:  # an exception that leaves a core is a failure like any other
        failure = f"{type(error).__name__} left a core: {error}"
    if failure is not None:
        failure = f"at {engine.now / SECOND:.6f} s: {failure}"
    return Outcome(
        seed=seed,
        faults=tuple(faults),
        hits=watch.hits,
        steps=engine.steps,
        virtual_seconds=engine.now / SECOND,
        digest=world.digest(),
        failure=failure,
        events=() if failure is None else tuple(world.log.lines()),
    )


def run_suite(
    suite: Suite, seeds: Iterable[int], more: Callable[[Outcome], bool] = lambda outcome: True
) -> Summary:
    """Run seed after seed until one fails, or `more` says that it was enough."""
    summary = Summary(suite.name)
    for seed in seeds:
        outcome = run_schedule(suite, seed)
        summary.add(outcome)
        if outcome.failure is not None or not more(outcome):
            break
    if isinstance(suite, Concluding) and summary.failure is None:
        try:
            summary.remark = suite.conclude()
        except InvariantViolated as violation:
            summary.shortfall = str(violation)
    return summary
