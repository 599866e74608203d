"""From a schedule that fails to a small one that still does (delta debugging)."""

from __future__ import annotations

from collections.abc import Sequence

from psirp_sim.runtime.schedules.faults import Fault
from psirp_sim.runtime.schedules.runner import Outcome, run_schedule
from psirp_sim.runtime.schedules.suite import Suite


def shrink(suite: Suite, failing: Outcome, most_runs: int = 200) -> Outcome:
    """Drop faults for as long as what is left fails in the same world.

    The result fails too, though perhaps in another way; each of its faults is needed, unless
    the runs ran out first.
    """
    best = failing
    runs = 0

    def still_fails(faults: Sequence[Fault]) -> bool:
        nonlocal best, runs
        runs += 1
        outcome = run_schedule(suite, failing.seed, faults)
        if outcome.failure is None:
            return False
        best = outcome
        return True

    size = max(1, len(best.faults) // 2)
    while runs < most_runs:
        start = 0
        dropped = False
        while start < len(best.faults) and runs < most_runs:
            if still_fails([*best.faults[:start], *best.faults[start + size :]]):
                dropped = True
            else:
                start += size
        if size == 1 and not dropped:
            break
        size = max(1, size // 2)
    return best
